//! GGML's superblocks of 256 values, taken apart: eight groups of 32 codes, and a scale for every 16 of them. Nothing is
//! computed here but the widening of f16 scales, so the device repacks what the processor decodes.
//!
//! Where each bit lies: `ggml-common.h` and `ggml-quants.c` of GGML.

use super::block::BlockType;
use super::half::f32_from_f16;

/// Values in a superblock.
pub const SUPERBLOCK: usize = 256;

/// A superblock: value i of group g is `(d · scales[2g + i / 16]) · number(codes[g][i]) − min · mins[2g + i / 16]`, where
/// `number` is the type's own ([`crate::format::decode`]).
#[derive(Debug, Clone, PartialEq)]
pub struct Superblock {
    /// Scale of the scales.
    pub d: f32,
    /// Scale of the minima; 0 where a type has none.
    pub min: f32,
    /// One for every 16 values; types that have one for every 32 repeat it.
    pub scales: [i8; 16],
    /// As the scales; 0 where a type has none.
    pub mins: [u8; 16],
    /// Codes of 2 to 6 bits, as the file holds them.
    pub codes: [[u8; 32]; 8],
}

impl Superblock {
    /// Takes a superblock apart; `None` for a type without them.
    ///
    /// # Panics
    /// If `bytes` is not one whole block.
    pub fn read(block_type: BlockType, bytes: &[u8]) -> Option<Self> {
        let read = match block_type {
            BlockType::Q2_K => q2_k,
            BlockType::Q3_K => q3_k,
            BlockType::Q4_K => q4_k,
            BlockType::Q5_K => q5_k,
            BlockType::Q6_K => q6_k,
            BlockType::IQ4_XS => iq4_xs,
            _ => return None,
        };
        assert_eq!(bytes.len(), block_type.block_bytes() as usize, "one block of {block_type}");
        Some(read(bytes))
    }
}

fn half(bytes: &[u8], at: usize) -> f32 {
    f32_from_f16(u16::from_le_bytes([bytes[at], bytes[at + 1]]))
}

/// Scales of 4 bits, minima of 4 bits; groups lie in pairs of bits over 32 bytes, four after the other.
fn q2_k(bytes: &[u8]) -> Superblock {
    let (scales, quants) = (&bytes[..16], &bytes[16..80]);
    Superblock {
        d: half(bytes, 80),
        min: half(bytes, 82),
        scales: std::array::from_fn(|i| (scales[i] & 15) as i8),
        mins: std::array::from_fn(|i| scales[i] >> 4),
        codes: codes(|g, i| two_bits(quants, g, i)),
    }
}

/// Scales of 6 bits with an offset of 32; the third bit of group g is bit g of 32 bytes apart.
fn q3_k(bytes: &[u8]) -> Superblock {
    let (high, quants, packed) = (&bytes[..32], &bytes[32..96], &bytes[96..108]);
    let scale = |i: usize| {
        let low = if i < 8 { packed[i] & 15 } else { packed[i - 8] >> 4 };
        let top = packed[8 + i % 4] >> (2 * (i / 4)) & 3;
        (low | top << 4) as i8 - 32
    };
    Superblock {
        d: half(bytes, 108),
        min: 0.0,
        scales: std::array::from_fn(scale),
        mins: [0; 16],
        codes: codes(|g, i| two_bits(quants, g, i) | (high[i] >> g & 1) << 2),
    }
}

/// Scales and minima of 6 bits a group; groups lie in pairs, in the halves of 32 bytes.
fn q4_k(bytes: &[u8]) -> Superblock {
    let (scales, mins) = scales_and_mins(&bytes[4..16]);
    let quants = &bytes[16..144];
    Superblock {
        d: half(bytes, 0),
        min: half(bytes, 2),
        scales,
        mins,
        codes: codes(|g, i| nibble_of_pair(quants, g, i)),
    }
}

/// As Q4_K; the fifth bit of group g is bit g of 32 bytes apart.
fn q5_k(bytes: &[u8]) -> Superblock {
    let (scales, mins) = scales_and_mins(&bytes[4..16]);
    let (high, quants) = (&bytes[16..48], &bytes[48..176]);
    Superblock {
        d: half(bytes, 0),
        min: half(bytes, 2),
        scales,
        mins,
        codes: codes(|g, i| nibble_of_pair(quants, g, i) | (high[i] >> g & 1) << 4),
    }
}

/// Scales of 8 bits with sign; half a superblock's low nibbles lie in 64 bytes, its upper pairs of bits in 32.
fn q6_k(bytes: &[u8]) -> Superblock {
    let (low, high, scales) = (&bytes[..128], &bytes[128..192], &bytes[192..208]);
    let code = |g: usize, i: usize| {
        let nibbles = low[g / 4 * 64 + g % 2 * 32 + i];
        let nibble = if g % 4 < 2 { nibbles & 15 } else { nibbles >> 4 };
        nibble | two_bits(high, g, i) << 4
    };
    Superblock {
        d: half(bytes, 208),
        min: 0.0,
        scales: std::array::from_fn(|i| scales[i] as i8),
        mins: [0; 16],
        codes: codes(code),
    }
}

/// Scales of 6 bits a group with an offset of 32; each group's nibbles are those of a block of 32.
fn iq4_xs(bytes: &[u8]) -> Superblock {
    let (high, low, quants) = (u16::from_le_bytes([bytes[2], bytes[3]]), &bytes[4..8], &bytes[8..136]);
    let scale = |g: usize| {
        let nibble = low[g / 2] >> (4 * (g % 2)) & 15;
        let top = (high >> (2 * g) & 3) as u8;
        (nibble | top << 4) as i8 - 32
    };
    Superblock {
        d: half(bytes, 0),
        min: 0.0,
        scales: std::array::from_fn(|i| scale(i / 2)),
        mins: [0; 16],
        codes: codes(|g, i| nibble_of_halves(&quants[16 * g..16 * g + 16], i)),
    }
}

fn codes(code: impl Fn(usize, usize) -> u8) -> [[u8; 32]; 8] {
    std::array::from_fn(|g| std::array::from_fn(|i| code(g, i)))
}

/// Code i of group g where four groups share 32 bytes, two bits each.
fn two_bits(quants: &[u8], g: usize, i: usize) -> u8 {
    quants[g / 4 * 32 + i] >> (2 * (g % 4)) & 3
}

/// Code i of group g where two groups share 32 bytes: the even one their low halves.
fn nibble_of_pair(quants: &[u8], g: usize, i: usize) -> u8 {
    quants[g / 2 * 32 + i] >> (4 * (g % 2)) & 15
}

/// Code i of a block of 32: the first 16 in the low halves of 16 bytes, the others in the high ones.
pub(super) fn nibble_of_halves(quants: &[u8], i: usize) -> u8 {
    quants[i % 16] >> (i / 16 * 4) & 15
}

/// Eight scales and eight minima of 6 bits in 12 bytes: of the first four the bytes' low 6 bits, of the others a nibble and
/// the 2 bits left in the first bytes.
fn scales_and_mins(packed: &[u8]) -> ([i8; 16], [u8; 16]) {
    let scale = |g: usize| match g {
        0..4 => packed[g] & 63,
        _ => packed[g + 4] & 15 | packed[g - 4] >> 6 << 4,
    };
    let min = |g: usize| match g {
        0..4 => packed[g + 4] & 63,
        _ => packed[g + 4] >> 4 | packed[g] >> 6 << 4,
    };
    (std::array::from_fn(|i| scale(i / 2) as i8), std::array::from_fn(|i| min(i / 2)))
}
