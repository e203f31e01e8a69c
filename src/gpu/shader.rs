//! WGSL text of every kernel: a prelude of constants, then whole files, put together; each piece is a file that can be read.
//!
//! Invariant: [`ShaderKey::all`] lists every text that can be made, and a test validates them all.

use std::borrow::Cow;

use super::{packed, serial_tile};
use crate::format::block::BlockType;
/// Block types that kernels decode: all that the processor does.
pub use crate::format::decode::DECODED as BLOCK_TYPES;
use crate::plan::KvType;

/// Invocations of a workgroup of the barrier-free kernels and of those that reduce.
pub const WORKGROUP: u32 = 64;

/// WebGPU's default limit on workgroups a dimension; more outputs go on in z.
pub const GRID_LIMIT: u32 = 65535;

/// Rows that a matmul kernel computes together.
pub const TILES: [u32; 4] = [1, 2, 4, 8];

/// A family of kernels, by what its adapters do well.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Variant {
    /// Without barriers, one invocation an output: software adapters.
    Serial,
    /// Workgroups that share work through workgroup memory: real GPUs.
    Workgroup,
}

/// What a matmul does with its outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Emit {
    /// Stores them.
    Store,
    /// Adds them to what is there.
    Add,
    /// Multiplies what is there with them.
    Multiply,
    /// nonlinearity(gate) · up.
    Gated,
    /// Rotates q and k; k and v go to the cache.
    Qkv {
        /// The cache's number type.
        kv: KvType,
        /// Width of a head.
        head_dim: u32,
    },
}

/// Which text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShaderKey {
    /// Embedding rows.
    Embed(BlockType),
    /// A norm of the stream.
    Norm(Variant),
    /// Norm of each head of q and k, and their rotation, where the projection could not do it.
    Rotate(Variant, KvType, u32),
    /// Attention from the cache.
    Attend(Variant, KvType, u32),
    /// A matmul in tiles of 1, 2, 4 or 8 rows: decode, logits, and prefill on software adapters.
    Matmul(Variant, BlockType, u32, Emit),
    /// Activations to packed bytes.
    Quantize,
    /// A norm of the stream, packed.
    NormFast(Variant),
    /// A matmul of packed activations in tiles of 1, 2, 4 or 8 rows: `fast`.
    MatmulFast(Variant, BlockType, u32, Emit),
    /// A matmul that stages its sides in workgroup memory: prefill on real GPUs.
    MatmulTiled(BlockType, Emit),
}

