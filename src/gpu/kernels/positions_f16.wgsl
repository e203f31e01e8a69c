// Learned positions in IEEE half precision, bound where a cache is bound elsewhere: (positions, width)

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> {
    let first = kv[i / 2u];
    let second = kv[i / 2u + 1u];
    let low = vec2<f32>(f32_from_f16(first), f32_from_f16(first >> 16u));
    return v + vec4<f32>(low, f32_from_f16(second), f32_from_f16(second >> 16u));
}
