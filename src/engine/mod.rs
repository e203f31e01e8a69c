//! Sequences, scheduler, KV blocks and sampler: what runs next, and what its logits mean.
//!
//! Invariant: pure. No device, clock, entropy or text: the same calls in the same order give the same steps and tokens,
//! and what a sequence generates depends on its own request and logits only, never on what else runs.
//!
//! The loop is `next_step → device → retire`:
//!
//! - A step holds one row for each sequence that decodes, then chunks of prompts within the [`Budget`]. So between two
//!   tokens of a sequence there is at most one step's budget of prefill rows, however long the prompts are.
//! - Sequences are admitted once the pools have room for all their tokens, clients in turn. So do prompts take turns: one
//!   that got rows goes behind all others that wait for theirs.
//! - A sequence starts from the longest beginning of its tokens that is cached, whoever had it computed. Earlier arrivals
//!   with the same beginning go first, so that it is computed once.
//! - When a decoding sequence finds no free block, the youngest that runs is preempted: its blocks are freed, and it is
//!   prefilled again later from prompt and output, or from what is still cached of it, without emitting anything twice.
//! - Where the device samples ([`EngineConfig::samples_on_device`]), a sequence has lag 1: while a step with its rows is in
//!   flight it is in the next, with the token that only the device knows. Such a token is provisional until its step
//!   retires: blocks change hands and beginnings are shared only then, and what was computed past an end is dropped without
//!   a word. No row is computed past a length, which is known ahead.
//! - Where the host must see the token first (penalties, held back tokens, a device that does not sample), the lag is 0: the
//!   sequence skips a step while it waits, and nobody waits for it.
//! - So it is where the output has a form ([`Constraint`]): only tokens that it allows are sampled, and it ends once nothing
//!   may follow.

pub mod blocks;
pub mod constraint;
pub mod params;
mod add_error;
mod admission;
mod clients;
mod pools;
mod prefixes;
mod sampler;
mod scheduler;
mod sequence;
pub mod snapshot;

use crate::plan::StepOutput;
use crate::plan::batch::{BLOCK_TOKENS, Batch, STEPS_IN_FLIGHT};
pub use crate::plan::logprobs;
use crate::plan::logprobs::TokenLogprobs;
use crate::plan::sample::Sampled;
pub use add_error::AddError;
use blocks::CacheConfig;
use constraint::{Constraint, Unmet};
use params::SamplingParams;
use sampler::Sampler;
use scheduler::{Chunk, Scheduler};
use sequence::Sequence;
use snapshot::LastRows;

/// Steps that may be submitted and not yet retired.
pub const MAX_IN_FLIGHT: usize = STEPS_IN_FLIGHT;

/// What the engine has to work with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EngineConfig {
    /// The KV caches of the model, at least one.
    pub caches: Vec<CacheConfig>,
    /// Most tokens of a sequence, prompt and output together.
    pub context: usize,
    /// Logits of a row.
    pub vocab_size: usize,
    /// Most sequences that run at once; the others wait.
    pub max_sequences: usize,
    /// Most sequences of a client that wait, those included that were preempted; more are refused.
    pub max_waiting_of_client: usize,
    /// Most rows of a step that want logits. No more sequences than this run at once either, so that every one that
    /// decodes has a row in every step.
    pub max_logit_rows: usize,
    /// Whether the device chooses tokens, and takes them as tokens of the next step.
    pub samples_on_device: bool,
}

impl EngineConfig {
    fn check(&self) {
        assert!(!self.caches.is_empty() && self.vocab_size > 0, "a model has a cache and a vocabulary");
        assert!(self.caches.iter().all(|cache| cache.n_blocks > 0), "a pool holds something");
        assert!(self.caches.iter().all(CacheConfig::holds_its_window), "a sequence owns what a row sees");
        assert!(self.context > 1, "a context holds a prompt and an answer");
        assert!(self.max_sequences > 0 && self.max_logit_rows > 0, "a step has room for a sequence");
        assert!(self.max_waiting_of_client > 0, "a sequence waits before it runs");
        let has_u32 = |n: Option<usize>| n.is_some_and(|n| u32::try_from(n).is_ok());
        let n_slots = |cache: &CacheConfig| cache.n_blocks.checked_mul(BLOCK_TOKENS);
        assert!(self.caches.iter().map(n_slots).all(has_u32), "a slot is a u32");
        assert!(
            has_u32(Some(self.context)) && has_u32(Some(self.vocab_size)),
            "positions and token ids are u32"
        );
    }

