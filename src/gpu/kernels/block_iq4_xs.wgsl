// IQ4_XS: codes of 4 bits; a superblock's scales are 8 signed bytes, one a group, then d widened to f32 at upload:
// value = d · scale · number.

fn block_scale(block: u32) -> Scale {
    let first = block / 8u * 3u;
    let four = scales[first + (block & 7u) / 4u];
    return Scale(bitcast<f32>(scales[first + 2u]) * signed_number(four >> (8u * (block & 3u))));
}
