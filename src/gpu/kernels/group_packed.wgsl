// The codes of a group as bytes, for integer products with packed activations.

// Byte k of lo[j] is the code of column 4j + k, of hi[j] that of column 16 + 4j + k.
struct Packed { lo: vec4<u32>, hi: vec4<u32> }

// Bit i of each number to bit 0 of byte i.
fn spread_to_bytes(bits: vec4<u32>) -> vec4<u32> {
    return ((bits & vec4<u32>(15u)) * vec4<u32>(0x00204081u)) & vec4<u32>(0x01010101u);
}

// Bits 2i and 2i + 1 of each byte to byte i.
fn spread_pairs_to_bytes(bytes: vec4<u32>) -> vec4<u32> {
    let b = bytes & vec4<u32>(255u);
    return (b | (b << vec4<u32>(6u)) | (b << vec4<u32>(12u)) | (b << vec4<u32>(18u))) & vec4<u32>(0x03030303u);
}

const EACH_BYTE: vec4<u32> = vec4<u32>(0u, 8u, 16u, 24u);
const EACH_NIBBLE: vec4<u32> = vec4<u32>(0u, 4u, 8u, 12u);

fn low_nibbles(words: vec4<u32>) -> vec4<u32> { return words & vec4<u32>(0x0f0f0f0fu); }

fn high_nibbles(words: vec4<u32>) -> vec4<u32> { return (words >> vec4<u32>(4u)) & vec4<u32>(0x0f0f0f0fu); }

// Whole numbers of −128 … 127.
fn bytes_of(v: vec4<f32>) -> u32 {
    let bytes = (bitcast<vec4<u32>>(vec4<i32>(v)) & vec4<u32>(255u)) << EACH_BYTE;
    return (bytes.x | bytes.y) | (bytes.z | bytes.w);
}