    /// Tokens at which a sequence ends: the context, or what the caches hold and the one token sampled from it.
    fn max_tokens_of_sequence(&self) -> usize {
        let most = self.caches.iter().map(CacheConfig::max_tokens).min().expect("a model has a cache");
        self.context.min(most.saturating_add(1))
    }
}

/// What one step may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// Most rows of prefill, all prompts together; with 0 prompts wait. Decode rows are not counted.
    pub prefill_rows: usize,
}

/// Names a sequence; larger ids arrived later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceId(u64);

/// Names a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StepId(u64);

/// Names who asks; clients take turns.
pub type ClientId = u64;

/// A prompt and how to continue it.
#[derive(Debug, Clone, PartialEq)]
pub struct SequenceRequest {
    /// Who asks.
    pub client: ClientId,
    /// Token ids, at least one: (prompt tokens)
    pub prompt: Vec<u32>,
    /// Tokens that another engine generated before; they count as generated, and only what follows is reported: where they
    /// end the answer already, [`Engine::take_settled`] does.
    pub generated: Vec<u32>,
    /// How to choose the tokens that follow.
    pub params: SamplingParams,
}

/// Rows to compute; what comes of them goes to [`Engine::retire`].
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// Names the step to [`Engine::retire`] and [`Engine::abandon`].
    pub id: StepId,
    /// The rows.
    pub batch: Batch,
    /// Whose they are, in order of the batch's sequences.
    pub sequences: Vec<SequenceId>,
}

/// What a retired step brought. Those of a sequence come in the order of the variants.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    /// The sequence runs for the first time.
    Admitted {
        /// Whose.
        sequence: SequenceId,
        /// Prompt tokens whose keys and values were found in the cache.
        cached_tokens: usize,
    },
    /// More of a prompt was read than ever before.
    Prefilled {
        /// Whose.
        sequence: SequenceId,
        /// Prompt tokens read.
        done: usize,
        /// Prompt tokens in all.
        total: usize,
    },
    /// The prompt's log-probabilities; once, before the first token, where they were asked for.
    PromptLogprobs {
        /// Whose.
        sequence: SequenceId,
        /// One entry a prompt token; the first has none: (prompt tokens)
        tokens: Vec<Option<TokenLogprobs>>,
    },
    /// The sequence grew. A token that ends it is reported too.
    Token {
        /// Whose.
        sequence: SequenceId,
        /// Token id.
        token: u32,
        /// Its log-probability, where it was asked for.
        logprobs: Option<TokenLogprobs>,
    },
    /// The sequence ended; its id means nothing from here on.
    Finished {
        /// Whose.
        sequence: SequenceId,
        /// Why.
        reason: FinishReason,
    },
}

/// Why a sequence ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FinishReason {
    /// Its last token is an end-of-generation token or one of its stop token ids.
    Stop,
    /// It reached `max_tokens`, the context, or all that the KV pool holds.
    Length,
    /// Its constraint allows nothing more: the output is whole with its last token.
    Complete,
    /// Its constraint allows no token, though the output is not whole.
    Unmet,
}

/// How things stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stats {
    /// Sequences that were admitted, those cancelled in flight included.
    pub running: usize,
    /// Sequences that own no blocks yet, or no longer.
    pub waiting: usize,
    /// Steps submitted and not retired.
    pub steps_in_flight: usize,
    /// Blocks that no sequence uses, those with a cached prefix included.
    pub free_blocks: usize,
    /// Of the free blocks, those with a cached prefix.
    pub cached_blocks: usize,
    /// Blocks in all.
    pub n_blocks: usize,
    /// Times a sequence lost its blocks to a senior one, or to one of a client with fewer.
    pub preemptions: u64,
}

