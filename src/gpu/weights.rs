//! How the blocks of a file become the two arrays that kernels read: quants in whole vectors, scales apart.
//!
//! Invariant: repacking moves bits and widens scales; it never rounds.

use crate::format::block::BlockType;

/// Values in a group of the kernels: 32 columns.
pub const GROUP: usize = 32;

/// Bytes that a group of 32 values takes on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GroupBytes {
    /// In the array of quants, a multiple of 16.
    pub quants: usize,
    /// In the array of scales, a multiple of 4, or 0.
    pub scales: usize,
    /// In the file.
    pub file: usize,
}

/// The device's form of a block type; `None` where no kernel decodes it.
pub fn group_bytes(block_type: BlockType) -> Option<GroupBytes> {
    match block_type {
        BlockType::F32 => Some(GroupBytes { quants: 128, scales: 0, file: 128 }),
        BlockType::F16 => Some(GroupBytes { quants: 64, scales: 0, file: 64 }),
        BlockType::Q4_1 => Some(GroupBytes { quants: 16, scales: 4, file: 20 }),
        BlockType::Q8_0 => Some(GroupBytes { quants: 32, scales: 4, file: 34 }),
        _ => None,
    }
}

/// Whether kernels decode a block type.
pub fn is_decoded(block_type: BlockType) -> bool {
    group_bytes(block_type).is_some()
}

/// Bytes of a row in the larger of the two arrays: what limits the rows of a binding.
pub fn row_bytes(block_type: BlockType, n_columns: usize) -> u64 {
    let quants = group_bytes(block_type).map_or(0, |bytes| bytes.quants);
    (n_columns / GROUP * quants) as u64
}

/// Appends whole groups of a file to the device's two arrays.
///
/// # Panics
/// If `file` is not a whole number of groups, or no kernel decodes the type; lowering refused both.
pub fn repack(block_type: BlockType, file: &[u8], quants: &mut Vec<u8>, scales: &mut Vec<u8>) {
    let bytes = group_bytes(block_type).expect("lowering refuses block types without kernels");
    assert!(file.len().is_multiple_of(bytes.file), "weights arrive in whole groups");
    match block_type {
        BlockType::Q4_1 => {
            for block in file.chunks_exact(20) {
                scales.extend_from_slice(&block[..4]);
                quants.extend_from_slice(&block[4..]);
            }
        }
        BlockType::Q8_0 => {
            for block in file.chunks_exact(34) {
                let d = f32_from_f16(u16::from_le_bytes([block[0], block[1]]));
                scales.extend_from_slice(&d.to_le_bytes());
                quants.extend_from_slice(&block[2..]);
            }
        }
        _ => quants.extend_from_slice(file),
    }
}

/// IEEE 754 half precision to single, exact.
pub fn f32_from_f16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let exponent = i32::from(bits >> 10 & 0x1f);
    let mantissa = f32::from(bits & 0x3ff);
    match exponent {
        0 => sign * mantissa * 2f32.powi(-24),
        31 if mantissa == 0.0 => sign * f32::INFINITY,
        31 => f32::NAN,
        _ => sign * (1.0 + mantissa / 1024.0) * 2f32.powi(exponent - 15),
    }
}
