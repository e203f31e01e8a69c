//! One request: its tokens, and how far they are computed.
//!
//! Invariant: tokens `0..n_cached` lie in the cache, in the blocks of `lease`, and `n_cached..n_placed` are in steps in
//! flight; a sequence that waits has neither. A token that only the device knows is not among `tokens`. Nothing is reported
//! twice, however often the tokens are computed again.

use super::constraint::{Constraint, Unmet};
use super::params::SamplingParams;
use super::pools::Lease;
use super::sampler::Sampler;
use super::{ClientId, FinishReason, SequenceRequest};
use crate::plan::batch::{BLOCK_TOKENS, RowKind, SampledAt, Token, Wants};
use crate::plan::logprobs::{TokenLogprobs, log_softmax_at};

/// Whether a sequence runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It owns no blocks.
    Waiting,
    /// It was admitted.
    Running,
    /// A step with its rows is not yet retired, and it is to be dropped when the last one is.
    Cancelled,
}

/// A request on its way.
#[derive(Debug)]
pub(super) struct Sequence {
    client: ClientId,
    /// Prompt, then output.
    tokens: Vec<u32>,
    n_prompt: usize,
    params: SamplingParams,
    /// What its output may be; it knows the output so far.
    constraint: Option<Box<dyn Constraint>>,
    pub(super) state: State,
    /// What it owns.
    pub(super) lease: Lease,
    /// When it was first admitted; the largest number before that.
    seniority: u64,
    /// Prompt tokens that were cached when it was admitted, until that is reported.
    n_found: Option<usize>,
    is_admission_reported: bool,
    n_cached: usize,
    /// Tokens that are cached, or will be by steps in flight.
    n_placed: usize,
    /// Steps with its rows that are not retired.
    n_in_flight: usize,
    /// Tokens that steps in flight sample on the device: they follow those known.
    n_ahead: usize,
    /// Where the last of them lies.
    last_ahead: Option<SampledAt>,
    /// A step of it failed: nothing that later ones computed is worth anything.
    is_broken: bool,
    /// Tokens before this one are computed as prefill rows: the prompt, and after a restart the output so far.
    prefill_end: usize,
    /// Prompts get rows in this order.
    pub(super) turn: u64,
    /// Most prompt tokens ever read.
    n_read: usize,
    /// Those known so far, until they are reported.
    prompt_logprobs: Option<Vec<Option<TokenLogprobs>>>,
}

impl Sequence {
    /// A sequence that waits. The constraint knows what was generated before.
    pub(super) fn new(request: SequenceRequest, constraint: Option<Box<dyn Constraint>>) -> Self {
        let SequenceRequest { client, prompt, generated, params } = request;
        Self {
            client,
            n_prompt: prompt.len(),
            prefill_end: prompt.len() + generated.len(),
            tokens: [prompt, generated].concat(),
            constraint,
            state: State::Waiting,
            lease: Lease::new(0),
            seniority: u64::MAX,
            n_found: None,
            is_admission_reported: false,
            n_cached: 0,
            n_placed: 0,
            n_in_flight: 0,
            n_ahead: 0,
            last_ahead: None,
            is_broken: false,
            turn: 0,
            n_read: 0,
            // Nothing predicts the first token.
            prompt_logprobs: params.prompt_logprobs.map(|_| vec![None]),
            params,
        }
    }

    /// Who asked.
    pub(super) fn client(&self) -> ClientId {
        self.client
    }

    /// When it was first admitted: the earlier, the smaller.
    pub(super) fn seniority(&self) -> u64 {
        self.seniority
    }

    /// Prompt, then output.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Prompt and output, and what it owns.
    pub(super) fn tokens_and_lease(&mut self) -> (&[u32], &mut Lease) {
        (&self.tokens, &mut self.lease)
    }

    /// The tokens it generated.
    pub(super) fn output(&self) -> &[u32] {
        &self.tokens[self.n_prompt..]
    }

    /// Tokens it was given.
    pub(super) fn n_prompt(&self) -> usize {
        self.n_prompt
    }

    /// Tokens before this one are computed as prefill rows.
    pub(super) fn prefill_end(&self) -> usize {
        self.prefill_end
    }

    /// Tokens whose keys and values are cached.
    pub(super) fn n_cached(&self) -> usize {
        self.n_cached
    }

    /// Whether it was admitted: it owns blocks, or those that it will take are promised to it.
    pub(super) fn is_running(&self) -> bool {
        self.state != State::Waiting
    }

    /// Whether it runs, and will once its steps in flight have retired.
    pub(super) fn runs_on(&self) -> bool {
        self.state == State::Running && !self.is_broken
    }

