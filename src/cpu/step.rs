//! One step of a plan: its parts in order, as many items of them at a time as the caller has time for.
//!
//! Invariant: where a step is interrupted, and how its loops are cut for threads, changes no bit of what it brings.

use std::collections::TryReserveError;
use std::ops::Range;

use super::attention::{Attention, Tile, tiles};
use super::cache::{Cache, zeros};
use super::inputs::Inputs;
use super::instructions::Instructions;
use super::matrix::{CpuMatrix, PANEL_ROWS};
use super::nonlinearity::{Apply, cap_all};
use super::norms::norm_row;
use super::parts::{Part, Rows};
use super::rotary::Angles;
use super::threads::Threads;
use crate::plan::batch::{BLOCK_TOKENS, Batch, Capacity, Token};
use crate::plan::{MatrixId, Nonlinearity, Norm, Op, Plan, Rotation, Sizes, VectorId};

/// Weights as the plan numbers them, and frequencies of the rotaries.
#[derive(Debug)]
pub(super) struct Weights {
    pub(super) matrices: Vec<CpuMatrix>,
    pub(super) vectors: Vec<Vec<f32>>,
    pub(super) frequencies: Vec<Vec<f32>>,
}

/// Activations of the step that is computed; made once.
#[derive(Debug)]
pub(super) struct Scratch {
    /// (rows, width)
    hidden: Vec<f32>,
    inputs: Inputs,
    /// (matrix rows, rows)
    outputs: Vec<f32>,
    /// q, k and v: (rows, q, k and v)
    projected: Vec<f32>,
    /// (KV heads, rows, heads that share one, head_dim)
    attended: Vec<f32>,
    /// (rotaries)
    angles: Vec<Angles>,
}

impl Scratch {
    /// Room for the largest step.
    pub(super) fn new(plan: &Plan, capacity: &Capacity) -> Result<Self, TryReserveError> {
        let sizes = Self::sizes(plan, capacity);
        Ok(Self {
            hidden: zeros(sizes[0])?,
            inputs: Inputs::with_room(n_rows(capacity), widest(plan), plan.precision)?,
            outputs: zeros(sizes[1])?,
            projected: zeros(sizes[2])?,
            attended: zeros(sizes[3])?,
            angles: plan.rotaries.iter().map(|_| Angles::default()).collect(),
        })
    }

    /// Bytes that it takes for the largest step.
    pub(super) fn n_bytes(plan: &Plan, capacity: &Capacity) -> u64 {
        let inputs = Inputs::n_bytes(n_rows(capacity), widest(plan), plan.precision);
        Self::sizes(plan, capacity).iter().sum::<usize>() as u64 * 4 + inputs as u64
    }

    /// Values of hidden, outputs, projected and attended.
    fn sizes(plan: &Plan, capacity: &Capacity) -> [usize; 4] {
        let n_rows = n_rows(capacity);
        let stacked = |ids: &[MatrixId]| -> usize { ids.iter().map(|id| plan.matrices[id.0].n_rows()).sum() };
        let outputs = plan.ops.iter().map(|op| match op {
            Op::Embed { .. } | Op::AddPosition { .. } | Op::Attend { .. } => 0,
            Op::ProjectQkv { weights, .. } | Op::GatedMlp { weights, .. } => stacked(weights) * n_rows,
            Op::ProjectAdd { weights, .. } | Op::Mlp { weights, .. } => stacked(&[*weights]) * n_rows,
            Op::Logits { weights, .. } => stacked(&[*weights]) * capacity.logit_rows,
        });
        let attended = plan.sizes.n_heads * plan.sizes.head_dim * n_rows;
        [plan.sizes.width * n_rows, outputs.max().unwrap_or(0), qkv_width(plan) * n_rows, attended]
    }
}

/// Rows of the largest step.
fn n_rows(capacity: &Capacity) -> usize {
    capacity.decode_rows + capacity.prefill_rows
}

/// Columns of the widest matrix.
fn widest(plan: &Plan) -> usize {
    plan.matrices.iter().map(|matrix| matrix.n_columns).max().unwrap_or(0)
}

/// q, k and v of a row.
fn qkv_width(plan: &Plan) -> usize {
    (plan.sizes.n_heads + 2 * plan.sizes.n_kv_heads) * plan.sizes.head_dim
}

