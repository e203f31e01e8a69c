//! Every operation of a plan as plain loops with f64 sums: what the kernels are compared with. It shares no code with them.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use std::collections::HashMap;

use pagelm::format::block::BlockType;
use pagelm::plan::batch::{BLOCK_TOKENS, Batch};
use pagelm::plan::{Activation, KvType, MatrixId, Op, Plan, RmsNorm, RotaryPairs};

use crate::gguf_writer::{f16_from_f32, f32_from_f16};

/// A plan's weights as numbers, and the keys and values of every slot.
pub struct Reference {
    plan: Plan,
    /// Row by row: (rows, columns)
    matrices: Vec<Vec<f32>>,
    vectors: Vec<Vec<f32>>,
    /// By layer and slot: keys and values of all heads, (kv heads, head_dim)
    cache: HashMap<(usize, u32), [Vec<f64>; 2]>,
}

/// What a step leaves behind, row by row in the batch's order.
#[derive(Default)]
pub struct Activations {
    pub hidden: Vec<Vec<f64>>,
    pub query: Vec<Vec<f64>>,
    pub attended: Vec<Vec<f64>>,
    pub gated: Vec<Vec<f64>>,
    /// (logit rows, vocab)
    pub logits: Vec<Vec<f64>>,
}

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
        Self { plan: plan.clone(), matrices, vectors, cache: HashMap::new() }
    }

    /// Computes a step, operation by operation.
    pub fn step(&mut self, batch: &Batch) -> Activations {
        let mut a = Activations::default();
        for op in self.plan.ops.clone() {
            self.op(&op, batch, &mut a);
        }
        a
    }

    fn op(&mut self, op: &Op, batch: &Batch, a: &mut Activations) {
        match op {
            Op::Embed { table } => {
                let row =
                    |token: &u32| self.row(*table, *token as usize).iter().map(|v| f64::from(*v)).collect();
                a.hidden = batch.tokens.iter().map(row).collect();
            }
            Op::ProjectQkv { layer, norm, weights, pairs } => {
                self.project_qkv(*layer, norm, weights, *pairs, batch, a);
            }
            Op::Attend { layer, scale } => {
                a.attended = (0..batch.n_rows())
                    .map(|row| self.attend(*layer, *scale, batch, row, &a.query[row]))
                    .collect();
            }
            Op::ProjectAdd { weights, input } => {
                let inputs = match input {
                    Activation::Attended => a.attended.clone(),
                    Activation::Gated => a.gated.clone(),
                };
                for (hidden, input) in a.hidden.iter_mut().zip(inputs) {
                    for (h, y) in hidden.iter_mut().zip(self.matvec(*weights, &input)) {
                        *h += y;
                    }
                }
            }
            Op::GatedMlp { norm, weights } => {
                let gated = |hidden: &Vec<f64>| {
                    let both = self.matvec(*weights, &self.norm(norm, hidden));
                    let (gate, up) = both.split_at(both.len() / 2);
                    gate.iter().zip(up).map(|(g, u)| g / (1.0 + (-g).exp()) * u).collect()
                };
                a.gated = a.hidden.iter().map(gated).collect();
            }
            Op::Logits { norm, weights } => {
                let logits = |row: &u32| self.matvec(*weights, &self.norm(norm, &a.hidden[*row as usize]));
                a.logits = batch.logit_rows.iter().map(logits).collect();
            }
        }
    }

    fn project_qkv(
        &mut self,
        layer: usize,
        norm: &RmsNorm,
        weights: &[MatrixId],
        pairs: RotaryPairs,
        batch: &Batch,
        a: &mut Activations,
    ) {
        let sizes = self.plan.sizes;
        let (n_query, n_kv) = (sizes.n_heads * sizes.head_dim, sizes.n_kv_heads * sizes.head_dim);
        a.query.clear();
        for (row, hidden) in a.hidden.iter().enumerate() {
            let x = self.norm(norm, hidden);
            let mut all: Vec<f64> = weights.iter().flat_map(|id| self.matvec(*id, &x)).collect();
            for head in all[..n_query + n_kv].chunks_mut(sizes.head_dim) {
                rotate(head, &self.plan.rotary_frequencies, batch.positions[row], pairs);
            }
            let round = |v: &f64| match self.plan.kv {
                KvType::F32 => *v,
                KvType::F16 => f64::from(f32_from_f16(f16_from_f32(*v as f32))),
            };
            let keys = all[n_query..n_query + n_kv].iter().map(round).collect();
            let values = all[n_query + n_kv..].iter().map(round).collect();
            self.cache.insert((layer, batch.slot(row)), [keys, values]);
            a.query.push(all[..n_query].to_vec());
        }
    }

    fn attend(&self, layer: usize, scale: f32, batch: &Batch, row: usize, query: &[f64]) -> Vec<f64> {
        let sizes = self.plan.sizes;
        let blocks = &batch.block_tables[batch.sequences[row] as usize];
        let slots: Vec<u32> = (0..=batch.positions[row] as usize)
            .map(|p| blocks[p / BLOCK_TOKENS] * BLOCK_TOKENS as u32 + (p % BLOCK_TOKENS) as u32)
            .collect();
        let mut attended = Vec::new();
        for (head, q) in query.chunks(sizes.head_dim).enumerate() {
            let start = head / (sizes.n_heads / sizes.n_kv_heads) * sizes.head_dim;
            let of =
                |slot: &u32, which: usize| &self.cache[&(layer, *slot)][which][start..start + sizes.head_dim];
            let dot =
                |slot: &u32| q.iter().zip(of(slot, 0)).map(|(a, b)| a * b).sum::<f64>() * f64::from(scale);
            let scores: Vec<f64> = slots.iter().map(dot).collect();
            let greatest = scores.iter().copied().fold(f64::MIN, f64::max);
            let weights: Vec<f64> = scores.iter().map(|s| (s - greatest).exp()).collect();
            let total: f64 = weights.iter().sum();
            attended.extend((0..sizes.head_dim).map(|d| {
                slots.iter().zip(&weights).map(|(slot, weight)| weight * of(slot, 1)[d]).sum::<f64>() / total
            }));
        }
        attended
    }

    fn norm(&self, norm: &RmsNorm, x: &[f64]) -> Vec<f64> {
        let mean = x.iter().map(|v| v * v).sum::<f64>() / x.len() as f64;
        let inverse = 1.0 / (mean + f64::from(norm.epsilon)).sqrt();
        x.iter().zip(&self.vectors[norm.weight.0]).map(|(v, w)| v * inverse * f64::from(*w)).collect()
    }

    fn matvec(&self, id: MatrixId, x: &[f64]) -> Vec<f64> {
        let dot = |row| self.row(id, row).iter().zip(x).map(|(w, v)| f64::from(*w) * v).sum();
        (0..self.plan.matrices[id.0].n_rows()).map(dot).collect()
    }

    fn row(&self, id: MatrixId, row: usize) -> &[f32] {
        let n_columns = self.plan.matrices[id.0].n_columns;
        &self.matrices[id.0][row * n_columns..(row + 1) * n_columns]
    }
}

/// Turns the pairs of a head by position · frequency, the angle in f32 as everywhere.
fn rotate(head: &mut [f64], frequencies: &[f32], position: u32, pairs: RotaryPairs) {
    let half = head.len() / 2;
    for (i, frequency) in frequencies.iter().enumerate() {
        let (first, second) = match pairs {
            RotaryPairs::Adjacent => (2 * i, 2 * i + 1),
            RotaryPairs::SplitHalf => (i, i + half),
        };
        let angle = f64::from(position as f32 * frequency);
        let (a, b) = (head[first], head[second]);
        head[first] = a * angle.cos() - b * angle.sin();
        head[second] = a * angle.sin() + b * angle.cos();
    }
}
