// Learned positions in single precision, bound where a cache is bound elsewhere: (positions, width)

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> {
    return v + bitcast<vec4<f32>>(vec4<u32>(kv[i], kv[i + 1u], kv[i + 2u], kv[i + 3u]));
}
