//! How a row of a file becomes a lane of a panel.

use super::panel::{GROUP, Layout};
use super::vectors::{LANES, Lanes, Plane};
use crate::format::block::BlockType::{
    self, BF16, F16, F32, IQ4_NL, MXFP4, Q2_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q8_0,
};
use crate::format::decode::half_power_of_two;
use crate::format::half::f32_from_f16;
use crate::format::superblock::Superblock;

/// One panel: each array group by group.
pub(super) struct PanelMut<'a> {
    pub(super) planes: &'a mut [Plane],
    pub(super) factors: &'a mut [Lanes],
    pub(super) bytes: &'a mut [[i8; LANES]],
}

/// Writes a row's blocks to a lane.
pub(super) fn write_row(block_type: BlockType, file: &[u8], lane: usize, panel: &mut PanelMut<'_>) {
    let layout = Layout::of(block_type);
    let block_bytes = block_type.block_bytes() as usize;
    match block_type {
        F32 => file.as_chunks::<4>().0.iter().zip(&mut *panel.factors).for_each(|(value, lanes)| {
            lanes.0[lane] = f32::from_le_bytes(*value);
        }),
        F16 | BF16 => file.as_chunks::<4>().0.iter().zip(&mut *panel.planes).for_each(|(pair, plane)| {
            plane.0[lane] = u16::from_le_bytes([pair[0], pair[1]]);
            plane.0[LANES + lane] = u16::from_le_bytes([pair[2], pair[3]]);
        }),
        _ if block_type.block_len() as usize == GROUP => {
            let blocks = file.chunks_exact(block_bytes);
            let planes = panel.planes.chunks_exact_mut(layout.planes);
            for ((block, planes), lanes) in
                blocks.zip(planes).zip(panel.factors.chunks_exact_mut(layout.factors))
            {
                let (codes, factors) = block_of_32(block_type, block);
                write_codes(&codes, planes, lane);
                lanes.iter_mut().zip(factors).for_each(|(lanes, factor)| lanes.0[lane] = factor);
            }
        }
        _ => {
            for (i, file) in file.chunks_exact(block_bytes).enumerate() {
                let block = Superblock::read(block_type, file).expect("the other types were taken out");
                for (g, codes) in block.codes.iter().enumerate() {
                    let group = 8 * i + g;
                    write_codes(codes, &mut panel.planes[group * layout.planes..][..layout.planes], lane);
                    let bytes = &mut panel.bytes[group * layout.bytes..][..layout.bytes];
                    bytes
                        .iter_mut()
                        .zip(small_factors(block_type, &block, g))
                        .for_each(|(lanes, byte)| lanes[lane] = byte);
                }
                let lanes = panel.factors[i * layout.factors..][..layout.factors].iter_mut();
                lanes.zip([block.d, block.min]).for_each(|(lanes, factor)| lanes.0[lane] = factor);
            }
        }
    }
}

/// What a group's factors are multiplied by, as [`super::panel::factors`] reads it.
fn small_factors(block_type: BlockType, block: &Superblock, g: usize) -> [i8; 2] {
    let (scales, mins) = (&block.scales[2 * g..][..2], &block.mins[2 * g..][..2]);
    match block_type {
        Q2_K => [0, 1].map(|half| scales[half] | (mins[half] << 4) as i8),
        Q4_K | Q5_K => [scales[0], mins[0] as i8],
        _ => [scales[0], scales[1]],
    }
}

/// Codes, and scale and minimum.
fn block_of_32(block_type: BlockType, block: &[u8]) -> ([u8; GROUP], [f32; 2]) {
    let half = |at: usize| f32_from_f16(u16::from_le_bytes([block[at], block[at + 1]]));
    let nibble = |start: usize, i: usize| block[start + i % 16] >> (i / 16 * 4) & 15;
    let fifth_bit = |start: usize, i: usize| (block[start + i / 8] >> (i % 8) & 1) << 4;
    match block_type {
        Q4_0 | IQ4_NL => (std::array::from_fn(|i| nibble(2, i)), [half(0), 0.0]),
        Q4_1 => (std::array::from_fn(|i| nibble(4, i)), [half(0), half(2)]),
        Q5_0 => (std::array::from_fn(|i| nibble(6, i) | fifth_bit(2, i)), [half(0), 0.0]),
        Q5_1 => (std::array::from_fn(|i| nibble(8, i) | fifth_bit(4, i)), [half(0), half(2)]),
        Q8_0 => (std::array::from_fn(|i| block[2 + i]), [half(0), 0.0]),
        MXFP4 => (std::array::from_fn(|i| nibble(1, i)), [half_power_of_two(block[0]), 0.0]),
        other => unreachable!("{other} is no decoded type of 32 values"),
    }
}

/// Spreads codes over a group's planes: the last bits over the first 2, 4 or 8, what is left over the others.
fn write_codes(codes: &[u8; GROUP], planes: &mut [Plane], lane: usize) {
    let n_low = 1 << planes.len().ilog2();
    let (low, high) = planes.split_at_mut(n_low);
    write_bits(codes, low, lane, 0);
    if !high.is_empty() {
        write_bits(codes, high, lane, n_low as u32);
    }
}

/// Writes as many bits of each code as there are planes, from bit `shift` on.
fn write_bits(codes: &[u8; GROUP], planes: &mut [Plane], lane: usize, shift: u32) {
    let n_bits = planes.len();
    let mask = ((1u32 << n_bits) - 1) as u16;
    for (plane, codes) in planes.iter_mut().zip(codes.chunks_exact(GROUP / n_bits)) {
        for (word, i) in plane.0[2 * lane..][..2].iter_mut().zip(0..) {
            let bits = |t: usize| (u16::from(codes[2 * t + i]) >> shift & mask) << (t * n_bits);
            *word = (0..16 / n_bits).fold(0, |word, t| word | bits(t));
        }
    }
}
