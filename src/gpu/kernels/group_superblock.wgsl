// Superblocks of 8 groups, whose scales lie in pairs of bytes: two groups a word.

// The pair of a group in the low half, where a superblock's words start at `first`.
fn scale_pair(first: u32, block: u32) -> u32 { return scales[first + (block & 7u) / 2u] >> (16u * (block & 1u)); }

fn unsigned_number(byte: u32) -> f32 { return f32(i32(byte & 255u)); }

// Of the lowest byte of a word.
fn signed_number(byte: u32) -> f32 { return f32(bitcast<i32>(byte << 24u) >> 24u); }
