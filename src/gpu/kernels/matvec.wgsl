// One workgroup computes some pairs of outputs for a tile of rows, its invocations sharing the columns, and norms the rows
// on the way where their operation begins with a norm: decode and logits on real GPUs.
// Invocation i sums the parts i, i + LANES, … of the groups of 32 columns, and the sums are added in one order whatever the
// tile, so the order of addition depends on nothing but the number of columns.

@compute @workgroup_size(LANES)
fn matvec(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) lane: u32) {
    let p = (group.x + group.z * GRID_LIMIT) * PAIRS;
    let first = group.y * TILE;
    if (p >= n_pairs() || first >= n_kind_rows()) { return; }
    begin(lane);
    let weights = weights_from(p);
    let rows = rows_from(first, lane);
    var sums = Sums();
    for (var i = lane; i < constants.n_blocks * PARTS; i += LANES) {
        accumulate(&sums, weights, rows, i / PARTS, i % PARTS);
    }
    finish(sums, lane);
    share(0u, N_SUMS, lane);
    // Neighbours write neighbouring outputs.
    let row = lane / PAIRS;
    let pair = lane % PAIRS;
    if (row >= TILE || first + row >= n_kind_rows() || p + pair >= n_pairs()) { return; }
    let s = (row * PAIRS + pair) * 2u;
    let factor = row_factor(row);
    emit(first_kind_row() + first + row, p + pair, total(s) * factor, total(s + 1u) * factor);
}

// Where the i-th row of the kind starts.
fn row_at(i: u32) -> u32 { return constants.x + source_row(i) * constants.x_stride; }

// sum + w · x, column by column.
fn add4(sum: f32, w: vec4<f32>, x: vec4<f32>) -> f32 {
    return fma(w.w, x.w, fma(w.z, x.z, fma(w.y, x.y, fma(w.x, x.x, sum))));
}

// An invocation's part of the sum of a row.
fn own_sum(x: u32, lane: u32) -> f32 {
    var sum = 0.0;
    for (var k = 4u * lane; k < 32u * constants.n_blocks; k += 4u * LANES) {
        let v = load4(x + k);
        sum += (v.x + v.y) + (v.z + v.w);
    }
    return sum;
}

// And of the squares of what is left when the mean is taken out.
fn own_squares(x: u32, mean: f32, lane: u32) -> f32 {
    var squares = 0.0;
    for (var k = 4u * lane; k < 32u * constants.n_blocks; k += 4u * LANES) {
        let v = load4(x + k) - mean;
        squares = add4(squares, v, v);
    }
    return squares;
}

// What makes a row, whose squares add up to so much, of size 1.
fn inverse_size(squares: f32) -> f32 {
    return 1.0 / sqrt(squares / f32(32u * constants.n_blocks) + constants.value);
}

fn norm_bias4(k: u32) -> vec4<f32> {
    if (constants.norm_bias == NONE) { return vec4<f32>(0.0); }
    return table4(constants.norm_bias + k);
}
