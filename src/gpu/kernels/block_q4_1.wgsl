// Q4_1: 32 values of 4 bits, d and m as an f16 pair: value = d · q + m.

fn block_scale(block: u32) -> Scale {
    let pair = scales[block];
    let d = f32_from_f16(pair);
    return Scale(d, d * 0.0625, f32_from_f16(pair >> 16u));
}
