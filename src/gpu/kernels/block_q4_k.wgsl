// Q4_K: 4 bits a value; a superblock's scales are 8 pairs of bytes (scale, minimum), one a group, then d and min widened
// to f32 at upload: value = d · scale · q − min · minimum.

fn block_scale(block: u32) -> Scale {
    let first = block / 8u * 6u;
    let pair = scale_pair(first, block);
    let d = bitcast<f32>(scales[first + 4u]) * unsigned_number(pair);
    return Scale(d, d * 0.0625, -bitcast<f32>(scales[first + 5u]) * unsigned_number(pair >> 8u));
}
