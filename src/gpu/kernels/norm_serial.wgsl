// A norm without barriers: one invocation writes 32 values of a row and adds up the whole row by itself.

@compute @workgroup_size(WORKGROUP)
fn norm_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let chunk = id.x;
    let i = id.y;
    if (chunk >= constants.n_blocks || i >= n_kind_rows()) { return; }
    let x = constants.x + source_row(i) * constants.x_stride;
    let width = constants.n_blocks * 32u;
    var mean = 0.0;
    if (constants.is_layer_norm == 1u) {
        var sums = vec4<f32>(0.0);
        for (var k = 0u; k < width; k += 4u) { sums += load4(x + k); }
        mean = ((sums.x + sums.y) + (sums.z + sums.w)) / f32(width);
    }
    var squares = vec4<f32>(0.0);
    for (var k = 0u; k < width; k += 4u) {
        let v = load4(x + k) - mean;
        squares = fma(v, v, squares);
    }
    let variance = ((squares.x + squares.y) + (squares.z + squares.w)) / f32(width);
    let inverse = 1.0 / sqrt(variance + constants.value);
    emit_block(i, chunk, x, mean, inverse);
}
