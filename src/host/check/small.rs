//! A plan as small as a check of its kernels needs: a layer of each kind that it has, and some of the vocabulary.
//!
//! Invariant: it compiles to the kernels of the whole plan, within so many weights and bytes, unless no plan so small has the
//! same kernels.

use std::collections::HashMap;

use crate::gpu::tuning::Tuning;
use crate::plan::{
    Activation, Matrix, MatrixId, MatrixPart, Norm, Op, Plan, Sizes, Vector, VectorId, VectorPart,
};

/// Learned positions: they go into the third of the ranges that attention is split into.
const MAX_POSITIONS: usize = 544;
/// Words of the vocabulary.
const VOCAB_SIZE: usize = 256;

/// Most weights: the processor computes some 50 products with each.
const MAX_WEIGHTS: usize = 9 << 19;
/// Most bytes of them.
const MAX_BYTES: u64 = 11 << 20;

/// The largest plan that has the kernels of `whole` and is small enough; learned positions go as far as
/// `n_positions`.
pub fn small(whole: &Plan, n_positions: usize, tuning: Tuning) -> Plan {
    let n_positions = n_positions.min(MAX_POSITIONS);
    let mut plan = cut(whole, whole.sizes, n_positions);
    // The MLP and attention first: the width of the stream is in every matrix.
    for width_divisor in [1, 2, 4, 8, 16] {
        for divisor in [1, 2, 4, 8, 16, 32, 64] {
            if is_small(&plan) {
                return plan;
            }
            let Sizes { width, n_heads, n_kv_heads, head_dim, mlp_width, .. } = whole.sizes;
            let n_sharing = n_heads / n_kv_heads;
            let attention = n_heads * head_dim;
            let columns = columns(attention, n_sharing * head_dim, attention / divisor, tuning);
            let n_kv_heads = columns / (n_sharing * head_dim);
            let sizes = Sizes {
                width: self::columns(width, 1, width / width_divisor, tuning),
                n_heads: n_kv_heads * n_sharing,
                n_kv_heads,
                mlp_width: self::columns(mlp_width, 1, mlp_width / divisor, tuning),
                ..whole.sizes
            };
            plan = cut(whole, sizes, n_positions);
        }
    }
    plan
}

fn is_small(plan: &Plan) -> bool {
    let row_bytes = |matrix: &Matrix| matrix.block_type.row_bytes(matrix.n_columns as u64).unwrap_or(0);
    let bytes = plan.matrices.iter().map(|matrix| matrix.n_rows() as u64 * row_bytes(matrix));
    let weights = plan.matrices.iter().map(|matrix| matrix.n_rows() * matrix.n_columns);
    weights.sum::<usize>() <= MAX_WEIGHTS && bytes.sum::<u64>() <= MAX_BYTES
}

/// Columns that the kernels of `whole` columns are right for: whole blocks and units, cut into workgroups alike. The most up
/// to `target`, or where there are none the fewest.
fn columns(whole: usize, unit: usize, target: usize, tuning: Tuning) -> usize {
    let block = if whole.is_multiple_of(256) { 256 } else { 32 };
    let cut = |columns: usize| tuning.cut((columns / 32) as u32);
    let fits = |columns: &usize| {
        columns.is_multiple_of(block) && columns.is_multiple_of(unit) && cut(*columns) == cut(whole)
    };
    let mut fitting = (1..=whole / 32).map(|n_groups| n_groups * 32).filter(fits).peekable();
    let fewest = fitting.peek().copied().unwrap_or(whole);
    fitting.take_while(|columns| *columns <= target).last().unwrap_or(fewest)
}

/// The plan with such sizes, but for its layers and vocabulary, and of layers that do the same one.
fn cut(whole: &Plan, sizes: Sizes, n_positions: usize) -> Plan {
    let sizes = Sizes { vocab_size: sizes.vocab_size.min(VOCAB_SIZE), ..sizes };
    let mut small = Small::new(whole, sizes, n_positions);
    let mut kinds: Vec<Plan> = Vec::new();
    let mut ops = whole.ops.iter().peekable();
    while let Some(op) = ops.next() {
        let Op::ProjectQkv { layer, .. } = op else {
            small.push(op, 0);
            continue;
        };
        let is_of_layer = |op: &&Op| !matches!(op, Op::ProjectQkv { .. } | Op::Logits { .. });
        let mut of_layer = vec![op];
        of_layer.extend(std::iter::from_fn(|| ops.next_if(is_of_layer)));
        let mut alone = Small::new(whole, sizes, n_positions);
        alone.push_layer(&of_layer, *layer);
        if !kinds.contains(&alone.plan) {
            kinds.push(alone.plan);
            small.push_layer(&of_layer, *layer);
        }
    }
    small.plan
}

/// A plan that is being cut out of another.
struct Small<'a> {
    whole: &'a Plan,
    n_positions: usize,
    plan: Plan,
    /// What the matrices and vectors of the whole plan are in this one.
    matrices: HashMap<usize, MatrixId>,
    vectors: HashMap<usize, VectorId>,
}