impl ShaderKey {
    /// The entry point, which is also the name of the kernel's file.
    pub fn entry_point(self) -> &'static str {
        match self {
            Self::Embed(_) => "embed",
            Self::Norm(Variant::Serial) => "norm_serial",
            Self::Norm(Variant::Workgroup) => "norm_reduce",
            Self::Rotate(Variant::Serial, ..) => "rotate_serial",
            Self::Rotate(Variant::Workgroup, ..) => "rotate_reduce",
            Self::Attend(Variant::Serial, ..) => "attend_serial",
            Self::Attend(Variant::Workgroup, ..) => "attend_reduce",
            Self::Matmul(Variant::Serial, ..) => "matmul_serial",
            Self::Matmul(Variant::Workgroup, ..) => "matmul_reduce",
            Self::MatmulTiled(..) => "matmul_tiled",
            Self::Quantize => "quantize",
            Self::NormFast(Variant::Serial) => "norm_serial",
            Self::NormFast(Variant::Workgroup) => "norm_reduce_fast",
            Self::MatmulFast(Variant::Serial, ..) => "matmul_serial",
            Self::MatmulFast(Variant::Workgroup, ..) => "matmul_reduce_fast",
        }
    }

    /// The whole text; `has_dot4` tells whether the device's WGSL has `dot4I8Packed`.
    pub fn source(self, has_dot4: bool) -> String {
        let workgroup = match self {
            Self::MatmulFast(Variant::Serial, ..) => packed::SERIAL_WORKGROUP,
            _ => WORKGROUP,
        };
        let input = if matches!(self, Self::MatmulFast(..)) { "vec4<u32>" } else { "vec4<f32>" };
        let output = if matches!(self, Self::Quantize | Self::NormFast(_)) { "u32" } else { "f32" };
        let mut text =
            format!("const WORKGROUP: u32 = {workgroup}u;\nconst GRID_LIMIT: u32 = {GRID_LIMIT}u;\n");
        text.push_str(&format!("alias Input = {input};\nalias Output = {output};\n"));
        if matches!(self, Self::Quantize | Self::NormFast(_) | Self::MatmulFast(..)) {
            text.push_str(&format!("const GROUP_WORDS: u32 = {}u;\n", packed::GROUP_WORDS));
        }
        if let Some(head_dim) = self.head_dim() {
            text.push_str(&format!("const HEAD_DIM: u32 = {head_dim}u;\n"));
        }
        for piece in self.pieces(has_dot4) {
            text.push('\n');
            text.push_str(&piece);
        }
        text
    }

    fn head_dim(self) -> Option<u32> {
        match self {
            Self::Rotate(_, _, head_dim)
            | Self::Attend(_, _, head_dim)
            | Self::Matmul(_, _, _, Emit::Qkv { head_dim, .. })
            | Self::MatmulFast(_, _, _, Emit::Qkv { head_dim, .. })
            | Self::MatmulTiled(_, Emit::Qkv { head_dim, .. }) => Some(head_dim),
            Self::Embed(_)
            | Self::Norm(_)
            | Self::Matmul(..)
            | Self::MatmulTiled(..)
            | Self::Quantize
            | Self::NormFast(_)
            | Self::MatmulFast(..) => None,
        }
    }

    fn pieces(self, has_dot4: bool) -> Vec<Cow<'static, str>> {
        let mut pieces: Vec<_> = self.files().into_iter().map(Cow::Borrowed).collect();
        match self {
            Self::Matmul(Variant::Serial, _, tile, _) => pieces.push(Cow::Owned(serial_tile::text(tile))),
            Self::MatmulFast(variant, block, tile, _) => {
                pieces.push(Cow::Borrowed(match has_dot4 {
                    true => include_str!("kernels/dot4.wgsl"),
                    false => include_str!("kernels/dot4_by_hand.wgsl"),
                }));
                pieces.push(Cow::Owned(packed::codes_text(block)));
                pieces.push(Cow::Owned(match variant {
                    Variant::Serial => packed::serial_text(block, tile),
                    Variant::Workgroup => format!("const TILE: u32 = {tile}u;\n"),
                }));
            }
            _ => {}
        }
        pieces
    }

    fn files(self) -> Vec<&'static str> {
        let mut pieces = vec![include_str!("kernels/common.wgsl")];
        match self {
            Self::Embed(block) => {
                pieces.extend(block_texts(block));
                pieces.push(include_str!("kernels/embed.wgsl"));
            }
            Self::Quantize => pieces
                .extend([include_str!("kernels/quantize_block.wgsl"), include_str!("kernels/quantize.wgsl")]),
            Self::NormFast(variant) => {
                pieces.push(include_str!("kernels/source_row.wgsl"));
                pieces.push(include_str!("kernels/quantize_block.wgsl"));
                pieces.push(include_str!("kernels/norm_quantize.wgsl"));
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/norm_serial.wgsl"),
                    Variant::Workgroup => include_str!("kernels/norm_reduce_fast.wgsl"),
                });
            }
            Self::MatmulFast(variant, block, _, emit) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                pieces.push(match variant {
                    // What it sums is made, not read.
                    Variant::Serial => include_str!("kernels/matmul_serial.wgsl"),
                    Variant::Workgroup => include_str!("kernels/matmul_reduce_fast.wgsl"),
                });
            }
            Self::Norm(variant) => {
                pieces.push(include_str!("kernels/source_row.wgsl"));
                pieces.push(include_str!("kernels/norm_store.wgsl"));
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/norm_serial.wgsl"),
                    Variant::Workgroup => include_str!("kernels/norm_reduce.wgsl"),
                });
            }
            Self::Rotate(variant, kv, _) => {
                pieces.extend(kv_texts(kv));
                pieces.push(include_str!("kernels/rotary.wgsl"));
                pieces.push(include_str!("kernels/rotate_pieces.wgsl"));
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/rotate_serial.wgsl"),
                    Variant::Workgroup => include_str!("kernels/rotate_reduce.wgsl"),
                });
            }
            Self::Attend(variant, kv, _) => {
                pieces.extend(kv_texts(kv));
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/attend_serial.wgsl"),
                    Variant::Workgroup => include_str!("kernels/attend_reduce.wgsl"),
                });
            }
            Self::Matmul(variant, block, tile, emit) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                match variant {
                    // Its tile is made, not read.
                    Variant::Serial => pieces.push(include_str!("kernels/matmul_serial.wgsl")),
                    Variant::Workgroup => {
                        pieces.extend([tile_text(tile), include_str!("kernels/matmul_reduce.wgsl")]);
                    }
                }
            }
            Self::MatmulTiled(block, emit) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                pieces.push(include_str!("kernels/matmul_tiled.wgsl"));
            }
        }
        pieces
    }

    /// Every key for one head width.
    pub fn all(head_dim: u32) -> Vec<Self> {
        let variants = [Variant::Serial, Variant::Workgroup];
        let kv_types = [KvType::F16, KvType::F32];
        let mut emits = vec![Emit::Store, Emit::Add, Emit::Multiply, Emit::Gated];
        emits.extend(kv_types.map(|kv| Emit::Qkv { kv, head_dim }));
        let mut keys = Vec::new();
        keys.push(Self::Quantize);
        for variant in variants {
            keys.push(Self::Norm(variant));
            keys.push(Self::NormFast(variant));
            keys.extend(kv_types.map(|kv| Self::Attend(variant, kv, head_dim)));
            keys.extend(kv_types.map(|kv| Self::Rotate(variant, kv, head_dim)));
        }
        for block in BLOCK_TYPES {
            keys.push(Self::Embed(block));
            for emit in &emits {
                keys.push(Self::MatmulTiled(block, *emit));
                for variant in variants {
                    keys.extend(TILES.map(|tile| Self::Matmul(variant, block, tile, *emit)));
                    if packed::has_codes(block) {
                        keys.extend(TILES.map(|tile| Self::MatmulFast(variant, block, tile, *emit)));
                    }
                }
            }
        }
        keys
    }
}

