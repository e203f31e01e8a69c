// Groups of nibbles and a word of fifth bits, value = d · q + m; as exact as with nibbles alone.

struct Scale { d: f32, d16: f32, m: f32 }
struct Words { nibbles: vec4<u32>, fifth: u32 }

// Values 4j … 4j + 3 and 16 + 4j … 16 + 4j + 3 of a group.
fn decode8(words: Words, scale: Scale, j: u32) -> Eight {
    let bytes = spread_bytes(words.nibbles[j]);
    let lo = numbers((bytes & vec4<u32>(0x0fu)) | spread_bits(words.fifth, 4u * j, 4u));
    let hi = numbers((bytes & vec4<u32>(0xf0u)) | spread_bits(words.fifth, 16u + 4u * j, 8u));
    return Eight(fma(lo, vec4<f32>(scale.d), vec4<f32>(scale.m)), fma(hi, vec4<f32>(scale.d16), vec4<f32>(scale.m)));
}
