// Two values a word, least significant first; what a half means is the type's own.

struct Scale { none: f32 }
struct Words { a: vec4<u32>, b: vec4<u32>, c: vec4<u32>, d: vec4<u32> }

fn block_words(block: u32) -> Words {
    let i = 4u * block;
    return Words(quants[i], quants[i + 1u], quants[i + 2u], quants[i + 3u]);
}

fn block_scale(block: u32) -> Scale { return Scale(1.0); }

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    var lo = words.a;
    var hi = words.c;
    if (j >= 2u) {
        lo = words.b;
        hi = words.d;
    }
    let i = 2u * (j & 1u);
    return Eight(halves(lo[i], lo[i + 1u]), halves(hi[i], hi[i + 1u]));
}
