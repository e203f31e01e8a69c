//! A fake device, and an engine on it with the checks that hold for every step.
//!
//! The device has paged caches. Like keys and values, what a slot holds depends on all tokens before it, and a row's
//! logits on what its block table leads to: so a wrong slot, table, position or order changes every token that follows.
//! Besides, each row checks that all it sees is what its sequence's tokens say. Tokens that it samples stay in it until the
//! step retires, and rows of the next step find them there.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use pagelm::engine::blocks::{CacheConfig, Window};
use pagelm::engine::constraint::Constraint;
use pagelm::engine::logprobs::TokenLogprobs;
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{
    Budget, Engine, EngineConfig, FinishReason, MAX_IN_FLIGHT, Progress, SequenceId, SequenceRequest, Step,
    StepId,
};
use pagelm::plan::StepOutput;
use pagelm::plan::batch::{BLOCK_TOKENS, Batch, STEPS_IN_FLIGHT, Token};
use pagelm::plan::sample::Chooser;

use crate::form::Form;

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

/// The state of a model that has read nothing.
const START: u64 = 1;

fn read(state: u64, token: u32) -> u64 {
    hash(state, u64::from(token) + 1)
}

/// Logits in [−3, 3): (vocabulary)
fn logits_of(state: u64) -> impl Iterator<Item = f32> {
    (0..VOCAB_SIZE as u64).map(move |token| (hash(state, token) >> 40) as f32 / (1 << 24) as f32 * 6.0 - 3.0)
}

/// Logits that follow tokens: (vocabulary)
pub(crate) fn model(tokens: impl IntoIterator<Item = u32>) -> Vec<f32> {
    logits_of(tokens.into_iter().fold(START, read)).collect()
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

/// Caches of what the model has read, and steps computed but not yet retired.
pub(crate) struct Device {
    /// (caches)(slots)
    slots: Vec<Vec<Option<u64>>>,
    caches: Vec<CacheConfig>,
    /// What the last step of each slot sampled: (slots)(logit rows)
    sampled: [Vec<Option<u32>>; STEPS_IN_FLIGHT],
    pub(crate) computed: Vec<(StepId, StepOutput)>,
}

impl Device {
    pub(crate) fn new(caches: &[CacheConfig]) -> Self {
        let slots = caches.iter().map(|cache| vec![None; cache.n_blocks * BLOCK_TOKENS]).collect();
        Self { slots, caches: caches.to_vec(), sampled: Default::default(), computed: Vec::new() }
    }

    fn token(&self, token: Token) -> u32 {
        match token {
            Token::Known(token) => token,
            Token::Sampled(at) => {
                let of_step = &self.sampled[at.slot_of_step as usize];
                of_step[at.logit_row as usize].expect("the device sampled that row")
            }
        }
    }

    /// Computes a step, of whose sequences these are the states at each position. Gives the tokens that it samples, and
    /// whose they are.
    fn submit(&mut self, step: &Step, states: &[Vec<u64>]) -> Vec<(SequenceId, u32)> {
        let batch = &step.batch;
        for row in 0..batch.n_rows() {
            for cache in 0..self.caches.len() {
                let before = match batch.positions[row] as usize {
                    0 => START,
                    position => self.seen(batch, row, cache, position - 1).expect("a slot was written"),
                };
                self.slots[cache][batch.slot(row, cache) as usize] =
                    Some(read(before, self.token(batch.tokens[row])));
            }
        }
        // What the first row of a chunk sees, and on to the last row.
        for (sequence, states) in states.iter().enumerate() {
            let mut rows = (0..batch.n_rows()).filter(|&row| batch.sequences[row] as usize == sequence);
            let first = rows.next().expect("a sequence has rows");
            let last = rows.next_back().unwrap_or(first);
            for cache in 0..self.caches.len() {
                for position in first_seen(&self.caches[cache], batch, first)..=batch.positions[last] as usize
                {
                    let seen = self.seen(batch, last, cache, position);
                    assert!(seen.is_some(), "a row sees what was written");
                    assert_eq!(seen, states.get(position).copied(), "a row sees its sequence's tokens");
                }
            }
        }
        let state = |row: u32| self.slots[0][batch.slot(row as usize, 0) as usize].expect("it was written");
        let (mut output, mut chooser) = (StepOutput::default(), Chooser::default());
        let (mut ring, mut tokens) = (Vec::new(), Vec::new());
        for (&row, sampling) in batch.logit_rows.iter().zip(&batch.samplings) {
            let logits: Vec<f32> = logits_of(state(row)).collect();
            let sampled = sampling.map(|sampling| chooser.sample(&logits, &sampling));
            ring.push(sampled.as_ref().map(|sampled| sampled.token));
            match sampled {
                None => output.logits.extend(logits),
                Some(sampled) => {
                    tokens.push((step.sequences[batch.sequences[row as usize] as usize], sampled.token));
                    output.sampled.push(sampled);
                }
            }
        }
        self.sampled[batch.slot_of_step as usize] = ring;
        self.computed.push((step.id, output));
        tokens
    }

    fn seen(&self, batch: &Batch, row: usize, cache: usize, position: usize) -> Option<u64> {
        let blocks = &batch.block_tables[batch.sequences[row] as usize][cache];
        let slot = blocks[position / BLOCK_TOKENS] as usize * BLOCK_TOKENS;
        self.slots[cache][slot + position % BLOCK_TOKENS]
    }
}

fn first_seen(cache: &CacheConfig, batch: &Batch, row: usize) -> usize {
    let window = cache.window.map_or(usize::MAX, |window| window.tokens);
    (batch.positions[row] as usize + 1).saturating_sub(window)
}

/// All that was reported of a sequence.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Answer {
    /// Prompt tokens that were cached.
    pub(crate) cached: Option<usize>,
    pub(crate) prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
    pub(crate) tokens: Vec<u32>,
    pub(crate) logprobs: Vec<TokenLogprobs>,
    pub(crate) n_read: usize,
    pub(crate) finished: Option<FinishReason>,
}

