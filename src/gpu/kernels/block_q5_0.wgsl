// Q5_0: 32 values of 5 bits, the fifth bits in a word, d widened to f32 at upload: value = d · (q − 16).

struct Scale { d: f32, d16: f32 }
struct Words { nibbles: vec4<u32>, fifth: u32 }

fn block_words(block: u32) -> Words { return Words(quants[block], scales[2u * block]); }

fn block_scale(block: u32) -> Scale {
    let d = bitcast<f32>(scales[2u * block + 1u]);
    return Scale(d, d * 0.0625);
}

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words.nibbles[j]);
    let lo = numbers((bytes & vec4<u32>(0x0fu)) | spread_bits(words.fifth, 4u * j, 4u)) - 16.0;
    let hi = numbers((bytes & vec4<u32>(0xf0u)) | spread_bits(words.fifth, 16u + 4u * j, 8u)) - 256.0;
    return Eight(lo * scale.d, hi * scale.d16);
}
