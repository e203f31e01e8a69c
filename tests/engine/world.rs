//! A fake device, and an engine on it with the checks that hold for every step.
//!
//! The device has a paged cache of tokens. A row's logits are a hash of what its block table leads to, so a wrong slot,
//! table, position or order changes every token that follows.

use std::collections::{BTreeMap, BTreeSet};

use pagelm::engine::logprobs::TokenLogprobs;
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{
    Budget, Engine, EngineConfig, FinishReason, MAX_IN_FLIGHT, Progress, SequenceId, SequenceRequest, Step,
    StepId,
};
use pagelm::plan::batch::{BLOCK_TOKENS, Batch};

/// Token ids of the fake model.
pub(crate) const VOCAB_SIZE: usize = 61;

fn hash(state: u64, value: u64) -> u64 {
    let mixed = (state ^ value.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    mixed ^ (mixed >> 29)
}

/// Logits that follow tokens, in [−3, 3): (vocabulary)
pub(crate) fn model(tokens: impl IntoIterator<Item = u32>) -> Vec<f32> {
    let state = tokens.into_iter().fold(1, |state, token| hash(state, u64::from(token) + 1));
    (0..VOCAB_SIZE as u64)
        .map(|token| (hash(state, token) >> 40) as f32 / (1 << 24) as f32 * 6.0 - 3.0)
        .collect()
}

/// Numbers for the tests' own choices.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(1);
        (hash(hash(17, self.0), 3) >> 20) as usize % end
    }

    pub(crate) fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A cache of tokens and their positions, and steps computed but not yet retired.
pub(crate) struct Device {
    pub(crate) slots: Vec<Option<(u32, u32)>>,
    pub(crate) computed: Vec<(StepId, Vec<f32>)>,
}

impl Device {
    pub(crate) fn new(n_blocks: usize) -> Self {
        Self { slots: vec![None; n_blocks * BLOCK_TOKENS], computed: Vec::new() }
    }

    pub(crate) fn submit(&mut self, step: &Step) {
        let batch = &step.batch;
        for row in 0..batch.n_rows() {
            self.slots[batch.slot(row) as usize] = Some((batch.tokens[row], batch.positions[row]));
        }
        let logits =
            batch.logit_rows.iter().flat_map(|&row| model(self.tokens_until(batch, row as usize))).collect();
        self.computed.push((step.id, logits));
    }

    fn tokens_until<'a>(&'a self, batch: &'a Batch, row: usize) -> impl Iterator<Item = u32> + 'a {
        let blocks = &batch.block_tables[batch.sequences[row] as usize];
        (0..=batch.positions[row]).map(move |position| {
            let slot = blocks[position as usize / BLOCK_TOKENS] as usize * BLOCK_TOKENS;
            let (token, cached) =
                self.slots[slot + position as usize % BLOCK_TOKENS].expect("a slot was written");
            assert_eq!(cached, position, "a slot holds its position");
            token
        })
    }
}

/// All that was reported of a sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    pub(crate) prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<TokenLogprobs>,
    pub(crate) n_read: usize,
    pub(crate) finished: Option<FinishReason>,
}

/// An engine, its device, what it reported, and the checks that hold for every step.
pub(crate) struct World {
    pub(crate) engine: Engine,
    config: EngineConfig,
    pub(crate) device: Device,
    pub(crate) answers: BTreeMap<SequenceId, Answer>,
    pub(crate) cancelled: BTreeSet<SequenceId>,
}

impl World {
    pub(crate) fn new(config: EngineConfig) -> Self {
        Self {
            engine: Engine::new(config),
            config,
            device: Device::new(config.n_blocks),
            answers: BTreeMap::new(),
            cancelled: BTreeSet::new(),
        }
    }

    pub(crate) fn add(&mut self, request: SequenceRequest) -> SequenceId {
        let id = self.engine.add(request).expect("the request can run");
        self.answers.insert(id, Answer::default());
        id
    }

    pub(crate) fn cancel(&mut self, id: SequenceId) {
        self.engine.cancel(id);
        self.cancelled.insert(id);
    }

    /// Submits what the engine wants to run.
    pub(crate) fn submit(&mut self, budget: Budget) -> Option<Batch> {
        let step = self.engine.next_step(budget)?;
        self.check_step(&step.batch, budget);
        self.device.submit(&step);
        Some(step.batch)
    }

