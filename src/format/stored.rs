//! How bytes of a file become the rows that a checkpoint presents: arranged as GGUF wants them, decoded where that takes
//! arithmetic, and packed in the type asked for. A float that is no finite number is refused.

use std::borrow::Cow;

use super::block::BlockType;
use super::checkpoint::{Origin, Tensor};
use super::decode::{self, DecodeError};
use super::quantize::{self, QuantizeError};

/// Where a tensor lies in a file, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Stored {
    /// Which of the model's files.
    pub file: usize,
    /// Its name there.
    pub name: String,
    /// Where it starts, from the start of the file.
    pub offset_bytes: u64,
    /// How its values are packed there.
    pub block_type: BlockType,
    /// How its values are ordered there.
    pub arrangement: Arrangement,
}

/// How a file's values differ from those presented.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arrangement {
    /// Not at all.
    AsIs,
    /// The rows (of a vector, the values) of each head are stored in two halves, and presented pair by pair: row `i` of half
    /// `j` becomes row `2i + j`. So `llama` rotates neighbours, where Hugging Face rotates halves.
    HeadRows {
        /// Rows of a head, an even number.
        head_rows: u64,
    },
    /// Stored column by column, as GPT-2's layers are.
    Transposed,
    /// One is added to each value, as Gemma's norms want it.
    PlusOne,
}

/// Bytes of a file that hold some rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    /// From the start of the file.
    pub offset_bytes: u64,
    /// How many.
    pub n_bytes: u64,
}

/// Why stored bytes are no usable weights. The caller names file and tensor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WeightError {
    /// NaN or infinity.
    #[error(
        "value {index} of the rows from {first_row} on is NaN or infinite; the weights are damaged, so download the file again"
    )]
    NotFinite {
        /// Which value, from the first row read.
        index: u64,
        /// The first row read.
        first_row: u64,
    },
    /// The type cannot be decoded.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The values do not fit the type asked for.
    #[error(transparent)]
    Quantize(#[from] QuantizeError),
}

impl Tensor {
    /// So many rows that what is read and what is made of it stay near `max_bytes`; at least one, and whole heads where
    /// rows are reordered and a head is no larger.
    pub fn piece_rows(&self, max_bytes: u64) -> u64 {
        let Origin::Stored(stored) = &self.origin else { return self.n_rows() };
        let stored_row = stored.block_type.row_bytes(self.row_len()).unwrap_or(self.row_bytes);
        let n_rows = (max_bytes / self.row_bytes.max(stored_row)).max(1);
        match stored.arrangement {
            Arrangement::HeadRows { head_rows } if n_rows > head_rows => n_rows / head_rows * head_rows,
            _ => n_rows,
        }
    }

    /// Where the bytes of some rows lie, for a tensor that is stored. A transposed one is needed whole.
    pub fn span(&self, stored: &Stored, first_row: u64, n_rows: u64) -> Span {
        let (first, end) = match stored.arrangement {
            Arrangement::AsIs | Arrangement::PlusOne => (first_row, first_row + n_rows),
            Arrangement::HeadRows { head_rows } if self.shape.len() > 1 => {
                (first_row / head_rows * head_rows, (first_row + n_rows).next_multiple_of(head_rows))
            }
            Arrangement::HeadRows { .. } | Arrangement::Transposed => (0, self.n_rows()),
        };
        let row_bytes = match stored.arrangement {
            // Its rows are not those stored, but the values are as many.
            Arrangement::Transposed => self.row_len() * u64::from(stored.block_type.block_bytes()),
            _ => stored.block_type.row_bytes(self.row_len()).expect("stored rows are whole blocks"),
        };
        Span {
            offset_bytes: stored.offset_bytes + first * row_bytes,
            n_bytes: (end.min(self.n_rows()) - first) * row_bytes,
        }
    }

