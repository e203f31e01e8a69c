// MXFP4: 32 codes of 4 bits, a sign and a magnitude of 8; the scale, a power of two halved to make up for doubled
// magnitudes, as the upper half of an f32: value = scale · number.

struct Scale { d: f32 }
alias Words = vec4<u32>;

fn block_words(block: u32) -> Words { return quants[block]; }

fn block_scale(block: u32) -> Scale { return Scale(bitcast<f32>(half_scale(block) << 16u)); }

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words[j]);
    return Eight(mxfp4_numbers(bytes) * scale.d, mxfp4_numbers(bytes >> vec4<u32>(4u)) * scale.d);
}

// Of the lowest four bits. The doubled magnitudes 0 1 2 3 4 6 8 12 are the nibbles of a word: shifts, since a variable
// index into an array costs far more on software adapters.
fn mxfp4_numbers(codes: vec4<u32>) -> vec4<f32> {
    let right = (codes & vec4<u32>(7u)) << vec4<u32>(2u);
    let magnitude = vec4<i32>((vec4<u32>(0xc8643210u) >> right) & vec4<u32>(15u));
    return vec4<f32>(select(magnitude, -magnitude, (codes & vec4<u32>(8u)) != vec4<u32>(0u)));
}
