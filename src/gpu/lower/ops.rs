//! Each operation of a plan as its dispatches, over decode rows and over prefill rows.
//!
//! Invariant: the dispatches of an operation depend on nothing but the operation, so a step can be counted from its plan.

use super::{Constants, Dispatch, Grid, NONE, Rows};
use crate::gpu::layout::{Buffer, Layout, Region, Segment};
use crate::gpu::packed::GROUP_WORDS;
use crate::gpu::shader::{Emit, ShaderKey, Variant};
use crate::gpu::weights::GROUP;
use crate::plan::{
    Activation, MatrixId, Nonlinearity, Norm, NormKind, Op, Plan, RotaryPairs, Rotation, VectorId,
};

pub(super) struct Lowering<'a> {
    pub(super) plan: &'a Plan,
    pub(super) layout: &'a Layout,
    pub(super) variant: Variant,
    segments: &'a [Vec<Segment>],
    pub(super) dispatches: Vec<Dispatch>,
}

/// A matmul but for its weights: from where to where, and what is done on the way.
#[derive(Clone, Copy)]
struct Projection {
    emit: Emit,
    from: Region,
    to: Region,
    to_stride: usize,
    layer: Option<usize>,
    rows: Rows,
    constants: Constants,
}

/// All dispatches of a step.
pub(super) fn dispatches(
    plan: &Plan,
    layout: &Layout,
    variant: Variant,
    segments: &[Vec<Segment>],
) -> Vec<Dispatch> {
    let mut lowering = Lowering { plan, layout, variant, segments, dispatches: Vec::new() };
    for op in &plan.ops {
        if matches!(op, Op::Logits { .. }) {
            lowering.op(op, Rows::Logits);
        } else {
            lowering.op(op, Rows::Decode);
            lowering.op(op, Rows::Prefill);
        }
    }
    lowering.dispatches
}

fn nonlinearity(function: Nonlinearity) -> u32 {
    match function {
        Nonlinearity::Silu => 1,
        Nonlinearity::GeluTanh => 2,
    }
}

