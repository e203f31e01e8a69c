// Q4_0: 32 values of 4 bits, d as f16: value = d · (q − 8).

struct Scale { d: f32, d16: f32 }
alias Words = vec4<u32>;

fn block_words(block: u32) -> Words { return quants[block]; }

fn block_scale(block: u32) -> Scale {
    let d = f32_from_f16(half_scale(block));
    return Scale(d, d * 0.0625);
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words[j]);
    let lo = numbers(bytes & vec4<u32>(0x0fu)) - 8.0;
    let hi = numbers(bytes & vec4<u32>(0xf0u)) - 128.0;
    return Eight(lo * scale.d, hi * scale.d16);
}
