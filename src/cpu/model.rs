//! One loaded model on the processor: its weights, its cache, and the step that is computed while somebody waits for it.
//!
//! Invariant: nothing is computed in [`CpuModel::submit`], and what is awaited gives the host a turn every 20 ms.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::rc::Rc;

use super::cache::Cache;
use super::matrix::CpuMatrix;
use super::panel::GROUP;
use super::parts::{Part, parts};
use super::rotary::frequencies_of;
use super::step::{Scratch, Step, Walk, Weights};
use super::{CpuError, Processor};
use crate::format::decode::DECODED;
use crate::plan::batch::{BLOCK_TOKENS, Batch, Capacity};
use crate::plan::{Device, Matrix, MatrixId, Plan, StepOutput, Ticket, Vector, VectorId, kv_sizes};

/// A loaded model.
#[derive(Debug)]
pub struct CpuModel {
    plan: Rc<Plan>,
    parts: Rc<[Part]>,
    capacity: Capacity,
    /// Blocks of each cache of the plan.
    cache_blocks: Vec<usize>,
    weight_bytes: u64,
    loaded: Rc<RefCell<Loaded>>,
    processor: Rc<Processor>,
    /// Not yet read, the oldest first.
    submitted: VecDeque<(Ticket, Batch)>,
    next_ticket: u64,
}

/// What a model shares with the step that is awaited.
#[derive(Debug)]
struct Loaded {
    weights: Weights,
    cache: Cache,
    scratch: Scratch,
    /// Whose activations are in the scratch.
    computing: Option<Ticket>,
}

impl CpuModel {
    /// Makes room for a plan's weights and a cache of `kv_tokens`, halved while memory does not suffice.
    pub fn new(
        plan: Plan,
        capacity: Capacity,
        kv_tokens: usize,
        processor: Rc<Processor>,
    ) -> Result<Self, CpuError> {
        let matrices = matrices(&plan)?;
        let weight_bytes = matrices.iter().map(CpuMatrix::n_bytes).sum();
        let scratch = Scratch::new(&plan, &capacity).map_err(|_full| CpuError::OutOfMemory {
            what: "activations",
            needed_bytes: Scratch::n_bytes(&plan, &capacity),
        })?;
        let (cache, cache_blocks) = cache(&plan, &capacity, kv_tokens)?;
        let vectors = plan.vectors.iter().map(|vector| vec![0.0; vector.len()]).collect();
        let frequencies = plan.rotaries.iter().map(|rotary| rotary.frequencies.clone()).collect();
        let weights = Weights { matrices, vectors, frequencies };
        let loaded = Loaded { weights, cache, scratch, computing: None };
        Ok(Self {
            parts: parts(&plan).into(),
            plan: Rc::new(plan),
            capacity,
            cache_blocks,
            weight_bytes,
            loaded: Rc::new(RefCell::new(loaded)),
            processor,
            submitted: VecDeque::new(),
            next_ticket: 0,
        })
    }

    /// Writes whole rows of a matrix, as the file stores them, from `first_row` on.
    pub fn write_rows(&self, id: MatrixId, first_row: usize, file: &[u8]) {
        self.loaded.borrow_mut().weights.matrices[id.0].write_rows(first_row, file);
    }

    /// Writes a vector.
    pub fn write_vector(&self, id: VectorId, values: &[f32]) {
        self.loaded.borrow_mut().weights.vectors[id.0].copy_from_slice(values);
    }

    /// Writes a rotary's frequencies; `divisors` are the values of the tensor that the plan names for it.
    ///
    /// # Panics
    /// If there are not as many as the rotary has frequencies.
    pub fn write_rotary(&self, index: usize, divisors: Option<&[f32]>) {
        let frequencies = frequencies_of(&self.plan.rotaries[index], divisors);
        self.loaded.borrow_mut().weights.frequencies[index] = frequencies;
    }

    /// Gives the host a turn while weights are written, where it is due one.
    pub async fn flush(&self) {
        self.processor.take_due_turn().await;
    }

    /// What its steps do.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// How many rows a step may have.
    pub fn capacity(&self) -> &Capacity {
        &self.capacity
    }

    /// The processor that computes.
    pub fn processor(&self) -> &Rc<Processor> {
        &self.processor
    }

    /// Blocks of each cache of the plan: (caches)
    pub fn cache_blocks(&self) -> &[usize] {
        &self.cache_blocks
    }

    /// Tokens of all sequences that the roomiest cache holds.
    pub fn kv_tokens(&self) -> usize {
        self.cache_blocks.iter().max().expect("a plan has a cache") * BLOCK_TOKENS
    }

    /// Bytes of the keys and values of all layers.
    pub fn kv_bytes(&self) -> u64 {
        self.plan.kv_bytes(&self.cache_blocks)
    }

    /// Bytes of the weights.
    pub fn weight_bytes(&self) -> u64 {
        self.weight_bytes
    }

    /// Bytes of all that it has in memory.
    pub fn total_bytes(&self) -> u64 {
        self.weight_bytes + self.kv_bytes() + beside_bytes(&self.plan, &self.capacity)
    }

    /// Bytes that it will take, all together, if memory suffices.
    pub fn needed_bytes(plan: &Plan, capacity: &Capacity, kv_tokens: usize) -> u64 {
        let asked = plan.sizes.kv_blocks(plan.kv, kv_tokens, u64::MAX);
        let blocks = plan.cache_blocks(asked, capacity.decode_rows, capacity.prefill_rows);
        weight_bytes(plan) + plan.kv_bytes(&blocks) + beside_bytes(plan, capacity)
    }
}