    /// Whether rows of it are in a step that is not retired.
    pub(super) fn is_in_flight(&self) -> bool {
        self.n_in_flight > 0
    }

    /// Whether it runs and no row of it is in flight: only then can it lose its blocks.
    pub(super) fn is_at_rest(&self) -> bool {
        self.state == State::Running && self.n_in_flight == 0
    }

    /// Tokens that are cached, or will be by steps in flight.
    pub(super) fn n_placed(&self) -> usize {
        self.n_placed
    }

    /// Tokens, those included that only the device knows.
    fn n_tokens(&self) -> usize {
        self.tokens.len() + self.n_ahead
    }

    /// Whether its next token is one that only the device knows as yet.
    pub(super) fn is_fed_by_device(&self) -> bool {
        self.n_ahead > 0 && self.n_placed == self.tokens.len() + self.n_ahead - 1
    }

    /// Whether what the device samples for it ends it in any case, given how many tokens it may have in all.
    pub(super) fn ends_in_flight(&self, max_tokens: usize) -> bool {
        self.n_ahead > 0 && self.is_full(self.n_tokens(), max_tokens)
    }

    /// Whether its next token is there, on the host or on the device.
    pub(super) fn has_next(&self, max_tokens: usize) -> bool {
        self.runs_on() && self.n_placed < self.n_tokens() && !self.ends_in_flight(max_tokens)
    }

    /// The token at a position that was not placed yet.
    pub(super) fn token_at(&self, position: usize) -> Token {
        match self.tokens.get(position) {
            Some(&token) => Token::Known(token),
            None => Token::Sampled(self.last_ahead.expect("the device sampled it")),
        }
    }

    /// What its next row is.
    pub(super) fn next_kind(&self) -> RowKind {
        if self.n_placed < self.prefill_end { RowKind::Prefill } else { RowKind::Decode }
    }

    /// What becomes of the logits of a position: the next token, or the log-probability of a prompt token not yet reported.
    pub(super) fn wants(&self, position: usize, samples_on_device: bool) -> Wants {
        let next = position + 1;
        let is_unknown = |known: &Vec<_>| (known.len()..self.n_prompt).contains(&next);
        if next < self.n_tokens() {
            return self.prompt_logprobs.as_ref().is_some_and(is_unknown).into();
        }
        let place = next - self.n_prompt;
        match samples_on_device && self.constraint.is_none() && self.params.leave_logits(place) {
            true => Wants::Token(self.params.sampling(place)),
            false => Wants::Logits,
        }
    }

    /// Whether it can do without the logits of what is cached, and would: not while those of its prompt are to be reported.
    pub(super) fn may_hit(&self) -> bool {
        self.params.reuse_prefix && self.prompt_logprobs.is_none()
    }

    /// Whole blocks at its start that other tokens have too, and that leave it a token to compute.
    pub(super) fn n_whole_shared(&self, other: &[u32]) -> usize {
        let own = self.tokens[..self.tokens.len() - 1].chunks_exact(BLOCK_TOKENS);
        own.zip(other.chunks_exact(BLOCK_TOKENS)).take_while(|(own, other)| own == other).count()
    }

    /// It runs, and so many tokens are cached already.
    pub(super) fn begin(&mut self, n_cached: usize, now: u64) {
        self.state = State::Running;
        (self.n_cached, self.n_placed) = (n_cached, n_cached);
        self.seniority = self.seniority.min(now);
        if !self.is_admission_reported {
            self.n_found = Some(n_cached.min(self.n_prompt));
        }
    }

    /// Prompt tokens that were cached when it was first admitted, once.
    pub(super) fn take_admission(&mut self) -> Option<usize> {
        self.is_admission_reported = true;
        self.n_found.take()
    }

    /// End of the prefill chunk that starts at `n_placed`, within that many rows and rows with logits.
    ///
    /// A chunk ends where a block or the prefill does. Only where not even the end of the first block is in reach, and
    /// `may_split_block`, does it end at once.
    pub(super) fn chunk_end(&self, max_rows: usize, max_logit_rows: usize, may_split_block: bool) -> usize {
        let reach = self.n_placed.saturating_add(max_rows).min(self.prefill_end);
        let mut n_logits = 0;
        let affordable = |&position: &usize| {
            n_logits += usize::from(self.wants(position, false) != Wants::Nothing);
            n_logits <= max_logit_rows
        };
        let end = self.n_placed + (self.n_placed..reach).take_while(affordable).count();
        let block_end = end / BLOCK_TOKENS * BLOCK_TOKENS;
        if end == self.prefill_end {
            end
        } else if block_end > self.n_placed {
            block_end
        } else if may_split_block {
            end
        } else {
            self.n_placed
        }
    }

