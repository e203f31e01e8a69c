// Norm and rotation of one head of q, k or v by one workgroup: on real GPUs.

var<workgroup> partial: array<f32, WORKGROUP>;
var<workgroup> partial_bits: array<u32, WORKGROUP>;

@compute @workgroup_size(WORKGROUP)
fn rotate_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let head = group.x;
    let i = group.y;
    if (i >= n_kind_rows()) { return; }
    let row = first_kind_row() + i;
    let x = constants.x + row * constants.x_stride + head * HEAD_DIM;
    var squares = 0.0;
    for (var d = lane; d < HEAD_DIM; d += WORKGROUP) {
        let v = load1(x + d);
        squares = fma(v, v, squares);
    }
    partial[lane] = squares;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { partial[lane] += partial[lane + step]; }
    }
    workgroupBarrier();
    let inverse = 1.0 / sqrt(partial[0] / f32(HEAD_DIM) + constants.value);
    emit_head(Head(row, head, x), inverse, lane, WORKGROUP);
}

// The greatest of all invocations'.
fn greatest_of_head(own: u32, lane: u32) -> u32 {
    partial_bits[lane] = own;
    for (var step = WORKGROUP / 2u; step > 0u; step /= 2u) {
        workgroupBarrier();
        if (lane < step) { partial_bits[lane] = max(partial_bits[lane], partial_bits[lane + step]); }
    }
    workgroupBarrier();
    return partial_bits[0];
}
