//! Every operation of a plan as plain loops with f64 sums: what the kernels are compared with. It shares no code with them.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use std::cell::Cell;
use std::collections::{HashMap, HashSet};

use pagelm::format::block::BlockType;
use pagelm::plan::batch::{BLOCK_TOKENS, Batch, Token};
use pagelm::plan::{
    Activation, KvType, MatrixId, Nonlinearity, Norm, NormKind, Op, Plan, Precision, RotaryPairs, Rotation,
    VectorId,
};

use crate::gguf_writer::{f16_from_f32, f32_from_f16};

/// A plan's weights as numbers, and the keys and values of every slot.
pub struct Reference {
    plan: Plan,
    /// Row by row: (rows, columns)
    matrices: Vec<Vec<f32>>,
    vectors: Vec<Vec<f32>>,
    /// By layer and slot: keys and values of all heads, (kv heads, head_dim)
    cache: HashMap<(usize, u32), [Vec<f64>; 2]>,
    /// Slots of the cache that a row near a tie wrote.
    slots_near_tie: HashSet<(usize, u32)>,
    /// Whether a product since this was last asked had an activation near a tie.
    met_tie: Cell<bool>,
}

/// What a step leaves behind, row by row in the batch's order.
#[derive(Default)]
pub struct Activations {
    pub hidden: Vec<Vec<f64>>,
    pub query: Vec<Vec<f64>>,
    pub attended: Vec<Vec<f64>>,
    pub mlp: Vec<Vec<f64>>,
    /// (logit rows, vocab)
    pub logits: Vec<Vec<f64>>,
    /// Rows with an activation that `fast` may round either way, since f32 and f64 differ in their last bits; also those
    /// that attend to such a row.
    pub near_tie: Vec<bool>,
}

/// Activations so near to the middle of two steps of their block, in steps, may become either.
const NEAR_TIE: f64 = 2e-4;

/// The values of whole blocks of a file, after GGML's description of each type; of the types that tests/blocks.rs compares
/// with GGML's own values, as pagelm decodes them.
pub fn decode(block_type: BlockType, bytes: &[u8]) -> Vec<f32> {
    let half = |b: &[u8]| f32_from_f16(u16::from_le_bytes([b[0], b[1]]));
    match block_type {
        BlockType::F32 => {
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
        }
        BlockType::F16 => bytes.chunks_exact(2).map(half).collect(),
        BlockType::Q8_0 => {
            let block = |b: &[u8]| b[2..].iter().map(|q| half(b) * f32::from(*q as i8)).collect::<Vec<_>>();
            bytes.chunks_exact(34).flat_map(block).collect()
        }
        BlockType::Q4_1 => {
            let block = |b: &[u8]| {
                let value = |q: u8| half(b) * f32::from(q) + half(&b[2..]);
                let low = b[4..].iter().map(|q| value(q & 15));
                low.chain(b[4..].iter().map(|q| value(q >> 4))).collect::<Vec<_>>()
            };
            bytes.chunks_exact(20).flat_map(block).collect()
        }
        other => {
            let mut values = Vec::new();
            pagelm::format::decode::decode(other, bytes, &mut values).expect("whole blocks");
            values
        }
    }
}

impl Reference {
    pub fn new(plan: &Plan, matrices: Vec<Vec<f32>>, vectors: Vec<Vec<f32>>) -> Self {
        Self {
            plan: plan.clone(),
            matrices,
            vectors,
            cache: HashMap::new(),
            slots_near_tie: HashSet::new(),
            met_tie: Cell::new(false),
        }
    }

    /// Computes a step, operation by operation.
    pub fn step(&mut self, batch: &Batch) -> Activations {
        let mut a = Activations { near_tie: vec![false; batch.n_rows()], ..Activations::default() };
        for op in self.plan.ops.clone() {
            self.op(&op, batch, &mut a);
        }
        a
    }

