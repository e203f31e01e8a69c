//! Numbers as blocks of a file, by GGML's reference rounding (`quantize_row_*_ref` of `ggml-quants.c`, products and sums
//! rounded one by one): the bytes are those of its own tools.

use super::block::BlockType;
use super::half::{bf16_from_f32, f16_from_f32};

/// The types that values can be stored as.
pub const TARGETS: [BlockType; 5] =
    [BlockType::F32, BlockType::F16, BlockType::BF16, BlockType::Q8_0, BlockType::Q4_0];

/// Why values were not quantized.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum QuantizeError {
    /// A type without a rounding.
    #[error("values cannot be stored as {block_type}; Q8_0, Q4_0, F16, BF16 and F32 work")]
    BlockType {
        /// The type.
        block_type: BlockType,
    },
    /// A block is cut off.
    #[error("{n_values} values are no whole number of {block_type} blocks of {}", block_type.block_len())]
    Length {
        /// The type.
        block_type: BlockType,
        /// Values there are.
        n_values: usize,
    },
    /// NaN or infinity.
    #[error("value {index} is {value}, not a finite number; the weights are damaged, so take the file anew")]
    NotFinite {
        /// Which of the values.
        index: usize,
        /// What it is.
        value: f32,
    },
    /// A finite value that the type rounds to infinity.
    #[error("value {index} is {value}, which is too large for {block_type}; F32 holds it")]
    TooLarge {
        /// Which of the values.
        index: usize,
        /// What it is.
        value: f32,
        /// The type.
        block_type: BlockType,
    },
}

/// Appends `values` as whole blocks; on an error nothing is appended.
pub fn quantize(block_type: BlockType, values: &[f32], bytes: &mut Vec<u8>) -> Result<(), QuantizeError> {
    check(block_type, values)?;
    bytes.reserve(values.len() / block_type.block_len() as usize * block_type.block_bytes() as usize);
    match block_type {
        BlockType::F32 => bytes.extend(values.iter().flat_map(|value| value.to_le_bytes())),
        BlockType::F16 => bytes.extend(values.iter().flat_map(|value| f16_from_f32(*value).to_le_bytes())),
        BlockType::BF16 => bytes.extend(values.iter().flat_map(|value| bf16_from_f32(*value).to_le_bytes())),
        BlockType::Q8_0 => values.as_chunks().0.iter().for_each(|block| bytes.extend(q8_0(block))),
        BlockType::Q4_0 => values.as_chunks().0.iter().for_each(|block| bytes.extend(q4_0(block))),
        other => unreachable!("{other} was refused"),
    }
    Ok(())
}

fn check(block_type: BlockType, values: &[f32]) -> Result<(), QuantizeError> {
    // From where the value, or its block's scale, is nearer to infinity than to the largest finite number.
    let limit = match block_type {
        BlockType::F32 => f32::INFINITY,
        BlockType::BF16 => f32::from_bits(0x7f7f_8000),
        BlockType::F16 => F16_LIMIT,
        BlockType::Q8_0 => F16_LIMIT * 127.0,
        BlockType::Q4_0 => F16_LIMIT * 8.0,
        _ => return Err(QuantizeError::BlockType { block_type }),
    };
    if !values.len().is_multiple_of(block_type.block_len() as usize) {
        return Err(QuantizeError::Length { block_type, n_values: values.len() });
    }
    match values.iter().copied().enumerate().find(|(_, value)| value.is_nan() || value.abs() >= limit) {
        None => Ok(()),
        Some((index, value)) if value.is_finite() => {
            Err(QuantizeError::TooLarge { index, value, block_type })
        }
        Some((index, value)) => Err(QuantizeError::NotFinite { index, value }),
    }
}

/// The least f32 that rounds to an infinite f16.
const F16_LIMIT: f32 = 65520.0;

/// d = largest / 127, then 32 signed bytes; halves round away from zero.
fn q8_0(values: &[f32; 32]) -> [u8; 34] {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let d = largest / 127.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    let mut block = [0; 34];
    block[..2].copy_from_slice(&f16_from_f32(d).to_le_bytes());
    for (byte, value) in block[2..].iter_mut().zip(values) {
        *byte = (value * inverse).round() as i8 as u8;
    }
    block
}

/// d = (the first of the values with the largest magnitude) / −8, so that this one is −8 exactly; then 32 nibbles.
fn q4_0(values: &[f32; 32]) -> [u8; 18] {
    let farther = |most: f32, value: &f32| if value.abs() > most.abs() { *value } else { most };
    let d = values.iter().fold(0.0, farther) / -8.0;
    let inverse = if d == 0.0 { 0.0 } else { 1.0 / d };
    // Never negative, so the cast rounds to the nearest.
    let code = |value: f32| ((value * inverse + 8.5) as u8).min(15);
    let mut block = [0; 18];
    block[..2].copy_from_slice(&f16_from_f32(d).to_le_bytes());
    for (i, byte) in block[2..].iter_mut().enumerate() {
        *byte = code(values[i]) | code(values[i + 16]) << 4;
    }
    block
}
