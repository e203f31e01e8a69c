//! A plan as a list of dispatches, still as plain data: what a token costs can be counted here without a GPU.
//!
//! Invariant: a dispatch reads one activation buffer and writes another, so that reads are whole vectors.

use super::layout::{Buffer, Layout, Segment, segments};
use super::shader::{Emit, ShaderKey, Variant};
use super::weights::is_decoded;
use crate::format::decode::decoded_names;
use crate::plan::{Activation, MatrixId, Op, Plan, RmsNorm, RotaryPairs};

/// Which rows of a batch a dispatch computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rows {
    /// Sampled or drafted tokens.
    Decode,
    /// Tokens of prompts.
    Prefill,
    /// Rows that want logits.
    Logits,
}

/// How the workgroups of a dispatch cover its outputs and rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Grid {
    /// One invocation an item, rows in y by so many a workgroup (a matmul's tile where absent).
    Items {
        /// Items a row.
        n_items: u32,
        /// Rows a workgroup.
        rows: Option<u32>,
    },
    /// So many items a workgroup, rows in y by so many a workgroup (a matmul's tile where absent).
    Groups {
        /// Items a row.
        n_items: u32,
        /// Items a workgroup.
        items: u32,
        /// Rows a workgroup.
        rows: Option<u32>,
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
    pub table: u32,
    pub n_heads: u32,
    pub n_kv_heads: u32,
    pub split_half: u32,
    pub value: f32,
    pub unused: [u32; 3],
}

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
    /// Largest binding of a matrix in bytes.
    pub max_matrix_bytes: u64,
}

/// A plan for one device.
#[derive(Debug, Clone, PartialEq)]
pub struct Lowered {
    /// In order; those over decode rows and over prefill rows of an operation follow each other.
    pub dispatches: Vec<Dispatch>,
    /// How each matrix of the plan is split into bindings.
    pub segments: Vec<Vec<Segment>>,
}

struct Lowering<'a> {
    plan: &'a Plan,
    layout: &'a Layout,
    target: Target,
    lowered: Lowered,
}