fn push_emit(pieces: &mut Vec<&'static str>, emit: Emit) {
    match emit {
        Emit::Store => {
            pieces
                .extend([include_str!("kernels/nonlinearity.wgsl"), include_str!("kernels/emit_store.wgsl")]);
        }
        Emit::Add => pieces.push(include_str!("kernels/emit_add.wgsl")),
        Emit::Multiply => pieces.push(include_str!("kernels/emit_multiply.wgsl")),
        Emit::Gated => {
            pieces
                .extend([include_str!("kernels/nonlinearity.wgsl"), include_str!("kernels/emit_gated.wgsl")]);
        }
        Emit::Qkv { kv, .. } => {
            pieces.extend(kv_texts(kv));
            pieces.push(include_str!("kernels/rotary.wgsl"));
            pieces.push(include_str!("kernels/emit_qkv.wgsl"));
        }
    }
}

fn kv_texts(kv: KvType) -> [&'static str; 2] {
    let values = match kv {
        KvType::F16 => include_str!("kernels/kv_f16.wgsl"),
        KvType::F32 => include_str!("kernels/kv_f32.wgsl"),
    };
    [include_str!("kernels/kv_index.wgsl"), values]
}

fn tile_text(tile: u32) -> &'static str {
    match tile {
        1 => include_str!("kernels/tile_1.wgsl"),
        2 => include_str!("kernels/tile_2.wgsl"),
        4 => include_str!("kernels/tile_4.wgsl"),
        8 => include_str!("kernels/tile_8.wgsl"),
        other => panic!("there is no tile of {other} rows"),
    }
}

/// How the groups of a type's rows are found and decoded.
fn block_texts(block: BlockType) -> &'static [&'static str] {
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

/// The tile for so many rows: every size adds in the same order, so this is a choice of speed alone.
pub fn tile_for(n_rows: usize) -> u32 {
    match n_rows {
        0..=1 => 1,
        2 => 2,
        3..=4 => 4,
        _ => 8,
    }
}
