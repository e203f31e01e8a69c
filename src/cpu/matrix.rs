//! Weights of one matrix as its file packs them, and their products with activations.
//!
//! Invariant: the bits of an output depend on its row of inputs and on its weights alone.

use std::collections::TryReserveError;
use std::ops::Range;

use super::inputs::Inputs;
use crate::format::block::BlockType;
use crate::format::decode::decode;

/// Weights of one matrix: (n_rows, n_columns).
#[derive(Debug)]
pub struct CpuMatrix {
    block_type: BlockType,
    row_bytes: usize,
    bytes: Vec<u8>,
}

impl CpuMatrix {
    /// Room for its weights; `Err` where memory does not suffice.
    pub fn new(block_type: BlockType, n_rows: usize, n_columns: usize) -> Result<Self, TryReserveError> {
        let row_bytes = block_type.row_bytes(n_columns as u64).expect("rows are whole blocks") as usize;
        let mut bytes = Vec::new();
        bytes.try_reserve_exact(n_rows * row_bytes)?;
        bytes.resize(n_rows * row_bytes, 0);
        Ok(Self { block_type, row_bytes, bytes })
    }

    /// Rows from `first_row` on, as the file has them; in pieces, in any order.
    pub fn write_rows(&mut self, first_row: usize, bytes: &[u8]) {
        self.bytes[first_row * self.row_bytes..][..bytes.len()].copy_from_slice(bytes);
    }

    /// Values of one row (the embedding of a token).
    pub fn decode_row(&self, row: usize, values: &mut [f32]) {
        values.copy_from_slice(&self.row(row));
    }

    fn row(&self, row: usize) -> Vec<f32> {
        let mut values = Vec::new();
        decode(self.block_type, &self.bytes[row * self.row_bytes..][..self.row_bytes], &mut values)
            .expect("a plan names types that are decoded");
        values
    }

    /// Bytes it takes.
    pub fn n_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// `outputs[i * inputs.n_rows() + r] = weights[rows.start + i] · inputs[r]`, for rows of the matrix `rows`.
    pub fn multiply(&self, rows: Range<usize>, inputs: &Inputs, outputs: &mut [f32]) {
        let is_float = self.block_type.block_len() == 1;
        for (row, outputs) in rows.zip(outputs.chunks_exact_mut(inputs.n_rows())) {
            let weights = self.row(row);
            for (r, output) in outputs.iter_mut().enumerate() {
                let input = if is_float { inputs.row(r) } else { inputs.packed_row(r) };
                *output = dot(&weights, input);
            }
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; 16];
    for (a, b) in a.chunks(16).zip(b.chunks(16)) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum()
}