/// Bytes beside matrices and cache: vectors and activations.
fn beside_bytes(plan: &Plan, capacity: &Capacity) -> u64 {
    let vectors: usize = plan.vectors.iter().map(Vector::len).sum();
    vectors as u64 * 4 + Scratch::n_bytes(plan, capacity)
}

/// Bytes that the weights of a plan take, as the file stores them.
pub fn weight_bytes(plan: &Plan) -> u64 {
    let row_bytes = |matrix: &Matrix| matrix.block_type.row_bytes(matrix.n_columns as u64);
    plan.matrices.iter().map(|matrix| row_bytes(matrix).unwrap_or(0) * matrix.n_rows() as u64).sum()
}

fn check(matrix: &Matrix) -> Result<(), CpuError> {
    let tensor = || matrix.parts.first().map_or_else(String::new, |part| part.tensor.clone());
    if !DECODED.contains(&matrix.block_type) {
        return Err(CpuError::BlockType { tensor: tensor(), block_type: matrix.block_type.name() });
    }
    let multiple = GROUP.max(matrix.block_type.block_len() as usize);
    if !matrix.n_columns.is_multiple_of(multiple) {
        return Err(CpuError::Width { tensor: tensor(), found: matrix.n_columns, multiple });
    }
    Ok(())
}

fn matrices(plan: &Plan) -> Result<Vec<CpuMatrix>, CpuError> {
    plan.matrices.iter().try_for_each(check)?;
    let needed_bytes = weight_bytes(plan);
    let error = || CpuError::OutOfMemory { what: "the weights", needed_bytes };
    if cfg!(target_pointer_width = "64") {
        // All at once, since a system may grant each of many requests and find out when the memory is used. WebAssembly
        // grants what it has, and the whole may be more than one range holds.
        let mut all: Vec<u8> = Vec::new();
        all.try_reserve_exact(usize::try_from(needed_bytes).map_err(|_large| error())?)
            .map_err(|_full| error())?;
    }
    let each = plan.matrices.iter();
    each.map(|matrix| {
        CpuMatrix::new(matrix.block_type, matrix.n_rows(), matrix.n_columns).map_err(|_full| error())
    })
    .collect()
}

/// A cache for so many tokens, or half of them while memory does not suffice; and the blocks of each of the plan's.
fn cache(plan: &Plan, capacity: &Capacity, kv_tokens: usize) -> Result<(Cache, Vec<usize>), CpuError> {
    let asked = plan.sizes.kv_blocks(plan.kv, kv_tokens, u64::MAX);
    let mut needed_bytes = 0;
    for n_blocks in kv_sizes(asked) {
        let blocks = plan.cache_blocks(n_blocks, capacity.decode_rows, capacity.prefill_rows);
        match Cache::new(plan, &blocks) {
            Ok(cache) => return Ok((cache, blocks)),
            Err(_full) => needed_bytes = plan.kv_bytes(&blocks),
        }
    }
    Err(CpuError::OutOfMemory { what: "the KV cache", needed_bytes })
}

impl Device for CpuModel {
    /// What is read was computed by the reader.
    type Error = Infallible;

    fn samples(&self) -> bool {
        false
    }

    fn submit(&mut self, batch: &Batch) -> Ticket {
        assert!(
            batch.n_decode <= self.capacity.decode_rows && batch.n_prefill() <= self.capacity.prefill_rows
        );
        assert!(batch.logit_rows.len() <= self.capacity.logit_rows, "the scheduler knows the capacity");
        assert!(batch.n_sampled() == 0, "the scheduler knows who samples");
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.submitted.push_back((ticket, batch.clone()));
        ticket
    }

    fn read(
        &mut self,
        ticket: Ticket,
    ) -> impl Future<Output = Result<StepOutput, Infallible>> + 'static + use<> {
        // Those before it were given up.
        let at = self.submitted.iter().position(|(submitted, _)| *submitted == ticket);
        let given_up = at.expect("a ticket is read once, in their order");
        let (_, batch) = self.submitted.drain(..=given_up).next_back().expect("it was found");
        let (plan, parts) = (Rc::clone(&self.plan), Rc::clone(&self.parts));
        let (loaded, processor) = (Rc::clone(&self.loaded), Rc::clone(&self.processor));
        async move {
            processor.take_due_turn().await;
            let mut step = Step::new(batch, &plan.sizes);
            let mut is_first = true;
            loop {
                let is_done = processor.compute(|work| {
                    let Loaded { weights, cache, scratch, computing } = &mut *loaded.borrow_mut();
                    if std::mem::take(&mut is_first) {
                        *computing = Some(ticket);
                    }
                    assert_eq!(*computing, Some(ticket), "a step is awaited, or dropped, before the next");
                    let (weights, threads) = (&*weights, &processor.threads);
                    let (plan, parts, step) = (&*plan, &*parts, &mut step);
                    let instructions = processor.instructions;
                    threads.run(|| {
                        Walk { plan, parts, weights, cache, scratch, step, threads, instructions }
                            .advance(work)
                    })
                });
                if is_done {
                    return Ok(StepOutput { logits: std::mem::take(&mut step.logits), sampled: Vec::new() });
                }
                processor.take_turn().await;
            }
        }
    }
}
