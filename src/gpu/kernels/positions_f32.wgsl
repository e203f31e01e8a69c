// Learned positions in single precision, bound where activations are read elsewhere: (positions, width)

fn with_position(v: vec4<f32>, i: u32) -> vec4<f32> {
    return v + inputs[i / 4u];
}
