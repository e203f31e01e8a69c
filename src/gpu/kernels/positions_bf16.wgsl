// Learned positions as upper halves of f32, bound where activations are read elsewhere: (positions, width)

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> {
    let halves = bitcast<vec4<u32>>(inputs[i / 8u]);
    let first = halves[i / 2u % 4u];
    let second = halves[i / 2u % 4u + 1u];
    let words = vec4<u32>(first << 16u, first & 0xffff0000u, second << 16u, second & 0xffff0000u);
    return v + bitcast<vec4<f32>>(words);
}