    fn check_step(&self, batch: &Batch, budget: Budget) {
        assert!(batch.n_rows() > 0, "a step has rows");
        assert!(batch.n_prefill() <= budget.prefill_rows, "prefill rows stay in the budget");
        assert!(batch.n_decode <= self.config.max_sequences);
        assert!(batch.logit_rows.len() <= self.config.max_logit_rows, "rows with logits are bounded");
        assert!(batch.logit_rows.is_sorted());
        let owned: Vec<_> = batch.block_tables.iter().flatten().collect();
        let distinct: BTreeSet<_> = owned.iter().collect();
        assert_eq!(owned.len(), distinct.len(), "a block has one owner");
        assert!(self.engine.stats().steps_in_flight <= MAX_IN_FLIGHT);
        // Rows of a sequence are one run of positions.
        let runs: Vec<Vec<usize>> = (0..batch.block_tables.len())
            .map(|sequence| {
                (0..batch.n_rows()).filter(|&row| batch.sequences[row] as usize == sequence).collect()
            })
            .collect();
        for rows in &runs {
            for pair in rows.windows(2) {
                assert_eq!(pair[1], pair[0] + 1);
                assert_eq!(batch.positions[pair[1]], batch.positions[pair[0]] + 1);
            }
        }
    }

    /// Retires the oldest step, if one is in flight.
    pub(crate) fn retire(&mut self) {
        if self.device.computed.is_empty() {
            return;
        }
        let (step, logits) = self.device.computed.remove(0);
        for progress in self.engine.retire(step, &logits) {
            self.note(progress);
        }
    }

    fn note(&mut self, progress: Progress) {
        let id = match progress {
            Progress::Prefilled { sequence, .. }
            | Progress::PromptLogprobs { sequence, .. }
            | Progress::Token { sequence, .. }
            | Progress::Finished { sequence, .. } => sequence,
        };
        assert!(!self.cancelled.contains(&id), "nothing is reported of a cancelled sequence");
        let answer = self.answers.get_mut(&id).expect("a sequence that was added");
        assert_eq!(answer.finished, None, "nothing follows the end");
        match progress {
            Progress::Prefilled { done, total, .. } => {
                assert!(answer.n_read < done && done <= total, "reading goes on");
                assert!(answer.tokens.is_empty());
                answer.n_read = done;
            }
            Progress::PromptLogprobs { tokens, .. } => {
                assert!(answer.tokens.is_empty() && answer.prompt_logprobs.is_none());
                answer.prompt_logprobs = Some(tokens);
            }
            Progress::Token { token, logprobs, .. } => {
                answer.tokens.push(token);
                answer.logprobs.extend(logprobs);
            }
            Progress::Finished { reason, .. } => answer.finished = Some(reason),
        }
    }

    /// Runs until the engine is idle, one step at a time.
    pub(crate) fn finish(&mut self, budget: Budget) {
        while self.submit(budget).is_some() {
            self.retire();
        }
        assert!(self.engine.is_idle(), "no step only when idle: {:?}", self.engine.stats());
        assert_eq!(self.engine.stats().free_blocks, self.config.n_blocks, "no block is leaked");
    }
}

pub(crate) fn config(n_blocks: usize, context: usize) -> EngineConfig {
    EngineConfig { n_blocks, context, vocab_size: VOCAB_SIZE, max_sequences: 8, max_logit_rows: 16 }
}

pub(crate) fn prompt(random: &mut Random, len: usize) -> Vec<u32> {
    (0..len).map(|_| random.below(VOCAB_SIZE) as u32).collect()
}

pub(crate) fn greedy(max_tokens: usize) -> SamplingParams {
    SamplingParams { temperature: 0.0, max_tokens: Some(max_tokens), ..SamplingParams::default() }
}

pub(crate) fn request(len: usize, params: SamplingParams) -> SequenceRequest {
    SequenceRequest { prompt: prompt(&mut Random(len as u64), len), params }
}

/// What a request is answered with when it has an engine of that pool and context for itself.
pub(crate) fn alone(config: EngineConfig, request: &SequenceRequest) -> Answer {
    let mut world = World::new(EngineConfig { max_sequences: 1, max_logit_rows: 64, ..config });
    let id = world.add(request.clone());
    world.finish(Budget { prefill_rows: usize::MAX });
    world.answers.remove(&id).expect("it was answered")
}
