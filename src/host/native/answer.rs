//! One answer as it comes: its events put together.

use std::time::Instant;

use super::CliError;
use super::output::rounded_ms;
use crate::protocol::{Event, FinishReason, RequestId, TokenLogprob, Usage};

/// A shorter wait for the first step is not worth a word.
const QUEUE_SHOWN_MS: f64 = 10.0;

/// What was heard of an answer so far.
#[derive(Debug, Default)]
pub(super) struct Answer {
    pub(super) text: String,
    pub(super) token_ids: Vec<u32>,
    pub(super) logprobs: Vec<TokenLogprob>,
    pub(super) prompt_logprobs: Option<Vec<Option<TokenLogprob>>>,
    pub(super) reason: Option<FinishReason>,
    pub(super) usage: Usage,
    /// Milliseconds between tokens: (tokens − 1)
    pub(super) decode_ms: Vec<f64>,
    last_token: Option<Instant>,
    is_accepted: bool,
}

impl Answer {
    /// Whose answer an event belongs to: the request, and which of its outputs. What concerns all of a request is heard by
    /// its first.
    pub(super) fn place(event: &Event) -> Option<(RequestId, u32)> {
        match event {
            Event::PromptLogprobs { request, output, .. }
            | Event::Prefilling { request, output, .. }
            | Event::Tokens { request, output, .. }
            | Event::Finished { request, output, .. } => Some((*request, *output)),
            Event::Started { request, .. } | Event::Failed { request: Some(request), .. } => {
                Some((*request, 0))
            }
            Event::Failed { request: None, .. }
            | Event::Welcome { .. }
            | Event::Loading { .. }
            | Event::Ready { .. }
            | Event::LoadFailed { .. }
            | Event::Tokenized { .. }
            | Event::OpTimes { .. }
            | Event::Unacquainted
            | Event::InUse { .. }
            | Event::Unloaded { .. }
            | Event::Status { .. }
            | Event::Batch { .. } => None,
        }
    }

    /// Takes in an event, which came at `now`; gives the text it brought.
    pub(super) fn hear(&mut self, event: Event, now: Instant) -> Result<String, CliError> {
        match event {
            Event::Started { .. } => self.is_accepted = true,
            Event::PromptLogprobs { tokens, .. } => self.prompt_logprobs = Some(tokens),
            Event::Tokens { text, ids, logprobs, .. } => {
                if !ids.is_empty() {
                    let since = self.last_token.replace(now).map(|last| now - last);
                    self.decode_ms.extend(since.map(|since| rounded_ms(since.as_secs_f64() * 1000.0)));
                }
                self.text.push_str(&text);
                self.token_ids.extend(ids);
                self.logprobs.extend(logprobs);
                return Ok(text);
            }
            Event::Finished { reason, usage, .. } => (self.reason, self.usage) = (Some(reason), usage),
            // Before it started the request was at fault, after that the device.
            Event::Failed { error, .. } if self.is_accepted => return Err(CliError::Failure(error)),
            Event::Failed { error, .. } => return Err(CliError::Input(error)),
            Event::Welcome { .. }
            | Event::Loading { .. }
            | Event::Ready { .. }
            | Event::LoadFailed { .. }
            | Event::Prefilling { .. }
            | Event::Tokenized { .. }
            | Event::OpTimes { .. }
            | Event::Unacquainted
            | Event::InUse { .. }
            | Event::Unloaded { .. }
            | Event::Status { .. }
            | Event::Batch { .. } => {}
        }
        Ok(String::new())
    }

    /// What it took, in a line.
    pub(super) fn summary(&self) -> String {
        let Usage { prompt_tokens, cached_tokens, generated_tokens, queue_ms, prefill_ms, decode_ms } =
            self.usage;
        let rate = |n: u32, ms: f64| {
            if ms > 0.0 { format!(" ({:.1} tokens/s)", f64::from(n) * 1000.0 / ms) } else { String::new() }
        };
        let cached =
            if cached_tokens > 0 { format!(", {cached_tokens} of them cached,") } else { String::new() };
        let queue = if queue_ms >= QUEUE_SHOWN_MS {
            format!("waited {:.2} s; ", queue_ms / 1000.0)
        } else {
            String::new()
        };
        format!(
            "{queue}prompt: {prompt_tokens} tokens{cached} in {:.2} s{}; answer: {generated_tokens} tokens, {:.2} s after the first{}; ended by {}",
            prefill_ms / 1000.0,
            rate(prompt_tokens.saturating_sub(cached_tokens), prefill_ms),
            decode_ms / 1000.0,
            rate(generated_tokens.saturating_sub(1), decode_ms),
            self.reason.map_or("nothing", FinishReason::name),
        )
    }
}
