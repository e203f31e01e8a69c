//! The same steps on a GPU and on the processor, and how far apart their logits are.
//!
//! Invariant: every pipeline that a model has on the GPU computes at least one step, and what it computes decides a logit
//! that is compared; on a software adapter every pipeline that a first token needs.

use std::rc::Rc;

use super::weights::Random;
use crate::cpu::model::CpuModel;
use crate::cpu::{CpuError, Processor};
use crate::gpu::model::GpuModel;
use crate::gpu::shader::TileSize;
use crate::gpu::{Gpu, GpuError};
use crate::plan::batch::{BLOCK_TOKENS, Batch, Capacity, RowKind, Wants};
use crate::plan::logprobs::TokenLogprobs;
use crate::plan::sample::{Chooser, Sampled, Sampling};
use crate::plan::{Device, KvType, MatrixId, Op, Plan, Precision, VectorId};

/// Rows of the two prompts: more than a small tile has, and not a whole tile.
const PROMPTS: [usize; 2] = [33, 7];
/// Tokens that are decoded, each in a sequence of its own.
const N_DECODE: usize = 8;
/// Blocks of the first prompt, the second, and the sequences.
const N_BLOCKS: usize = 3 + N_DECODE;
/// Positions of sequences that are decoded, as far as the context goes: attention is split into ranges of 256.
const POSITIONS: [u32; N_DECODE] = [32, 45, 255, 256, 511, 700, 1023, 40];
/// The longest context that is worth having.
pub(super) const CONTEXT: usize = 1024;
/// Most weights that are made at once.
const PIECE_WEIGHTS: usize = 1 << 19;
/// Greedy, with the log-probabilities of the two likeliest.
const GREEDY: Sampling =
    Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, place: 0, n_logprobs: Some(2) };

/// A plan with random weights, and what the processor computes with it.
pub(super) struct Probe {
    plan: Plan,
    context: usize,
    prompts: Vec<f32>,
    decoded: Vec<f32>,
}

/// Two that take weights alike.
trait Loads {
    fn write_rows(&self, id: MatrixId, first_row: usize, file: &[u8]);
    fn write_vector(&self, id: VectorId, values: &[f32]);
    fn write_rotary(&self, index: usize);
}

macro_rules! loads {
    ($model:ty) => {
        impl Loads for $model {
            fn write_rows(&self, id: MatrixId, first_row: usize, file: &[u8]) {
                self.write_rows(id, first_row, file);
            }

            fn write_vector(&self, id: VectorId, values: &[f32]) {
                self.write_vector(id, values);
            }

            fn write_rotary(&self, index: usize) {
                self.write_rotary(index, None);
            }
        }
    };
}
loads!(GpuModel);
loads!(CpuModel);

impl Probe {
    /// Has the processor compute the steps.
    pub(super) async fn new(plan: Plan, context: usize, processor: Rc<Processor>) -> Result<Self, CpuError> {
        let learned = plan.ops.iter().find_map(|op| match op {
            Op::AddPosition { table } => Some(plan.matrices[table.0].n_rows()),
            _ => None,
        });
        let context = context.min(learned.unwrap_or(CONTEXT)).min(CONTEXT);
        let mut probe = Self { plan, context, prompts: Vec::new(), decoded: Vec::new() };
        let plan = probe.plan.clone();
        let mut model = CpuModel::new(plan, probe.capacity(), N_BLOCKS * BLOCK_TOKENS, processor)?;
        probe.write_weights(&model);
        probe.prompts =
            logits_of(&mut model, &probe.prompt_batch()).await.unwrap_or_else(|never| match never {});
        let decoded = probe.decode_batch(0, N_DECODE, Wants::Logits);
        probe.decoded = logits_of(&mut model, &decoded).await.unwrap_or_else(|never| match never {});
        Ok(probe)
    }