    fn op(&mut self, op: &Op, batch: &Batch, a: &mut Activations) {
        match op {
            Op::Embed { table, scale } => {
                let value = |v: &f32| f64::from(*v) * f64::from(*scale);
                let row = |token: &Token| self.row(*table, known(*token)).iter().map(value).collect();
                a.hidden = batch.tokens.iter().map(row).collect();
            }
            Op::AddPosition { table } => {
                for (hidden, position) in a.hidden.iter_mut().zip(&batch.positions) {
                    let row: Vec<f64> =
                        self.row(*table, *position as usize).iter().map(|v| f64::from(*v)).collect();
                    add(hidden, &row);
                }
            }
            Op::ProjectQkv { layer, norm, weights, bias, head_norms, rotation } => {
                let mut projected: Vec<Vec<f64>> = Vec::new();
                for (hidden, near_tie) in a.hidden.iter().zip(&mut a.near_tie) {
                    let x = self.norm(norm, hidden);
                    let all = weights.iter().flat_map(|id| self.matvec(*id, &x)).collect();
                    projected.push(self.with_bias(all, *bias));
                    *near_tie |= self.met_tie.take();
                }
                a.query.clear();
                for (row, all) in projected.into_iter().enumerate() {
                    let slot = (*layer, batch.slot(row, self.plan.layer_caches[*layer]));
                    if a.near_tie[row] {
                        self.slots_near_tie.insert(slot);
                    } else {
                        self.slots_near_tie.remove(&slot);
                    }
                    a.query.push(self.keep(*layer, all, head_norms.as_ref(), *rotation, batch, row));
                }
            }
            Op::Attend { layer, scale, softcap } => {
                a.attended = (0..batch.n_rows())
                    .map(|row| self.attend(*layer, *scale, *softcap, batch, row, &a.query[row]))
                    .collect();
                for (row, near_tie) in a.near_tie.iter_mut().enumerate() {
                    let mut slots = self.seen_slots(*layer, batch, row).into_iter();
                    *near_tie |= slots.any(|slot| self.slots_near_tie.contains(&(*layer, slot)));
                }
            }
            Op::ProjectAdd { weights, bias, input, post_norm } => {
                let inputs = match input {
                    Activation::Attended => a.attended.clone(),
                    Activation::Mlp => a.mlp.clone(),
                };
                for ((hidden, input), near_tie) in a.hidden.iter_mut().zip(inputs).zip(&mut a.near_tie) {
                    let projected = self.with_bias(self.matvec(*weights, &input), *bias);
                    *near_tie |= self.met_tie.take();
                    add(
                        hidden,
                        &post_norm.as_ref().map_or(projected.clone(), |norm| self.norm(norm, &projected)),
                    );
                }
            }
            Op::GatedMlp { norm, weights, bias, nonlinearity } => {
                let gated = |hidden: &Vec<f64>| {
                    let x = self.norm(norm, hidden);
                    let both = weights.iter().flat_map(|id| self.matvec(*id, &x)).collect();
                    gate(self.with_bias(both, *bias), *nonlinearity)
                };
                a.mlp.clear();
                for (hidden, near_tie) in a.hidden.iter().zip(&mut a.near_tie) {
                    a.mlp.push(gated(hidden));
                    *near_tie |= self.met_tie.take();
                }
            }
            Op::Mlp { norm, weights, bias, nonlinearity } => {
                let inner = |hidden: &Vec<f64>| {
                    let up = self.with_bias(self.matvec(*weights, &self.norm(norm, hidden)), *bias);
                    up.iter().map(|u| apply(*nonlinearity, *u)).collect()
                };
                a.mlp.clear();
                for (hidden, near_tie) in a.hidden.iter().zip(&mut a.near_tie) {
                    a.mlp.push(inner(hidden));
                    *near_tie |= self.met_tie.take();
                }
            }
            Op::Logits { norm, weights, softcap } => {
                for row in &batch.logit_rows {
                    let logits = self.matvec(*weights, &self.norm(norm, &a.hidden[*row as usize]));
                    a.logits.push(logits.iter().map(|logit| capped(*logit, *softcap)).collect());
                    a.near_tie[*row as usize] |= self.met_tie.take();
                }
            }
        }
    }

