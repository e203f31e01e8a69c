// A pair is two values that rotate together; q goes to the outputs, k and v to the cache, each pair adjacent.
// The cache keeps k in the order of its pairs, as q is kept: a dot product does not see a permutation of both.

fn n_pairs() -> u32 { return constants.segment_rows / 2u; }

fn weight_rows(p: u32) -> vec2<u32> {
    let head = (constants.first_output / 2u + p) / HALF;
    if (constants.split_half == 1u && head < constants.n_heads + constants.n_kv_heads) {
        let first = p / HALF * HEAD_DIM + p % HALF;
        return vec2<u32>(first, first + HALF);
    }
    return vec2<u32>(2u * p, 2u * p + 1u);
}

fn emit(row: u32, p: u32, product_a: f32, product_b: f32) {
    let outputs_of_pair = weight_rows(p) + vec2<u32>(constants.first_output);
    let a = with_bias(product_a, outputs_of_pair.x);
    let b = with_bias(product_b, outputs_of_pair.y);
    let pair = constants.first_output / 2u + p;
    let head = pair / HALF;
    let i = pair % HALF;
    if (head >= constants.n_heads + constants.n_kv_heads) {
        write_pair(row, 1u, head - constants.n_heads - constants.n_kv_heads, i, a, b);
        return;
    }
    let rotated = rotate_pair(row, i, vec2<f32>(a, b));
    if (head >= constants.n_heads) {
        write_pair(row, 0u, head - constants.n_heads, i, rotated.x, rotated.y);
        return;
    }
    let y = constants.y + row * constants.y_stride + 2u * pair;
    outputs[y] = rotated.x;
    outputs[y + 1u] = rotated.y;
}
