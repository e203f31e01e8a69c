// RMS norm without barriers: one invocation writes 32 values of a row and adds up the whole row's squares by itself.

@compute @workgroup_size(WORKGROUP)
fn norm_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let chunk = id.x;
    let i = id.y;
    if (chunk >= constants.n_blocks || i >= n_kind_rows()) { return; }
    let x = constants.x + source_row(i) * constants.x_stride;
    let width = constants.n_blocks * 32u;
    var squares = vec4<f32>(0.0);
    for (var k = 0u; k < width; k += 4u) {
        let v = load4(x + k);
        squares = fma(v, v, squares);
    }
    let mean = ((squares.x + squares.y) + (squares.z + squares.w)) / f32(width);
    let inverse = 1.0 / sqrt(mean + constants.value);
    let y = constants.y + (first_kind_row() + i) * constants.y_stride;
    for (var k = chunk * 32u; k < chunk * 32u + 32u; k += 4u) {
        let v = load4(x + k) * inverse;
        for (var c = 0u; c < 4u; c++) { outputs[y + k + c] = v[c] * tables[constants.table + k + c]; }
    }
}