    /// The greatest error of a GPU, against what [`bound`] allows; infinite for what is no number.
    pub(super) async fn error_of(&self, gpu: Rc<Gpu>) -> Result<f64, GpuError> {
        let is_software = gpu.summary().is_software;
        let (plan, capacity) = (self.plan.clone(), self.capacity());
        let mut model = GpuModel::for_first_token(gpu, plan, capacity, N_BLOCKS * BLOCK_TOKENS).await?;
        self.write_weights(&model);
        let mut worst = 0.0f64;
        let n_sizes = if model.variant().shares_work() { 2 } else { 1 };
        for size in [TileSize::Small, TileSize::Large].into_iter().take(n_sizes) {
            model.set_tile_size(size);
            let logits = logits_of(&mut model, &self.prompt_batch()).await?;
            worst = worst.max(self.error(&logits, &self.prompts));
        }
        if worst > bound(&self.plan) {
            // The other pipelines need not be made.
            return Ok(worst);
        }
        // Where the processor imitates a GPU, it takes longer to compile the others than to load most models.
        while model.n_pipelines_left() > 0 && !is_software {
            model.make_pipeline().await;
        }
        let mut first = 0;
        // As many rows as each tile of decode kernels has.
        for n_rows in [1, 2, 4, N_DECODE] {
            first = if n_rows == N_DECODE { 0 } else { first };
            let batch = self.decode_batch(first, n_rows, Wants::Logits);
            let logits = logits_of(&mut model, &batch).await?;
            worst = worst.max(self.error(&logits, self.rows(first, n_rows)));
            first += n_rows;
        }
        if model.samples() {
            let batch = self.decode_batch(0, N_DECODE, Wants::Token(GREEDY));
            let ticket = model.submit(&batch);
            let sampled = model.read(ticket).await?.sampled;
            let rows = self.decoded.chunks(self.plan.sizes.vocab_size);
            worst = sampled
                .iter()
                .zip(rows)
                .map(|(sampled, row)| error_of_choice(sampled, row))
                .fold(worst, f64::max);
        }
        Ok(worst)
    }

    fn capacity(&self) -> Capacity {
        let prefill_rows = PROMPTS.into_iter().sum();
        Capacity { decode_rows: N_DECODE, prefill_rows, logit_rows: N_DECODE, context: self.context }
    }

    fn write_weights(&self, model: &impl Loads) {
        for (i, matrix) in self.plan.matrices.iter().enumerate() {
            let mut random = Random::new(i as u64);
            let piece_rows = (PIECE_WEIGHTS / matrix.n_columns).max(1);
            for first_row in (0..matrix.n_rows()).step_by(piece_rows) {
                let n_rows = piece_rows.min(matrix.n_rows() - first_row);
                model.write_rows(MatrixId(i), first_row, &random.rows(matrix, n_rows));
            }
        }
        let mut random = Random::new(self.plan.matrices.len() as u64);
        for (i, vector) in self.plan.vectors.iter().enumerate() {
            model.write_vector(VectorId(i), &random.vector(vector.len()));
        }
        (0..self.plan.rotaries.len()).for_each(|i| model.write_rotary(i));
    }

    fn token(&self, i: usize) -> u32 {
        (i * 37 % self.plan.sizes.vocab_size) as u32
    }

    fn tables(&self, blocks: &[u32]) -> Vec<Vec<u32>> {
        vec![blocks.to_vec(); self.plan.caches.len()]
    }

    /// Two prompts, as far as the context goes; logits of some rows of the first, and of the last of each.
    fn prompt_batch(&self) -> Batch {
        let mut batch = Batch::default();
        for (len, blocks) in PROMPTS.into_iter().zip([[0, 1], [2, 2]]) {
            let sequence = batch.push_sequence(self.tables(&blocks));
            let len = len.min(self.context);
            for i in 0..len {
                let wants_logits = i % 16 == 5 || i + 1 == len;
                batch.push_row(RowKind::Prefill, sequence, self.token(i), i as u32, wants_logits);
            }
        }
        batch
    }

    /// A token each of some sequences. What they saw before is the first prompt's first block, over and over: a long past
    /// that costs nothing to compute.
    fn decode_batch(&self, first: usize, n_rows: usize, wants: Wants) -> Batch {
        let mut batch = Batch::default();
        for (i, position) in (0..).zip(POSITIONS).skip(first).take(n_rows) {
            let position = position.min(self.context as u32 - 1);
            let mut blocks = vec![0; position as usize / BLOCK_TOKENS];
            blocks.push(3 + i);
            let sequence = batch.push_sequence(self.tables(&blocks));
            batch.push_row(RowKind::Decode, sequence, self.token(100 + i as usize), position, wants);
        }
        batch
    }

    fn rows(&self, first: usize, n_rows: usize) -> &[f32] {
        let vocab_size = self.plan.sizes.vocab_size;
        &self.decoded[first * vocab_size..(first + n_rows) * vocab_size]
    }

    /// Of the worst row.
    fn error(&self, found: &[f32], expected: &[f32]) -> f64 {
        let vocab_size = self.plan.sizes.vocab_size;
        let rows = found.chunks(vocab_size).zip(expected.chunks(vocab_size));
        rows.map(|(found, expected)| error_of_row(found, expected)).fold(0.0, f64::max)
    }
}