    /// Norms and rotates the heads of a row's q and k, keeps k and v, and gives q.
    fn keep(
        &mut self,
        layer: usize,
        mut all: Vec<f64>,
        head_norms: Option<&[Norm; 2]>,
        rotation: Option<Rotation>,
        batch: &Batch,
        row: usize,
    ) -> Vec<f64> {
        let sizes = self.plan.sizes;
        let (n_query, n_kv) = (sizes.n_heads * sizes.head_dim, sizes.n_kv_heads * sizes.head_dim);
        for (head, values) in all[..n_query + n_kv].chunks_mut(sizes.head_dim).enumerate() {
            if let Some(norms) = head_norms {
                let normed = self.norm(&norms[usize::from(head >= sizes.n_heads)], values);
                values.copy_from_slice(&normed);
            }
            if let Some(rotation) = rotation {
                let rotary = &self.plan.rotaries[rotation.rotary];
                let magnitude = f64::from(rotary.magnitude);
                rotate(values, &rotary.frequencies, magnitude, batch.positions[row], rotation.pairs);
            }
        }
        let cached = |heads: &[f64]| -> Vec<f64> {
            heads.chunks(sizes.head_dim).flat_map(|head| cached_head(head, self.plan.kv)).collect()
        };
        let keys = cached(&all[n_query..n_query + n_kv]);
        let values = cached(&all[n_query + n_kv..]);
        let slot = batch.slot(row, self.plan.layer_caches[layer]);
        self.cache.insert((layer, slot), [keys, values]);
        all.truncate(n_query);
        all
    }

    fn attend(
        &self,
        layer: usize,
        scale: f32,
        softcap: Option<f32>,
        batch: &Batch,
        row: usize,
        query: &[f64],
    ) -> Vec<f64> {
        let sizes = self.plan.sizes;
        let slots = self.seen_slots(layer, batch, row);
        let mut attended = Vec::new();
        for (head, q) in query.chunks(sizes.head_dim).enumerate() {
            let start = head / (sizes.n_heads / sizes.n_kv_heads) * sizes.head_dim;
            let of =
                |slot: &u32, which: usize| &self.cache[&(layer, *slot)][which][start..start + sizes.head_dim];
            let score = |slot: &u32| {
                let dot: f64 = q.iter().zip(of(slot, 0)).map(|(a, b)| a * b).sum();
                capped(dot * f64::from(scale), softcap)
            };
            let scores: Vec<f64> = slots.iter().map(score).collect();
            let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
            let total: f64 = weights.iter().sum();
            let values: Vec<&[f64]> = slots.iter().map(|slot| of(slot, 1)).collect();
            attended.extend((0..sizes.head_dim).map(|d| {
                values.iter().zip(&weights).map(|(value, weight)| weight * value[d]).sum::<f64>() / total
            }));
        }
        attended
    }

    /// Slots of the positions that a row attends to.
    fn seen_slots(&self, layer: usize, batch: &Batch, row: usize) -> Vec<u32> {
        let cache = self.plan.layer_caches[layer];
        let blocks = &batch.block_tables[batch.sequences[row] as usize][cache];
        let end = batch.positions[row] as usize + 1;
        let first = end.saturating_sub(self.plan.caches[cache].window.unwrap_or(usize::MAX));
        let slot = |p: usize| blocks[p / BLOCK_TOKENS] * BLOCK_TOKENS as u32 + (p % BLOCK_TOKENS) as u32;
        (first..end).map(slot).collect()
    }

    /// What a gated MLP without a bias makes of activations that are packed already.
    pub fn gated_of_packed(&self, weights: MatrixId, nonlinearity: Nonlinearity, x: &[f64]) -> Vec<f64> {
        gate(self.dots(weights, x), nonlinearity)
    }

    pub fn norm(&self, norm: &Norm, x: &[f64]) -> Vec<f64> {
        let mean = match norm.kind {
            NormKind::RootMeanSquare => 0.0,
            NormKind::Layer => x.iter().sum::<f64>() / x.len() as f64,
        };
        let variance = x.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / x.len() as f64;
        let inverse = 1.0 / (variance + f64::from(norm.epsilon)).sqrt();
        let weights = &self.vectors[norm.weight.0];
        let scaled = x.iter().zip(weights).map(|(v, w)| (v - mean) * inverse * f64::from(*w)).collect();
        self.with_bias(scaled, norm.bias)
    }