/// Lowers a plan; refuses what this device's kernels cannot compute.
pub fn lower(plan: &Plan, layout: &Layout, target: Target) -> Result<Lowered, LowerError> {
    check(plan)?;
    let lowered = Lowered { dispatches: Vec::new(), segments: split_matrices(plan, target)? };
    let mut lowering = Lowering { plan, layout, target, lowered };
    for op in &plan.ops {
        if let Op::Logits { norm, weights } = op {
            lowering.logits(norm, *weights);
        } else {
            lowering.op(op, Rows::Decode);
            lowering.op(op, Rows::Prefill);
        }
    }
    Ok(lowering.lowered)
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
            Op::GatedMlp { weights, .. } => uses[weights.0] = (1, true),
            Op::Embed { .. } | Op::Attend { .. } | Op::ProjectAdd { .. } | Op::Logits { .. } => {}
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

impl Lowering<'_> {
    fn op(&mut self, op: &Op, rows: Rows) {
        match op {
            Op::Embed { table } => self.embed(*table, rows),
            Op::ProjectQkv { layer, norm, weights, pairs } => {
                self.norm(norm, rows);
                self.project_qkv(*layer, weights, *pairs, rows);
            }
            Op::Attend { layer, scale } => {
                self.attend(*layer, *scale, rows);
            }
            Op::ProjectAdd { weights, input } => self.project_add(*weights, *input, rows),
            Op::GatedMlp { norm, weights } => {
                self.norm(norm, rows);
                self.gated(*weights, rows);
            }
            Op::Logits { norm, weights } => self.logits(norm, *weights),
        }
    }

    fn constants(&self, rows: Rows) -> Constants {
        let sizes = &self.plan.sizes;
        Constants {
            rows: rows as u32,
            n_heads: sizes.n_heads as u32,
            n_kv_heads: sizes.n_kv_heads as u32,
            ..Constants::default()
        }
    }

    fn embed(&mut self, table: MatrixId, rows: Rows) {
        let matrix = &self.plan.matrices[table.0];
        let n_blocks = (matrix.n_columns / 32) as u32;
        for (i, segment) in self.lowered.segments[table.0].clone().iter().enumerate() {
            let constants = Constants {
                n_blocks,
                first_output: segment.first_output as u32,
                segment_rows: segment.n_rows() as u32,
                y: self.layout.hidden,
                y_stride: self.plan.sizes.width as u32,
                value: 1.0,
                ..self.constants(rows)
            };
            self.lowered.dispatches.push(Dispatch {
                shader: ShaderKey::Embed(matrix.block_type),
                rows,
                constants,
                inputs: Buffer::Inputs,
                outputs: Buffer::Hidden,
                matrix: Some((table, i)),
                layer: None,
                grid: Grid::Items { n_items: n_blocks, rows: Some(1) },
            });
        }
    }

    fn norm(&mut self, norm: &RmsNorm, rows: Rows) {
        let width = self.plan.sizes.width as u32;
        let constants = Constants {
            n_blocks: width / 32,
            x: self.layout.hidden,
            x_stride: width,
            y: if rows == Rows::Logits { self.layout.logits_normed } else { self.layout.normed },
            y_stride: width,
            table: self.layout.vectors[norm.weight.0],
            value: norm.epsilon,
            ..self.constants(rows)
        };
        let variant = self.target.variant;
        self.lowered.dispatches.push(Dispatch {
            shader: ShaderKey::Norm(variant),
            rows,
            constants,
            inputs: Buffer::Hidden,
            outputs: Buffer::Inputs,
            matrix: None,
            layer: None,
            grid: match variant {
                Variant::Serial => Grid::Items { n_items: width / 32, rows: Some(1) },
                Variant::Workgroup => Grid::Groups { n_items: 1, items: 1, rows: Some(1) },
            },
        });
    }

    fn project_qkv(&mut self, layer: usize, weights: &[MatrixId], pairs: RotaryPairs, rows: Rows) {
        let sizes = self.plan.sizes;
        let emit = Emit::Qkv { kv: self.plan.kv, head_dim: sizes.head_dim as u32 };
        let mut first_output = 0;
        for id in weights {
            let base = Constants {
                first_output,
                x: self.layout.normed,
                x_stride: sizes.width as u32,
                y: self.layout.query,
                y_stride: (sizes.n_heads * sizes.head_dim) as u32,
                table: self.layout.rotary,
                split_half: u32::from(pairs == RotaryPairs::SplitHalf),
                ..self.constants(rows)
            };
            self.matmul(*id, emit, rows, base, (Buffer::Inputs, Buffer::Outputs), Some(layer));
            first_output += self.plan.matrices[id.0].n_rows() as u32;
        }
    }

    fn attend(&mut self, layer: usize, scale: f32, rows: Rows) {
        let sizes = self.plan.sizes;
        let width = (sizes.n_heads * sizes.head_dim) as u32;
        let constants = Constants {
            x: self.layout.query,
            x_stride: width,
            y: self.layout.attended,
            y_stride: width,
            value: scale,
            ..self.constants(rows)
        };
        let n_heads = sizes.n_heads as u32;
        self.lowered.dispatches.push(Dispatch {
            shader: ShaderKey::Attend(self.target.variant, self.plan.kv, sizes.head_dim as u32),
            rows,
            constants,
            inputs: Buffer::Outputs,
            outputs: Buffer::Inputs,
            matrix: None,
            layer: Some(layer),
            grid: match self.target.variant {
                Variant::Serial => Grid::Flat { n_items: n_heads },
                Variant::Workgroup => Grid::Groups { n_items: n_heads, items: 1, rows: Some(1) },
            },
        });
    }

    fn project_add(&mut self, weights: MatrixId, input: Activation, rows: Rows) {
        let (inputs, x) = match input {
            Activation::Attended => (Buffer::Inputs, self.layout.attended),
            Activation::Gated => (Buffer::Outputs, self.layout.gated),
        };
        let base = Constants {
            x,
            x_stride: self.plan.matrices[weights.0].n_columns as u32,
            y: self.layout.hidden,
            y_stride: self.plan.sizes.width as u32,
            ..self.constants(rows)
        };
        self.matmul(weights, Emit::Add, rows, base, (inputs, Buffer::Hidden), None);
    }

    fn gated(&mut self, weights: MatrixId, rows: Rows) {
        let sizes = self.plan.sizes;
        let base = Constants {
            x: self.layout.normed,
            x_stride: sizes.width as u32,
            y: self.layout.gated,
            y_stride: sizes.mlp_width as u32,
            ..self.constants(rows)
        };
        self.matmul(weights, Emit::Gated, rows, base, (Buffer::Inputs, Buffer::Outputs), None);
    }

    fn logits(&mut self, norm: &RmsNorm, weights: MatrixId) {
        self.norm(norm, Rows::Logits);
        let base = Constants {
            x: self.layout.logits_normed,
            x_stride: self.plan.sizes.width as u32,
            y: self.layout.logits,
            y_stride: self.plan.sizes.vocab_size as u32,
            ..self.constants(Rows::Logits)
        };
        self.matmul(weights, Emit::Store, Rows::Logits, base, (Buffer::Inputs, Buffer::Outputs), None);
    }

    /// One dispatch a segment of the matrix; `buffers` are what it reads and what it writes.
    fn matmul(
        &mut self,
        id: MatrixId,
        emit: Emit,
        rows: Rows,
        base: Constants,
        buffers: (Buffer, Buffer),
        layer: Option<usize>,
    ) {
        let matrix = &self.plan.matrices[id.0];
        let tiled = rows == Rows::Prefill && self.target.variant == Variant::Workgroup;
        for (i, segment) in self.lowered.segments[id.0].clone().iter().enumerate() {
            let n_rows = segment.n_rows() as u32;
            let n_pairs = n_rows.div_ceil(2);
            let constants = Constants {
                n_blocks: (matrix.n_columns / 32) as u32,
                first_output: base.first_output + segment.first_output as u32,
                segment_rows: n_rows,
                ..base
            };
            let (shader, grid) = match self.target.variant {
                _ if tiled => (
                    ShaderKey::MatmulTiled(matrix.block_type, emit),
                    Grid::Groups { n_items: n_pairs, items: 16, rows: Some(32) },
                ),
                Variant::Serial => (
                    ShaderKey::Matmul(Variant::Serial, matrix.block_type, 1, emit),
                    Grid::Items { n_items: n_pairs, rows: None },
                ),
                Variant::Workgroup => (
                    ShaderKey::Matmul(Variant::Workgroup, matrix.block_type, 1, emit),
                    Grid::Groups { n_items: n_pairs, items: 1, rows: None },
                ),
            };
            let (inputs, outputs) = buffers;
            let matrix = Some((id, i));
            self.lowered.dispatches.push(Dispatch {
                shader,
                rows,
                constants,
                inputs,
                outputs,
                matrix,
                layer,
                grid,
            });
        }
    }
}
