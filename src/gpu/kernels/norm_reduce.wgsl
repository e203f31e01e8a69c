// A norm of a row by one workgroup: on real GPUs.

var<workgroup> partial: array<f32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn norm_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let i = group.y;
    if (i >= n_kind_rows()) { return; }
    let x = constants.x + source_row(i) * constants.x_stride;
    let width = constants.n_blocks * 32u;
    var mean = 0.0;
    if (constants.is_layer_norm == 1u) {
        var sum = 0.0;
        for (var k = lane * 4u; k < width; k += WORKGROUP * 4u) {
            let v = load4(x + k);
            sum += (v.x + v.y) + (v.z + v.w);
        }
        mean = total_of_group(sum, lane) / f32(width);
    }
    var squares = 0.0;
    for (var k = lane * 4u; k < width; k += WORKGROUP * 4u) {
        let v = load4(x + k) - mean;
        squares = fma(v.w, v.w, fma(v.z, v.z, fma(v.y, v.y, fma(v.x, v.x, squares))));
    }
    let inverse = 1.0 / sqrt(total_of_group(squares, lane) / f32(width) + constants.value);
    emit_row(i, lane, x, mean, inverse);
}

// Sum over all invocations, added pairwise.
fn total_of_group(own: f32, lane: u32) -> f32 {
    workgroupBarrier();
    partial[lane] = own;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { partial[lane] += partial[lane + step]; }
    }
    workgroupBarrier();
    return partial[0];
}
