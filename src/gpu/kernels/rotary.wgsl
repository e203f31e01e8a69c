// Turns the i-th pair of a head by the angle of its row's position, and writes pairs of keys and values to the cache.

const HALF: u32 = HEAD_DIM / 2u;

fn rotate_pair(row: u32, i: u32, pair: vec2<f32>) -> vec2<f32> {
    if (constants.rotary == NONE) { return pair; }
    let angle = constants.rotary + (position_of(row) * HALF + i) * 2u;
    let cosine = table1(angle);
    let sine = table1(angle + 1u);
    return vec2<f32>(fma(pair.x, cosine, -(pair.y * sine)), fma(pair.x, sine, pair.y * cosine));
}

// Rows that only fill a tile have no slot.
fn write_pair(row: u32, which: u32, kv_head: u32, i: u32, a: f32, b: f32) {
    let slot = slot_of(row);
    if (slot == NONE) { return; }
    kv_write(kv_index(slot, which, kv_head) + 2u * i, a, b);
}
