// RMS norm of a row by one workgroup: on real GPUs.

var<workgroup> partial: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn norm_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.y;
    if (i >= n_kind_rows()) { return; }
    let x = constants.x + source_row(i) * constants.x_stride;
    let width = constants.n_blocks * 32u;
    var squares = 0.0;
    for (var k = lane * 4u; k < width; k += WORKGROUP * 4u) {
        let v = load4(x + k);
        squares = fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, squares))));
    }
    partial[lane] = squares;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { partial[lane] += partial[lane + step]; }
    }
    workgroupBarrier();
    let inverse = 1.0 / sqrt(partial[0] / f32(width) + constants.value);
    let y = constants.y + (first_kind_row() + i) * constants.y_stride;
    for (var k = lane * 4u; k < width; k += WORKGROUP * 4u) {
        let v = load4(x + k) * inverse;
        for (var c = 0u; c < 4u; c++) { outputs[y + k + c] = v[c] * tables[constants.table + k + c]; }
    }
}
