//! How the blocks of a file become the two arrays that kernels read: quants in whole vectors, and all else in words.
//!
//! Invariant: repacking moves bits and widens scales; it never rounds. Rows start at a whole unit of both arrays, so any
//! rows can be written by themselves.

use crate::format::block::BlockType;
use crate::format::decode::{DECODED, half_power_of_two};
use crate::format::half::f32_from_f16;
use crate::format::superblock::Superblock;

/// Values in a group of the kernels: 32 columns.
pub const GROUP: usize = 32;

/// A unit: the fewest groups that fill whole vectors of quants and whole words of scales. Each `block_*.wgsl` draws its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unit {
    /// Groups in it; the last unit of a row may lack some, and is padded.
    pub groups: usize,
    /// Bytes in the array of quants, a multiple of 16.
    pub quants: usize,
    /// Bytes in the array of scales, a multiple of 4, or 0.
    pub scales: usize,
}

/// Bytes of some rows on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBytes {
    /// In the array of quants.
    pub quants: u64,
    /// In the array of scales.
    pub scales: u64,
}

/// Whether kernels decode a block type.
pub fn is_decoded(block_type: BlockType) -> bool {
    DECODED.contains(&block_type)
}

/// The device's form of a block type.
///
/// # Panics
/// If no kernel decodes the type; lowering refuses it.
pub fn unit(block_type: BlockType) -> Unit {
    let (groups, quants, scales) = match block_type {
        BlockType::F32 => (1, 128, 0),
        BlockType::F16 | BlockType::BF16 => (1, 64, 0),
        // Nibbles; two half-precision scales a word.
        BlockType::Q4_0 | BlockType::IQ4_NL | BlockType::MXFP4 => (2, 32, 4),
        // Nibbles; d and m.
        BlockType::Q4_1 => (1, 16, 4),
        // Nibbles; fifth bits, then d, or d and m.
        BlockType::Q5_0 | BlockType::Q5_1 => (1, 16, 8),
        // Bytes; d.
        BlockType::Q8_0 => (1, 32, 4),
        // Two bits a value; 16 scales and minima, d and min.
        BlockType::Q2_K => (8, 64, 24),
        // Two bits a value; 16 scales, d, third bits.
        BlockType::Q3_K => (8, 64, 52),
        // Nibbles; 8 scales and minima, d and min.
        BlockType::Q4_K => (8, 128, 24),
        // As Q4_K, and fifth bits.
        BlockType::Q5_K => (8, 128, 56),
        // Nibbles; 16 scales, d, the upper two bits.
        BlockType::Q6_K => (8, 128, 84),
        // Nibbles; 8 scales, d.
        BlockType::IQ4_XS => (8, 128, 12),
        other => panic!("no kernel decodes {other}; lowering refuses it"),
    };
    Unit { groups, quants, scales }
}

/// Bytes of so many rows on the device.
pub fn device_bytes(block_type: BlockType, n_rows: usize, n_columns: usize) -> DeviceBytes {
    let unit = unit(block_type);
    let n_units = (n_rows * (n_columns / GROUP).div_ceil(unit.groups)) as u64;
    DeviceBytes { quants: n_units * unit.quants as u64, scales: n_units * unit.scales as u64 }
}

/// Bytes of a row in the larger of the two arrays: what limits the rows of a binding.
pub fn row_bytes(block_type: BlockType, n_columns: usize) -> u64 {
    let bytes = device_bytes(block_type, 1, n_columns);
    bytes.quants.max(bytes.scales)
}

/// Bytes of a row in the file.
///
/// # Panics
/// If a row is no whole number of blocks; readers of files refuse that.
pub fn file_row_bytes(block_type: BlockType, n_columns: usize) -> usize {
    let bytes = block_type.row_bytes(n_columns as u64).expect("rows are whole blocks");
    usize::try_from(bytes).expect("a row fits memory")
}

/// Appends whole rows of a file to the device's two arrays.
///
/// # Panics
/// If `file` is not a whole number of rows, or no kernel decodes the type; lowering refused both.
pub fn repack(
    block_type: BlockType,
    n_columns: usize,
    file: &[u8],
    quants: &mut Vec<u8>,
    scales: &mut Vec<u8>,
) {
    let rows = file.chunks_exact(file_row_bytes(block_type, n_columns));
    assert!(rows.remainder().is_empty(), "weights arrive in whole rows");
    let bytes = device_bytes(block_type, rows.len(), n_columns);
    quants.reserve(bytes.quants as usize);
    scales.reserve(bytes.scales as usize);
    let unit = unit(block_type);
    for row in rows {
        for block in row.chunks_exact(block_type.block_bytes() as usize * blocks_at_once(block_type)) {
            repack_block(block_type, block, quants, scales);
        }
        quants.resize(quants.len().next_multiple_of(unit.quants), 0);
        if unit.scales > 0 {
            scales.resize(scales.len().next_multiple_of(unit.scales), 0);
        }
    }
}

/// Types of one value a block are moved a group at once.
fn blocks_at_once(block_type: BlockType) -> usize {
    GROUP.div_ceil(block_type.block_len() as usize)
}