/// Whose rows a step holds, and the blocks that they see and write: (caches).
#[derive(Debug, Default)]
struct Used {
    sequences: Vec<SequenceId>,
    seen: Vec<BTreeSet<(u32, SequenceId)>>,
    written: Vec<BTreeMap<u32, SequenceId>>,
}

/// An engine, its device, what it reported, and the checks that hold for every step.
pub(crate) struct World {
    pub(crate) engine: Engine,
    config: EngineConfig,
    pub(crate) device: Device,
    pub(crate) answers: BTreeMap<SequenceId, Answer>,
    pub(crate) cancelled: BTreeSet<SequenceId>,
    /// What the model has read at each position of each sequence.
    states: BTreeMap<SequenceId, Vec<u64>>,
    /// Tokens that steps in flight sample on the device.
    ahead: BTreeMap<SequenceId, VecDeque<u32>>,
    /// Rows whose token only the device knew.
    pub(crate) n_fed_rows: usize,
    /// Sequences whose next row is one of decode, unless they are preempted, with the prefill rows since their last
    /// token.
    decoding: BTreeMap<SequenceId, usize>,
    /// What steps in flight use.
    in_steps: BTreeMap<StepId, Used>,
    /// Preemptions since the last step that was submitted with none in flight.
    n_lost: usize,
    /// Prefill rows computed for each sequence.
    pub(crate) n_prefilled: BTreeMap<SequenceId, usize>,
}

impl World {
    pub(crate) fn new(config: EngineConfig) -> Self {
        Self {
            engine: Engine::new(config.clone()),
            device: Device::new(&config.caches),
            config,
            answers: BTreeMap::new(),
            cancelled: BTreeSet::new(),
            states: BTreeMap::new(),
            ahead: BTreeMap::new(),
            n_fed_rows: 0,
            decoding: BTreeMap::new(),
            in_steps: BTreeMap::new(),
            n_lost: 0,
            n_prefilled: BTreeMap::new(),
        }
    }

