// Q2_K: 2 bits a value; a superblock's scales are 16 bytes of (scale, minimum) nibbles, one for 16 values, then d and min
// widened to f32 at upload: value = d · scale · q − min · minimum. d · scale · q needs fewer bits than an f32 has, so
// `fma` rounds as GGML's two steps do.

struct Scale { d_lo: f32, d_hi: f32, m_lo: f32, m_hi: f32 }
alias Words = vec2<u32>;

fn block_words(block: u32) -> Words {
    let two = quants[block / 2u];
    return select(two.xy, two.zw, (block & 1u) == 1u);
}

fn block_scale(block: u32) -> Scale {
    let first = block / 8u * 6u;
    let pair = scale_pair(first, block);
    let d = bitcast<f32>(scales[first + 4u]);
    let m = -bitcast<f32>(scales[first + 5u]);
    return Scale(
        d * unsigned_number(pair & 15u),
        d * unsigned_number((pair >> 8u) & 15u),
        m * unsigned_number((pair >> 4u) & 15u),
        m * unsigned_number((pair >> 12u) & 15u),
    );
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let lo = numbers(spread_pairs(words.x, j, 0u));
    let hi = numbers(spread_pairs(words.y, j, 0u));
    return Eight(
        fma(lo, vec4<f32>(scale.d_lo), vec4<f32>(scale.m_lo)),
        fma(hi, vec4<f32>(scale.d_hi), vec4<f32>(scale.m_hi)),
    );
}