fn repack_block(block_type: BlockType, block: &[u8], quants: &mut Vec<u8>, scales: &mut Vec<u8>) {
    match block_type {
        BlockType::Q4_0 | BlockType::IQ4_NL => {
            scales.extend(&block[..2]);
            quants.extend(&block[2..]);
        }
        BlockType::MXFP4 => {
            // A power of two needs no more than the upper half of an f32.
            scales.extend(&half_power_of_two(block[0]).to_le_bytes()[2..]);
            quants.extend(&block[1..]);
        }
        BlockType::Q4_1 => {
            scales.extend(&block[..4]);
            quants.extend(&block[4..]);
        }
        BlockType::Q5_0 => {
            scales.extend(&block[2..6]);
            scales.extend(widened(&block[..2]));
            quants.extend(&block[6..]);
        }
        BlockType::Q5_1 => {
            scales.extend(&block[4..8]);
            scales.extend(&block[..4]);
            quants.extend(&block[8..]);
        }
        BlockType::Q8_0 => {
            scales.extend(widened(&block[..2]));
            quants.extend(&block[2..]);
        }
        _ => match Superblock::read(block_type, block) {
            Some(superblock) => repack_superblock(block_type, &superblock, quants, scales),
            None => quants.extend(block),
        },
    }
}

fn widened(f16: &[u8]) -> [u8; 4] {
    f32_from_f16(u16::from_le_bytes([f16[0], f16[1]])).to_le_bytes()
}

/// Every group gets its own bits, so that a kernel finds value i of any group in one place.
fn repack_superblock(
    block_type: BlockType,
    superblock: &Superblock,
    quants: &mut Vec<u8>,
    scales: &mut Vec<u8>,
) {
    let Superblock { d, min, scales: of_16, mins, codes } = superblock;
    match block_type {
        BlockType::Q2_K | BlockType::Q3_K => quants.extend(codes.iter().flat_map(|group| two_bits(group, 0))),
        _ => quants.extend(codes.iter().flat_map(nibbles)),
    }
    match block_type {
        BlockType::Q2_K => scales.extend((0..16).map(|i| of_16[i] as u8 | mins[i] << 4)),
        BlockType::Q4_K | BlockType::Q5_K => {
            scales.extend((0..8).flat_map(|g| [of_16[2 * g] as u8, mins[2 * g]]));
        }
        BlockType::IQ4_XS => scales.extend((0..8).map(|g| of_16[2 * g] as u8)),
        _ => scales.extend(of_16.iter().map(|scale| *scale as u8)),
    }
    scales.extend(d.to_le_bytes());
    match block_type {
        BlockType::Q2_K | BlockType::Q4_K => scales.extend(min.to_le_bytes()),
        BlockType::Q3_K => scales.extend(codes.iter().flat_map(|group| one_bit(group, 2))),
        BlockType::Q5_K => {
            scales.extend(min.to_le_bytes());
            scales.extend(codes.iter().flat_map(|group| one_bit(group, 4)));
        }
        BlockType::Q6_K => scales.extend(codes.iter().flat_map(|group| two_bits(group, 4))),
        _ => {}
    }
}

/// Byte i: value i in its low half, value 16 + i in its high one.
fn nibbles(group: &[u8; GROUP]) -> [u8; 16] {
    std::array::from_fn(|i| group[i] & 15 | group[16 + i] << 4)
}

/// Byte i: two bits, from `bit` on, of each of the values 4i … 4i + 3.
fn two_bits(group: &[u8; GROUP], bit: u32) -> [u8; 8] {
    let fours = group.as_chunks().0;
    std::array::from_fn(|i| {
        let four = u32::from_le_bytes(fours[i]) >> bit & 0x0303_0303;
        (four | four >> 6 | four >> 12 | four >> 18) as u8
    })
}

/// Bit i of the word: one bit of value i.
fn one_bit(group: &[u8; GROUP], bit: u32) -> [u8; 4] {
    let bits = |four: [u8; 4]| {
        let four = u32::from_le_bytes(four) >> bit & 0x0101_0101;
        (four | four >> 7 | four >> 14 | four >> 21) & 15
    };
    let fours = group.as_chunks().0.iter().rev();
    fours.fold(0, |word, four| word << 4 | bits(*four)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of any number of columns land where the kernels look for them, whichever rows are written together.
    #[test]
    fn rows_repacked_alone_are_the_rows_repacked_together() {
        for block_type in DECODED {
            let n_columns = if block_type.block_len() == 256 { 512 } else { 96 };
            let row_bytes = file_row_bytes(block_type, n_columns);
            let file: Vec<u8> = (0..5 * row_bytes).map(|i| (i * 37 % 251) as u8).collect();
            let (mut quants, mut scales) = (Vec::new(), Vec::new());
            repack(block_type, n_columns, &file, &mut quants, &mut scales);
            let bytes = device_bytes(block_type, 5, n_columns);
            assert_eq!((quants.len() as u64, scales.len() as u64), (bytes.quants, bytes.scales));
            let row = device_bytes(block_type, 1, n_columns);
            assert!(row.quants.is_multiple_of(16) && row.scales.is_multiple_of(4), "{block_type}");
            let (mut quants_alone, mut scales_alone) = (Vec::new(), Vec::new());
            for row in file.chunks(row_bytes) {
                repack(block_type, n_columns, row, &mut quants_alone, &mut scales_alone);
            }
            assert!(quants == quants_alone && scales == scales_alone, "{block_type}");
        }
    }

    /// The bound, for rows of the widths that models have.
    #[test]
    fn weights_take_at_most_a_tenth_more_than_the_file() {
        for block_type in DECODED {
            for n_columns in [256, 768, 2048] {
                let bytes = device_bytes(block_type, 3, n_columns);
                let file = 3 * file_row_bytes(block_type, n_columns);
                let ratio = (bytes.quants + bytes.scales) as f64 / file as f64;
                assert!((1.0..=1.1).contains(&ratio), "{block_type}: {ratio}");
            }
        }
    }
}
