//! Activations that matrices multiply, as f32 and, for `fast`, in ten bits with a scale for each 32.
//!
//! Invariant: what is no number stays none: a group with NaN or infinity has such a scale, never zeros.

use std::collections::TryReserveError;

use super::panel::{GROUP, PAIRS};
use crate::plan::Precision;

/// The largest packed activation.
const LARGEST: f32 = 511.0;
/// What is smaller has no inverse in f32.
const LEAST: f32 = 1e-30;
/// 1.5 · 2^23: added to a number of less than 2^22, it leaves the nearest whole number, ties to even, in the last bits.
const ROUNDER: f32 = 12_582_912.0;

/// 32 activations in pairs: a value is about d · q, where the q of a pair's first is in the lower half of 32 bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct PackedGroup {
    pub(super) q: [i32; PAIRS],
    pub(super) d: f32,
    /// d · Σq of all, of the first 16, of the last 16.
    pub(super) sums: [f32; 3],
}

impl PackedGroup {
    const ZERO: Self = Self { q: [0; PAIRS], d: 0.0, sums: [0.0; 3] };

    fn of(values: &[f32; GROUP]) -> Self {
        // By their bits, as which what is no number is greater than all numbers.
        let bits = values.iter().fold(0, |bits, value| (value.to_bits() & 0x7fff_ffff).max(bits));
        if bits < LEAST.to_bits() {
            return Self::ZERO;
        }
        let greatest = f32::from_bits(bits);
        let (d, inverse) = (greatest / LARGEST, LARGEST / greatest);
        let rounded = |value: f32| (value * inverse + ROUNDER).to_bits().wrapping_sub(ROUNDER.to_bits());
        // Of what is no number, any 16 bits: its d is none either.
        let q = values.map(|value| i32::from(rounded(value) as i16));
        let sum = |q: &[i32]| q.iter().sum::<i32>();
        let (lo, hi) = (sum(&q[..GROUP / 2]), sum(&q[GROUP / 2..]));
        let pair = |i: usize| q[2 * i] & 0xffff | q[2 * i + 1] << 16;
        Self { q: std::array::from_fn(pair), d, sums: [lo + hi, lo, hi].map(|sum| d * sum as f32) }
    }
}

/// Activations: (n_rows, n_columns).
#[derive(Debug, Default)]
pub struct Inputs {
    n_rows: usize,
    n_columns: usize,
    /// (n_rows, n_columns)
    values: Vec<f32>,
    /// (n_rows, n_columns / 32) where they are packed, else empty.
    packed: Vec<PackedGroup>,
}

impl Inputs {
    /// No activations yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// No activations yet, and memory for so many.
    pub fn with_room(n_rows: usize, n_columns: usize, precision: Precision) -> Result<Self, TryReserveError> {
        let mut inputs = Self::default();
        inputs.values.try_reserve_exact(n_rows * n_columns)?;
        if precision == Precision::Fast {
            inputs.packed.try_reserve_exact(n_rows * n_columns / GROUP)?;
        }
        Ok(inputs)
    }

    /// Bytes of such memory.
    pub fn n_bytes(n_rows: usize, n_columns: usize, precision: Precision) -> usize {
        let packed = if precision == Precision::Fast { size_of::<PackedGroup>() / GROUP } else { 0 };
        n_rows * n_columns * (size_of::<f32>() + packed)
    }

    /// Makes room for rows, in the memory there is if that suffices, and forgets what was there.
    pub fn reset(&mut self, n_rows: usize, n_columns: usize) {
        (self.n_rows, self.n_columns) = (n_rows, n_columns);
        self.values.clear();
        self.values.resize(n_rows * n_columns, 0.0);
        self.packed.clear();
    }

    /// A row to write.
    pub fn row_mut(&mut self, row: usize) -> &mut [f32] {
        &mut self.values[row * self.n_columns..][..self.n_columns]
    }

    /// A row.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.n_columns..][..self.n_columns]
    }

    /// Packs the rows where the precision is fast; to be called when all are written, before they are multiplied.
    pub fn seal(&mut self, precision: Precision) {
        self.packed.clear();
        if precision == Precision::Fast {
            self.packed.extend(self.values.as_chunks().0.iter().map(PackedGroup::of));
        }
    }

    /// How many rows there are.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// How many columns they have.
    pub fn n_columns(&self) -> usize {
        self.n_columns
    }

    /// Whether rows are packed.
    pub(super) fn is_packed(&self) -> bool {
        !self.packed.is_empty()
    }

    #[inline(always)]
    pub(super) fn packed(&self, row: usize, group: usize) -> &PackedGroup {
        &self.packed[row * (self.n_columns / GROUP) + group]
    }

    #[inline(always)]
    pub(super) fn group(&self, row: usize, group: usize) -> &[f32; GROUP] {
        self.values[row * self.n_columns + group * GROUP..].first_chunk().expect("rows are whole groups")
    }
}
