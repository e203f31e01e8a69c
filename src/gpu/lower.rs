//! A plan as a list of dispatches, still as plain data: what a token costs can be counted here without a GPU.
//!
//! Invariant: a dispatch reads one activation buffer and writes another, so that reads are whole vectors.

mod fast;
mod ops;
mod sample;

use super::layout::{Buffer, Layout, Segment, segments};
use super::shader::{ShaderKey, Variant};
use super::tuning::{Cut, Tuning};
use super::weights::is_decoded;
use crate::format::block::BlockType;
use crate::format::decode::decoded_names;
use crate::plan::{MatrixId, Op, Plan};

/// Which rows of a batch a dispatch computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Sampled or drafted tokens.
    Decode,
    /// Tokens of prompts.
    Prefill,
    /// Rows that want logits.
    Logits,
    /// Of these, rows whose token the device chooses.
    Sampled,
}

/// How the workgroups of a dispatch cover its outputs and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// One invocation an item, and one row in y.
    Items {
        /// Items a row.
        n_items: u32,
    },
    /// One invocation as many pairs of outputs as its tile has it, rows in y by the tile.
    Pairs {
        /// Pairs a row.
        n_pairs: u32,
    },
    /// The same for packed activations.
    PackedPairs {
        /// Pairs a row.
        n_pairs: u32,
        /// What they are made of.
        block: BlockType,
    },
    /// So many items a workgroup, rows in y by the tile.
    TiledRows {
        /// Items a row.
        n_items: u32,
        /// Items a workgroup.
        items: u32,
    },
    /// So many items a workgroup, rows in y by so many a workgroup.
    Groups {
        /// Items a row.
        n_items: u32,
        /// Items a workgroup.
        items: u32,
        /// Rows a workgroup.
        rows: u32,
    },
    /// As many pairs of outputs a workgroup as a cut has for the tile, rows in y by the tile.
    Cut {
        /// Pairs a row.
        n_pairs: u32,
        /// How the matrix is cut.
        cut: Cut,
    },
    /// One workgroup a span of positions, as many as the row that sees most has; rows in y, items in z.
    Spans {
        /// Items a row.
        n_items: u32,
        /// Positions a workgroup.
        span: usize,
        /// How many positions a row sees, where not all.
        window: Option<usize>,
    },
    /// Tiles of pairs of outputs and rows, large ones where these are enough workgroups.
    Tiled {
        /// Pairs a row.
        n_pairs: u32,
        /// So many workgroups are enough.
        least_groups: u32,
    },
    /// A workgroup for each head of keys and each of the batch's attention tiles.
    AttentionTiles {
        /// Heads of keys.
        n_kv_heads: u32,
    },
    /// One invocation an item of a row, rows and items in x.
    Flat {
        /// Items a row.
        n_items: u32,
    },
}

/// One dispatch, for any number of rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Dispatch {
    /// The kernel; a matmul's tile is chosen for each batch.
    pub shader: ShaderKey,
    /// Which rows.
    pub rows: Rows,
    /// What the shader reads as `Constants`.
    pub constants: Constants,
    /// Activations it reads.
    pub inputs: Buffer,
    /// Activations it writes.
    pub outputs: Buffer,
    /// Weights it reads.
    pub matrix: Option<(MatrixId, usize)>,
    /// Learned positions that are embedded with the tokens: bound where a cache is otherwise.
    pub positions: Option<MatrixId>,
    /// Layer whose cache it reads or writes.
    pub layer: Option<usize>,
    /// Its workgroups.
    pub grid: Grid,
}

/// `Constants` of common.wgsl, field by field.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Default, bytemuck::Pod, bytemuck::Zeroable)]
#[expect(missing_docs, reason = "common.wgsl documents them")]
pub struct Constants {
    pub rows: u32,
    pub n_blocks: u32,
    pub first_output: u32,
    pub segment_rows: u32,
    pub x: u32,
    pub x_stride: u32,
    pub y: u32,
    pub y_stride: u32,
    pub n_heads: u32,
    pub n_kv_heads: u32,
    pub cache: u32,
    pub window: u32,
    pub value: f32,
    pub softcap: f32,
    pub nonlinearity: u32,
    pub adds: u32,
    pub weight: u32,
    pub key_weight: u32,
    pub bias: u32,
    pub rotary: u32,
    pub split_half: u32,
    pub is_layer_norm: u32,
    pub norm_bias: u32,
    pub n_ranges: u32,
    pub plain: u32,
    pub unused: [u32; 3],
}

/// `NONE` of common.wgsl.
const NONE: u32 = u32::MAX;