    pub(crate) fn add(&mut self, request: SequenceRequest) -> SequenceId {
        let mut states = Vec::new();
        for &token in request.prompt.iter().chain(&request.generated) {
            states.push(read(states.last().copied().unwrap_or(START), token));
        }
        let form = Form::of(&request.params).map(|form| Box::new(form) as Box<dyn Constraint>);
        let id = self.engine.add_constrained(request, form).expect("the request can run");
        self.answers.insert(id, Answer::default());
        self.states.insert(id, states);
        for progress in self.engine.take_settled() {
            self.note(progress);
        }
        id
    }

    pub(crate) fn cancel(&mut self, id: SequenceId) {
        self.engine.cancel(id);
        self.cancelled.insert(id);
        self.decoding.remove(&id);
    }

    /// The device and all that it holds are lost; the caches of the next one are these.
    pub(crate) fn lose_device(&mut self, config: EngineConfig) {
        self.device = Device::new(&config.caches);
        self.decoding.clear();
        self.ahead.clear();
        self.in_steps.clear();
        self.engine.move_to(config.clone());
        self.config = config;
        let stats = self.engine.stats();
        assert_eq!((stats.free_blocks, stats.cached_blocks, stats.running), (stats.n_blocks, 0, 0));
        for progress in self.engine.take_settled() {
            self.note(progress);
        }
    }

    /// The step that was submitted last fails.
    pub(crate) fn fail_last(&mut self) {
        let (step, _) = self.device.computed.pop().expect("a step is in flight");
        self.fail(step);
    }

    /// The oldest step in flight fails.
    pub(crate) fn fail_first(&mut self) {
        let (step, _) = self.device.computed.remove(0);
        self.fail(step);
    }

    fn fail(&mut self, step: StepId) {
        self.engine.abandon(step);
        self.decoding.clear();
        // Sequences in it begin again from what they know. Those that are in an earlier one only do not.
        let in_step = self.in_steps.remove(&step).expect("it was submitted");
        in_step.sequences.into_iter().for_each(|id| drop(self.ahead.remove(&id)));
    }

    /// Submits what the engine wants to run.
    pub(crate) fn submit(&mut self, budget: Budget) -> Option<Batch> {
        let before = self.engine.stats();
        let step = self.engine.next_step(budget);
        self.n_lost += (self.engine.stats().preemptions - before.preemptions) as usize;
        let Some(step) = step else {
            let is_known = before.steps_in_flight > 0 || self.decoding.len() <= self.n_lost;
            assert!(is_known, "a sequence that decodes has a row");
            return None;
        };
        let used = self.check_step(&step, budget);
        self.check_decodes(&step, budget, before.steps_in_flight == 0);
        let states_of = |id: &SequenceId| {
            let mut states = self.states[id].clone();
            for &token in self.ahead.get(id).into_iter().flatten() {
                states.push(read(*states.last().expect("a prompt"), token));
            }
            states
        };
        let states: Vec<Vec<u64>> = step.sequences.iter().map(states_of).collect();
        for (id, token) in self.device.submit(&step, &states) {
            self.ahead.entry(id).or_default().push_back(token);
        }
        self.in_steps.insert(step.id, used);
        self.n_fed_rows +=
            step.batch.tokens.iter().filter(|token| matches!(token, Token::Sampled(_))).count();
        for &sequence in &step.batch.sequences[step.batch.n_decode..] {
            *self.n_prefilled.entry(step.sequences[sequence as usize]).or_default() += 1;
        }
        Some(step.batch)
    }

    /// Each sequence that decodes has a row in every step while no other is in flight, unless it is preempted: so
    /// between two of its tokens there is no more than one step's budget of prefill rows.
    fn check_decodes(&mut self, step: &Step, budget: Budget, is_alone: bool) {
        let with_row = &step.sequences[..step.batch.n_decode];
        if is_alone {
            let n_before = self.decoding.len();
            self.decoding.retain(|id, _| with_row.contains(id));
            let n_lost = std::mem::take(&mut self.n_lost);
            assert!(self.decoding.len() + n_lost >= n_before, "who decodes has a row or is preempted");
            for n_rows in self.decoding.values_mut() {
                *n_rows += step.batch.n_prefill();
                assert!(*n_rows <= budget.prefill_rows, "a gap holds one budget of prefill rows");
            }
        }
        // Until their tokens are there.
        self.decoding.retain(|id, _| !step.sequences.contains(id));
    }

