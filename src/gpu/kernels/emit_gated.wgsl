// A pair is gate row p and up row p; their output is silu(gate) · up.

fn n_pairs() -> u32 { return constants.segment_rows / 2u; }

fn weight_rows(p: u32) -> vec2<u32> { return vec2<u32>(p, n_pairs() + p); }

fn emit(row: u32, p: u32, a: f32, b: f32) {
    outputs[constants.y + row * constants.y_stride + constants.first_output + p] = a / (1.0 + exp(-a)) * b;
}