/// Why a plan cannot run on this device.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LowerError {
    /// No kernel decodes a block type.
    #[error(
        "tensor {tensor} is stored as {block_type}, which pagelm does not decode yet; {} work, so take the model in one of these",
        decoded_names()
    )]
    BlockType {
        /// The tensor.
        tensor: String,
        /// Its type.
        block_type: &'static str,
    },
    /// A width does not fit the kernels.
    #[error(
        "the model's {what} is {found}, but the GPU kernels need a multiple of {multiple}; another model of the family may work"
    )]
    Width {
        /// Which width.
        what: &'static str,
        /// Its value.
        found: usize,
        /// Of what it must be a multiple.
        multiple: usize,
    },
    /// A head is wider than an invocation can hold.
    #[error(
        "the model's heads are {found} wide, but the GPU kernels go to {most}; another model of the family may work"
    )]
    HeadTooWide {
        /// Its width.
        found: usize,
        /// The widest.
        most: usize,
    },
    /// Something does not fit one binding.
    #[error(
        "{what} needs a binding of {needed_bytes} bytes, but this adapter allows {limit_bytes}; a smaller context or model would fit"
    )]
    Binding {
        /// What is too large.
        what: String,
        /// Its size.
        needed_bytes: u64,
        /// The limit.
        limit_bytes: u64,
    },
}

/// Everything that lowering has to know of a device.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// Which kernels.
    pub variant: Variant,
    /// How they are cut into workgroups.
    pub tuning: Tuning,
    /// Largest binding of a matrix in bytes.
    pub max_matrix_bytes: u64,
    /// Whether it chooses tokens.
    pub samples: bool,
}

/// A plan for one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// In order; those over decode rows and over prefill rows of an operation follow each other.
    pub dispatches: Vec<Dispatch>,
    /// How each matrix of the plan is split into bindings.
    pub segments: Vec<Vec<Segment>>,
}

/// Lowers a plan; refuses what this device's kernels cannot compute.
pub fn lower(plan: &Plan, layout: &Layout, target: Target) -> Result<Lowered, LowerError> {
    check(plan)?;
    let segments = split_matrices(plan, target)?;
    let mut dispatches = ops::dispatches(plan, layout, target, &segments);
    dispatches.extend(target.samples.then(|| sample::dispatch(plan, layout)));
    Ok(Lowered { dispatches, segments })
}

/// A matrix is split where its use allows: q, k and v between heads, gate and up alike, others between pairs of rows.
fn split_matrices(plan: &Plan, target: Target) -> Result<Vec<Vec<Segment>>, LowerError> {
    let mut uses = vec![(2, false); plan.matrices.len()];
    for op in &plan.ops {
        match op {
            Op::ProjectQkv { weights, .. } => {
                for id in weights {
                    uses[id.0] = (plan.sizes.head_dim, false);
                }
            }
            Op::GatedMlp { weights, .. } => {
                if let [both] = weights.as_slice() {
                    uses[both.0] = (1, true);
                }
            }
            Op::Embed { .. }
            | Op::AddPosition { .. }
            | Op::Attend { .. }
            | Op::ProjectAdd { .. }
            | Op::Mlp { .. }
            | Op::Logits { .. } => {}
        }
    }
    let split = |(matrix, (unit, halves))| segments(matrix, unit, halves, target.max_matrix_bytes);
    plan.matrices.iter().zip(uses).map(split).collect()
}

/// Attention keeps a head in the registers of an invocation or in workgroup memory; no model of today has wider ones.
const MAX_HEAD_DIM: usize = 256;

fn check(plan: &Plan) -> Result<(), LowerError> {
    for matrix in &plan.matrices {
        if !is_decoded(matrix.block_type) {
            let tensor = matrix.parts.first().map_or_else(String::new, |part| part.tensor.clone());
            return Err(LowerError::BlockType { tensor, block_type: matrix.block_type.name() });
        }
    }
    let sizes = &plan.sizes;
    if sizes.head_dim > MAX_HEAD_DIM {
        return Err(LowerError::HeadTooWide { found: sizes.head_dim, most: MAX_HEAD_DIM });
    }
    let widths = [
        ("width", sizes.width, 32),
        ("width of the MLP", sizes.mlp_width, 32),
        ("width of attention", sizes.n_heads * sizes.head_dim, 32),
        ("head width", sizes.head_dim, 4),
    ];
    for (what, found, multiple) in widths {
        if !found.is_multiple_of(multiple) {
            return Err(LowerError::Width { what, found, multiple });
        }
    }
    Ok(())
}
