//! Activations that matrices multiply, row by row.

use crate::plan::Precision;

/// Activations that a block shares a scale of.
const BLOCK: usize = 32;

/// Activations that matrices multiply: (n_rows, n_columns), as f32 and, where a packed matrix reads them in `fast`, in ten
/// bits too.
#[derive(Debug, Default)]
pub struct Inputs {
    n_rows: usize,
    n_columns: usize,
    values: Vec<f32>,
    rounded: Vec<f32>,
}

impl Inputs {
    /// Without rows.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes room for rows (reusing memory) and forgets what was there.
    pub fn reset(&mut self, n_rows: usize, n_columns: usize) {
        (self.n_rows, self.n_columns) = (n_rows, n_columns);
        self.values.clear();
        self.values.resize(n_rows * n_columns, 0.0);
        self.rounded.clear();
    }

    /// A row to be written.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.n_columns..][..self.n_columns]
    }

    /// A row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.n_columns..][..self.n_columns]
    }

    /// To be called when all rows are written, before they are multiplied: packs them where the precision is fast.
    pub fn seal(&mut self, precision: Precision) {
        if precision == Precision::Exact {
            return;
        }
        for block in self.values.chunks(BLOCK) {
            let largest = block.iter().fold(0f32, |m, v| m.max(v.abs()));
            let d = largest / 511.0;
            self.rounded
                .extend(block.iter().map(|v| if d == 0.0 { 0.0 } else { (v / d).round_ties_even() * d }));
        }
    }

    /// Rows there are.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// A row as packed matrices read it.
    pub(super) fn packed_row(&self, row: usize) -> &[f32] {
        if self.rounded.is_empty() {
            self.row(row)
        } else {
            &self.rounded[row * self.n_columns..][..self.n_columns]
        }
    }
}
