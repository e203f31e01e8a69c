//! Each operation of a plan as its dispatches, over decode rows and over prefill rows.
//!
//! Invariant: the dispatches of an operation depend on nothing but the operation, so a step can be counted from its plan.

mod attention;

use super::{Constants, Dispatch, Grid, NONE, Rows, Target};
use crate::gpu::layout::{self, Buffer, Layout, Region, Segment};
use crate::gpu::packed::GROUP_WORDS;
use crate::gpu::shader::{Emit, Matvec, POSITION_TYPES, ShaderKey, TileSize, Variant};
use crate::gpu::weights::GROUP;
use crate::plan::{
    Activation, MatrixId, Nonlinearity, Norm, NormKind, Op, Plan, RotaryPairs, Rotation, VectorId,
};

pub(super) struct Lowering<'a> {
    pub(super) plan: &'a Plan,
    pub(super) layout: &'a Layout,
    pub(super) target: Target,
    segments: &'a [Vec<Segment>],
    pub(super) dispatches: Vec<Dispatch>,
}

/// A matmul but for its weights: from where to where, and what is done on the way.
#[derive(Clone, Copy)]
struct Projection {
    /// What it does to the rows first.
    norm: Option<Norm>,
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
    target: Target,
    segments: &[Vec<Segment>],
) -> Vec<Dispatch> {
    let mut lowering = Lowering { plan, layout, target, segments, dispatches: Vec::new() };
    let mut ops = plan.ops.iter().peekable();
    while let Some(op) = ops.next() {
        if matches!(op, Op::Logits { .. }) {
            lowering.op(op, Rows::Logits);
            continue;
        }
        let positions = match (op, ops.peek()) {
            (Op::Embed { .. }, Some(Op::AddPosition { table })) if lowering.fits_embed(*table) => {
                ops.next();
                Some(*table)
            }
            _ => None,
        };
        for rows in [Rows::Decode, Rows::Prefill] {
            match op {
                Op::Embed { table, scale } => lowering.embed(*table, *scale, positions, rows),
                _ => lowering.op(op, rows),
            }
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
            Op::Embed { table, scale } => self.embed(*table, *scale, None, rows),
            Op::AddPosition { table } => self.add_position(*table, rows),
            Op::ProjectQkv { layer, norm, weights, bias, head_norms, rotation } => {
                let normed = self.normed(weights, norm, layout.normed, rows);
                if layout::takes_whole_heads(self.plan, op) {
                    self.project_heads(normed, weights, *bias, rows);
                    self.rotate(*layer, head_norms.as_ref(), *rotation, rows);
                } else {
                    self.project_qkv(*layer, normed, weights, *bias, *rotation, rows);
                }
            }
            Op::Attend { layer, scale, softcap } => self.attend(*layer, *scale, *softcap, rows),
            Op::ProjectAdd { weights, bias, input, post_norm } => {
                self.project_add(*weights, *bias, *input, post_norm.as_ref(), rows);
            }
            Op::GatedMlp { norm, weights, bias, nonlinearity } => {
                let normed = self.normed(weights, norm, layout.normed, rows);
                self.gated_mlp(normed, weights, *bias, *nonlinearity, rows);
            }
            Op::Mlp { norm, weights, bias, nonlinearity: function } => {
                let normed = self.normed(&[*weights], norm, layout.normed, rows);
                let constants =
                    Constants { nonlinearity: nonlinearity(*function), ..self.with_bias(*bias, rows) };
                self.mlp_half(normed, *weights, Emit::Store, constants, rows);
            }
            Op::Logits { norm, weights, softcap } => {
                let (from, norm) = self.normed(&[*weights], norm, layout.logits_normed, rows);
                let constants = Constants { softcap: softcap.unwrap_or(0.0), ..self.constants(rows) };
                let (to, to_stride) = (layout.logits, self.plan.sizes.vocab_size);
                let (emit, layer) = (Emit::Store, None);
                self.matmul(*weights, Projection { norm, emit, from, to, to_stride, layer, rows, constants });
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
            norm_bias: NONE,
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

    /// Whether learned positions can be embedded with the tokens.
    fn fits_embed(&self, positions: MatrixId) -> bool {
        let is_whole = self.segments[positions.0].len() == 1;
        is_whole && POSITION_TYPES.contains(&self.plan.matrices[positions.0].block_type)
    }

    fn embed(&mut self, table: MatrixId, scale: f32, positions: Option<MatrixId>, rows: Rows) {
        let position_type = positions.map(|id| self.plan.matrices[id.0].block_type);
        let constants = Constants { value: scale, ..self.constants(rows) };
        let shader = ShaderKey::Embed(self.plan.matrices[table.0].block_type, position_type);
        self.look_up(table, positions, shader, constants, rows);
    }

    fn add_position(&mut self, table: MatrixId, rows: Rows) {
        let constants = Constants { value: 1.0, adds: 1, ..self.constants(rows) };
        let shader = ShaderKey::Embed(self.plan.matrices[table.0].block_type, None);
        self.look_up(table, None, shader, constants, rows);
    }

    fn look_up(
        &mut self,
        table: MatrixId,
        positions: Option<MatrixId>,
        shader: ShaderKey,
        base: Constants,
        rows: Rows,
    ) {
        let n_blocks = (self.plan.matrices[table.0].n_columns / 32) as u32;
        for (i, segment) in self.segments[table.0].iter().enumerate() {
            let constants = Constants {
                n_blocks,
                first_output: segment.first_output as u32,
                segment_rows: segment.n_rows() as u32,
                y: self.layout.hidden.start,
                y_stride: self.plan.sizes.width as u32,
                ..base
            };
            self.dispatches.push(Dispatch {
                shader,
                rows,
                constants,
                inputs: Buffer::Inputs,
                outputs: Buffer::Hidden,
                matrix: Some((table, i)),
                positions,
                layer: None,
                grid: Grid::Items { n_items: n_blocks },
            });
        }
    }

    /// Where a projection reads the normed stream, and the norm that it has yet to do itself: where workgroups share work it
    /// costs a projection of few rows less than a dispatch does.
    fn normed(
        &mut self,
        weights: &[MatrixId],
        norm: &Norm,
        to: Region,
        rows: Rows,
    ) -> (Region, Option<Norm>) {
        let any_is_fast = weights.iter().any(|id| self.is_fast(*id));
        if !any_is_fast && self.target.variant.shares_work() && rows != Rows::Prefill {
            return (self.layout.hidden, Some(*norm));
        }
        self.norm_before(weights, norm, to, rows);
        (to, None)
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
            shader: ShaderKey::Norm(self.target.variant),
            rows,
            constants,
            inputs: from.buffer,
            outputs: to.buffer,
            matrix: None,
            positions: None,
            layer: None,
            grid: match self.target.variant {
                Variant::Serial => Grid::Items { n_items: width / 32 },
                _ => Grid::Groups { n_items: 1, items: 1, rows: 1 },
            },
        });
    }

    fn project_qkv(
        &mut self,
        layer: usize,
        (from, norm): (Region, Option<Norm>),
        weights: &[MatrixId],
        bias: Option<VectorId>,
        rotation: Option<Rotation>,
        rows: Rows,
    ) {
        let sizes = self.plan.sizes;
        let constants = self.rotated(rotation, self.of_cache(layer, self.with_bias(bias, rows)));
        let projection = Projection {
            norm,
            emit: Emit::Qkv { kv: self.plan.kv, head_dim: sizes.head_dim as u32 },
            from,
            to: self.layout.query,
            to_stride: sizes.n_heads * sizes.head_dim,
            layer: Some(layer),
            rows,
            constants,
        };
        self.stacked(weights, projection);
    }

    /// q, k and v as they come, for `rotate`.
    fn project_heads(
        &mut self,
        (from, norm): (Region, Option<Norm>),
        weights: &[MatrixId],
        bias: Option<VectorId>,
        rows: Rows,
    ) {
        let constants = self.with_bias(bias, rows);
        let projection = Projection {
            norm,
            emit: Emit::Store,
            from,
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
        self.matmul(
            weights,
            Projection { norm: None, emit, from, to, to_stride, layer: None, rows, constants },
        );
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
        normed: (Region, Option<Norm>),
        weights: &[MatrixId],
        bias: Option<VectorId>,
        function: Nonlinearity,
        rows: Rows,
    ) {
        let gate = Constants { nonlinearity: nonlinearity(function), ..self.with_bias(bias, rows) };
        match weights {
            [both] => self.mlp_half(normed, *both, Emit::Gated, gate, rows),
            [first, second] => {
                self.mlp_half(normed, *first, Emit::Store, gate, rows);
                let width = self.plan.sizes.mlp_width as u32;
                let bias = bias.map_or(NONE, |id| self.layout.vectors[id.0] + width);
                self.mlp_half(
                    normed,
                    *second,
                    Emit::Multiply,
                    Constants { bias, ..self.constants(rows) },
                    rows,
                );
            }
            _ => unreachable!("a gated MLP has one matrix or two"),
        }
    }

    fn mlp_half(
        &mut self,
        (from, norm): (Region, Option<Norm>),
        weights: MatrixId,
        emit: Emit,
        constants: Constants,
        rows: Rows,
    ) {
        let (to, to_stride) = (self.layout.mlp, self.plan.sizes.mlp_width);
        self.matmul(weights, Projection { norm, emit, from, to, to_stride, layer: None, rows, constants });
    }

    /// One dispatch a segment of the matrix.
    fn matmul(&mut self, id: MatrixId, projection: Projection) {
        let Projection { norm, emit, from, to, to_stride, layer, rows, constants } = projection;
        let matrix = &self.plan.matrices[id.0];
        let n_blocks = (matrix.n_columns / GROUP) as u32;
        let is_fast = self.is_fast(id);
        let from = self.source(id, from);
        let x_stride = if is_fast { matrix.n_columns / GROUP * GROUP_WORDS } else { matrix.n_columns };
        let of_norm = norm.map_or(constants, |norm| Constants {
            weight: self.layout.vectors[norm.weight.0],
            norm_bias: self.vector(norm.bias),
            value: norm.epsilon,
            ..constants
        });
        for (i, segment) in self.segments[id.0].iter().enumerate() {
            let n_rows = segment.n_rows() as u32;
            let n_pairs = n_rows.div_ceil(2);
            let constants = Constants {
                n_blocks,
                first_output: of_norm.first_output + segment.first_output as u32,
                segment_rows: n_rows,
                x: from.start,
                x_stride: x_stride as u32,
                y: to.start,
                y_stride: to_stride as u32,
                ..of_norm
            };
            let block = matrix.block_type;
            let (shader, grid) = match self.target.variant {
                _ if is_fast => self.packed_matmul(block, emit, n_pairs),
                Variant::Serial => (ShaderKey::Matmul(block, 1, emit), Grid::Pairs { n_pairs }),
                _ if rows == Rows::Prefill => {
                    let least_groups = self.target.tuning.least_large_groups;
                    let grid = Grid::Tiled { n_pairs, least_groups };
                    (ShaderKey::MatmulTiled(block, emit, TileSize::Small), grid)
                }
                variant => {
                    let cut = self.target.tuning.cut(n_blocks);
                    let subgroups = variant == Variant::Subgroup;
                    let norm = norm.map(|norm| norm.kind);
                    let matvec = Matvec { subgroups, block, tile: 1, emit, norm, cut };
                    (ShaderKey::Matvec(matvec), Grid::Cut { n_pairs, cut })
                }
            };
            self.dispatches.push(Dispatch {
                shader,
                rows,
                constants,
                inputs: from.buffer,
                outputs: to.buffer,
                matrix: Some((id, i)),
                positions: None,
                layer,
                grid,
            });
        }
    }
}
