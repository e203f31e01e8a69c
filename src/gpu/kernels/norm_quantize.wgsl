// What a norm does with 32 values at once where matmuls read packed activations: packs them, and keeps them as f32 too
// where one of the matmuls reads those.

var<private> norm_x: u32;
var<private> norm_mean: f32;
var<private> norm_inverse: f32;

fn value4(k: u32) -> vec4<f32> {
    let v = (load4(norm_x + k) - norm_mean) * norm_inverse * table4(constants.weight + k);
    if (constants.bias == NONE) { return v; }
    return v + table4(constants.bias + k);
}

// Of the i-th row, which starts at x; its mean and the inverse of its size are known.
fn emit_block(i: u32, block: u32, x: u32, mean: f32, inverse: f32) {
    norm_x = x;
    norm_mean = mean;
    norm_inverse = inverse;
    let row = first_kind_row() + i;
    quantize_block(constants.y + row * constants.y_stride + block * GROUP_WORDS, block * 32u);
    if (constants.plain == NONE) { return; }
    for (var k = block * 32u; k < block * 32u + 32u; k += 4u) {
        let v = bitcast<vec4<u32>>(value4(k));
        let y = constants.plain + row * constants.x_stride + k;
        outputs[y] = v.x;
        outputs[y + 1u] = v.y;
        outputs[y + 2u] = v.z;
        outputs[y + 3u] = v.w;
    }
}

// An invocation's share of it, where a workgroup writes the row.
fn emit_row(i: u32, lane: u32, x: u32, mean: f32, inverse: f32) {
    for (var block = lane; block < constants.n_blocks; block += WORKGROUP) { emit_block(i, block, x, mean, inverse); }
}
