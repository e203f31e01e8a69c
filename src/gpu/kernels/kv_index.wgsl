// Where a slot's keys (which = 0) or values (which = 1) of a head lie in a layer's cache, in values.

// The first position that the last one sees.
fn first_seen(last: u32) -> u32 {
    if (constants.window == 0u || last < constants.window) { return 0u; }
    return last + 1u - constants.window;
}

fn kv_index(slot: u32, which: u32, kv_head: u32) -> u32 {
    let in_block = (which * BLOCK_TOKENS + slot % BLOCK_TOKENS) * constants.n_kv_heads + kv_head;
    return (slot / BLOCK_TOKENS * 2u * BLOCK_TOKENS * constants.n_kv_heads + in_block) * HEAD_DIM;
}