async fn logits_of<D: Device>(model: &mut D, batch: &Batch) -> Result<Vec<f32>, D::Error> {
    let ticket = model.submit(batch);
    Ok(model.read(ticket).await?.logits)
}

/// max|Δ| / max|expected|.
fn error_of_row(found: &[f32], expected: &[f32]) -> f64 {
    let deltas = found.iter().zip(expected).map(|(found, expected)| f64::from(*found) - f64::from(*expected));
    let worst = deltas
        .map(f64::abs)
        .fold(0.0, |most, delta| if delta.is_nan() { f64::INFINITY } else { f64::max(most, delta) });
    worst / greatest(expected)
}

/// Of a choice that the device made: how far its token is from the likeliest, and its log-probabilities from theirs.
fn error_of_choice(found: &Sampled, logits: &[f32]) -> f64 {
    let expected = Chooser::default().sample(logits, &GREEDY);
    let (Some(&logit), Some(of_found), Some(of_expected)) =
        (logits.get(found.token as usize), &found.logprobs, &expected.logprobs)
    else {
        return f64::INFINITY;
    };
    if found.has_nan || of_found.top.len() != of_expected.top.len() {
        return f64::INFINITY;
    }
    let values = |logprobs: &TokenLogprobs| -> Vec<f32> {
        std::iter::once(&logprobs.chosen).chain(&logprobs.top).map(|logprob| logprob.logprob).collect()
    };
    let behind = f64::from(logits[expected.token as usize]) - f64::from(logit);
    let scale = greatest(logits);
    let deltas =
        values(of_found).into_iter().zip(values(of_expected)).map(|(a, b)| f64::from(a) - f64::from(b));
    let worst = deltas
        .fold(behind, |most, delta| if delta.is_nan() { f64::INFINITY } else { f64::max(most, delta.abs()) });
    // Either may be off by what its logits are off, and twice: the sum over the vocabulary is too.
    worst / scale / 2.0
}

fn greatest(values: &[f32]) -> f64 {
    values.iter().fold(1e-30, |most, value| f64::max(most, f64::from(value.abs())))
}

/// How far logits of a right GPU may be from the processor's (DESIGN.md, Exactness): the cache rounds, and so does `fast`, to
/// the other side where a value lies between two.
pub(super) fn bound(plan: &Plan) -> f64 {
    let of_cache = match plan.kv {
        KvType::F32 => 1e-4,
        KvType::F16 => 3e-3,
        KvType::Q8 => 6e-2,
    };
    match plan.precision {
        Precision::Exact => of_cache,
        Precision::Fast => f64::max(of_cache, 3e-2),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGITS: [f32; 4] = [0.5, -2.0, 1.0, 0.0];

    #[test]
    fn garbage_of_every_kind_is_far_off() {
        assert_eq!(error_of_row(&LOGITS, &LOGITS), 0.0);
        assert_eq!(error_of_row(&[0.5, -2.0, 1.0, 0.002], &LOGITS), f64::from(0.002f32) / 2.0);
        assert_eq!(error_of_row(&[0.0; 4], &LOGITS), 1.0);
        for garbage in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert_eq!(error_of_row(&[0.5, -2.0, garbage, 0.0], &LOGITS), f64::INFINITY);
        }
        assert!(error_of_row(&LOGITS, &[0.0; 4]) > 1e20, "where nothing is to be there");
    }

    #[test]
    fn a_choice_is_as_wrong_as_its_token_or_its_log_probabilities() {
        let right = Chooser::default().sample(&LOGITS, &GREEDY);
        assert_eq!((right.token, error_of_choice(&right, &LOGITS)), (2, 0.0));
        let error = |change: fn(&mut Sampled)| {
            let mut changed = right.clone();
            change(&mut changed);
            error_of_choice(&changed, &LOGITS)
        };
        // The next best, whose logit is 0.5 less, of 2.
        assert_eq!(error(|sampled| sampled.token = 0), 0.125);
        assert_eq!(error(|sampled| sampled.token = 4), f64::INFINITY);
        assert_eq!(error(|sampled| sampled.has_nan = true), f64::INFINITY);
        assert_eq!(error(|sampled| sampled.logprobs = None), f64::INFINITY);
        assert!(error(|sampled| sampled.logprobs.as_mut().unwrap().top[1].logprob += 1.0) > 0.2);
        assert_eq!(
            error(|sampled| sampled.logprobs.as_mut().unwrap().chosen.logprob = f32::NAN),
            f64::INFINITY
        );
    }
}