/// A step that was submitted: whose rows it holds.
#[derive(Debug)]
struct InFlight {
    id: StepId,
    slot: u32,
    /// In order of the batch's sequences, so also of its rows.
    chunks: Vec<Chunk>,
}

/// Owns all sequences, and decides what runs.
#[derive(Debug)]
pub struct Engine {
    config: EngineConfig,
    scheduler: Scheduler,
    sampler: Sampler,
    /// Oldest first, at most [`MAX_IN_FLIGHT`].
    in_flight: Vec<InFlight>,
    /// Ends that need no step.
    settled: Vec<Progress>,
    /// Of the last step.
    last_rows: LastRows,
    n_steps: u64,
    n_sequences: u64,
}

impl Engine {
    /// An engine without sequences.
    ///
    /// # Panics
    /// If a number of the configuration is 0, the context holds less than two tokens, or a slot of the pool or a
    /// position of the context has no `u32`.
    pub fn new(config: EngineConfig) -> Self {
        config.check();
        Self {
            scheduler: Scheduler::new(&config),
            sampler: Sampler::new(config.vocab_size),
            config,
            in_flight: Vec::new(),
            settled: Vec::new(),
            last_rows: LastRows::default(),
            n_steps: 0,
            n_sequences: 0,
        }
    }

    /// What it has to work with.
    pub fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// Takes in a request that can run, at the end of those of its client that wait. One whose `generated` ends it
    /// already has ended: [`Engine::take_settled`] tells.
    pub fn add(&mut self, request: SequenceRequest) -> Result<SequenceId, AddError> {
        self.add_constrained(request, None)
    }

    /// The same for an output that has a form. The constraint is at the beginning of the output: `generated` tokens are
    /// pushed here.
    pub fn add_constrained(
        &mut self,
        request: SequenceRequest,
        mut constraint: Option<Box<dyn Constraint>>,
    ) -> Result<SequenceId, AddError> {
        self.check(&request)?;
        if let Some(constraint) = &mut constraint {
            for (index, &token) in request.generated.iter().enumerate() {
                // As when they were generated: what a constraint may spend is its own for each token.
                let unmet = |Unmet| AddError::GeneratedUnmet { index };
                constraint.allowed().map_err(unmet)?;
                constraint.push(token).map_err(unmet)?;
            }
        }
        let waiting = self.scheduler.n_waiting(request.client);
        if waiting >= self.config.max_waiting_of_client {
            return Err(AddError::Busy { waiting });
        }
        let id = SequenceId(self.n_sequences);
        self.n_sequences += 1;
        let sequence = Sequence::new(request, constraint);
        match sequence.finish_reason(self.config.max_tokens_of_sequence()) {
            Some(reason) => self.settled.push(Progress::Finished { sequence: id, reason }),
            None => self.scheduler.add(id, sequence),
        }
        Ok(id)
    }

    fn check(&self, request: &SequenceRequest) -> Result<(), AddError> {
        let EngineConfig { ref caches, context, vocab_size, .. } = self.config;
        let (prompt_tokens, generated_tokens) = (request.prompt.len(), request.generated.len());
        if prompt_tokens == 0 {
            return Err(AddError::EmptyPrompt);
        }
        if prompt_tokens >= context {
            return Err(AddError::PromptExceedsContext { prompt_tokens, context });
        }
        if let Some(cache) = caches.iter().find(|cache| prompt_tokens > cache.max_tokens()) {
            let (needed, n_blocks) = (cache.blocks_for(prompt_tokens), cache.n_blocks);
            return Err(AddError::PromptExceedsPool { prompt_tokens, needed, n_blocks });
        }
        let limit = self.config.max_tokens_of_sequence();
        if prompt_tokens + generated_tokens > limit {
            return Err(AddError::GeneratedExceedsContext { prompt_tokens, generated_tokens, limit });
        }
        let stranger = |tokens: &[u32]| {
            let index = tokens.iter().position(|&token| token as usize >= vocab_size)?;
            Some((index, tokens[index]))
        };
        if let Some((index, token)) = stranger(&request.prompt) {
            return Err(AddError::TokenOutOfVocabulary { index, token, vocab_size });
        }
        if let Some((index, token)) = stranger(&request.generated) {
            return Err(AddError::GeneratedOutOfVocabulary { index, token, vocab_size });
        }
        Ok(request.params.validate(vocab_size)?)
    }

