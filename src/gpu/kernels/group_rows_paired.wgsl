// Two groups share a word of half-precision scales, so a row of an odd number of groups is padded by one.

fn row_start(row: u32) -> u32 { return row * ((constants.n_blocks + 1u) & 0xfffffffeu); }

// In the low half; what is above belongs to the neighbour.
fn half_scale(block: u32) -> u32 { return scales[block / 2u] >> (16u * (block & 1u)); }
