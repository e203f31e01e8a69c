//! Weights for a check: blocks of any bits, with scales that keep what is computed of the size that it has in models.
//!
//! Invariant: they follow from the seed alone, and are finite.

use crate::format::block::BlockType;
use crate::format::half::f16_from_f32;
use crate::plan::Matrix;

/// Numbers that look random and are the same everywhere (xorshift64*, Vigna 2016).
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In [−1, 1).
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }

    /// Of a norm or a bias.
    pub(super) fn vector(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| 1.0 + 0.5 * self.signed()).collect()
    }

    /// Rows of a matrix as a file has them; their products with rows of about 1 are about 1.
    pub(super) fn rows(&mut self, matrix: &Matrix, n_rows: usize) -> Vec<u8> {
        let n_values = n_rows * matrix.n_columns;
        let size = 1.7 / (matrix.n_columns as f32).sqrt();
        let mut bytes = Vec::new();
        match matrix.block_type {
            BlockType::F32 => {
                (0..n_values).for_each(|_| bytes.extend((size * self.signed()).to_le_bytes()));
            }
            BlockType::F16 => {
                (0..n_values).for_each(|_| bytes.extend(f16_from_f32(size * self.signed()).to_le_bytes()));
            }
            BlockType::BF16 => {
                (0..n_values).for_each(|_| bytes.extend(&(size * self.signed()).to_le_bytes()[2..]));
            }
            quantized => {
                let n_blocks = n_values / quantized.block_len() as usize;
                (0..n_blocks).for_each(|_| self.push_block(quantized, size, &mut bytes));
            }
        }
        bytes
    }

    /// A block of values up to about `size`.
    fn push_block(&mut self, block_type: BlockType, size: f32, bytes: &mut Vec<u8>) {
        let start = bytes.len();
        let n_bytes = block_type.block_bytes() as usize;
        bytes.extend((0..n_bytes.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()));
        bytes.truncate(start + n_bytes);
        let block = &mut bytes[start..];
        if block_type == BlockType::MXFP4 {
            // 6 · 2^(e − 127) is the largest value.
            block[0] = (127 + (size / 6.0).log2().round() as i32) as u8 + (self.next() >> 63) as u8;
            return;
        }
        let (scale_at, largest, min) = scales_of(block_type);
        let scale = f16_from_f32(size / largest * (1.0 + 0.3 * self.signed()));
        block[scale_at..scale_at + 2].copy_from_slice(&scale.to_le_bytes());
        if let Some((min_at, largest)) = min {
            let min = f16_from_f32(size / largest * (1.0 + 0.1 * self.signed()));
            block[min_at..min_at + 2].copy_from_slice(&min.to_le_bytes());
        }
    }
}

/// Where a block has its f16 scale and by how much it is multiplied at most; the same of its minimum, where it has one.
fn scales_of(block_type: BlockType) -> (usize, f32, Option<(usize, f32)>) {
    match block_type {
        BlockType::Q4_0 => (0, 8.0, None),
        BlockType::Q4_1 => (0, 7.5, Some((2, -1.0))),
        BlockType::Q5_0 => (0, 16.0, None),
        BlockType::Q5_1 => (0, 15.5, Some((2, -1.0))),
        BlockType::Q8_0 => (0, 127.0, None),
        BlockType::Q2_K => (80, 3.0 * 15.0, Some((82, 15.0))),
        BlockType::Q3_K => (108, 4.0 * 32.0, None),
        BlockType::Q4_K => (0, 15.0 * 63.0, Some((2, 63.0))),
        BlockType::Q5_K => (0, 31.0 * 63.0, Some((2, 63.0))),
        BlockType::Q6_K => (208, 32.0 * 128.0, None),
        BlockType::IQ4_NL => (0, 127.0, None),
        BlockType::IQ4_XS => (0, 127.0 * 32.0, None),
        other => unreachable!("no device decodes {}", other.name()),
    }
}