    /// Sequences that ended without a step: told here, or else by the next [`Engine::retire`]. Ask after [`Engine::add`]
    /// with `generated` tokens and after [`Engine::move_to`].
    pub fn take_settled(&mut self) -> Vec<Progress> {
        std::mem::take(&mut self.settled)
    }

    /// Ends a sequence without a word: nothing of it is reported any more. Its blocks are free at once, or when the step
    /// in flight that uses them retires. An id that means nothing any more is ignored.
    pub fn cancel(&mut self, sequence: SequenceId) {
        self.settled.retain(|end| !matches!(end, Progress::Finished { sequence: id, .. } if *id == sequence));
        self.scheduler.cancel(sequence);
    }

    /// What to compute next, if anything can be: not while [`MAX_IN_FLIGHT`] steps are unretired or all sequences are
    /// in them. Given at least one prefill row and no step in flight, there is none only when the engine is idle.
    pub fn next_step(&mut self, budget: Budget) -> Option<Step> {
        if self.in_flight.len() == MAX_IN_FLIGHT {
            return None;
        }
        let is_free = |slot: &u32| self.in_flight.iter().all(|in_flight| in_flight.slot != *slot);
        let slot = (0..).find(is_free)?;
        let (batch, chunks) = self.scheduler.schedule(budget, slot)?;
        let id = StepId(self.n_steps);
        self.n_steps += 1;
        self.last_rows = LastRows::of(&chunks, batch.n_decode);
        let sequences = chunks.iter().map(|chunk| chunk.sequence).collect();
        self.in_flight.push(InFlight { id, slot, chunks });
        Some(Step { id, batch, sequences })
    }

    /// Whether a step beside those in flight is worth it: never where the host samples, and else not where it would only
    /// split those that wait for the host in two halves that take turns.
    pub fn may_overlap(&self) -> bool {
        self.scheduler.may_overlap()
    }

    /// Turns what came of a step into tokens.
    ///
    /// # Panics
    /// If the step is not the oldest in flight, or the output is not that of its rows.
    pub fn retire(&mut self, step: StepId, output: &StepOutput) -> Vec<Progress> {
        assert!(
            self.in_flight.first().is_some_and(|oldest| oldest.id == step),
            "steps retire in their order"
        );
        let chunks = self.take_in_flight(step);
        let mut rows = output.logits.chunks_exact(self.config.vocab_size);
        let mut sampled = output.sampled.iter();
        let mut progress = self.take_settled();
        for chunk in chunks {
            let n_host_rows = chunk.n_logits - usize::from(chunk.is_sampled);
            let rows: Vec<&[f32]> = rows.by_ref().take(n_host_rows).collect();
            let sampled = chunk.is_sampled.then(|| sampled.next().expect("a token for each sampled row"));
            assert_eq!(rows.len(), n_host_rows, "one row of logits for each that was wanted");
            self.retire_chunk(&chunk, &rows, sampled, &mut progress);
        }
        assert!(rows.next().is_none() && sampled.next().is_none(), "nothing came that was not wanted");
        self.scheduler.assert_blocks();
        progress
    }

