// Numbers as f32; sums of 32 products need fewer bits than it has, so no order of addition changes them.
fn float_bytes(word: u32) -> vec4<f32> {
    return vec4<f32>(bitcast<vec4<i32>>(vec4<u32>(word) << vec4<u32>(24u, 16u, 8u, 0u)) >> vec4<u32>(24u));
}

// Four columns, of which a word holds the first and the third, and the next the others.
fn float_columns(even: u32, odd: u32) -> vec4<f32> {
    let pairs = bitcast<vec2<i32>>(vec2<u32>(even, odd));
    let last = (pairs << vec2<u32>(16u)) >> vec2<u32>(16u);
    return vec4<f32>(vec4<i32>((pairs - last) >> vec2<u32>(16u), last));
}

fn total(v: vec4<f32>) -> f32 { return (v.x + v.y) + (v.z + v.w); }
