// Bytes as numbers; sums of 32 products need fewer bits than an f32 has, so no order of addition changes them.
fn float_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
