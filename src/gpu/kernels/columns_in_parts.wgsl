// Packed activations for products of bytes: 8 words of four signed bytes q >> 2, then 8 of four bytes q & 3.

// Columns `column` to `column + 3` of the block at y.
fn store_columns(y: u32, column: u32, q: vec4<i32>) {
    outputs[y + column / 4u] = pack_bytes(q >> vec4<u32>(2u));
    outputs[y + 8u + column / 4u] = pack_bytes(q & vec4<i32>(3));
}

fn pack_bytes(v: vec4<i32>) -> u32 {
    let bytes = (bitcast<vec4<u32>>(v) & vec4<u32>(255u)) << vec4<u32>(0u, 8u, 16u, 24u);
    return (bytes.x | bytes.y) | (bytes.z | bytes.w);
}
