// Q5_1: 32 values of 5 bits, the fifth bits in a word, d and m as an f16 pair: value = d · q + m.

fn block_words(block: u32) -> Words { return Words(quants[block], scales[2u * block]); }

fn block_scale(block: u32) -> Scale {
    let pair = scales[2u * block + 1u];
    let d = f32_from_f16(pair);
    return Scale(d, d * 0.0625, f32_from_f16(pair >> 16u));
}
