// Learned positions in IEEE half precision, bound where activations are read elsewhere: (positions, width)

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> {
    let halves = bitcast<vec4<u32>>(inputs[i / 8u]);
    let first = halves[i / 2u % 4u];
    let second = halves[i / 2u % 4u + 1u];
    let low = vec2<f32>(f32_from_f16(first), f32_from_f16(first >> 16u));
    return v + vec4<f32>(low, f32_from_f16(second), f32_from_f16(second >> 16u));
}
