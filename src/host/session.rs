//! One request on its way: its tokens become text, and its text may end it.
//!
//! Invariant: what was sent as text is never taken back: half characters and possible stop strings are held.

use std::rc::Rc;

use crate::engine::logprobs::{Logprob, TokenLogprobs};
use crate::protocol::{Event, FinishReason, GenerateOptions, Prompt, RequestId, TokenLogprob, Usage};
use crate::text::{Detokenizer, StopStrings, TextError, Tokenizer};

/// A request that runs.
pub struct Session {
    /// Whose connection.
    pub connection: u64,
    /// The tab's name for it.
    pub request: RequestId,
    tokenizer: Rc<Tokenizer>,
    detokenizer: Detokenizer,
    stop: StopStrings,
    min_tokens: u32,
    keep_stop_text: bool,
    usage: Usage,
    accepted_ms: f64,
    first_token_ms: f64,
}

impl Session {
    /// A request accepted at `now_ms`.
    pub fn new(
        connection: u64,
        request: RequestId,
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
            connection,
            request,
            detokenizer,
            tokenizer,
            stop: StopStrings::new(options.stop.clone(), options.include_stop_str_in_output)?,
            min_tokens: options.min_tokens,
            keep_stop_text: options.include_stop_str_in_output,
            usage: Usage { prompt_tokens, ..Usage::default() },
            accepted_ms: now_ms,
            first_token_ms: now_ms,
        })
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
        if self.usage.generated_tokens == 0 {
            self.first_token_ms = now_ms;
            self.usage.prefill_ms = now_ms - self.accepted_ms;
        }
        self.usage.generated_tokens += 1;
        self.usage.decode_ms = now_ms - self.first_token_ms;
        let (mut text, mut stopped) = (String::new(), false);
        if !ends || self.keep_stop_text {
            let piece = self.detokenizer.push(token);
            if self.usage.generated_tokens <= self.min_tokens {
                text = piece;
            } else {
                let outcome = self.stop.push(&piece);
                (text, stopped) = (outcome.text, outcome.stopped);
            }
        }
        let logprobs =
            logprobs.map(|logprobs| token_logprob(&self.tokenizer, logprobs)).into_iter().collect();
        (Event::Tokens { request: self.request, output: 0, text, ids: vec![token], logprobs }, stopped)
    }

    /// The answer ended: what was held back, then the end.
    pub fn finish(mut self, reason: FinishReason, stopped_by_string: bool) -> Vec<Event> {
        let mut events = Vec::new();
        if !stopped_by_string {
            let last = self.detokenizer.finish();
            let outcome = self.stop.push(&last);
            let mut text = outcome.text;
            if !outcome.stopped {
                text.push_str(&self.stop.finish());
            }
            if !text.is_empty() {
                events.push(Event::Tokens {
                    request: self.request,
                    output: 0,
                    text,
                    ids: Vec::new(),
                    logprobs: Vec::new(),
                });
            }
        }
        events.push(Event::Finished {
            request: self.request,
            output: 0,
            reason,
            usage: self.usage,
            n_left: 0,
        });
        events
    }

    /// Log-probabilities of the prompt.
    pub fn prompt_logprobs(&self, tokens: Vec<Option<TokenLogprobs>>) -> Event {
        let tokens =
            tokens.into_iter().map(|token| token.map(|t| token_logprob(&self.tokenizer, t))).collect();
        Event::PromptLogprobs { request: self.request, output: 0, tokens }
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
