//! WGSL text of every kernel: a prelude of constants, then whole files, put together; each piece is a file that can be read.
//!
//! Invariant: [`ShaderKey::all`] lists every text that can be made, and a test validates them all.

use std::borrow::Cow;

use super::block_texts::block_texts;
use super::tuning::{CLASSES, Cut};
use super::{attend_text, attention_sums, matvec_text, packed, serial_attention, serial_tile};
use crate::format::block::BlockType;
/// Block types that kernels decode: all that the processor does.
pub use crate::format::decode::DECODED as BLOCK_TYPES;
use crate::plan::{KvType, NormKind};

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
    /// As `Workgroup`, and sums are first taken over subgroups: real GPUs that have them, of one size.
    Subgroup,
}

/// All of them.
pub const VARIANTS: [Variant; 3] = [Variant::Serial, Variant::Workgroup, Variant::Subgroup];

impl Variant {
    /// Whether the invocations of a workgroup work together.
    pub fn shares_work(self) -> bool {
        self != Self::Serial
    }
}

/// How much a workgroup of `matmul_tiled` computes. Both add in the same order, so this is a choice of speed alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TileSize {
    /// 16 pairs of outputs for 32 rows: more workgroups where there is little to do.
    Small,
    /// 32 pairs of outputs for 64 rows: each staged value is used twice as often.
    Large,
}

impl TileSize {
    /// Pairs of outputs and rows of a workgroup.
    pub fn pairs_and_rows(self) -> [u32; 2] {
        match self {
            Self::Small => [16, 32],
            Self::Large => [32, 64],
        }
    }

    /// The large one, where it leaves the device at least so many workgroups.
    pub fn for_size(n_pairs: u32, n_rows: u32, least_groups: u32) -> Self {
        let [pairs, rows] = Self::Large.pairs_and_rows();
        let n_groups = n_pairs.div_ceil(pairs) * n_rows.div_ceil(rows);
        if n_groups >= least_groups { Self::Large } else { Self::Small }
    }
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
        /// The cache's number type, one whose values stand alone.
        kv: KvType,
        /// Width of a head.
        head_dim: u32,
    },
}

/// A matrix times a tile of rows, by workgroups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Matvec {
    /// Whether sums are first taken over subgroups.
    pub subgroups: bool,
    /// How the weights are stored.
    pub block: BlockType,
    /// Rows together: 1, 2, 4 or 8.
    pub tile: u32,
    /// What is done with the products.
    pub emit: Emit,
    /// What is done with the rows first.
    pub norm: Option<NormKind>,
    /// How the matrix is cut into workgroups.
    pub cut: Cut,
}

/// Which text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ShaderKey {
    /// Embedding rows, and those of positions where they are of one of [`POSITION_TYPES`].
    Embed(BlockType, Option<BlockType>),
    /// A norm of the stream.
    Norm(Variant),
    /// Norm of each head of q and k, and their rotation, where the projection could not do it.
    Rotate(Variant, KvType, u32),
    /// Attention from the cache.
    Attend(Variant, KvType, u32),
    /// The same for some rows of a prompt together: on real GPUs.
    AttendTiled(KvType, u32),
    /// Attention of decode rows, range by range, where so many heads share a workgroup: on real GPUs.
    AttendSplit(KvType, u32, u32),
    /// What becomes of the ranges.
    AttendMerge(u32),
    /// A matmul in tiles of 1, 2, 4 or 8 rows, one invocation an output: all rows on software adapters.
    Matmul(BlockType, u32, Emit),
    /// The same, workgroups sharing the columns of outputs: decode and logits on real GPUs.
    Matvec(Matvec),
    /// Activations to packed blocks.
    Quantize(Variant),
    /// A norm of the stream, packed.
    NormFast(Variant),
    /// A matmul of packed activations in tiles of 1, 2, 4 or 8 rows: `fast`.
    MatmulFast(Variant, BlockType, u32, Emit),
    /// A matmul that stages its sides in workgroup memory: prefill on real GPUs.
    MatmulTiled(BlockType, Emit, TileSize),
    /// The choice of a token from logits; where barriers cost too much the host makes it.
    Sample,
}

