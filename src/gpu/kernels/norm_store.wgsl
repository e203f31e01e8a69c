// What an exact norm does with each value.

// The k-th to (k + 3)-th value of a row that starts at y, its mean taken out and its size made 1.
fn emit4(y: u32, k: u32, v: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        var value = v[c] * table1(constants.weight + k + c);
        if (constants.bias != NONE) { value += table1(constants.bias + k + c); }
        if (constants.adds == 1u) { value += outputs[y + k + c]; }
        outputs[y + k + c] = value;
    }
}

// An invocation's share of the i-th row, which starts at x, where a workgroup writes it.
fn emit_row(i: u32, lane: u32, x: u32, mean: f32, inverse: f32) {
    let y = constants.y + (first_kind_row() + i) * constants.y_stride;
    for (var k = lane * 4u; k < constants.n_blocks * 32u; k += WORKGROUP * 4u) {
        emit4(y, k, (load4(x + k) - mean) * inverse);
    }
}

// Of the i-th row, which starts at x; its mean and the inverse of its size are known.
fn emit_block(i: u32, block: u32, x: u32, mean: f32, inverse: f32) {
    let y = constants.y + (first_kind_row() + i) * constants.y_stride;
    for (var k = block * 32u; k < block * 32u + 32u; k += 4u) {
        emit4(y, k, (load4(x + k) - mean) * inverse);
    }
}
