// Q8_0: 32 values of 8 bits with sign, d widened to f32 at upload: value = d · q.

struct Scale { d: f32 }
struct Words { lo: vec4<u32>, hi: vec4<u32> }

fn block_words(block: u32) -> Words { return Words(quants[2u * block], quants[2u * block + 1u]); }

fn block_scale(block: u32) -> Scale {
    return Scale(bitcast<f32>(scales[block]));
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    return Eight(signed_bytes(words.lo[j]) * scale.d, signed_bytes(words.hi[j]) * scale.d);
}

fn signed_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(vec4<i32>(vec4<u32>(word << 24u, word << 16u, word << 8u, word)) >> vec4<u32>(24u));
}
