//! What a token costs, counted: by running real steps of a loaded model, whose numbers need not be right.
//!
//! Invariant: weights and cached keys and values count once for each dispatch that reads them, as memory sees it, however
//! often a kernel loads them.

use super::GpuError;
use super::model::{GpuModel, n_rows};
use crate::plan::batch::{BLOCK_TOKENS, Batch, RowKind, Wants};
use crate::plan::sample::Sampling;
use crate::plan::{Device as _, Op};

/// Steps before the one that is counted: what is made once is made by then.
const WARM_UP_STEPS: usize = 3;

/// One decode step of one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Costs {
    /// Layers of the model.
    pub layers: u64,
    /// Dispatches.
    pub dispatches: u64,
    /// Command buffers submitted.
    pub submits: u64,
    /// Writes from the host.
    pub host_writes: u64,
    /// Buffers, pipelines and bind groups made.
    pub gpu_objects_created: u64,
    /// Bytes of weights read.
    pub weight_bytes: u64,
    /// Bytes of keys and values read.
    pub kv_bytes: u64,
}

impl Costs {
    /// The least time that reading takes at so many bytes a second, in ms.
    pub fn floor_ms(&self, bytes_per_sec: f64) -> f64 {
        (self.weight_bytes + self.kv_bytes) as f64 / bytes_per_sec * 1000.0
    }

    /// Of the token at `position` of a sequence, where the model has decoded before.
    pub async fn of_token(model: &mut GpuModel, position: usize) -> Result<Self, GpuError> {
        let batch = decode_batch(model, position);
        for _ in 0..WARM_UP_STEPS {
            step(model, &batch).await?;
        }
        let before = model.counters();
        step(model, &batch).await?;
        let after = model.counters();
        Ok(Self {
            layers: model.plan.sizes.n_layers as u64,
            dispatches: after.dispatches - before.dispatches,
            submits: after.submits - before.submits,
            host_writes: after.host_writes - before.host_writes,
            gpu_objects_created: after.gpu_objects - before.gpu_objects,
            weight_bytes: weight_bytes(model, &batch),
            kv_bytes: kv_bytes(model, position + 1),
        })
    }
}

/// One row that decodes at a position, in the blocks that there are.
fn decode_batch(model: &GpuModel, position: usize) -> Batch {
    let n_blocks = position / BLOCK_TOKENS + 1;
    let table = |n_own: &usize| (0..n_blocks).map(|block_idx| (block_idx % n_own) as u32).collect();
    let mut batch = Batch::default();
    let sequence = batch.push_sequence(model.cache_blocks().iter().map(table).collect());
    let greedy =
        Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, place: 0, n_logprobs: None };
    let wants = if model.samples() { Wants::Token(greedy) } else { Wants::Logits };
    batch.push_row(RowKind::Decode, sequence, 0, position as u32, wants);
    batch
}

async fn step(model: &mut GpuModel, batch: &Batch) -> Result<(), GpuError> {
    let ticket = model.submit(batch);
    model.read(ticket).await.map(drop)
}

/// Matrices as the dispatches of a step read them, and all vectors.
fn weight_bytes(model: &GpuModel, batch: &Batch) -> u64 {
    let run = model.compiled.iter().filter(|dispatch| n_rows(batch, dispatch.rows) > 0);
    let vectors: usize = model.plan.vectors.iter().map(|vector| vector.len() * size_of::<f32>()).sum();
    run.map(|dispatch| dispatch.weight_bytes).sum::<u64>() + vectors as u64
}

/// Keys and values that a row sees which is the last of so many.
fn kv_bytes(model: &GpuModel, n_tokens: usize) -> u64 {
    let plan = &model.plan;
    let token_bytes = plan.sizes.kv_block_bytes(plan.kv) / BLOCK_TOKENS;
    let seen = |op: &Op| match op {
        Op::Attend { layer, .. } => {
            plan.caches[plan.layer_caches[*layer]].window.map_or(n_tokens, |window| window.min(n_tokens))
        }
        _ => 0,
    };
    plan.ops.iter().map(|op| (seen(op) * token_bytes) as u64).sum()
}
