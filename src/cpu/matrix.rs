//! The weights of one matrix, packed for the processor's vectors.
//!
//! Invariant: an output's bits depend on its row of weights and its row of inputs alone.

use std::collections::TryReserveError;
use std::ops::Range;

use super::inputs::Inputs;
use super::instructions::Instructions;
use super::pack::{PanelMut, write_row};
use super::panel::{GROUP, Layout, decode};
use super::products::Weights;
use super::vectors::{LANES, Lanes, Plain, Plane};
use crate::format::block::BlockType;

/// Rows of a matrix that are computed together: threads had better cut at multiples.
pub const PANEL_ROWS: usize = LANES;

/// Weights of one matrix: (n_rows, n_columns).
#[derive(Debug)]
pub struct CpuMatrix {
    block_type: BlockType,
    layout: Layout,
    n_rows: usize,
    n_columns: usize,
    instructions: Instructions,
    /// (panels, groups, planes)
    planes: Vec<Plane>,
    /// (panels, spans, factors)
    factors: Vec<Lanes>,
    /// (panels, groups, bytes)
    bytes: Vec<[i8; LANES]>,
}

impl CpuMatrix {
    /// Room for weights, zeros so far.
    ///
    /// # Panics
    /// If the type cannot be decoded, or rows are no whole groups of 32 columns and whole blocks.
    pub fn new(block_type: BlockType, n_rows: usize, n_columns: usize) -> Result<Self, TryReserveError> {
        let layout = Layout::of(block_type);
        assert!(
            n_columns.is_multiple_of(GROUP * layout.span),
            "{n_columns} columns are no whole {block_type} blocks"
        );
        let n_groups = n_rows.div_ceil(LANES) * (n_columns / GROUP);
        Ok(Self {
            block_type,
            layout,
            n_rows,
            n_columns,
            instructions: Instructions::best(),
            planes: filled(Plane::ZERO, n_groups * layout.planes)?,
            factors: filled(Lanes::ZERO, n_groups / layout.span * layout.factors)?,
            bytes: filled([0; LANES], n_groups * layout.bytes)?,
        })
    }

    /// The same weights, multiplied by other instructions.
    #[must_use]
    pub fn with_instructions(self, instructions: Instructions) -> Self {
        Self { instructions, ..self }
    }

    /// Writes rows from `first_row` on, as the file has them.
    ///
    /// # Panics
    /// If these are no whole rows of the matrix.
    pub fn write_rows(&mut self, first_row: usize, bytes: &[u8]) {
        let row_bytes =
            self.block_type.row_bytes(self.n_columns as u64).expect("rows are whole blocks") as usize;
        let rows = bytes.chunks_exact(row_bytes);
        assert!(
            rows.remainder().is_empty() && first_row + rows.len() <= self.n_rows,
            "weights arrive in whole rows"
        );
        let n_groups = self.n_columns / GROUP;
        let Layout { planes, span, factors, bytes, .. } = self.layout;
        for (row, file) in (first_row..).zip(rows) {
            let first_group = row / LANES * n_groups;
            let mut panel = PanelMut {
                planes: &mut self.planes[first_group * planes..][..n_groups * planes],
                factors: &mut self.factors[first_group / span * factors..][..n_groups / span * factors],
                bytes: &mut self.bytes[first_group * bytes..][..n_groups * bytes],
            };
            write_row(self.block_type, file, row % LANES, &mut panel);
        }
    }

    /// The values of one row, as [`crate::format::decode`] has them.
    pub fn decode_row(&self, row: usize, values: &mut [f32]) {
        let mut group_values = [Lanes::ZERO; GROUP];
        for (g, values) in values.as_chunks_mut::<GROUP>().0.iter_mut().enumerate() {
            let group = self.weights().group(&self.layout, row / LANES, g);
            decode::<Plain>(self.block_type, group, &mut group_values);
            *values = group_values.map(|lanes| lanes.0[row % LANES]);
        }
    }

    /// Bytes of memory that the weights take.
    pub fn n_bytes(&self) -> u64 {
        (size_of_val(&*self.planes) + size_of_val(&*self.factors) + size_of_val(&*self.bytes)) as u64
    }

    /// `outputs[i * inputs.n_rows() + r]` = row `rows.start + i` of the weights · row r of the inputs.
    ///
    /// # Panics
    /// If `rows` are not of this matrix, the inputs have other columns, or `outputs` is not as long as both say.
    pub fn multiply(&self, rows: Range<usize>, inputs: &Inputs, outputs: &mut [f32]) {
        assert!(rows.end <= self.n_rows, "rows {rows:?} of {}", self.n_rows);
        assert_eq!(inputs.n_columns(), self.n_columns, "columns of the inputs");
        assert_eq!(outputs.len(), rows.len() * inputs.n_rows(), "room for the outputs");
        if !outputs.is_empty() {
            self.instructions.multiply(self.weights(), rows, inputs, outputs);
        }
    }

    fn weights(&self) -> Weights<'_> {
        Weights {
            block_type: self.block_type,
            n_groups: self.n_columns / GROUP,
            planes: &self.planes,
            factors: &self.factors,
            bytes: &self.bytes,
        }
    }
}

fn filled<T: Clone>(value: T, len: usize) -> Result<Vec<T>, TryReserveError> {
    let mut values = Vec::new();
    values.try_reserve_exact(len)?;
    values.resize(len, value);
    Ok(values)
}
