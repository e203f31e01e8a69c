// A pair is gate row p and up row p; their output is nonlinearity(gate) · up.

fn n_pairs() -> u32 { return constants.segment_rows / 2u; }

fn weight_rows(p: u32) -> vec2<u32> { return vec2<u32>(p, n_pairs() + p); }

fn emit(row: u32, p: u32, a: f32, b: f32) {
    let output = constants.first_output + p;
    let gate = apply_nonlinearity(with_bias(a, output));
    // A row of outputs is as long as the MLP is wide: biases of up follow those of gate.
    outputs[constants.y + row * constants.y_stride + output] = gate * with_bias(b, constants.y_stride + output);
}
