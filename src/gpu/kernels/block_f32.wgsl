// F32: a value a word.

struct Scale { none: f32 }
alias Words = u32;

fn block_words(block: u32) -> Words { return 8u * block; }

fn block_scale(block: u32) -> Scale { return Scale(1.0); }

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    return Eight(bitcast<vec4<f32>>(quants[words + j]), bitcast<vec4<f32>>(quants[words + 4u + j]));
}
