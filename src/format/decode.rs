//! Blocks of a file as numbers, by GGML's formulas (`dequantize_row_*` of `ggml-quants.c`) and in their order of rounding.

use super::block::BlockType;
use super::half::{f32_from_bf16, f32_from_f16};
use super::superblock::{Superblock, nibble_of_halves};

/// The block types that can be decoded, here and on the device: those in wide use.
pub const DECODED: [BlockType; 16] = [
    BlockType::F32,
    BlockType::F16,
    BlockType::BF16,
    BlockType::Q4_0,
    BlockType::Q4_1,
    BlockType::Q5_0,
    BlockType::Q5_1,
    BlockType::Q8_0,
    BlockType::Q2_K,
    BlockType::Q3_K,
    BlockType::Q4_K,
    BlockType::Q5_K,
    BlockType::Q6_K,
    BlockType::IQ4_NL,
    BlockType::IQ4_XS,
    BlockType::MXFP4,
];

/// What the 16 codes of IQ4_NL and IQ4_XS stand for (`kvalues_iq4nl`): closer together where weights are frequent.
pub const IQ4_NUMBERS: [i8; 16] = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113];

/// Twice what the 16 codes of MXFP4 stand for: a sign, two bits of exponent and one of fraction (OCP Microscaling Formats
/// 1.0, 5.3.3, E2M1).
pub const MXFP4_NUMBERS: [i8; 16] = [0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12];

/// Why blocks were not decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// A type without a decoder.
    #[error("{block_type} blocks cannot be decoded; {} can", decoded_names())]
    BlockType {
        /// The type.
        block_type: BlockType,
    },
    /// A block is cut off.
    #[error("{n_bytes} bytes are no whole number of {block_type} blocks of {} bytes", block_type.block_bytes())]
    Length {
        /// The type.
        block_type: BlockType,
        /// Bytes there are.
        n_bytes: usize,
    },
}

/// The names of [`DECODED`], as a sentence lists them.
pub fn decoded_names() -> String {
    let [first @ .., last] = DECODED.map(BlockType::name);
    format!("{} and {last}", first.join(", "))
}

/// Appends the values of whole blocks.
pub fn decode(block_type: BlockType, bytes: &[u8], values: &mut Vec<f32>) -> Result<(), DecodeError> {
    if !DECODED.contains(&block_type) {
        return Err(DecodeError::BlockType { block_type });
    }
    let blocks = bytes.chunks_exact(block_type.block_bytes() as usize);
    if !blocks.remainder().is_empty() {
        return Err(DecodeError::Length { block_type, n_bytes: bytes.len() });
    }
    values.reserve(blocks.len() * block_type.block_len() as usize);
    match block_type {
        BlockType::F32 => values.extend(blocks.map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))),
        BlockType::F16 => values.extend(blocks.map(|b| half(b, 0))),
        BlockType::BF16 => values.extend(blocks.map(|b| f32_from_bf16(u16::from_le_bytes([b[0], b[1]])))),
        _ if block_type.block_len() == 32 => blocks.for_each(|block| {
            values.extend(block_of_32(block_type, block));
        }),
        _ => blocks.for_each(|block| superblock(block_type, block, values)),
    }
    Ok(())
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f32_from_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

fn block_of_32(block_type: BlockType, block: &[u8]) -> [f32; 32] {
    let nibble = |start: usize, i: usize| nibble_of_halves(&block[start..start + 16], i);
    let fifth_bit = |start: usize, i: usize| (block[start + i / 8] >> (i % 8) & 1) << 4;
    let d = half(block, 0);
    match block_type {
        BlockType::Q4_0 => std::array::from_fn(|i| f32::from(nibble(2, i) as i8 - 8) * d),
        BlockType::Q4_1 => std::array::from_fn(|i| f32::from(nibble(4, i)) * d + half(block, 2)),
        BlockType::Q5_0 => {
            std::array::from_fn(|i| f32::from((nibble(6, i) | fifth_bit(2, i)) as i8 - 16) * d)
        }
        BlockType::Q5_1 => {
            std::array::from_fn(|i| f32::from(nibble(8, i) | fifth_bit(4, i)) * d + half(block, 2))
        }
        BlockType::Q8_0 => std::array::from_fn(|i| f32::from(block[2 + i] as i8) * d),
        BlockType::IQ4_NL => std::array::from_fn(|i| d * f32::from(IQ4_NUMBERS[usize::from(nibble(2, i))])),
        BlockType::MXFP4 => {
            let d = half_power_of_two(block[0]);
            std::array::from_fn(|i| d * f32::from(MXFP4_NUMBERS[usize::from(nibble(1, i))]))
        }
        other => unreachable!("{other} is no decoded type of 32 values"),
    }
}

/// Half of an E8M0 scale, which makes up for the doubled codes: 2^(e − 128).
pub fn half_power_of_two(e: u8) -> f32 {
    match e {
        // The two that f32 has only as subnormals.
        0 | 1 => f32::from_bits(0x0020_0000 << e),
        _ => f32::from_bits((u32::from(e) - 1) << 23),
    }
}

fn superblock(block_type: BlockType, block: &[u8], values: &mut Vec<f32>) {
    let number = |code: u8| match block_type {
        BlockType::Q3_K => code as i8 - 4,
        BlockType::Q6_K => code as i8 - 32,
        BlockType::IQ4_XS => IQ4_NUMBERS[usize::from(code)],
        _ => code as i8,
    };
    let block = Superblock::read(block_type, block).expect("decode took the other types out");
    for (i, codes) in block.codes.as_flattened().chunks_exact(16).enumerate() {
        let scale = block.d * f32::from(block.scales[i]);
        let min = block.min * f32::from(block.mins[i]);
        values.extend(codes.iter().map(|code| scale * f32::from(number(*code)) - min));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_decoded_is_refused_by_name() {
        let mut values = Vec::new();
        for block_type in BlockType::all().filter(|block_type| !DECODED.contains(block_type)) {
            let error = decode(block_type, &[], &mut values).unwrap_err();
            assert_eq!(error, DecodeError::BlockType { block_type });
            assert!(error.to_string().contains("Q6_K, IQ4_NL, IQ4_XS and MXFP4 can"), "{error}");
        }
        for block_type in DECODED {
            let mut bytes = vec![0; block_type.block_bytes() as usize];
            assert_eq!(decode(block_type, &bytes, &mut values), Ok(()));
            bytes.push(0);
            let error = decode(block_type, &bytes, &mut values).unwrap_err();
            assert_eq!(error, DecodeError::Length { block_type, n_bytes: bytes.len() });
        }
        let n_values = DECODED.iter().map(|block_type| block_type.block_len() as usize).sum::<usize>();
        assert_eq!(values.len(), n_values, "what was refused left nothing behind");
    }

    #[test]
    fn scales_of_mxfp4_are_powers_of_two() {
        for e in 0..=u8::MAX {
            assert_eq!(f64::from(half_power_of_two(e)), 2f64.powi(i32::from(e) - 128));
        }
    }
}
