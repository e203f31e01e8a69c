// Where a norm reads its i-th row.

// Logit rows are gathered from all over the step.
fn source_row(i: u32) -> u32 {
    if (constants.rows == LOGITS) { return logit_row(i); }
    return first_kind_row() + i;
}
