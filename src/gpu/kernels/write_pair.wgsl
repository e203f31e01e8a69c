// Writes pairs of keys and values to the cache, each by itself.

// Rows that only fill a tile have no slot.
fn write_pair(row: u32, which: u32, kv_head: u32, i: u32, a: f32, b: f32) {
    let slot = slot_of(row);
    if (slot == NONE) { return; }
    kv_write(kv_index(slot, which, kv_head) + 2u * i, a, b);
}
