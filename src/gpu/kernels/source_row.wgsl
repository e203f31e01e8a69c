// Where a norm reads its i-th row, and what it does with each value.

// Logit rows are gathered from all over the step.
fn source_row(i: u32) -> u32 {
    if (constants.rows == LOGITS) { return logit_row(i); }
    return first_kind_row() + i;
}

// The k-th to (k + 3)-th value of a row that starts at y, its mean taken out and its size made 1.
fn emit4(y: u32, k: u32, v: vec4<f32>) {
    for (var c = 0u; c < 4u; c++) {
        var value = v[c] * table1(constants.weight + k + c);
        if (constants.bias != NONE) { value += table1(constants.bias + k + c); }
        if (constants.adds == 1u) { value += outputs[y + k + c]; }
        outputs[y + k + c] = value;
    }
}