impl Lowering<'_> {
    fn op(&mut self, op: &Op, rows: Rows) {
        let layout = self.layout;
        match op {
            Op::Embed { table, scale } => self.embed(*table, *scale, false, rows),
            Op::AddPosition { table } => self.embed(*table, 1.0, true, rows),
            Op::ProjectQkv { layer, norm, weights, bias, head_norms, rotation } => {
                self.norm_before(weights, norm, layout.normed, rows);
                match head_norms {
                    None => self.project_qkv(*layer, weights, *bias, *rotation, rows),
                    Some(norms) => {
                        self.project_heads(weights, *bias, rows);
                        self.rotate(*layer, norms, *rotation, rows);
                    }
                }
            }
            Op::Attend { layer, scale, softcap } => self.attend(*layer, *scale, *softcap, rows),
            Op::ProjectAdd { weights, bias, input, post_norm } => {
                self.project_add(*weights, *bias, *input, post_norm.as_ref(), rows);
            }
            Op::GatedMlp { norm, weights, bias, nonlinearity } => {
                self.norm_before(weights, norm, layout.normed, rows);
                self.gated_mlp(weights, *bias, *nonlinearity, rows);
            }
            Op::Mlp { norm, weights, bias, nonlinearity: function } => {
                self.norm_before(&[*weights], norm, layout.normed, rows);
                let constants =
                    Constants { nonlinearity: nonlinearity(*function), ..self.with_bias(*bias, rows) };
                self.mlp_half(*weights, Emit::Store, constants, rows);
            }
            Op::Logits { norm, weights, softcap } => {
                self.norm_before(&[*weights], norm, layout.logits_normed, rows);
                let constants = Constants { softcap: softcap.unwrap_or(0.0), ..self.constants(rows) };
                let (from, to, to_stride) = (layout.logits_normed, layout.logits, self.plan.sizes.vocab_size);
                let emit = Emit::Store;
                self.matmul(*weights, Projection { emit, from, to, to_stride, layer: None, rows, constants });
            }
        }
    }

    pub(super) fn constants(&self, rows: Rows) -> Constants {
        let sizes = &self.plan.sizes;
        Constants {
            rows: rows as u32,
            n_heads: sizes.n_heads as u32,
            n_kv_heads: sizes.n_kv_heads as u32,
            bias: NONE,
            rotary: NONE,
            ..Constants::default()
        }
    }

    pub(super) fn with_bias(&self, bias: Option<VectorId>, rows: Rows) -> Constants {
        Constants { bias: self.vector(bias), ..self.constants(rows) }
    }

    fn vector(&self, id: Option<VectorId>) -> u32 {
        id.map_or(NONE, |id| self.layout.vectors[id.0])
    }

    /// What a kernel has to know of a layer's cache.
    fn of_cache(&self, layer: usize, constants: Constants) -> Constants {
        let cache = self.plan.layer_caches[layer];
        let window = self.plan.caches[cache].window.unwrap_or(0) as u32;
        Constants { cache: cache as u32, window, ..constants }
    }

    fn rotated(&self, rotation: Option<Rotation>, constants: Constants) -> Constants {
        let Some(rotation) = rotation else { return constants };
        Constants {
            rotary: self.layout.rotaries[rotation.rotary],
            split_half: u32::from(rotation.pairs == RotaryPairs::SplitHalf),
            ..constants
        }
    }

    fn embed(&mut self, table: MatrixId, scale: f32, adds: bool, rows: Rows) {
        let matrix = &self.plan.matrices[table.0];
        let n_blocks = (matrix.n_columns / 32) as u32;
        for (i, segment) in self.segments[table.0].iter().enumerate() {
            let constants = Constants {
                n_blocks,
                first_output: segment.first_output as u32,
                segment_rows: segment.n_rows() as u32,
                y: self.layout.hidden.start,
                y_stride: self.plan.sizes.width as u32,
                value: scale,
                adds: u32::from(adds),
                ..self.constants(rows)
            };
            self.dispatches.push(Dispatch {
                shader: ShaderKey::Embed(matrix.block_type),
                rows,
                constants,
                inputs: Buffer::Inputs,
                outputs: Buffer::Hidden,
                matrix: Some((table, i)),
                layer: None,
                grid: Grid::Items { n_items: n_blocks },
            });
        }
    }

    /// Both regions are (rows, width).
    pub(super) fn norm(&mut self, norm: &Norm, from: Region, to: Region, adds: bool, rows: Rows) {
        let width = self.plan.sizes.width as u32;
        let constants = Constants {
            n_blocks: width / 32,
            x: from.start,
            x_stride: width,
            y: to.start,
            y_stride: width,
            weight: self.layout.vectors[norm.weight.0],
            value: norm.epsilon,
            adds: u32::from(adds),
            is_layer_norm: u32::from(norm.kind == NormKind::Layer),
            ..self.with_bias(norm.bias, rows)
        };
        self.dispatches.push(Dispatch {
            shader: ShaderKey::Norm(self.variant),
            rows,
            constants,
            inputs: from.buffer,
            outputs: to.buffer,
            matrix: None,
            layer: None,
            grid: match self.variant {
                Variant::Serial => Grid::Items { n_items: width / 32 },
                Variant::Workgroup => Grid::Groups { n_items: 1, items: 1, rows: Some(1) },
            },
        });
    }

    fn project_qkv(
        &mut self,
        layer: usize,
        weights: &[MatrixId],
        bias: Option<VectorId>,
        rotation: Option<Rotation>,
        rows: Rows,
    ) {
        let sizes = self.plan.sizes;
        let constants = self.rotated(rotation, self.of_cache(layer, self.with_bias(bias, rows)));
        let projection = Projection {
            emit: Emit::Qkv { kv: self.plan.kv, head_dim: sizes.head_dim as u32 },
            from: self.layout.normed,
            to: self.layout.query,
            to_stride: sizes.n_heads * sizes.head_dim,
            layer: Some(layer),
            rows,
            constants,
        };
        self.stacked(weights, projection);
    }

    /// q, k and v as they come, for `rotate`.
    fn project_heads(&mut self, weights: &[MatrixId], bias: Option<VectorId>, rows: Rows) {
        let constants = self.with_bias(bias, rows);
        let projection = Projection {
            emit: Emit::Store,
            from: self.layout.normed,
            to: self.layout.projected,
            to_stride: self.qkv_width(),
            layer: None,
            rows,
            constants,
        };
        self.stacked(weights, projection);
    }

    fn qkv_width(&self) -> usize {
        let sizes = self.plan.sizes;
        (sizes.n_heads + 2 * sizes.n_kv_heads) * sizes.head_dim
    }

    /// Matrices whose outputs follow each other.
    fn stacked(&mut self, weights: &[MatrixId], mut projection: Projection) {
        for id in weights {
            self.matmul(*id, projection);
            projection.constants.first_output += self.plan.matrices[id.0].n_rows() as u32;
        }
    }

    fn rotate(&mut self, layer: usize, norms: &[Norm; 2], rotation: Option<Rotation>, rows: Rows) {
        let sizes = self.plan.sizes;
        let constants = Constants {
            x: self.layout.projected.start,
            x_stride: self.qkv_width() as u32,
            y: self.layout.query.start,
            y_stride: (sizes.n_heads * sizes.head_dim) as u32,
            weight: self.layout.vectors[norms[0].weight.0],
            key_weight: self.layout.vectors[norms[1].weight.0],
            value: norms[0].epsilon,
            ..self.rotated(rotation, self.of_cache(layer, self.constants(rows)))
        };
        let n_items = (sizes.n_heads + 2 * sizes.n_kv_heads) as u32;
        self.dispatches.push(Dispatch {
            shader: ShaderKey::Rotate(self.variant, self.plan.kv, sizes.head_dim as u32),
            rows,
            constants,
            inputs: self.layout.projected.buffer,
            outputs: self.layout.query.buffer,
            matrix: None,
            layer: Some(layer),
            grid: self.grid_of_heads(n_items),
        });
    }

    fn grid_of_heads(&self, n_items: u32) -> Grid {
        match self.variant {
            Variant::Serial => Grid::Flat { n_items },
            Variant::Workgroup => Grid::Groups { n_items, items: 1, rows: Some(1) },
        }
    }

    fn attend(&mut self, layer: usize, scale: f32, softcap: Option<f32>, rows: Rows) {
        let sizes = self.plan.sizes;
        let width = (sizes.n_heads * sizes.head_dim) as u32;
        let constants = Constants {
            x: self.layout.query.start,
            x_stride: width,
            y: self.layout.attended.start,
            y_stride: width,
            value: scale,
            softcap: softcap.unwrap_or(0.0),
            ..self.of_cache(layer, self.constants(rows))
        };
        self.dispatches.push(Dispatch {
            shader: ShaderKey::Attend(self.variant, self.plan.kv, sizes.head_dim as u32),
            rows,
            constants,
            inputs: self.layout.query.buffer,
            outputs: self.layout.attended.buffer,
            matrix: None,
            layer: Some(layer),
            grid: self.grid_of_heads(sizes.n_heads as u32),
        });
    }

    fn project_add(
        &mut self,
        weights: MatrixId,
        bias: Option<VectorId>,
        input: Activation,
        post_norm: Option<&Norm>,
        rows: Rows,
    ) {
        let from = match input {
            Activation::Attended => self.layout.attended,
            Activation::Mlp => self.layout.mlp,
        };
        let source = self.source(weights, from);
        self.pack_before(weights, from, rows);
        let (emit, to) = match post_norm {
            None => (Emit::Add, self.layout.hidden),
            Some(_) => (Emit::Store, self.added_beside(source)),
        };
        let to_stride = self.plan.sizes.width;
        let constants = self.with_bias(bias, rows);
        self.matmul(weights, Projection { emit, from, to, to_stride, layer: None, rows, constants });
        if let Some(norm) = post_norm {
            self.norm(norm, to, self.layout.hidden, true, rows);
        }
    }

    /// The region for what is added to the stream that is not in the buffer it is projected from.
    fn added_beside(&self, from: Region) -> Region {
        let [first, second] = self.layout.added;
        if first.buffer == from.buffer { second } else { first }
    }

    /// gate and up in one dispatch, or where their block types differ in one each.
    fn gated_mlp(
        &mut self,
        weights: &[MatrixId],
        bias: Option<VectorId>,
        function: Nonlinearity,
        rows: Rows,
    ) {
        let gate = Constants { nonlinearity: nonlinearity(function), ..self.with_bias(bias, rows) };
        match weights {
            [both] => self.mlp_half(*both, Emit::Gated, gate, rows),
            [first, second] => {
                self.mlp_half(*first, Emit::Store, gate, rows);
                let width = self.plan.sizes.mlp_width as u32;
                let bias = bias.map_or(NONE, |id| self.layout.vectors[id.0] + width);
                self.mlp_half(*second, Emit::Multiply, Constants { bias, ..self.constants(rows) }, rows);
            }
            _ => unreachable!("a gated MLP has one matrix or two"),
        }
    }

    fn mlp_half(&mut self, weights: MatrixId, emit: Emit, constants: Constants, rows: Rows) {
        let (from, to, to_stride) = (self.layout.normed, self.layout.mlp, self.plan.sizes.mlp_width);
        self.matmul(weights, Projection { emit, from, to, to_stride, layer: None, rows, constants });
    }

    /// One dispatch a segment of the matrix.
    fn matmul(&mut self, id: MatrixId, projection: Projection) {
        let Projection { emit, from, to, to_stride, layer, rows, constants: base } = projection;
        let matrix = &self.plan.matrices[id.0];
        let is_fast = self.is_fast(id);
        let (from, x_stride) = match is_fast {
            true => (self.source(id, from), matrix.n_columns / GROUP * GROUP_WORDS),
            false => (from, matrix.n_columns),
        };
        let tiled = rows == Rows::Prefill && self.variant == Variant::Workgroup;
        for (i, segment) in self.segments[id.0].iter().enumerate() {
            let n_rows = segment.n_rows() as u32;
            let n_items = n_rows.div_ceil(2);
            let constants = Constants {
                n_blocks: (matrix.n_columns / 32) as u32,
                first_output: base.first_output + segment.first_output as u32,
                segment_rows: n_rows,
                x: from.start,
                x_stride: x_stride as u32,
                y: to.start,
                y_stride: to_stride as u32,
                ..base
            };
            let (shader, grid) = if is_fast {
                self.packed_matmul(matrix.block_type, emit, n_items)
            } else if tiled {
                let grid = Grid::Groups { n_items, items: 16, rows: Some(32) };
                (ShaderKey::MatmulTiled(matrix.block_type, emit), grid)
            } else {
                let grid = match self.variant {
                    Variant::Serial => Grid::Pairs { n_pairs: n_items },
                    Variant::Workgroup => Grid::Groups { n_items, items: 1, rows: None },
                };
                (ShaderKey::Matmul(self.variant, matrix.block_type, 1, emit), grid)
            };
            self.dispatches.push(Dispatch {
                shader,
                rows,
                constants,
                inputs: from.buffer,
                outputs: to.buffer,
                matrix: Some((id, i)),
                layer,
                grid,
            });
        }
    }
}
