// One workgroup computes 32 pairs of outputs for 64 rows, staging both sides of each block of 32 columns in workgroup
// memory: prefill of many rows on real GPUs. 128 invocations, each 4 pairs and 4 rows, so that a staged vector is used
// in 4 or 8 multiplications of 4 columns. A sum adds the same products in the same order as in matmul_tiled.
//
// Staged vectors lie by column, and the last three bits of their place are turned by it: 8 invocations that read or
// write together meet 8 different banks, without padding beyond the 16 KiB that every adapter has.

const PAIRS: u32 = 32u;
const ROWS: u32 = 64u;

var<workgroup> weights: array<vec4<f32>, 512>;      // (8 vectors, a b, PAIRS)
var<workgroup> activations: array<vec4<f32>, 512>;  // (8 vectors, ROWS)

// Of 4 rows, for each of 4 pairs.
struct Sums {
    a0: vec4<f32>, b0: vec4<f32>,
    a1: vec4<f32>, b1: vec4<f32>,
    a2: vec4<f32>, b2: vec4<f32>,
    a3: vec4<f32>, b3: vec4<f32>,
}

@compute @workgroup_size(128)
fn matmul_tiled_large(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let first_pair = (group.x + group.z * GRID_LIMIT) * PAIRS;
    let first = group.y * ROWS;
    let n_rows = n_kind_rows();
    if (first_pair >= n_pairs() || first >= n_rows) { return; }
    // Staging: invocation l brings half of weight row l / 2, and the l % 8-th vector of its own 4 activation rows.
    let staged_pair = weight_rows(min(first_pair + lane / 4u, n_pairs() - 1u));
    let start = row_start(select(staged_pair.x, staged_pair.y, (lane / 2u) % 2u == 1u));
    let half = lane % 2u;
    let row = lane / 8u;    // its rows are this one, and 16, 32 and 48 further
    let vector = lane % 8u;
    let x0 = activation_row(first + row, n_rows) + vector * 4u;
    let x1 = activation_row(first + row + 16u, n_rows) + vector * 4u;
    let x2 = activation_row(first + row + 32u, n_rows) + vector * 4u;
    let x3 = activation_row(first + row + 48u, n_rows) + vector * 4u;
    var sums = Sums();
    for (var i = 0u; i < constants.n_blocks; i++) {
        let words = block_words(start + i);
        let scale = block_scale(start + i);
        let first_half = decode8(words, scale, 2u * half);
        let second_half = decode8(words, scale, 2u * half + 1u);
        let v0 = load4(x0 + i * 32u);
        let v1 = load4(x1 + i * 32u);
        let v2 = load4(x2 + i * 32u);
        let v3 = load4(x3 + i * 32u);
        workgroupBarrier();
        weights[weight_place(2u * half, lane / 2u)] = first_half.lo;
        weights[weight_place(2u * half + 1u, lane / 2u)] = second_half.lo;
        weights[weight_place(2u * half + 4u, lane / 2u)] = first_half.hi;
        weights[weight_place(2u * half + 5u, lane / 2u)] = second_half.hi;
        activations[activation_place(vector, row)] = v0;
        activations[activation_place(vector, row + 16u)] = v1;
        activations[activation_place(vector, row + 32u)] = v2;
        activations[activation_place(vector, row + 48u)] = v3;
        workgroupBarrier();
        // Unrolled here, since naga's loops are not unrolled by drivers.
        accumulate(&sums, 0u, row, vector);
        accumulate(&sums, 1u, row, vector);
        accumulate(&sums, 2u, row, vector);
        accumulate(&sums, 3u, row, vector);
        accumulate(&sums, 4u, row, vector);
        accumulate(&sums, 5u, row, vector);
        accumulate(&sums, 6u, row, vector);
        accumulate(&sums, 7u, row, vector);
    }
    let p = first_pair + vector;
    for (var r = 0u; r < 4u; r++) {
        let of_kind = first + row + 16u * r;
        if (of_kind < n_rows) {
            let to = first_kind_row() + of_kind;
            if (p < n_pairs()) { emit(to, p, sums.a0[r], sums.b0[r]); }
            if (p + 8u < n_pairs()) { emit(to, p + 8u, sums.a1[r], sums.b1[r]); }
            if (p + 16u < n_pairs()) { emit(to, p + 16u, sums.a2[r], sums.b2[r]); }
            if (p + 24u < n_pairs()) { emit(to, p + 24u, sums.a3[r], sums.b3[r]); }
        }
    }
}

// Where the row's values start; rows past the last read the last, and are dropped.
fn activation_row(of_kind: u32, n_rows: u32) -> u32 {
    return constants.x + (first_kind_row() + min(of_kind, n_rows - 1u)) * constants.x_stride;
}

// `weight` is 2 · pair, + 1 for its b.
fn weight_place(v: u32, weight: u32) -> u32 { return (v * 2u + weight % 2u) * PAIRS + ((weight / 2u) ^ v); }

fn activation_place(v: u32, row: u32) -> u32 { return v * ROWS + (row ^ v); }

// The v-th vector of 4 columns: its pairs are `pair` and 8, 16 and 24 further.
fn accumulate(sums: ptr<function, Sums>, v: u32, row: u32, pair: u32) {
    let x0 = activations[activation_place(v, row)];
    let x1 = activations[activation_place(v, row + 16u)];
    let x2 = activations[activation_place(v, row + 32u)];
    let x3 = activations[activation_place(v, row + 48u)];
    let k0 = vec4<f32>(x0.x, x1.x, x2.x, x3.x);
    let k1 = vec4<f32>(x0.y, x1.y, x2.y, x3.y);
    let k2 = vec4<f32>(x0.z, x1.z, x2.z, x3.z);
    let k3 = vec4<f32>(x0.w, x1.w, x2.w, x3.w);
    let a = v * 2u * PAIRS + (pair ^ v);
    let b = a + PAIRS;
    (*sums).a0 = dots(weights[a], k0, k1, k2, k3, (*sums).a0);
    (*sums).b0 = dots(weights[b], k0, k1, k2, k3, (*sums).b0);
    (*sums).a1 = dots(weights[a + 8u], k0, k1, k2, k3, (*sums).a1);
    (*sums).b1 = dots(weights[b + 8u], k0, k1, k2, k3, (*sums).b1);
    (*sums).a2 = dots(weights[a + 16u], k0, k1, k2, k3, (*sums).a2);
    (*sums).b2 = dots(weights[b + 16u], k0, k1, k2, k3, (*sums).b2);
    (*sums).a3 = dots(weights[a + 24u], k0, k1, k2, k3, (*sums).a3);
    (*sums).b3 = dots(weights[b + 24u], k0, k1, k2, k3, (*sums).b3);
}

// sums[r] += w · xr, column by column.
fn dots(w: vec4<f32>, k0: vec4<f32>, k1: vec4<f32>, k2: vec4<f32>, k3: vec4<f32>, sums: vec4<f32>) -> vec4<f32> {
    var s = fma(vec4<f32>(w.x), k0, sums);
    s = fma(vec4<f32>(w.y), k1, s);
    s = fma(vec4<f32>(w.z), k2, s);
    return fma(vec4<f32>(w.w), k3, s);
}
