//! A fake device, and an engine on it with the checks that hold for every step.
//!
//! The device has a paged cache of tokens. A row's logits are a hash of what its block table leads to, so a wrong slot,
//! table, position or order changes every token that follows.

use std::collections::{BTreeMap, BTreeSet};

use pagelm::engine::blocks::CacheConfig;
use pagelm::engine::logprobs::TokenLogprobs;
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{
    Budget, Engine, EngineConfig, FinishReason, MAX_IN_FLIGHT, Progress, SequenceId, SequenceRequest, Step,
    StepId,
};
use pagelm::plan::batch::{BLOCK_TOKENS, Batch};

/// How far layers with a window look back.
const WINDOW: usize = 40;
/// Most prefill rows of a step of these tests.
pub(crate) const MAX_PREFILL_ROWS: usize = 200;

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

/// Caches of tokens and their positions, and steps computed but not yet retired.
pub(crate) struct Device {
    /// (caches)(slots)
    pub(crate) slots: Vec<Vec<Option<(u32, u32)>>>,
    /// How far each cache is looked back into.
    windows: Vec<usize>,
    pub(crate) computed: Vec<(StepId, Vec<f32>)>,
}

impl Device {
    pub(crate) fn new(caches: &[CacheConfig]) -> Self {
        let slots = caches.iter().map(|cache| vec![None; cache.n_blocks * BLOCK_TOKENS]).collect();
        let windows = caches.iter().map(|cache| cache.ring_blocks.map_or(usize::MAX, |_| WINDOW)).collect();
        Self { slots, windows, computed: Vec::new() }
    }

    pub(crate) fn submit(&mut self, step: &Step) {
        let batch = &step.batch;
        for row in 0..batch.n_rows() {
            for (cache, slots) in self.slots.iter_mut().enumerate() {
                slots[batch.slot(row, cache) as usize] = Some((batch.tokens[row], batch.positions[row]));
            }
        }
        for row in 0..batch.n_rows() {
            for cache in 1..self.slots.len() {
                let seen = self.tokens_until(batch, row, cache);
                assert!(seen.eq(self.tokens_until(batch, row, 0).skip(self.first_seen(batch, row, cache))));
            }
        }
        let logits = batch
            .logit_rows
            .iter()
            .flat_map(|&row| model(self.tokens_until(batch, row as usize, 0)))
            .collect();
        self.computed.push((step.id, logits));
    }

    fn first_seen(&self, batch: &Batch, row: usize, cache: usize) -> usize {
        (batch.positions[row] as usize + 1).saturating_sub(self.windows[cache])
    }

    /// The tokens that a row sees in a cache.
    fn tokens_until<'a>(
        &'a self,
        batch: &'a Batch,
        row: usize,
        cache: usize,
    ) -> impl Iterator<Item = u32> + 'a {
        let blocks = &batch.block_tables[batch.sequences[row] as usize][cache];
        (self.first_seen(batch, row, cache)..=batch.positions[row] as usize).map(move |position| {
            let slot = blocks[position / BLOCK_TOKENS] as usize * BLOCK_TOKENS;
            let (token, cached) =
                self.slots[cache][slot + position % BLOCK_TOKENS].expect("a slot was written");
            assert_eq!(cached as usize, position, "a slot holds its position while it is seen");
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
            engine: Engine::new(config.clone()),
            device: Device::new(&config.caches),
            config,
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
        for (cache, config) in self.config.caches.iter().enumerate() {
            // A ring names its blocks again and again.
            let ring = config.ring_blocks.unwrap_or(usize::MAX);
            let owned: Vec<_> =
                batch.block_tables.iter().flat_map(|tables| tables[cache].iter().take(ring)).collect();
            let distinct: BTreeSet<_> = owned.iter().collect();
            assert_eq!(owned.len(), distinct.len(), "a block has one owner");
        }
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
            Progress::Admitted { sequence, .. }
            | Progress::Prefilled { sequence, .. }
            | Progress::PromptLogprobs { sequence, .. }
            | Progress::Token { sequence, .. }
            | Progress::Finished { sequence, .. } => sequence,
        };
        assert!(!self.cancelled.contains(&id), "nothing is reported of a cancelled sequence");
        let answer = self.answers.get_mut(&id).expect("a sequence that was added");
        assert_eq!(answer.finished, None, "nothing follows the end");
        match progress {
            Progress::Admitted { .. } => {}
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
        let stats = self.engine.stats();
        assert_eq!(stats.free_blocks, stats.n_blocks, "no block is leaked");
    }
}

pub(crate) fn config(n_blocks: usize, context: usize) -> EngineConfig {
    let caches = vec![CacheConfig { n_blocks, ring_blocks: None }];
    EngineConfig {
        caches,
        context,
        vocab_size: VOCAB_SIZE,
        max_sequences: 8,
        max_waiting_of_client: 100,
        max_logit_rows: 16,
    }
}

/// The same with a second cache of so many blocks, whose layers have a window.
pub(crate) fn windowed(n_blocks: [usize; 2], context: usize) -> EngineConfig {
    let ring = (WINDOW + MAX_PREFILL_ROWS).div_ceil(BLOCK_TOKENS) + 1;
    let mut config = config(n_blocks[0], context);
    config.caches.push(CacheConfig { n_blocks: n_blocks[1], ring_blocks: Some(ring) });
    config
}

pub(crate) fn prompt(random: &mut Random, len: usize) -> Vec<u32> {
    (0..len).map(|_| random.below(VOCAB_SIZE) as u32).collect()
}

pub(crate) fn greedy(max_tokens: usize) -> SamplingParams {
    SamplingParams { temperature: 0.0, max_tokens: Some(max_tokens), ..SamplingParams::default() }
}

pub(crate) fn request(len: usize, params: SamplingParams) -> SequenceRequest {
    SequenceRequest { client: 0, generated: Vec::new(), prompt: prompt(&mut Random(len as u64), len), params }
}

/// What a request is answered with when it has an engine of that pool and context for itself.
pub(crate) fn alone(config: &EngineConfig, request: &SequenceRequest) -> Answer {
    let mut world = World::new(EngineConfig { max_sequences: 1, max_logit_rows: 64, ..config.clone() });
    let id = world.add(request.clone());
    world.finish(Budget { prefill_rows: MAX_PREFILL_ROWS });
    world.answers.remove(&id).expect("it was answered")
}
