// One invocation computes a pair of outputs for a tile of rows, without barriers: for software adapters.

@compute @workgroup_size(WORKGROUP)
fn matmul_serial(@builtin(global_invocation_id) id: vec3<u32>) {
    let p = id.x;
    let first = id.y * TILE;
    if (p >= n_pairs() || first >= n_kind_rows()) { return; }
    let rows = weight_rows(p);
    var a = row_start(rows.x);
    var b = row_start(rows.y);
    var x = constants.x + (first_kind_row() + first) * constants.x_stride;
    var sums: Sums;
    for (var i = 0u; i < constants.n_blocks; i++) {
        let words_a = block_words(a);
        let words_b = block_words(b);
        let scale_a = block_scale(a);
        let scale_b = block_scale(b);
        // By hand: neither naga nor SwiftShader unrolls, and a variable index into a vector is slow there.
        accumulate8(&sums, x, decode8(words_a, scale_a, 0u), decode8(words_b, scale_b, 0u));
        accumulate8(&sums, x + 4u, decode8(words_a, scale_a, 1u), decode8(words_b, scale_b, 1u));
        accumulate8(&sums, x + 8u, decode8(words_a, scale_a, 2u), decode8(words_b, scale_b, 2u));
        accumulate8(&sums, x + 12u, decode8(words_a, scale_a, 3u), decode8(words_b, scale_b, 3u));
        a += 1u;
        b += 1u;
        x += 32u;
    }
    finish(sums, first_kind_row() + first, p);
}

fn accumulate8(sums: ptr<function, Sums>, x: u32, a: Eight, b: Eight) {
    accumulate(sums, x, a.lo, b.lo);
    accumulate(sums, x + 16u, a.hi, b.hi);
}

fn keep(r: u32, first_row: u32, p: u32, a: f32, b: f32) {
    emit(first_row + r, p, a, b);
}
