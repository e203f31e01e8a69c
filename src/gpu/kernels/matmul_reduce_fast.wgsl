// One workgroup computes PAIRS pairs of outputs for a tile of rows from packed activations, LANES invocations sharing the
// blocks of each pair: real GPUs. Lane l sums the blocks l, l + LANES, …, and the sums are added in order of lane, so the
// order of addition depends on nothing but the number of columns.

const PAIRS: u32 = 4u;
const LANES: u32 = WORKGROUP / PAIRS;

var<workgroup> partial: array<vec2<f32>, WORKGROUP * TILE>;   // (pairs, tile rows, lanes)

@compute @workgroup_size(WORKGROUP)
fn matmul_reduce_fast(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let first_pair = (group.x + group.z * GRID_LIMIT) * PAIRS;
    let first = group.y * TILE;
    if (first_pair >= n_pairs() || first >= n_kind_rows()) { return; }
    let own = index / LANES;
    let lane = index % LANES;
    let rows = weight_rows(min(first_pair + own, n_pairs() - 1u));
    let start_a = row_start(rows.x);
    let start_b = row_start(rows.y);
    let x = constants.x / 4u + (first_kind_row() + first) * (constants.x_stride / 4u);
    var sums = array<vec2<f32>, TILE>();
    for (var i = lane; i < constants.n_blocks; i += LANES) {
        let packed_a = packed(block_words(start_a + i));
        let packed_b = packed(block_words(start_b + i));
        let factors_a = factors(block_scale(start_a + i));
        let factors_b = factors(block_scale(start_b + i));
        for (var r = 0u; r < TILE; r++) {
            let at = x + r * (constants.x_stride / 4u) + i * (GROUP_WORDS / 4u);
            let x_lo = Parts(inputs[at], inputs[at + 2u]);
            let x_hi = Parts(inputs[at + 1u], inputs[at + 3u]);
            let of_block = bitcast<vec4<f32>>(inputs[at + 4u]);
            sums[r] += vec2<f32>(
                product(packed_a, factors_a, x_lo, x_hi, of_block),
                product(packed_b, factors_b, x_lo, x_hi, of_block),
            );
        }
    }
    for (var r = 0u; r < TILE; r++) { partial[(own * TILE + r) * LANES + lane] = sums[r]; }
    workgroupBarrier();
    for (var i = index; i < PAIRS * TILE; i += WORKGROUP) {
        var total = vec2<f32>(0.0);
        for (var l = 0u; l < LANES; l++) { total += partial[i * LANES + l]; }
        let p = first_pair + i / TILE;
        if (p < n_pairs()) { emit(first_kind_row() + first + i % TILE, p, total.x, total.y); }
    }
}

// 16 activations in two parts: four times the first and the second are the whole.
struct Parts { coarse: vec4<u32>, fine: vec4<u32> }

fn dot16(a: vec4<u32>, b: vec4<u32>) -> i32 {
    return (dot4(a.x, b.x) + dot4(a.y, b.y)) + (dot4(a.z, b.z) + dot4(a.w, b.w));
}

// Of a block of weights and one of activations, whose d and sums are `of_block`.
fn product(w: Packed, f: Factors, x_lo: Parts, x_hi: Parts, of_block: vec4<f32>) -> f32 {
    let of_lo = f32(4 * dot16(w.lo, x_lo.coarse) + dot16(w.lo, x_lo.fine));
    let of_hi = f32(4 * dot16(w.hi, x_hi.coarse) + dot16(w.hi, x_hi.fine));
    let minima = fma(f.m.x, of_block.z, f.m.y * of_block.w);
    return fma(f.d.x * of_block.x, of_lo, fma(f.d.y * of_block.x, of_hi, minima));
}