    fn with_bias(&self, mut values: Vec<f64>, bias: Option<VectorId>) -> Vec<f64> {
        if let Some(id) = bias {
            let bias: Vec<f64> = self.vectors[id.0].iter().map(|v| f64::from(*v)).collect();
            assert_eq!(bias.len(), values.len());
            add(&mut values, &bias);
        }
        values
    }

    fn matvec(&self, id: MatrixId, x: &[f64]) -> Vec<f64> {
        let is_float =
            matches!(self.plan.matrices[id.0].block_type, BlockType::F32 | BlockType::F16 | BlockType::BF16);
        if self.plan.precision == Precision::Exact || is_float {
            return self.dots(id, x);
        }
        self.dots(id, &x.chunks(32).flat_map(|block| self.in_ten_bits(block)).collect::<Vec<f64>>())
    }

    /// What `fast` keeps of 32 activations: whole multiples of the largest one's 511th part.
    fn in_ten_bits(&self, block: &[f64]) -> Vec<f64> {
        let largest = block.iter().fold(0f64, |m, v| m.max(v.abs()));
        let d = largest / 511.0;
        let kept = |v: &f64| {
            let steps = if d == 0.0 { 0.0 } else { v / d };
            if (steps.abs().fract() - 0.5).abs() < NEAR_TIE {
                self.met_tie.set(true);
            }
            steps.round_ties_even() * d
        };
        block.iter().map(kept).collect()
    }

    fn dots(&self, id: MatrixId, x: &[f64]) -> Vec<f64> {
        let dot = |row| self.row(id, row).iter().zip(x).map(|(w, v)| f64::from(*w) * v).sum();
        (0..self.plan.matrices[id.0].n_rows()).map(dot).collect()
    }

    fn row(&self, id: MatrixId, row: usize) -> &[f32] {
        let n_columns = self.plan.matrices[id.0].n_columns;
        &self.matrices[id.0][row * n_columns..(row + 1) * n_columns]
    }
}

fn known(token: Token) -> usize {
    token.known().expect("a reference computes what the host knows") as usize
}

fn gate(both: Vec<f64>, nonlinearity: Nonlinearity) -> Vec<f64> {
    let (gate, up) = both.split_at(both.len() / 2);
    gate.iter().zip(up).map(|(g, u)| apply(nonlinearity, *g) * u).collect()
}

fn add(sum: &mut [f64], values: &[f64]) {
    for (s, v) in sum.iter_mut().zip(values) {
        *s += v;
    }
}

fn capped(x: f64, softcap: Option<f32>) -> f64 {
    softcap.map_or(x, |cap| f64::from(cap) * (x / f64::from(cap)).tanh())
}

fn apply(nonlinearity: Nonlinearity, x: f64) -> f64 {
    match nonlinearity {
        Nonlinearity::Silu => x / (1.0 + (-x).exp()),
        Nonlinearity::GeluTanh => {
            0.5 * x * (1.0 + ((2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x)).tanh())
        }
    }
}

/// Turns the pairs of a head by position · frequency, the angle in f32 as everywhere.
/// A head's keys or values as the cache gives them back.
fn cached_head(head: &[f64], kv: KvType) -> Vec<f64> {
    let greatest = head.iter().fold(0f64, |m, v| m.max(v.abs()));
    let scale = if greatest == 0.0 { 1.0 } else { greatest / 127.0 };
    let round = |v: &f64| match kv {
        KvType::F32 => *v,
        KvType::F16 => f64::from(f32_from_f16(f16_from_f32(*v as f32))),
        KvType::Q8 => (v / scale).round() * scale,
    };
    head.iter().map(round).collect()
}

fn rotate(head: &mut [f64], frequencies: &[f32], magnitude: f64, position: u32, pairs: RotaryPairs) {
    let half = head.len() / 2;
    for (i, frequency) in frequencies.iter().enumerate() {
        let (first, second) = match pairs {
            RotaryPairs::Adjacent => (2 * i, 2 * i + 1),
            RotaryPairs::SplitHalf => (i, i + half),
        };
        let angle = f64::from(position as f32 * frequency);
        let (a, b) = (head[first], head[second]);
        let (cosine, sine) = (angle.cos() * magnitude, angle.sin() * magnitude);
        head[first] = a * cosine - b * sine;
        head[second] = a * sine + b * cosine;
    }
}