    /// Gives up a step that the device failed to compute: its sequences wait again once no other step has rows of them, and
    /// are prefilled from their tokens.
    ///
    /// # Panics
    /// If the step is not in flight.
    pub fn abandon(&mut self, step: StepId) {
        for chunk in self.take_in_flight(step) {
            self.scheduler.fall(chunk.sequence);
        }
        self.scheduler.assert_blocks();
    }

    /// Gives up all steps in flight and all cached keys and values: every sequence waits again, and is prefilled from its
    /// tokens.
    pub fn forget_cache(&mut self) {
        self.in_flight.clear();
        self.scheduler.restart_all(&self.config);
        self.scheduler.assert_blocks();
    }

    /// Goes on with the same model on another device, as after a lost one: [`Engine::forget_cache`], and pools of other
    /// sizes. Where a sequence has no room for another token any more, it has ended by its length:
    /// [`Engine::take_settled`] tells.
    ///
    /// # Panics
    /// If it is a configuration that [`Engine::new`] does not take, or of a model with another vocabulary.
    pub fn move_to(&mut self, config: EngineConfig) {
        config.check();
        assert_eq!(config.vocab_size, self.config.vocab_size, "it is the same model");
        self.config = config;
        self.forget_cache();
        for id in self.scheduler.longer_than(self.config.max_tokens_of_sequence() - 1) {
            self.scheduler.remove(id);
            self.settled.push(Progress::Finished { sequence: id, reason: FinishReason::Length });
        }
    }

    /// How things stand.
    pub fn stats(&self) -> Stats {
        Stats { steps_in_flight: self.in_flight.len(), ..self.scheduler.stats() }
    }

    /// Whether there is neither a sequence nor a step in flight, nor an end to tell of.
    pub fn is_idle(&self) -> bool {
        self.in_flight.is_empty() && self.scheduler.is_empty() && self.settled.is_empty()
    }

    fn take_in_flight(&mut self, step: StepId) -> Vec<Chunk> {
        let place = self.in_flight.iter().position(|in_flight| in_flight.id == step);
        self.in_flight.remove(place.expect("a step is retired or abandoned once")).chunks
    }

    /// Advances one sequence by its rows of a step; `rows` are the logits that the host was to see of the last of them, and
    /// `sampled` is what the device chose.
    fn retire_chunk(
        &mut self,
        chunk: &Chunk,
        rows: &[&[f32]],
        sampled: Option<&Sampled>,
        progress: &mut Vec<Progress>,
    ) {
        let id = chunk.sequence;
        let Some(sequence) = self.scheduler.land(id, chunk.n_rows) else {
            return; // cancelled or lost meanwhile
        };
        if let Some(cached_tokens) = sequence.take_admission() {
            progress.push(Progress::Admitted { sequence: id, cached_tokens });
        }
        if let Some(done) = sequence.newly_read() {
            progress.push(Progress::Prefilled { sequence: id, done, total: sequence.n_prompt() });
        }
        let is_last = sequence.n_cached() == sequence.tokens().len();
        let n_prompt_rows = rows.len() - usize::from(is_last && sampled.is_none());
        rows[..n_prompt_rows].iter().for_each(|row| sequence.push_prompt_logprobs(row));
        if !is_last {
            return;
        }
        if let Some(tokens) = sequence.take_prompt_logprobs() {
            progress.push(Progress::PromptLogprobs { sequence: id, tokens });
        }
        let next = match sampled {
            Some(sampled) => Ok((sampled.token, sampled.logprobs.clone())),
            None => sequence.sample(&mut self.sampler, rows[n_prompt_rows]),
        };
        let Ok((token, logprobs)) = next else {
            self.scheduler.cancel(id);
            progress.push(Progress::Finished { sequence: id, reason: FinishReason::Unmet });
            return;
        };
        sequence.push_token(token, sampled.is_some());
        progress.push(Progress::Token { sequence: id, token, logprobs });
        if let Some(reason) = sequence.finish_reason(self.config.max_tokens_of_sequence()) {
            // What is in flight of it is dropped.
            self.scheduler.cancel(id);
            progress.push(Progress::Finished { sequence: id, reason });
        }
    }
}
