// Rows of a matrix follow each other group by group.

fn row_start(row: u32) -> u32 { return row * constants.n_blocks; }
