// One workgroup computes 16 pairs of outputs for 32 rows, staging both sides of each block of 32 columns in workgroup
// memory: prefill on real GPUs. 8 × 8 invocations, each 2 pairs and 4 rows.

const PAIRS: u32 = 16u;
const ROWS: u32 = 32u;
const STRIDE: u32 = 9u;   // vectors a staged row: 8, and one against bank conflicts

var<workgroup> weights: array<vec4<f32>, 288>;      // (2 · PAIRS, STRIDE)
var<workgroup> activations: array<vec4<f32>, 288>;  // (ROWS, STRIDE)

@compute @workgroup_size(64)
fn matmul_tiled(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_pair = (group.x + group.z * GRID_LIMIT) * PAIRS;
    let first = group.y * ROWS;
    let n_rows = n_kind_rows();
    if (first_pair >= n_pairs() || first >= n_rows) { return; }
    // Staging: invocation l brings half of weight row l / 2 and half of activation row l / 2.
    let staged = lane / 2u;
    let half = lane % 2u;
    let staged_pair = weight_rows(min(first_pair + staged / 2u, n_pairs() - 1u));
    let weight_row = select(staged_pair.x, staged_pair.y, staged % 2u == 1u);
    let start = row_start(weight_row);
    let activation_row = first_kind_row() + min(first + staged, n_rows - 1u);
    let x = constants.x + activation_row * constants.x_stride;
    let pair = (lane % 8u) * 2u;
    let row = (lane / 8u) * 4u;
    var a0 = vec4<f32>(0.0);   // first pair's a, 4 rows
    var b0 = vec4<f32>(0.0);
    var a1 = vec4<f32>(0.0);
    var b1 = vec4<f32>(0.0);
    for (var i = 0u; i < constants.n_blocks; i++) {
        let block = start + i;
        let words = block_words(block);
        let scale = block_scale(block);
        let first_half = decode8(words, scale, 2u * half);
        let second_half = decode8(words, scale, 2u * half + 1u);
        let to = staged * STRIDE + 2u * half;
        workgroupBarrier();
        weights[to] = first_half.lo;
        weights[to + 1u] = second_half.lo;
        weights[to + 4u] = first_half.hi;
        weights[to + 5u] = second_half.hi;
        for (var v = 0u; v < 4u; v++) {
            activations[staged * STRIDE + half * 4u + v] = load4(x + i * 32u + half * 16u + v * 4u);
        }
        workgroupBarrier();
        for (var v = 0u; v < 8u; v++) {
            let x0 = activations[row * STRIDE + v];
            let x1 = activations[(row + 1u) * STRIDE + v];
            let x2 = activations[(row + 2u) * STRIDE + v];
            let x3 = activations[(row + 3u) * STRIDE + v];
            a0 = dots(weights[2u * pair * STRIDE + v], x0, x1, x2, x3, a0);
            b0 = dots(weights[(2u * pair + 1u) * STRIDE + v], x0, x1, x2, x3, b0);
            a1 = dots(weights[(2u * pair + 2u) * STRIDE + v], x0, x1, x2, x3, a1);
            b1 = dots(weights[(2u * pair + 3u) * STRIDE + v], x0, x1, x2, x3, b1);
        }
    }
    for (var r = 0u; r < 4u; r++) {
        if (first + row + r < n_rows) {
            let to = first_kind_row() + first + row + r;
            if (first_pair + pair < n_pairs()) { emit(to, first_pair + pair, a0[r], b0[r]); }
            if (first_pair + pair + 1u < n_pairs()) { emit(to, first_pair + pair + 1u, a1[r], b1[r]); }
        }
    }
}

// sums[r] += w · xr, column by column.
fn dots(w: vec4<f32>, x0: vec4<f32>, x1: vec4<f32>, x2: vec4<f32>, x3: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(w.x), vec4<f32>(x0.x, x1.x, x2.x, x3.x), sums);
    s = fma(vec4<f32>(w.y), vec4<f32>(x0.y, x1.y, x2.y, x3.y), s);
    s = fma(vec4<f32>(w.z), vec4<f32>(x0.z, x1.z, x2.z, x3.z), s);
    return fma(vec4<f32>(w.w), vec4<f32>(x0.w, x1.w, x2.w, x3.w), s);
}