impl<'a> Small<'a> {
    fn new(whole: &'a Plan, sizes: Sizes, n_positions: usize) -> Self {
        let plan = Plan {
            sizes: Sizes { n_layers: 0, ..sizes },
            rotaries: whole.rotaries.clone(),
            caches: whole.caches.clone(),
            layer_caches: Vec::new(),
            matrices: Vec::new(),
            vectors: Vec::new(),
            ops: Vec::new(),
            ..*whole
        };
        Self { whole, n_positions, plan, matrices: HashMap::new(), vectors: HashMap::new() }
    }

    fn push_layer(&mut self, ops: &[&Op], whole_layer: usize) {
        let layer = self.plan.layer_caches.len();
        self.plan.layer_caches.push(self.whole.layer_caches[whole_layer]);
        self.plan.sizes.n_layers += 1;
        ops.iter().for_each(|op| self.push(op, layer));
    }

    fn push(&mut self, op: &Op, layer: usize) {
        let Sizes { width, n_kv_heads, mlp_width, vocab_size, .. } = self.plan.sizes;
        // Rows of q, k and v shrink alike, and so do those of gate and up.
        let of_heads = (n_kv_heads, self.whole.sizes.n_kv_heads);
        let of_mlp = (mlp_width, self.whole.sizes.mlp_width);
        let of_width = (width, self.whole.sizes.width);
        let of_vocabulary = (vocab_size, self.whole.sizes.vocab_size);
        let op = match op {
            Op::Embed { table, scale } => {
                Op::Embed { table: self.matrix(*table, of_vocabulary, width), scale: *scale }
            }
            Op::AddPosition { table } => {
                let n_rows = self.whole.matrices[table.0].n_rows();
                let table = self.matrix(*table, (n_rows.min(self.n_positions), n_rows), width);
                Op::AddPosition { table }
            }
            Op::ProjectQkv { norm, weights, bias, head_norms, rotation, .. } => Op::ProjectQkv {
                layer,
                norm: self.norm(norm, of_width),
                weights: weights.iter().map(|id| self.matrix(*id, of_heads, width)).collect(),
                bias: bias.map(|id| self.vector(id, of_heads)),
                head_norms: head_norms.map(|norms| norms.map(|norm| self.norm(&norm, (1, 1)))),
                rotation: *rotation,
            },
            Op::Attend { scale, softcap, .. } => Op::Attend { layer, scale: *scale, softcap: *softcap },
            Op::ProjectAdd { weights, bias, input, post_norm } => {
                let (shrunk, whole) = match input {
                    Activation::Attended => of_heads,
                    Activation::Mlp => of_mlp,
                };
                let n_columns = self.whole.matrices[weights.0].n_columns / whole * shrunk;
                Op::ProjectAdd {
                    weights: self.matrix(*weights, of_width, n_columns),
                    bias: bias.map(|id| self.vector(id, of_width)),
                    input: *input,
                    post_norm: post_norm.map(|norm| self.norm(&norm, of_width)),
                }
            }
            Op::GatedMlp { norm, weights, bias, nonlinearity } => Op::GatedMlp {
                norm: self.norm(norm, of_width),
                weights: weights.iter().map(|id| self.matrix(*id, of_mlp, width)).collect(),
                bias: bias.map(|id| self.vector(id, of_mlp)),
                nonlinearity: *nonlinearity,
            },
            Op::Mlp { norm, weights, bias, nonlinearity } => Op::Mlp {
                norm: self.norm(norm, of_width),
                weights: self.matrix(*weights, of_mlp, width),
                bias: bias.map(|id| self.vector(id, of_mlp)),
                nonlinearity: *nonlinearity,
            },
            Op::Logits { norm, weights, softcap } => Op::Logits {
                norm: self.norm(norm, of_width),
                weights: self.matrix(*weights, of_vocabulary, width),
                softcap: *softcap,
            },
        };
        self.plan.ops.push(op);
    }

    /// A matrix whose rows become as many fewer as `to` is less than `from`.
    fn matrix(&mut self, id: MatrixId, (to, from): (usize, usize), n_columns: usize) -> MatrixId {
        *self.matrices.entry(id.0).or_insert_with(|| {
            let Matrix { block_type, .. } = self.whole.matrices[id.0];
            let n_rows = self.whole.matrices[id.0].n_rows() / from * to;
            let parts = vec![MatrixPart { tensor: "check".into(), n_rows }];
            self.plan.matrices.push(Matrix { parts, n_columns, block_type });
            MatrixId(self.plan.matrices.len() - 1)
        })
    }

    fn vector(&mut self, id: VectorId, (to, from): (usize, usize)) -> VectorId {
        *self.vectors.entry(id.0).or_insert_with(|| {
            let len = self.whole.vectors[id.0].len() / from * to;
            self.plan.vectors.push(Vector { parts: vec![VectorPart { tensor: "check".into(), len }] });
            VectorId(self.plan.vectors.len() - 1)
        })
    }

    fn norm(&mut self, norm: &Norm, of: (usize, usize)) -> Norm {
        Norm {
            weight: self.vector(norm.weight, of),
            bias: norm.bias.map(|bias| self.vector(bias, of)),
            ..*norm
        }
    }
}
