// A pair of outputs is weight rows (2p, 2p + 1), stored: with bias, then the nonlinearity or the cap of logits.

fn n_pairs() -> u32 { return (constants.segment_rows + 1u) / 2u; }

fn weight_rows(p: u32) -> vec2<u32> { return vec2<u32>(2u * p, min(2u * p + 1u, constants.segment_rows - 1u)); }

fn emit(row: u32, p: u32, a: f32, b: f32) {
    let output = constants.first_output + 2u * p;
    let y = constants.y + row * constants.y_stride + output;
    outputs[y] = capped(apply_nonlinearity(with_bias(a, output)));
    if (2u * p + 1u < constants.segment_rows) {
        outputs[y + 1u] = capped(apply_nonlinearity(with_bias(b, output + 1u)));
    }
}