impl ShaderKey {
    /// The entry point, which is also the name of the kernel's file.
    pub fn entry_point(self) -> &'static str {
        match self {
            Self::Embed(..) => "embed",
            Self::Norm(Variant::Serial) | Self::NormFast(Variant::Serial) => "norm_serial",
            Self::Norm(_) | Self::NormFast(_) => "norm_reduce",
            Self::Rotate(Variant::Serial, ..) => "rotate_serial",
            Self::Rotate(..) => "rotate_reduce",
            Self::Attend(Variant::Serial, ..) => "attend_serial",
            Self::Attend(..) => "attend_reduce",
            Self::AttendTiled(..) => "attend_tiled",
            Self::AttendSplit(..) => "attend_split",
            Self::AttendMerge(_) => "attend_merge",
            Self::Matmul(..) => "matmul_serial",
            Self::Matvec(_) => "matvec",
            Self::MatmulTiled(.., TileSize::Small) => "matmul_tiled",
            Self::MatmulTiled(.., TileSize::Large) => "matmul_tiled_large",
            Self::Quantize(_) => "quantize",
            Self::MatmulFast(Variant::Serial, ..) => "matmul_serial",
            Self::MatmulFast(..) => "matmul_reduce_fast",
            Self::Sample => "sample_reduce",
        }
    }

    /// The whole text; `has_dot4` tells whether the device's WGSL has `dot4I8Packed`.
    pub fn source(self, has_dot4: bool) -> String {
        let mut text = self.prelude();
        for piece in self.pieces(has_dot4) {
            text.push('\n');
            text.push_str(&piece);
        }
        text
    }

    /// The constants that its files are written with.
    pub(super) fn prelude(self) -> String {
        let mut text = String::new();
        if cfg!(target_arch = "wasm32") && self.uses_subgroups() {
            // Browsers want this said; naga refuses it. Where subgroups sum, all invocations come by: the early returns are
            // those of whole workgroups, which a browser's analysis may not see.
            text.push_str("enable subgroups;\ndiagnostic(off, subgroup_uniformity);\n");
        }
        let workgroup = match self {
            Self::MatmulFast(Variant::Serial, ..) => packed::SERIAL_WORKGROUP,
            _ => WORKGROUP,
        };
        let input = if matches!(self, Self::MatmulFast(..)) { "vec4<u32>" } else { "vec4<f32>" };
        let output = if matches!(self, Self::Quantize(_) | Self::NormFast(_)) { "u32" } else { "f32" };
        text.push_str(&format!(
            "const WORKGROUP: u32 = {workgroup}u;\nconst GRID_LIMIT: u32 = {GRID_LIMIT}u;\n"
        ));
        text.push_str(&format!("alias Input = {input};\nalias Output = {output};\n"));
        if matches!(self, Self::Quantize(_) | Self::NormFast(_) | Self::MatmulFast(..)) {
            text.push_str(&format!("const GROUP_WORDS: u32 = {}u;\n", packed::GROUP_WORDS));
        }
        if let Some(head_dim) = self.head_dim() {
            text.push_str(&format!("const HEAD_DIM: u32 = {head_dim}u;\n"));
        }
        if matches!(self, Self::AttendSplit(..) | Self::AttendMerge(_)) {
            text.push_str(&format!("const RANGE: u32 = {}u;\n", attend_text::RANGE));
        }
        text
    }

    fn head_dim(self) -> Option<u32> {
        match self {
            Self::Rotate(_, _, head_dim)
            | Self::Attend(_, _, head_dim)
            | Self::AttendTiled(_, head_dim)
            | Self::AttendSplit(_, head_dim, _)
            | Self::AttendMerge(head_dim)
            | Self::Matmul(_, _, Emit::Qkv { head_dim, .. })
            | Self::Matvec(Matvec { emit: Emit::Qkv { head_dim, .. }, .. })
            | Self::MatmulFast(_, _, _, Emit::Qkv { head_dim, .. })
            | Self::MatmulTiled(_, Emit::Qkv { head_dim, .. }, _) => Some(head_dim),
            Self::Embed(..) | Self::Norm(_) | Self::NormFast(_) | Self::Quantize(_) | Self::Sample => None,
            Self::Matmul(..) | Self::Matvec(_) | Self::MatmulFast(..) | Self::MatmulTiled(..) => None,
        }
    }

    fn pieces(self, has_dot4: bool) -> Vec<Cow<'static, str>> {
        let mut pieces: Vec<_> = self.files().into_iter().map(Cow::Borrowed).collect();
        match self {
            Self::Matmul(_, tile, _) => pieces.push(Cow::Owned(serial_tile::text(tile))),
            Self::Matvec(Matvec { tile, norm, cut, .. }) => {
                pieces.push(Cow::Owned(matvec_text::text(cut, tile, norm)));
            }
            Self::Attend(Variant::Serial, _, head_dim) => {
                pieces.push(Cow::Owned(serial_attention::text(head_dim)));
            }
            Self::AttendSplit(_, _, n_heads) => pieces.push(Cow::Owned(attend_text::text(n_heads))),
            Self::AttendTiled(_, head_dim) => pieces.push(Cow::Owned(attention_sums::text(head_dim))),
            Self::MatmulFast(variant, block, tile, _) => {
                pieces.push(Cow::Owned(packed::codes_text(block, variant)));
                if variant == Variant::Serial {
                    pieces.push(Cow::Owned(packed::serial_text(block, tile)));
                } else {
                    pieces.push(Cow::Borrowed(match has_dot4 {
                        true => include_str!("kernels/dot4.wgsl"),
                        false => include_str!("kernels/dot4_by_hand.wgsl"),
                    }));
                    pieces.push(Cow::Owned(format!("const TILE: u32 = {tile}u;\n")));
                }
            }
            _ => {}
        }
        pieces
    }

    fn uses_subgroups(self) -> bool {
        matches!(self, Self::Matvec(Matvec { subgroups: true, .. }))
    }

    /// Whether its invocations must find workgroup memory at zero; other kernels write before they read.
    pub fn needs_zeroed_memory(self) -> bool {
        self.uses_subgroups()
    }

    fn files(self) -> Vec<&'static str> {
        let mut pieces = vec![include_str!("kernels/common.wgsl")];
        match self {
            Self::Embed(block, positions) => {
                pieces.extend(block_texts(block));
                pieces.push(position_text(positions));
                pieces.push(include_str!("kernels/embed.wgsl"));
            }
            Self::Quantize(variant) => pieces.extend([
                packed::columns_text(variant),
                include_str!("kernels/quantize_block.wgsl"),
                include_str!("kernels/quantize.wgsl"),
            ]),
            Self::MatmulFast(variant, block, _, emit) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                pieces.push(match variant {
                    // What it sums is made, not read.
                    Variant::Serial => include_str!("kernels/matmul_serial.wgsl"),
                    _ => include_str!("kernels/matmul_reduce_fast.wgsl"),
                });
            }
            Self::Norm(variant) | Self::NormFast(variant) => {
                pieces.push(include_str!("kernels/source_row.wgsl"));
                match self {
                    Self::NormFast(_) => pieces.extend([
                        packed::columns_text(variant),
                        include_str!("kernels/quantize_block.wgsl"),
                        include_str!("kernels/norm_quantize.wgsl"),
                    ]),
                    _ => pieces.push(include_str!("kernels/norm_store.wgsl")),
                }
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/norm_serial.wgsl"),
                    _ => include_str!("kernels/norm_reduce.wgsl"),
                });
            }
            Self::Rotate(variant, kv, _) => {
                pieces.extend(kv_texts(kv));
                pieces.push(include_str!("kernels/rotary.wgsl"));
                pieces.push(include_str!("kernels/rotate_pieces.wgsl"));
                pieces.extend(cache_texts(kv));
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/rotate_serial.wgsl"),
                    _ => include_str!("kernels/rotate_reduce.wgsl"),
                });
            }
            Self::Attend(variant, kv, _) => {
                pieces.extend(kv_texts(kv));
                pieces.push(match variant {
                    Variant::Serial => include_str!("kernels/attend_serial.wgsl"),
                    _ => include_str!("kernels/attend_reduce.wgsl"),
                });
            }
            Self::AttendTiled(kv, _) => {
                pieces.extend(kv_texts(kv));
                pieces.push(include_str!("kernels/attend_tiled.wgsl"));
            }
            Self::AttendSplit(kv, ..) => {
                pieces.push(include_str!("kernels/kv_index.wgsl"));
                match kv {
                    KvType::F16 => pieces.push(include_str!("kernels/kv_quads_f16.wgsl")),
                    KvType::F32 => pieces.push(include_str!("kernels/kv_quads_f32.wgsl")),
                    KvType::Q8 => pieces.extend([
                        include_str!("kernels/kv_q8.wgsl"),
                        include_str!("kernels/kv_quads_q8.wgsl"),
                    ]),
                }
                pieces.push(include_str!("kernels/attend_split.wgsl"));
            }
            Self::AttendMerge(_) => pieces
                .extend([include_str!("kernels/kv_index.wgsl"), include_str!("kernels/attend_merge.wgsl")]),
            Self::Matmul(block, _, emit) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                pieces.push(include_str!("kernels/matmul_serial.wgsl"));
            }
            Self::Matvec(Matvec { subgroups, block, emit, .. }) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                pieces.push(include_str!("kernels/source_row.wgsl"));
                pieces.push(match subgroups {
                    true => include_str!("kernels/reduce_subgroup.wgsl"),
                    false => include_str!("kernels/reduce_memory.wgsl"),
                });
                pieces.push(include_str!("kernels/matvec.wgsl"));
            }
            Self::MatmulTiled(block, emit, size) => {
                pieces.extend(block_texts(block));
                push_emit(&mut pieces, emit);
                pieces.push(match size {
                    TileSize::Small => include_str!("kernels/matmul_tiled.wgsl"),
                    TileSize::Large => include_str!("kernels/matmul_tiled_large.wgsl"),
                });
            }
            Self::Sample => pieces.extend([
                include_str!("kernels/sample_reduce.wgsl"),
                include_str!("kernels/sample_rule.wgsl"),
            ]),
        }
        pieces
    }

    /// Every key for one head width; of matvecs, every block type in one cut, and one in every cut and with every norm.
    pub fn all(head_dim: u32) -> Vec<Self> {
        let pair_types = [KvType::F16, KvType::F32];
        let kv_types = [KvType::F16, KvType::F32, KvType::Q8];
        let mut emits = vec![Emit::Store, Emit::Add, Emit::Multiply, Emit::Gated];
        emits.extend(pair_types.map(|kv| Emit::Qkv { kv, head_dim }));
        let mut keys = vec![Self::Sample, Self::AttendMerge(head_dim)];
        for variant in [Variant::Serial, Variant::Workgroup] {
            keys.push(Self::Quantize(variant));
            keys.push(Self::Norm(variant));
            keys.push(Self::NormFast(variant));
            keys.extend(kv_types.map(|kv| Self::Attend(variant, kv, head_dim)));
            keys.extend(kv_types.map(|kv| Self::Rotate(variant, kv, head_dim)));
        }
        keys.extend(kv_types.map(|kv| Self::AttendTiled(kv, head_dim)));
        for n_heads in 1..=attend_text::heads_for(u32::MAX, head_dim) {
            keys.extend(kv_types.map(|kv| Self::AttendSplit(kv, head_dim, n_heads)));
        }
        let mut cuts: Vec<Cut> = Vec::new();
        for cut in CLASSES.iter().flat_map(|class| [1, 40, 1 << 10].map(|n| class.tuning().cut(n))) {
            if !cuts.contains(&cut) {
                cuts.push(cut);
            }
        }
        for block in BLOCK_TYPES {
            keys.push(Self::Embed(block, None));
            keys.extend(POSITION_TYPES.map(|positions| Self::Embed(block, Some(positions))));
            for emit in &emits {
                keys.extend(
                    [TileSize::Small, TileSize::Large].map(|size| Self::MatmulTiled(block, *emit, size)),
                );
                keys.extend(TILES.map(|tile| Self::Matmul(block, tile, *emit)));
                if packed::has_codes(block) {
                    for variant in [Variant::Serial, Variant::Workgroup] {
                        keys.extend(TILES.map(|tile| Self::MatmulFast(variant, block, tile, *emit)));
                    }
                }
                let plain =
                    Matvec { subgroups: false, block, tile: 1, emit: *emit, norm: None, cut: cuts[0] };
                if block == BLOCK_TYPES[0] {
                    keys.extend(
                        cuts.iter().flat_map(|cut| Matvec { cut: *cut, ..plain }.all()).map(Self::Matvec),
                    );
                } else {
                    keys.extend(TILES.map(|tile| Self::Matvec(Matvec { tile, ..plain })));
                }
            }
        }
        keys
    }
}