    /// The rows asked for, packed as the tensor's type says, from the bytes of their [`Tensor::span`].
    pub fn present(
        &self,
        stored: &Stored,
        first_row: u64,
        n_rows: u64,
        bytes: Cow<'_, [u8]>,
    ) -> Result<Vec<u8>, WeightError> {
        let bytes = self.arrange(stored, first_row, n_rows, bytes);
        if let Some(index) = first_not_finite(stored.block_type, &bytes) {
            return Err(WeightError::NotFinite { index, first_row });
        }
        let plus_one = stored.arrangement == Arrangement::PlusOne;
        if stored.block_type == self.block_type && !plus_one {
            return Ok(bytes);
        }
        let mut values = Vec::new();
        decode::decode(stored.block_type, &bytes, &mut values)?;
        if plus_one {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
        let mut packed = Vec::new();
        quantize::quantize(self.block_type, &values, &mut packed)?;
        Ok(packed)
    }

    /// The rows asked for in the order presented, still as they are stored.
    fn arrange(&self, stored: &Stored, first_row: u64, n_rows: u64, bytes: Cow<'_, [u8]>) -> Vec<u8> {
        let value_bytes = stored.block_type.block_bytes() as usize;
        // Of rows that are in memory, so it fits.
        let (n, row_len) = (n_rows as usize, self.row_len() as usize);
        match stored.arrangement {
            Arrangement::AsIs | Arrangement::PlusOne => bytes.into_owned(),
            Arrangement::HeadRows { head_rows } => {
                let first = (first_row % head_rows) as usize;
                let head_rows = head_rows as usize;
                let (first, n, unit_bytes) = if self.shape.len() > 1 {
                    (first, n, bytes.len() / (first + n).next_multiple_of(head_rows))
                } else {
                    (0, row_len, value_bytes)
                };
                let units = (first..first + n).map(|unit| {
                    let (head, within) = (unit / head_rows, unit % head_rows);
                    let from = (head * head_rows + within % 2 * (head_rows / 2) + within / 2) * unit_bytes;
                    &bytes[from..from + unit_bytes]
                });
                units.flatten().copied().collect()
            }
            Arrangement::Transposed => {
                let stored_row = self.n_rows() as usize * value_bytes;
                let mut rows = Vec::with_capacity(n * row_len * value_bytes);
                let first = first_row as usize;
                for column in first..first + n {
                    for row in bytes.chunks_exact(stored_row) {
                        rows.extend(&row[column * value_bytes..(column + 1) * value_bytes]);
                    }
                }
                rows
            }
        }
    }
}

/// The first float that is NaN or infinite: its exponent has all bits set. Of a block the first value, where one of its
/// scales is no number.
fn first_not_finite(block_type: BlockType, bytes: &[u8]) -> Option<u64> {
    let is_16 = |mask: u16| move |value: &[u8; 2]| u16::from_le_bytes(*value) & mask == mask;
    let found = match block_type {
        BlockType::F32 => {
            const MASK: u32 = 0x7f80_0000;
            bytes.as_chunks::<4>().0.iter().position(|value| u32::from_le_bytes(*value) & MASK == MASK)
        }
        BlockType::F16 => bytes.as_chunks::<2>().0.iter().position(is_16(0x7c00)),
        BlockType::BF16 => bytes.as_chunks::<2>().0.iter().position(is_16(0x7f80)),
        BlockType::MXFP4 => return first_block(block_type, bytes, |block| block[0] == u8::MAX),
        _ => {
            let scales = half_scales(block_type);
            let is_broken =
                |block: &[u8]| scales.iter().any(|at| is_16(0x7c00)(&[block[*at], block[at + 1]]));
            return first_block(block_type, bytes, is_broken);
        }
    };
    found.map(|index| index as u64)
}

/// Where the scales of half precision lie in a block.
fn half_scales(block_type: BlockType) -> &'static [usize] {
    match block_type {
        BlockType::Q4_0 | BlockType::Q5_0 | BlockType::Q8_0 | BlockType::IQ4_NL | BlockType::IQ4_XS => &[0],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
        BlockType::Q2_K => &[80, 82],
        BlockType::Q3_K => &[108],
        BlockType::Q6_K => &[208],
        _ => &[],
    }
}

/// The first value of the first block that is broken.
fn first_block(block_type: BlockType, bytes: &[u8], is_broken: impl Fn(&[u8]) -> bool) -> Option<u64> {
    let mut blocks = bytes.chunks_exact(block_type.block_bytes() as usize);
    blocks.position(is_broken).map(|block| block as u64 * u64::from(block_type.block_len()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::decode::DECODED;

    /// A scale is broken where a value decodes to none: the table of places is held to the decoder.
    #[test]
    fn every_type_is_refused_where_it_decodes_to_no_number() {
        for block_type in DECODED.into_iter().filter(|block_type| *block_type != BlockType::MXFP4) {
            let n_bytes = block_type.block_bytes() as usize;
            let sound = vec![0x11; 3 * n_bytes];
            assert_eq!(first_not_finite(block_type, &sound), None, "{block_type}");
            for at in 0..n_bytes - 1 {
                let mut bytes = sound.clone();
                // All bits of an exponent, where a float begins here.
                bytes[n_bytes + at..n_bytes + at + 2].copy_from_slice(&[0x00, 0x7c]);
                let mut values = Vec::new();
                decode::decode(block_type, &bytes, &mut values).unwrap();
                let n = u64::from(block_type.block_len());
                let expected = values.iter().any(|value| !value.is_finite()).then_some(n);
                assert_eq!(first_not_finite(block_type, &bytes), expected, "{block_type}, byte {at}");
            }
        }
        // Its scale is an exponent, all of whose bits mean no number.
        let broken = [[0x11; 17], [0xff; 17]].concat();
        assert_eq!(first_not_finite(BlockType::MXFP4, &broken), Some(32));
    }
}
