// Groups of nibbles that stand for the 16 numbers of IQ4_NL: value = d · number.

struct Scale { d: f32 }
alias Words = vec4<u32>;

fn block_words(block: u32) -> Words { return quants[block]; }

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words[j]);
    return Eight(iq4_numbers(bytes) * scale.d, iq4_numbers(bytes >> vec4<u32>(4u)) * scale.d);
}

// Of the lowest four bits: the upper two choose among words of four signed bytes, the lower two a byte. Words and shifts,
// since a variable index into an array costs far more on software adapters.
fn iq4_numbers(codes: vec4<u32>) -> vec4<f32> {
    let third = (codes & vec4<u32>(4u)) != vec4<u32>(0u);
    let below = select(vec4<u32>(0xbfad9881u), vec4<u32>(0xf6eaddcfu), third);   // −127 −104 −83 −65, −49 −35 −22 −10
    let above = select(vec4<u32>(0x26190d01u), vec4<u32>(0x71594535u), third);   // 1 13 25 38, 53 69 89 113
    let four = select(below, above, (codes & vec4<u32>(8u)) != vec4<u32>(0u));
    let left = vec4<u32>(24u) - ((codes & vec4<u32>(3u)) << vec4<u32>(3u));
    return vec4<f32>(bitcast<vec4<i32>>(four << left) >> vec4<u32>(24u));
}
