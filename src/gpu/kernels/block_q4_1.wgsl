// Q4_1: 32 values of 4 bits, d and m as an f16 pair: value = d · q + m.

struct Scale { d: f32, d16: f32, m: f32 }
struct Eight { lo: vec4<f32>, hi: vec4<f32> }
alias Words = vec4<u32>;

fn block_words(block: u32) -> Words { return quants[block]; }

fn block_scale(block: u32) -> Scale {
    let pair = scales[block];
    let d = f32_from_f16(pair);
    return Scale(d, d * 0.0625, f32_from_f16(pair >> 16u));
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a block. The high nibble stays in place, 16 times too large,
// and its scale is 16 times smaller: a power of two changes no bit of the product.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let word = words[j];
    let bytes = vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u);
    let lo = vec4<f32>(vec4<i32>(bytes & vec4<u32>(0x0fu)));
    let hi = vec4<f32>(vec4<i32>(bytes & vec4<u32>(0xf0u)));
    return Eight(fma(lo, vec4<f32>(scale.d), vec4<f32>(scale.m)), fma(hi, vec4<f32>(scale.d16), vec4<f32>(scale.m)));
}