/// Where a step stands.
#[derive(Debug)]
pub(super) struct Step {
    batch: Batch,
    tiles: Vec<Tile>,
    part: usize,
    /// Items of the part that are done.
    done: usize,
    /// (logit rows, vocab_size)
    pub(super) logits: Vec<f32>,
}

impl Step {
    pub(super) fn new(batch: Batch, sizes: &Sizes) -> Self {
        Self { tiles: tiles(&batch, sizes), batch, part: 0, done: 0, logits: Vec::new() }
    }
}

/// What a step is computed with.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    pub(super) plan: &'a Plan,
    pub(super) parts: &'a [Part],
    pub(super) weights: &'a Weights,
    pub(super) cache: &'a mut Cache,
    pub(super) scratch: &'a mut Scratch,
    pub(super) step: &'a mut Step,
    pub(super) threads: &'a Threads,
    pub(super) instructions: Instructions,
}

/// Products that a thread should have at once: fewer cost more to hand over than to compute.
const WORK_OF_CHUNK: usize = 1 << 16;

impl Walk<'_> {
    /// Computes items worth so many products, about, and at least one; how many, and whether the step is done.
    pub(super) fn advance(mut self, work: usize) -> (usize, bool) {
        let mut spent = 0;
        while spent < work && self.step.part < self.parts.len() {
            let part = &self.parts[self.step.part];
            let (n_items, item_work, together) = self.extent(part);
            let affordable = ((work - spent) / item_work.max(1)).max(1).next_multiple_of(together);
            let end = n_items.min(self.step.done + affordable);
            if self.step.done < end {
                self.compute(part, self.step.done..end);
                spent = item_work.saturating_mul(end - self.step.done).saturating_add(spent);
            }
            self.step.done = end;
            if end == n_items {
                (self.step.part, self.step.done) = (self.step.part + 1, 0);
            }
        }
        (spent, self.step.part == self.parts.len())
    }

    fn n_rows(&self) -> usize {
        self.step.batch.n_rows()
    }

    /// Items of a part, products that each takes, and how many stay together.
    fn extent(&self, part: &Part) -> (usize, usize, usize) {
        let n_inputs = self.scratch.inputs.n_rows();
        match part {
            Part::Multiply { weights, .. } => {
                let matrix = &self.plan.matrices[weights.0];
                (matrix.n_rows(), matrix.n_columns * n_inputs, PANEL_ROWS)
            }
            Part::Attend { layer, scale, softcap } => {
                let attention = self.attention(*layer, *scale, *softcap);
                let n_tiles = self.step.tiles.len();
                let work: u64 = self.step.tiles.iter().map(|tile| attention.work(*tile)).sum();
                let work = usize::try_from(work / n_tiles.max(1) as u64).unwrap_or(usize::MAX);
                (n_tiles * self.plan.sizes.n_kv_heads, work, self.threads.n_threads())
            }
            Part::Logits { .. } => (1, self.plan.sizes.vocab_size * n_inputs * 4, 1),
            Part::Activate { .. } => (1, self.plan.sizes.mlp_width * n_inputs * 8, 1),
            Part::TakeMlp => (1, self.plan.sizes.mlp_width * n_inputs * 4, 1),
            Part::KeepQkv { .. } => (1, qkv_width(self.plan) * n_inputs * 8, 1),
            _ => (1, self.plan.sizes.width * self.n_rows() * 4, 1),
        }
    }

    fn compute(&mut self, part: &Part, items: Range<usize>) {
        match part {
            Part::Angles => self.angles(),
            Part::Embed { table, scale } => self.embed(&self.weights.matrices[table.0], *scale),
            Part::AddPosition { table } => self.add_position(&self.weights.matrices[table.0]),
            Part::Norm { norm, rows } => self.norm(norm, *rows),
            Part::Multiply { weights, first_output } => {
                self.multiply(&self.weights.matrices[weights.0], *first_output, items);
            }
            Part::KeepQkv { layer, bias, head_norms, rotation } => {
                self.project(*bias, head_norms.as_ref(), *rotation);
                self.keep(*layer);
            }
            Part::Attend { layer, scale, softcap } => self.attend(*layer, *scale, *softcap, items),
            Part::TakeAttended => self.take_attended(),
            Part::Activate { bias, nonlinearity, is_gated } => self.activate(*bias, *nonlinearity, *is_gated),
            Part::TakeMlp => self.take_mlp(),
            Part::Add { bias, post_norm } => self.add(*bias, post_norm.as_ref()),
            Part::Logits { softcap } => self.logits(*softcap),
        }
    }

    fn angles(&mut self) {
        let tables = self.scratch.angles.iter_mut().zip(&self.weights.frequencies).zip(&self.plan.rotaries);
        for ((angles, frequencies), rotary) in tables {
            angles.fill(frequencies, rotary.magnitude, &self.step.batch.positions);
        }
    }

    fn embed(&mut self, table: &CpuMatrix, scale: f32) {
        let rows = self.scratch.hidden.chunks_exact_mut(self.plan.sizes.width);
        for (token, hidden) in self.step.batch.tokens.iter().zip(rows) {
            table.decode_row(known(*token), hidden);
            hidden.iter_mut().for_each(|value| *value *= scale);
        }
    }

    fn add_position(&mut self, table: &CpuMatrix) {
        let mut learned = vec![0.0; self.plan.sizes.width];
        let rows = self.scratch.hidden.chunks_exact_mut(self.plan.sizes.width);
        for (position, hidden) in self.step.batch.positions.iter().zip(rows) {
            table.decode_row(*position as usize, &mut learned);
            hidden.iter_mut().zip(&learned).for_each(|(value, learned)| *value += learned);
        }
    }

    fn norm(&mut self, norm: &Norm, rows: Rows) {
        let (width, batch) = (self.plan.sizes.width, &self.step.batch);
        let n_rows = match rows {
            Rows::All => batch.n_rows(),
            Rows::Logits => batch.logit_rows.len(),
        };
        let inputs = &mut self.scratch.inputs;
        inputs.reset(n_rows, width);
        for input in 0..n_rows {
            let row = match rows {
                Rows::All => input,
                Rows::Logits => batch.logit_rows[input] as usize,
            };
            let values = inputs.row_mut(input);
            values.copy_from_slice(&self.scratch.hidden[row * width..][..width]);
            norm_row(norm, &self.weights.vectors, values);
        }
        inputs.seal(self.plan.precision);
    }

    fn multiply(&mut self, matrix: &CpuMatrix, first_output: usize, rows: Range<usize>) {
        let inputs = &self.scratch.inputs;
        let n_inputs = inputs.n_rows();
        if n_inputs == 0 {
            return;
        }
        let outputs =
            &mut self.scratch.outputs[(first_output + rows.start) * n_inputs..][..rows.len() * n_inputs];
        let row_work = (n_inputs * inputs.row(0).len()).max(1);
        let least = (WORK_OF_CHUNK / row_work).max(1);
        // Four for each thread, so that one that is late has few left.
        let chunk_rows = least.max(rows.len() / (4 * self.threads.n_threads())).next_multiple_of(PANEL_ROWS);
        self.threads.chunks(outputs, chunk_rows * n_inputs, |i, outputs| {
            let start = rows.start + i * chunk_rows;
            matrix.multiply(start..start + outputs.len() / n_inputs, inputs, outputs);
        });
    }

    fn bias(&self, bias: Option<VectorId>) -> Option<&[f32]> {
        bias.map(|id| &self.weights.vectors[id.0][..])
    }

    /// q, k and v of each row, ready for the cache and for attention.
    fn project(
        &mut self,
        bias: Option<VectorId>,
        head_norms: Option<&[Norm; 2]>,
        rotation: Option<Rotation>,
    ) {
        let (n_rows, width, sizes) = (self.n_rows(), qkv_width(self.plan), self.plan.sizes);
        let (weights, scratch) = (self.weights, &mut *self.scratch);
        let projected = &mut scratch.projected[..n_rows * width];
        transpose(&scratch.outputs, n_rows, width, |row, first, values| {
            projected[row * width + first..][..values.len()].copy_from_slice(values);
        });
        let bias = bias.map(|id| &weights.vectors[id.0]);
        let angles = &scratch.angles;
        self.threads.chunks(projected, width, |row, values| {
            if let Some(bias) = bias {
                values.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
            let rotated = &mut values[..(sizes.n_heads + sizes.n_kv_heads) * sizes.head_dim];
            for (i, head) in rotated.chunks_exact_mut(sizes.head_dim).enumerate() {
                if let Some(norms) = head_norms {
                    norm_row(&norms[usize::from(i >= sizes.n_heads)], &weights.vectors, head);
                }
                if let Some(rotation) = rotation {
                    angles[rotation.rotary].rotate(row, rotation.pairs, head);
                }
            }
        });
    }

    fn keep(&mut self, layer: usize) {
        let (width, sizes) = (qkv_width(self.plan), self.plan.sizes);
        let (n_query, n_kv) = (sizes.n_heads * sizes.head_dim, sizes.n_kv_heads * sizes.head_dim);
        let rows = self.scratch.projected.chunks_exact(width).take(self.n_rows());
        for (row, values) in rows.enumerate() {
            let slot = self.step.batch.slot(row, self.plan.layer_caches[layer]) as usize;
            let (keys, values) = values[n_query..].split_at(n_kv);
            let heads = keys.chunks_exact(sizes.head_dim).zip(values.chunks_exact(sizes.head_dim));
            for (kv_head, (key, value)) in heads.enumerate() {
                let unit = self.cache.unit(layer, (slot / BLOCK_TOKENS) as u32, kv_head);
                self.cache.write(unit, slot % BLOCK_TOKENS, key, value);
            }
        }
    }

    fn attention(&self, layer: usize, scale: f32, softcap: Option<f32>) -> Attention<'_> {
        let cache_idx = self.plan.layer_caches[layer];
        Attention {
            cache: self.cache,
            batch: &self.step.batch,
            sizes: self.plan.sizes,
            layer,
            cache_idx,
            window: self.plan.caches[cache_idx].window,
            scale,
            softcap,
            instructions: self.instructions,
            projected: &self.scratch.projected,
        }
    }

    /// An item is a tile for a KV head.
    fn attend(&mut self, layer: usize, scale: f32, softcap: Option<f32>, items: Range<usize>) {
        let sizes = self.plan.sizes;
        let row_values = sizes.n_heads / sizes.n_kv_heads * sizes.head_dim;
        let mut attended = std::mem::take(&mut self.scratch.attended);
        let n_rows = self.n_rows();
        let mut rest = &mut attended[..];
        let mut tasks = Vec::with_capacity(items.len());
        let n_tiles = self.step.tiles.len();
        let mut place = 0;
        for item in items {
            let (kv_head, tile) = (item / n_tiles, self.step.tiles[item % n_tiles]);
            let start = (kv_head * n_rows + tile.first_row) * row_values;
            let (own, later) = rest[start - place..].split_at_mut(tile.n_rows * row_values);
            place = start + own.len();
            rest = later;
            tasks.push((tile, kv_head, own));
        }
        let attention = self.attention(layer, scale, softcap);
        self.threads.each(tasks, |(tile, kv_head, attended)| attention.attend(tile, kv_head, attended));
        self.scratch.attended = attended;
    }

    fn take_attended(&mut self) {
        let (n_rows, sizes) = (self.n_rows(), self.plan.sizes);
        let row_values = sizes.n_heads / sizes.n_kv_heads * sizes.head_dim;
        let inputs = &mut self.scratch.inputs;
        inputs.reset(n_rows, sizes.n_heads * sizes.head_dim);
        for row in 0..n_rows {
            for (kv_head, values) in inputs.row_mut(row).chunks_exact_mut(row_values).enumerate() {
                let from = (kv_head * n_rows + row) * row_values;
                values.copy_from_slice(&self.scratch.attended[from..from + row_values]);
            }
        }
        inputs.seal(self.plan.precision);
    }

    fn activate(&mut self, bias: Option<VectorId>, nonlinearity: Nonlinearity, is_gated: bool) {
        let (n_rows, mlp_width) = (self.n_rows(), self.plan.sizes.mlp_width);
        let bias = bias.map(|id| &self.weights.vectors[id.0][..]);
        let (gates, ups) = self.scratch.outputs.split_at_mut(mlp_width * n_rows);
        let chunk = (WORK_OF_CHUNK / 8 / n_rows.max(1)).max(1);
        let instructions = self.instructions;
        self.threads.chunks(gates, chunk * n_rows, |i, gates| {
            let first = i * chunk;
            if let Some(bias) = bias {
                add_to_rows(gates, n_rows, &bias[first..]);
            }
            instructions.run(Apply(nonlinearity, &mut *gates));
            if !is_gated {
                return;
            }
            let ups = &ups[first * n_rows..][..gates.len()];
            match bias {
                None => gates.iter_mut().zip(ups).for_each(|(gate, up)| *gate *= up),
                Some(bias) => {
                    let rows = gates.chunks_exact_mut(n_rows).zip(ups.chunks_exact(n_rows));
                    for ((gates, ups), bias) in rows.zip(&bias[mlp_width + first..]) {
                        gates.iter_mut().zip(ups).for_each(|(gate, up)| *gate *= up + bias);
                    }
                }
            }
        });
    }

    fn take_mlp(&mut self) {
        let (n_rows, mlp_width) = (self.n_rows(), self.plan.sizes.mlp_width);
        let Scratch { inputs, outputs, .. } = &mut *self.scratch;
        inputs.reset(n_rows, mlp_width);
        transpose(outputs, n_rows, mlp_width, |row, first, values| {
            inputs.row_mut(row)[first..first + values.len()].copy_from_slice(values);
        });
        inputs.seal(self.plan.precision);
    }

    fn add(&mut self, bias: Option<VectorId>, post_norm: Option<&Norm>) {
        let (n_rows, width) = (self.n_rows(), self.plan.sizes.width);
        let bias = self.bias(bias).map(<[f32]>::to_vec);
        let Scratch { hidden, outputs, inputs, .. } = &mut *self.scratch;
        // What was multiplied is not needed any more.
        inputs.reset(n_rows, width);
        transpose(outputs, n_rows, width, |row, first, values| {
            inputs.row_mut(row)[first..first + values.len()].copy_from_slice(values);
        });
        for (row, hidden) in hidden.chunks_exact_mut(width).take(n_rows).enumerate() {
            let added = inputs.row_mut(row);
            if let Some(bias) = &bias {
                added.iter_mut().zip(bias).for_each(|(value, bias)| *value += bias);
            }
            if let Some(norm) = post_norm {
                norm_row(norm, &self.weights.vectors, added);
            }
            hidden.iter_mut().zip(added).for_each(|(hidden, added)| *hidden += *added);
        }
    }

    fn logits(&mut self, softcap: Option<f32>) {
        let (n_rows, vocab_size) = (self.step.batch.logit_rows.len(), self.plan.sizes.vocab_size);
        self.step.logits.resize(n_rows * vocab_size, 0.0);
        let logits = &mut self.step.logits;
        transpose(&self.scratch.outputs, n_rows, vocab_size, |row, first, values| {
            logits[row * vocab_size + first..][..values.len()].copy_from_slice(values);
        });
        self.threads.chunks(logits, WORK_OF_CHUNK / 4, |_, logits| cap_all(logits, softcap));
    }
}

/// Adds to each output (outputs, rows) its bias.
fn add_to_rows(outputs: &mut [f32], n_rows: usize, bias: &[f32]) {
    for (outputs, bias) in outputs.chunks_exact_mut(n_rows).zip(bias) {
        outputs.iter_mut().for_each(|value| *value += bias);
    }
}

/// Gives the first rows of outputs (outputs, rows) by rows, a few outputs at a time: row, first output, values.
fn transpose(outputs: &[f32], n_rows: usize, n_outputs: usize, mut take: impl FnMut(usize, usize, &[f32])) {
    if n_rows == 1 {
        return take(0, 0, &outputs[..n_outputs]);
    }
    const TOGETHER: usize = 16;
    for first in (0..n_outputs).step_by(TOGETHER) {
        let n = TOGETHER.min(n_outputs - first);
        let outputs = &outputs[first * n_rows..][..n * n_rows];
        for row in 0..n_rows {
            let mut values = [0.0; TOGETHER];
            for (value, outputs) in values.iter_mut().zip(outputs.chunks_exact(n_rows)) {
                *value = outputs[row];
            }
            take(row, first, &values[..n]);
        }
    }
}

fn known(token: Token) -> usize {
    token.known().expect("the host samples, and knows each token") as usize
}
