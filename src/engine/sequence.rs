//! One request: its tokens, and how far they are computed.
//!
//! Invariant: tokens `0..n_cached` lie in the cache, in the blocks of `lease`; a sequence that waits has neither. Nothing
//! is reported twice, however often the tokens are computed again.

use super::logprobs::{TokenLogprobs, log_softmax_at};
use super::params::SamplingParams;
use super::pools::Lease;
use super::{ClientId, FinishReason, SequenceRequest};
use crate::plan::batch::{BLOCK_TOKENS, RowKind};

/// Whether a sequence runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    /// It owns no blocks.
    Waiting,
    /// It was admitted, and no row of it is in flight.
    Ready,
    /// A step with its rows is not yet retired.
    InFlight,
    /// The same, and it is to be dropped when that step retires.
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
    pub(super) state: State,
    /// What it owns.
    pub(super) lease: Lease,
    /// When it was first admitted; the largest number before that.
    seniority: u64,
    /// Prompt tokens that were cached when it was admitted, until that is reported.
    n_found: Option<usize>,
    is_admission_reported: bool,
    n_cached: usize,
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
    /// A sequence that waits.
    pub(super) fn new(request: SequenceRequest) -> Self {
        let SequenceRequest { client, prompt, generated, params } = request;
        Self {
            client,
            n_prompt: prompt.len(),
            prefill_end: prompt.len() + generated.len(),
            tokens: [prompt, generated].concat(),
            state: State::Waiting,
            lease: Lease::new(0),
            seniority: u64::MAX,
            n_found: None,
            is_admission_reported: false,
            n_cached: 0,
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

    /// The tokens it was given.
    pub(super) fn prompt(&self) -> &[u32] {
        &self.tokens[..self.n_prompt]
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

    /// How its tokens are chosen.
    pub(super) fn params(&self) -> &SamplingParams {
        &self.params
    }

    /// Whether it was admitted: it owns blocks, or those that it will take are promised to it.
    pub(super) fn is_running(&self) -> bool {
        self.state != State::Waiting
    }

    /// Whether rows of it are in a step that is not retired.
    pub(super) fn is_in_flight(&self) -> bool {
        matches!(self.state, State::InFlight | State::Cancelled)
    }

    /// What its next row is.
    pub(super) fn next_kind(&self) -> RowKind {
        if self.n_cached < self.prefill_end { RowKind::Prefill } else { RowKind::Decode }
    }

    /// Whether the logits of a position are of use: the next token's, or those of a prompt token not yet reported.
    pub(super) fn wants_logits(&self, position: usize) -> bool {
        let next = position + 1;
        let is_unknown = |known: &Vec<_>| (known.len()..self.n_prompt).contains(&next);
        next == self.tokens.len() || self.prompt_logprobs.as_ref().is_some_and(is_unknown)
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
        self.state = State::Ready;
        self.n_cached = n_cached;
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

    /// End of the prefill chunk that starts at `n_cached`, within that many rows and rows with logits.
    ///
    /// A chunk ends where a block or the prefill does. Only where not even the end of the first block is in reach, and
    /// `may_split_block`, does it end at once.
    pub(super) fn chunk_end(&self, max_rows: usize, max_logit_rows: usize, may_split_block: bool) -> usize {
        let reach = self.n_cached.saturating_add(max_rows).min(self.prefill_end);
        let mut n_logits = 0;
        let affordable = |&position: &usize| {
            n_logits += usize::from(self.wants_logits(position));
            n_logits <= max_logit_rows
        };
        let end = self.n_cached + (self.n_cached..reach).take_while(affordable).count();
        let block_end = end / BLOCK_TOKENS * BLOCK_TOKENS;
        if end == self.prefill_end {
            end
        } else if block_end > self.n_cached {
            block_end
        } else if may_split_block {
            end
        } else {
            self.n_cached
        }
    }

    /// More tokens are cached.
    pub(super) fn advance(&mut self, n_rows: usize) {
        self.n_cached += n_rows;
        debug_assert!(self.n_cached <= self.tokens.len(), "only tokens are computed");
    }

    /// Nothing is cached any more; the tokens so far will be prefilled. The caller has taken the blocks.
    pub(super) fn rewind(&mut self) {
        assert!(self.lease.is_empty(), "a sequence that waits owns no block");
        self.state = State::Waiting;
        self.n_cached = 0;
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

    /// It grew.
    pub(super) fn push_token(&mut self, token: u32) {
        self.tokens.push(token);
    }

    /// Whether its last token ends it, given how many tokens it may have in all. A stop goes before a length.
    pub(super) fn finish_reason(&self, max_tokens: usize) -> Option<FinishReason> {
        let last = self.output().last()?;
        if self.params.eog_ids.contains(last) || self.params.stop_token_ids.contains(last) {
            return Some(FinishReason::Stop);
        }
        let is_at_limit = self.params.max_tokens.is_some_and(|limit| self.output().len() >= limit);
        (is_at_limit || self.tokens.len() >= max_tokens).then_some(FinishReason::Length)
    }
}
