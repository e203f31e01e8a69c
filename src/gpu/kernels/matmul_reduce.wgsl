// One workgroup computes a pair of outputs for a tile of rows, its invocations sharing the columns: decode on real GPUs.
// Invocation i sums the eighths-of-a-quarter i, i + WORKGROUP, …, and the sums are added in order of invocation, so the
// order of addition depends on nothing but the number of columns.

var<workgroup> partial: array<vec2<f32>, WORKGROUP * TILE>;   // (tile rows, invocations)
var<workgroup> totals: array<vec2<f32>, TILE>;

@compute @workgroup_size(WORKGROUP)
fn matmul_reduce(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = group.x + group.z * GRID_LIMIT;
    let first = group.y * TILE;
    if (p >= n_pairs() || first >= n_kind_rows()) { return; }
    let rows = weight_rows(p);
    let x = constants.x + (first_kind_row() + first) * constants.x_stride;
    let start_a = row_start(rows.x);
    let start_b = row_start(rows.y);
    var sums: Sums;
    for (var i = lane; i < constants.n_blocks * 4u; i += WORKGROUP) {
        let block = i / 4u;
        let j = i % 4u;
        let a = start_a + block;
        let b = start_b + block;
        let values_a = decode8(block_words(a), block_scale(a), j);
        let values_b = decode8(block_words(b), block_scale(b), j);
        accumulate(&sums, x + block * 32u + j * 4u, values_a.lo, values_b.lo);
        accumulate(&sums, x + block * 32u + 16u + j * 4u, values_a.hi, values_b.hi);
    }
    finish(sums, lane, 0u);
    workgroupBarrier();
    if (lane < TILE) {
        var total = vec2<f32>(0.0);
        for (var i = 0u; i < WORKGROUP; i++) { total += partial[lane * WORKGROUP + i]; }
        totals[lane] = total;
    }
    workgroupBarrier();
    if (lane < TILE) {
        emit(first_kind_row() + first + lane, p, totals[lane].x, totals[lane].y);
    }
}

fn keep(r: u32, lane: u32, unused: u32, a: f32, b: f32) {
    partial[r * WORKGROUP + lane] = vec2<f32>(a, b);
}