    fn check_step(&self, step: &Step, budget: Budget) -> Used {
        let batch = &step.batch;
        let mut used = Used { sequences: step.sequences.clone(), ..Used::default() };
        assert!(batch.n_rows() > 0, "a step has rows");
        assert!(batch.n_prefill() <= budget.prefill_rows, "prefill rows stay in the budget");
        assert!(batch.n_decode <= self.config.max_sequences);
        assert!(batch.logit_rows.len() <= self.config.max_logit_rows, "rows with logits are bounded");
        assert!(batch.logit_rows.is_sorted());
        for (cache, config) in self.config.caches.iter().enumerate() {
            // The blocks that each sequence has a use for, those in which it writes, and all that are seen by others.
            let mut written = BTreeMap::new();
            let mut seen: Vec<(u32, usize)> = Vec::new();
            for row in 0..batch.n_rows() {
                let sequence = batch.sequences[row] as usize;
                let blocks = &batch.block_tables[sequence][cache];
                assert!(blocks.iter().all(|&block| (block as usize) < config.n_blocks));
                let [first, last] = [first_seen(config, batch, row), batch.positions[row] as usize]
                    .map(|position| position / BLOCK_TOKENS);
                seen.extend(blocks[first..=last].iter().map(|&block| (block, sequence)));
                let writer = *written.entry(blocks[last]).or_insert(sequence);
                assert_eq!(writer, sequence, "a block that is written has one owner");
            }
            for &(block, sequence) in &seen {
                let writer = written.get(&block).copied().unwrap_or(sequence);
                assert_eq!(writer, sequence, "nobody else sees a block that is written");
            }
            let id = |sequence: usize| step.sequences[sequence];
            used.written.push(written.into_iter().map(|(block, sequence)| (block, id(sequence))).collect());
            used.seen.push(seen.into_iter().map(|(block, sequence)| (block, id(sequence))).collect());
        }
        self.in_steps.values().for_each(|earlier| check_apart(&used, earlier));
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
        used
    }

    /// Retires the oldest step, if one is in flight.
    pub(crate) fn retire(&mut self) {
        if self.device.computed.is_empty() {
            return;
        }
        let (step, output) = self.device.computed.remove(0);
        self.in_steps.remove(&step);
        for progress in self.engine.retire(step, &output) {
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
            Progress::Admitted { cached_tokens, .. } => {
                let is_first = answer.n_read == 0 && answer.tokens.is_empty();
                assert!(answer.cached.is_none() && is_first, "a sequence is admitted once, and first");
                answer.cached = Some(cached_tokens);
            }
            Progress::Prefilled { done, total, .. } => {
                assert!(answer.cached.is_some_and(|cached| cached <= done), "what is cached is read");
                assert!(answer.n_read < done && done <= total, "reading goes on");
                assert!(answer.tokens.is_empty());
                answer.n_read = done;
            }
            Progress::PromptLogprobs { tokens, .. } => {
                assert!(answer.tokens.is_empty() && answer.prompt_logprobs.is_none());
                answer.prompt_logprobs = Some(tokens);
            }
            Progress::Token { token, logprobs, .. } => {
                if let Some(ahead) = self.ahead.get_mut(&id).and_then(VecDeque::pop_front) {
                    assert_eq!(ahead, token, "it is the token that the device went on with");
                }
                let states = self.states.get_mut(&id).expect("a sequence that was added");
                states.push(read(*states.last().expect("a prompt"), token));
                self.decoding.insert(id, 0);
                answer.tokens.push(token);
                answer.logprobs.extend(logprobs);
            }
            Progress::Finished { reason, .. } => {
                answer.finished = Some(reason);
                self.decoding.remove(&id);
            }
        }
    }

