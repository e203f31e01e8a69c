// Groups of nibbles, value = d · q + m; d · q needs fewer bits than an f32 has, so `fma` rounds as GGML's two steps do.

struct Scale { d: f32, d16: f32, m: f32 }
alias Words = vec4<u32>;

fn block_words(block: u32) -> Words { return quants[block]; }

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words[j]);
    let lo = numbers(bytes & vec4<u32>(0x0fu));
    let hi = numbers(bytes & vec4<u32>(0xf0u));
    return Eight(fma(lo, vec4<f32>(scale.d), vec4<f32>(scale.m)), fma(hi, vec4<f32>(scale.d16), vec4<f32>(scale.m)));
}
