// What kernels take decoded values in, and how the bits of a group are spread over lanes: value 16 + i lies beside value i.

struct Eight { lo: vec4<f32>, hi: vec4<f32> }

// Byte k of a word of nibbles: value 4j + k in its low half, value 16 + 4j + k in its high one; what is above is to be
// masked. A high nibble may stay in place, 16 times too large, with a scale 16 times smaller: a power of two changes no
// bit of the product.
fn spread_bytes(word: u32) -> vec4<u32> { return vec4<u32>(word, word >> 8u, word >> 16u, word >> 24u); }

// Bit i of the word belongs to value i: of values first … first + 3, moved to bit `to`.
fn spread_bits(word: u32, first: u32, to: u32) -> vec4<u32> {
    let bits = (word >> first) & 15u;
    return vec4<u32>(bits << to, bits << (to - 1u), bits << (to - 2u), (bits << to) >> 3u) & vec4<u32>(1u << to);
}

// Bits 2i and 2i + 1 of the word belong to value i of 16: of values 4j … 4j + 3, moved to bit `to`.
fn spread_pairs(word: u32, j: u32, to: u32) -> vec4<u32> {
    let bits = ((word >> (8u * j)) & 255u) << to;
    return vec4<u32>(bits, bits >> 2u, bits >> 4u, bits >> 6u) & vec4<u32>(3u << to);
}

fn numbers(codes: vec4<u32>) -> vec4<f32> { return vec4<f32>(vec4<i32>(codes)); }
