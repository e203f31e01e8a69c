// Q6_K: 6 bits a value, the upper two in two words a group; a superblock's scales are 16 signed bytes, one for 16 values,
// then d widened to f32 at upload, then the words of upper bits: value = d · scale · (q − 32).

struct Scale { d_lo: f32, d_hi: f32 }
struct Words { nibbles: vec4<u32>, upper: vec2<u32> }

fn block_words(block: u32) -> Words {
    let upper = block / 8u * 21u + 5u + 2u * (block & 7u);
    return Words(quants[block], vec2<u32>(scales[upper], scales[upper + 1u]));
}

fn block_scale(block: u32) -> Scale {
    let first = block / 8u * 21u;
    let pair = scale_pair(first, block);
    let d = bitcast<f32>(scales[first + 4u]);
    return Scale(d * signed_number(pair), d * 0.0625 * signed_number(pair >> 8u));
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group; the latter 16 times too large, as is said of nibbles.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words.nibbles[j]);
    let lo = numbers((bytes & vec4<u32>(0x0fu)) | spread_pairs(words.upper.x, j, 4u)) - 32.0;
    let hi = numbers((bytes & vec4<u32>(0xf0u)) | spread_pairs(words.upper.y, j, 8u)) - 512.0;
    return Eight(lo * scale.d_lo, hi * scale.d_hi);
}
