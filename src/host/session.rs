//! One output on its way: its tokens become text, and its text may end it.
//!
//! Invariant: what was sent as text is never taken back: half characters and possible stop strings are held. The text
//! depends on the tokens alone, so that what another engine generated is read again without a word.

use std::rc::Rc;

use super::ConnectionId;
use crate::engine::logprobs::{Logprob, TokenLogprobs};
use crate::protocol::{Event, FinishReason, GenerateOptions, Prompt, RequestId, TokenLogprob, Usage};
use crate::text::{Detokenizer, StopStrings, TextError, Tokenizer};

/// Names an output: whose connection, the tab's name for its request, and which output of it.
pub type OutputId = (ConnectionId, RequestId, u32);

/// An output that is being generated.
pub struct Session {
    /// Which one.
    pub id: OutputId,
    tokenizer: Rc<Tokenizer>,
    detokenizer: Detokenizer,
    stop: StopStrings,
    min_tokens: u32,
    keep_stop_text: bool,
    /// A step of it is still to be timed by operation.
    pub(super) wants_op_times: bool,
    usage: Usage,
    accepted_ms: f64,
    admitted_ms: Option<f64>,
    first_token_ms: Option<f64>,
}

impl Session {
    /// An output of a request accepted at `now_ms`.
    pub fn new(
        id: OutputId,
        tokenizer: Rc<Tokenizer>,
        options: &GenerateOptions,
        prompt: &Prompt,
        prompt_tokens: u32,
        now_ms: f64,
    ) -> Result<Self, TextError> {
        // An answer begins a text of its own; what follows a raw prompt goes on.
        let detokenizer = match prompt {
            Prompt::Chat { .. } => Detokenizer::new(Rc::clone(&tokenizer), options.skip_special_tokens),
            Prompt::Text(_) | Prompt::Tokens(_) => {
                Detokenizer::continuing(Rc::clone(&tokenizer), options.skip_special_tokens)
            }
        };
        Ok(Self {
            id,
            detokenizer,
            tokenizer,
            stop: StopStrings::new(options.stop.clone(), options.include_stop_str_in_output)?,
            min_tokens: options.min_tokens,
            keep_stop_text: options.include_stop_str_in_output,
            wants_op_times: options.time_ops,
            usage: Usage { prompt_tokens, ..Usage::default() },
            accepted_ms: now_ms,
            admitted_ms: None,
            first_token_ms: None,
        })
    }

    /// It runs for the first time.
    pub fn admit(&mut self, cached_tokens: u32, now_ms: f64) {
        if self.admitted_ms.is_none() {
            self.admitted_ms = Some(now_ms);
            self.usage.queue_ms = now_ms - self.accepted_ms;
            self.usage.cached_tokens = cached_tokens;
        }
    }

    /// Reads a token that another engine generated and sent; `ends` as for [`Self::push`]. Whether a stop string ended the
    /// answer with it.
    pub fn replay(&mut self, token: u32, ends: bool) -> bool {
        self.usage.generated_tokens += 1;
        self.text_of(token, ends).1
    }

    /// A token was sampled; `ends` where it is the one that ends the answer by its id. Tells what to send, and whether a
    /// stop string ended the answer.
    pub fn push(
        &mut self,
        token: u32,
        logprobs: Option<TokenLogprobs>,
        ends: bool,
        now_ms: f64,
    ) -> (Event, bool) {
        let first_ms = *self.first_token_ms.get_or_insert(now_ms);
        if first_ms == now_ms {
            self.usage.prefill_ms = now_ms - self.admitted_ms.unwrap_or(self.accepted_ms);
        }
        self.usage.generated_tokens += 1;
        self.usage.decode_ms = now_ms - first_ms;
        let (text, stopped) = self.text_of(token, ends);
        let logprobs =
            logprobs.map(|logprobs| token_logprob(&self.tokenizer, logprobs)).into_iter().collect();
        (self.tokens(text, vec![token], logprobs), stopped)
    }

    /// The text that becomes certain with a token, and whether a stop string ends it.
    fn text_of(&mut self, token: u32, ends: bool) -> (String, bool) {
        if ends && !self.keep_stop_text {
            return (String::new(), false);
        }
        let piece = self.detokenizer.push(token);
        if self.usage.generated_tokens <= self.min_tokens {
            return (piece, false);
        }
        let outcome = self.stop.push(&piece);
        (outcome.text, outcome.stopped)
    }

    /// The answer ended: what was held back, then the end; `n_left` outputs of its request still run.
    pub fn finish(mut self, reason: FinishReason, stopped_by_string: bool, n_left: u32) -> Vec<Event> {
        let mut events = Vec::new();
        if !stopped_by_string {
            let last = self.detokenizer.finish();
            let outcome = self.stop.push(&last);
            let mut text = outcome.text;
            if !outcome.stopped {
                text.push_str(&self.stop.finish());
            }
            if !text.is_empty() {
                events.push(self.tokens(text, Vec::new(), Vec::new()));
            }
        }
        let (_, request, output) = self.id;
        events.push(Event::Finished { request, output, reason, usage: self.usage, n_left });
        events
    }

    /// So much of the prompt is read.
    pub fn prefilling(&self, done_tokens: u32, total_tokens: u32) -> Event {
        let (_, request, output) = self.id;
        Event::Prefilling { request, output, done_tokens, total_tokens }
    }

    /// Log-probabilities of the prompt.
    pub fn prompt_logprobs(&self, tokens: Vec<Option<TokenLogprobs>>) -> Event {
        let tokens =
            tokens.into_iter().map(|token| token.map(|t| token_logprob(&self.tokenizer, t))).collect();
        let (_, request, output) = self.id;
        Event::PromptLogprobs { request, output, tokens }
    }

    fn tokens(&self, text: String, ids: Vec<u32>, logprobs: Vec<TokenLogprob>) -> Event {
        let (_, request, output) = self.id;
        Event::Tokens { request, output, text, ids, logprobs }
    }
}

fn token_logprob(tokenizer: &Tokenizer, logprobs: TokenLogprobs) -> TokenLogprob {
    let one = |logprob: Logprob, top| TokenLogprob {
        id: logprob.token,
        text: tokenizer.token_text(logprob.token),
        logprob: logprob.logprob,
        top,
    };
    let top = logprobs.top.into_iter().map(|logprob| one(logprob, Vec::new())).collect();
    one(logprobs.chosen, top)
}