impl Matvec {
    /// Every tile and norm, with subgroups and without.
    fn all(self) -> impl Iterator<Item = Self> {
        let norms = [None, Some(NormKind::RootMeanSquare), Some(NormKind::Layer)];
        TILES.into_iter().flat_map(move |tile| {
            norms
                .into_iter()
                .flat_map(move |norm| [false, true].map(|subgroups| Self { subgroups, tile, norm, ..self }))
        })
    }
}

/// How positions that are added while tokens are embedded may be stored.
pub const POSITION_TYPES: [BlockType; 3] = [BlockType::F32, BlockType::F16, BlockType::BF16];

fn position_text(positions: Option<BlockType>) -> &'static str {
    match positions {
        None => include_str!("kernels/positions_none.wgsl"),
        Some(BlockType::F32) => include_str!("kernels/positions_f32.wgsl"),
        Some(BlockType::F16) => include_str!("kernels/positions_f16.wgsl"),
        Some(BlockType::BF16) => include_str!("kernels/positions_bf16.wgsl"),
        Some(other) => panic!("positions of {other} are added by a dispatch of their own"),
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
            pieces.push(include_str!("kernels/write_pair.wgsl"));
            pieces.push(include_str!("kernels/emit_qkv.wgsl"));
        }
    }
}

fn kv_texts(kv: KvType) -> [&'static str; 2] {
    let values = match kv {
        KvType::F16 => include_str!("kernels/kv_f16.wgsl"),
        KvType::F32 => include_str!("kernels/kv_f32.wgsl"),
        KvType::Q8 => include_str!("kernels/kv_q8.wgsl"),
    };
    [include_str!("kernels/kv_index.wgsl"), values]
}

/// How a head goes to the cache: pair by pair, or where its values share a scale as a whole.
fn cache_texts(kv: KvType) -> &'static [&'static str] {
    match kv {
        KvType::F16 | KvType::F32 => {
            &[include_str!("kernels/write_pair.wgsl"), include_str!("kernels/cache_pairs.wgsl")]
        }
        KvType::Q8 => &[include_str!("kernels/cache_q8.wgsl")],
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