    /// Runs until the engine is idle, a step being submitted before the one before it is retired where that is worth it, as
    /// the host does it.
    pub(crate) fn overlap(&mut self, budget: Budget) {
        while self.overlap_once(budget) {}
        self.finish(budget);
    }

    /// The same for one step; whether there was one.
    pub(crate) fn overlap_once(&mut self, budget: Budget) -> bool {
        while self.device.computed.is_empty() || self.engine.may_overlap() {
            if self.submit(budget).is_none() {
                break;
            }
        }
        let is_any = !self.device.computed.is_empty();
        self.retire();
        is_any
    }

    /// Runs until the engine is idle, one step at a time.
    pub(crate) fn finish(&mut self, budget: Budget) {
        while self.submit(budget).is_some() || !self.device.computed.is_empty() {
            self.retire();
        }
        assert!(self.engine.is_idle(), "no step only when idle: {:?}", self.engine.stats());
        let stats = self.engine.stats();
        assert_eq!(stats.free_blocks, stats.n_blocks, "no block is leaked");
    }
}

/// Blocks change hands only when no step in flight uses them, and are shared only when what wrote them has retired.
fn check_apart(step: &Used, earlier: &Used) {
    let caches = step.written.iter().zip(&step.seen).zip(earlier.written.iter().zip(&earlier.seen));
    for ((written, seen), (written_before, seen_before)) in caches {
        for (block, id) in seen {
            let writer = written_before.get(block).unwrap_or(id);
            assert_eq!(writer, id, "what a step in flight writes is not shared");
        }
        for (block, id) in seen_before {
            let writer = written.get(block).unwrap_or(id);
            assert_eq!(writer, id, "what a step in flight sees is not written");
        }
    }
}

pub(crate) fn config(n_blocks: usize, context: usize) -> EngineConfig {
    let caches = vec![CacheConfig { n_blocks, window: None }];
    EngineConfig {
        caches,
        context,
        vocab_size: VOCAB_SIZE,
        max_sequences: 8,
        max_waiting_of_client: 100,
        max_logit_rows: 16,
        samples_on_device: false,
    }
}

/// The same on a device that samples.
pub(crate) fn sampling(config: EngineConfig) -> EngineConfig {
    EngineConfig { samples_on_device: true, ..config }
}

/// The same with a second cache of so many blocks, whose layers have a window.
pub(crate) fn windowed(n_blocks: [usize; 2], context: usize) -> EngineConfig {
    let ring = (WINDOW + MAX_PREFILL_ROWS).div_ceil(BLOCK_TOKENS) + 1;
    let mut config = config(n_blocks[0], context);
    config
        .caches
        .push(CacheConfig { n_blocks: n_blocks[1], window: Some(Window { tokens: WINDOW, blocks: ring }) });
    config
}

pub(crate) fn prompt(random: &mut Random, len: usize) -> Vec<u32> {
    (0..len).map(|_| random.below(VOCAB_SIZE) as u32).collect()
}

pub(crate) fn greedy(max_tokens: usize) -> SamplingParams {
    SamplingParams { temperature: 0.0, max_tokens: Some(max_tokens), ..SamplingParams::default() }
}

pub(crate) fn request(len: usize, params: SamplingParams) -> SequenceRequest {
    SequenceRequest {
        client: 0,
        generated: Vec::new(),
        prompt: prompt(&mut Random((len as u64) << 20), len),
        params,
    }
}

/// What a request is answered with when it has an engine of that pool and context for itself, and the host samples.
pub(crate) fn alone(config: &EngineConfig, request: &SequenceRequest) -> Answer {
    let mut world = World::new(EngineConfig {
        max_sequences: 1,
        max_logit_rows: 64,
        samples_on_device: false,
        ..config.clone()
    });
    let id = world.add(request.clone());
    world.finish(Budget { prefill_rows: MAX_PREFILL_ROWS });
    world.answers.remove(&id).expect("it was answered")
}