    /// Its tokens up to `end` are in a step; where that samples the next one on the device, it lies at `sampled`.
    pub(super) fn place(&mut self, end: usize, sampled: Option<SampledAt>) {
        debug_assert!(end <= self.n_tokens(), "only tokens are computed");
        self.n_placed = end;
        self.n_in_flight += 1;
        if sampled.is_some() {
            self.n_ahead += 1;
            self.last_ahead = sampled;
        }
    }

    /// A step with rows of it was computed.
    pub(super) fn land(&mut self, n_rows: usize) {
        self.n_in_flight -= 1;
        self.n_cached += n_rows;
        debug_assert!(self.n_cached <= self.n_placed, "only what is in a step is computed");
    }

    /// A step with rows of it failed.
    pub(super) fn fall(&mut self) {
        self.n_in_flight -= 1;
        self.is_broken = true;
    }

    /// Steps with rows of it will never be heard of again.
    pub(super) fn forget_steps(&mut self) {
        self.n_in_flight = 0;
    }

    /// Whether a step of it failed.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Nothing is cached any more; the tokens so far will be prefilled. The caller has taken the blocks.
    pub(super) fn rewind(&mut self) {
        assert!(self.lease.is_empty() && self.n_in_flight == 0, "a sequence that waits owns no block");
        self.state = State::Waiting;
        (self.n_cached, self.n_placed) = (0, 0);
        (self.n_ahead, self.last_ahead, self.is_broken) = (0, None, false);
        self.prefill_end = self.tokens.len();
    }

    /// Prompt tokens read, if more than when last asked.
    pub(super) fn newly_read(&mut self) -> Option<usize> {
        let n_read = self.n_cached.min(self.n_prompt);
        let is_more = n_read > self.n_read;
        self.n_read = self.n_read.max(n_read);
        is_more.then_some(n_read)
    }

    /// Notes the log-probabilities of the next prompt token, from the logits of the one before: (vocabulary)
    pub(super) fn push_prompt_logprobs(&mut self, logits: &[f32]) {
        let n_top = self.params.prompt_logprobs.expect("logits of a prompt token were asked for");
        let known = self.prompt_logprobs.as_mut().expect("no row of a reported prompt wants logits");
        known.push(Some(log_softmax_at(logits, self.tokens[known.len()], n_top)));
    }

    /// The prompt's log-probabilities, once, where they were asked for.
    pub(super) fn take_prompt_logprobs(&mut self) -> Option<Vec<Option<TokenLogprobs>>> {
        self.prompt_logprobs.take()
    }

    /// Its next token from the logits of its last: (vocabulary), and what is to be told of it. The log-probability is that
    /// of the logits as they are, whatever its constraint allows.
    pub(super) fn sample(
        &mut self,
        sampler: &mut Sampler,
        logits: &[f32],
    ) -> Result<(u32, Option<TokenLogprobs>), Unmet> {
        let (prompt, output) = self.tokens.split_at(self.n_prompt);
        let mask = self.constraint.as_mut().map(|constraint| constraint.allowed()).transpose()?;
        let token = sampler.sample(logits, prompt, output, &self.params, mask);
        if let Some(constraint) = &mut self.constraint {
            constraint.push(token)?;
        }
        Ok((token, self.params.logprobs.map(|n_top| log_softmax_at(logits, token, n_top))))
    }

    /// It grew; by a token that the device knew before, where it sampled it.
    pub(super) fn push_token(&mut self, token: u32, is_sampled: bool) {
        self.tokens.push(token);
        self.n_ahead -= usize::from(is_sampled);
    }

    /// Whether its last token ends it, given how many tokens it may have in all. A stop goes before a length.
    pub(super) fn finish_reason(&self, max_tokens: usize) -> Option<FinishReason> {
        let last = self.output().last()?;
        if self.params.eog_ids.contains(last) || self.params.stop_token_ids.contains(last) {
            return Some(FinishReason::Stop);
        }
        if self.constraint.as_ref().is_some_and(|constraint| constraint.is_complete()) {
            return Some(FinishReason::Complete);
        }
        self.is_full(self.tokens.len(), max_tokens).then_some(FinishReason::Length)
    }

    /// Whether no token may follow so many.
    fn is_full(&self, n_tokens: usize, max_tokens: usize) -> bool {
        let is_at_limit =
            self.params.max_tokens.is_some_and(|limit| n_tokens >= self.n_prompt.saturating_add(limit));
        is_at_limit || n_tokens >= max_tokens
    }
}
