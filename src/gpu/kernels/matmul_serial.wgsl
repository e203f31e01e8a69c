// One invocation computes some pairs of outputs for a tile of rows, without barriers: for software adapters.

@compute @workgroup_size(WORKGROUP)
fn matmul_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = id.x * PAIRS;
    let first = id.y * TILE;
    if (p >= n_pairs() || first >= n_kind_rows()) { return; }
    let weights = weights_from(p);
    var x = constants.x + (first_kind_row() + first) * constants.x_stride;
    var sums = Sums();
    for (var i = 0u; i < constants.n_blocks; i++) {
        accumulate_block(&sums, weights, i, x);
        x += GROUP_WORDS;
    }
    finish(sums, first_kind_row() + first, p);
}

// The last invocation may have fewer pairs.
fn keep(row: u32, p: u32, a: f32, b: f32) {
    if (p < n_pairs()) { emit(row, p, a, b); }
}
