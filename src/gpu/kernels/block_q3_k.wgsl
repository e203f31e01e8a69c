// Q3_K: 3 bits a value, the third in a word a group; a superblock's scales are 16 signed bytes, one for 16 values, then d
// widened to f32 at upload, then the words of third bits: value = d · scale · (q − 4).

struct Scale { d_lo: f32, d_hi: f32 }
struct Words { low: vec2<u32>, third: u32 }

fn block_words(block: u32) -> Words {
    let two = quants[block / 2u];
    return Words(select(two.xy, two.zw, (block & 1u) == 1u), scales[block / 8u * 13u + 5u + (block & 7u)]);
}

fn block_scale(block: u32) -> Scale {
    let first = block / 8u * 13u;
    let pair = scale_pair(first, block);
    let d = bitcast<f32>(scales[first + 4u]);
    return Scale(d * signed_number(pair), d * signed_number(pair >> 8u));
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let lo = numbers(spread_pairs(words.low.x, j, 0u) | spread_bits(words.third, 4u * j, 2u)) - 4.0;
    let hi = numbers(spread_pairs(words.low.y, j, 0u) | spread_bits(words.third, 16u + 4u * j, 2u)) - 4.0;
    return Eight(lo * scale.d_lo, hi * scale.d_hi);
}
