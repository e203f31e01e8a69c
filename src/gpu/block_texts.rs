//! Which files of WGSL decode a block type.
//!
//! Invariant: whatever the type, kernels find the same names: `row_start`, `block_words`, `block_scale`, `decode8`.

use crate::format::block::BlockType;

/// How the groups of a type's rows are found and decoded.
pub(super) fn block_texts(block: BlockType) -> &'static [&'static str] {
    const BITS: &str = include_str!("kernels/group_bits.wgsl");
    const ROWS: &str = include_str!("kernels/group_rows.wgsl");
    const PAIRED: &str = include_str!("kernels/group_rows_paired.wgsl");
    const SUPERBLOCK: &str = include_str!("kernels/group_superblock.wgsl");
    const HALVES: &str = include_str!("kernels/group_halves.wgsl");
    const NIBBLES_MIN: &str = include_str!("kernels/group_nibbles_min.wgsl");
    const FIVES_MIN: &str = include_str!("kernels/group_fives_min.wgsl");
    const IQ4: &str = include_str!("kernels/group_iq4.wgsl");
    match block {
        BlockType::F32 => &[BITS, ROWS, include_str!("kernels/block_f32.wgsl")],
        BlockType::F16 => &[BITS, ROWS, HALVES, include_str!("kernels/block_f16.wgsl")],
        BlockType::BF16 => &[BITS, ROWS, HALVES, include_str!("kernels/block_bf16.wgsl")],
        BlockType::Q4_0 => &[BITS, PAIRED, include_str!("kernels/block_q4_0.wgsl")],
        BlockType::Q4_1 => &[BITS, ROWS, NIBBLES_MIN, include_str!("kernels/block_q4_1.wgsl")],
        BlockType::Q5_0 => &[BITS, ROWS, include_str!("kernels/block_q5_0.wgsl")],
        BlockType::Q5_1 => &[BITS, ROWS, FIVES_MIN, include_str!("kernels/block_q5_1.wgsl")],
        BlockType::Q8_0 => &[BITS, ROWS, include_str!("kernels/block_q8_0.wgsl")],
        BlockType::Q2_K => &[BITS, ROWS, SUPERBLOCK, include_str!("kernels/block_q2_k.wgsl")],
        BlockType::Q3_K => &[BITS, ROWS, SUPERBLOCK, include_str!("kernels/block_q3_k.wgsl")],
        BlockType::Q4_K => &[BITS, ROWS, SUPERBLOCK, NIBBLES_MIN, include_str!("kernels/block_q4_k.wgsl")],
        BlockType::Q5_K => &[BITS, ROWS, SUPERBLOCK, FIVES_MIN, include_str!("kernels/block_q5_k.wgsl")],
        BlockType::Q6_K => &[BITS, ROWS, SUPERBLOCK, include_str!("kernels/block_q6_k.wgsl")],
        BlockType::IQ4_NL => &[BITS, PAIRED, IQ4, include_str!("kernels/block_iq4_nl.wgsl")],
        BlockType::IQ4_XS => &[BITS, ROWS, SUPERBLOCK, IQ4, include_str!("kernels/block_iq4_xs.wgsl")],
        BlockType::MXFP4 => &[BITS, PAIRED, include_str!("kernels/block_mxfp4.wgsl")],
        other => panic!("no kernel decodes {}; lowering refuses it", other.name()),
    }
}
