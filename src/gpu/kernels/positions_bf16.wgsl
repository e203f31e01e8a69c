// Learned positions as upper halves of f32, bound where a cache is bound elsewhere: (positions, width)

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> {
    let first = kv[i / 2u];
    let second = kv[i / 2u + 1u];
    let words = vec4<u32>(first << 16u, first & 0xffff0000u, second << 16u, second & 0xffff0000u);
    return v + bitcast<vec4<f32>>(words);
}
