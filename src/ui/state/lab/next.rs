//! A text grows token by token: its ten likeliest next tokens, those that were taken, and what it cost to see them.
//!
//! Invariant: one question is on its way at a time; each taken token keeps the ten that were likeliest at its place, so what
//! is undone needs no question.

use super::{reshape::Sampling, timeline::Timeline};
use crate::protocol::{Event, FinishReason, GenerateOptions, Prompt, Request, RequestId, TokenLogprob};

/// So many of the likeliest tokens are shown.
pub(crate) const N_LIKELY: u32 = 10;
/// Most tokens of a run.
const RUN_TOKENS: u32 = 64;

/// The text and how it may go on.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Next {
    /// What was read before the first token that was taken.
    prompt: Vec<u32>,
    pub(crate) prompt_text: String,
    pub(crate) taken: Vec<Taken>,
    /// The likeliest next tokens, the likeliest first; those of the place before while the next are computed,
    /// and none where that came to nothing.
    pub(crate) likely: Vec<TokenLogprob>,
    /// What the last look or run found in the cache.
    pub(crate) reading: Option<Reading>,
    pub(crate) sampling: Sampling,
    /// Of the last run.
    pub(crate) timeline: Option<Timeline>,
    /// How the last run ended.
    pub(crate) ended: Option<FinishReason>,
    wanted: Option<Wanted>,
    asked: Option<Asked>,
    n_made: u64,
}

/// A token that was taken, and what stood beside it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Taken {
    /// No other has had it.
    pub(crate) serial: u64,
    pub(crate) id: u32,
    pub(crate) text: String,
    pub(crate) logprob: f32,
    /// The likeliest at its place.
    pub(crate) likely: Vec<TokenLogprob>,
}

/// What a question cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) cached_tokens: u32,
    pub(crate) computed_tokens: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wanted {
    Look,
    Run { greedy: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Asked {
    request: RequestId,
    is_run: bool,
    is_stopping: bool,
    /// Some of what it asks for came.
    is_heard: bool,
}

impl Next {
    /// Begins anew after a text of these tokens.
    pub(crate) fn begin(&mut self, prompt: Vec<u32>, prompt_text: String) {
        self.forget();
        (self.prompt, self.prompt_text, self.wanted) = (prompt, prompt_text, Some(Wanted::Look));
    }

    /// Forgets all but how tokens are drawn.
    pub(super) fn forget(&mut self) {
        let Self { sampling, n_made, .. } = *self;
        *self = Self { sampling, n_made, ..Self::default() };
    }

    /// Whether a text was begun.
    pub(crate) fn is_begun(&self) -> bool {
        !self.prompt.is_empty()
    }

    /// Whether the next tokens are being computed.
    pub(crate) fn is_busy(&self) -> bool {
        self.wanted.is_some() || self.asked.is_some()
    }

    /// Whether it writes by itself.
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.wanted, Some(Wanted::Run { .. })) || self.asked.is_some_and(|asked| asked.is_run)
    }

    /// Takes the likeliest token of that rank, from 0, and looks on. Nothing while the ten are computed.
    pub(crate) fn take(&mut self, rank: usize) {
        if self.is_busy() || rank >= self.likely.len() {
            return;
        }
        self.push(self.likely[rank].clone());
        (self.wanted, self.ended) = (Some(Wanted::Look), None);
    }

    /// Takes the last token back.
    pub(crate) fn undo(&mut self) {
        if self.is_busy() {
            return;
        }
        if let Some(taken) = self.taken.pop() {
            self.likely = taken.likely;
            (self.reading, self.ended) = (None, None);
        }
    }

    /// Writes on by itself.
    pub(crate) fn run(&mut self, greedy: bool) {
        if !self.is_busy() && self.is_begun() {
            (self.wanted, self.ended) = (Some(Wanted::Run { greedy }), None);
        }
    }

    /// Stops a run; what is to be cancelled.
    pub(crate) fn stop(&mut self) -> Option<Request> {
        self.wanted.take_if(|wanted| *wanted != Wanted::Look);
        let asked = self.asked.as_mut().filter(|asked| asked.is_run && !asked.is_stopping)?;
        asked.is_stopping = true;
        Some(Request::Cancel { request: asked.request })
    }

    /// Forgets what is on its way; what is to be cancelled.
    pub(super) fn give_up(&mut self) -> Option<Request> {
        if self.is_busy() {
            // They are of the place before, and no others come.
            self.likely.clear();
        }
        self.wanted = None;
        self.asked.take().map(|asked| Request::Cancel { request: asked.request })
    }

    /// What is to be asked now.
    pub(super) fn due(&mut self, now_ms: f64, new_id: &mut impl FnMut() -> RequestId) -> Option<Request> {
        if self.asked.is_some() {
            return None;
        }
        let wanted = self.wanted.take()?;
        let request = new_id();
        self.asked =
            Some(Asked { request, is_run: wanted != Wanted::Look, is_stopping: false, is_heard: false });
        let look = GenerateOptions {
            temperature: 0.0,
            max_tokens: Some(1),
            logprobs: Some(N_LIKELY),
            ignore_eos: true,
            skip_special_tokens: false,
            ..GenerateOptions::default()
        };
        let options = match wanted {
            Wanted::Look => look,
            Wanted::Run { greedy } => {
                self.timeline = Some(Timeline::begin(now_ms));
                let Sampling { temperature, top_k, top_p } = self.sampling;
                let run = GenerateOptions { max_tokens: Some(RUN_TOKENS), ignore_eos: false, ..look };
                match greedy {
                    true => run,
                    false => GenerateOptions { temperature, top_k: top_k.unwrap_or(0) as i32, top_p, ..run },
                }
            }
        };
        let taken = self.taken.iter().map(|taken| taken.id);
        let tokens = self.prompt.iter().copied().chain(taken).collect();
        let prompts = vec![Prompt::Tokens(tokens)];
        Some(Request::Generate { request, model: None, prompts, options, generated: Vec::new() })
    }

    /// Takes in what the engine said at `now_ms`; whether it was about this, or a sentence about what went wrong.
    pub(super) fn hear(&mut self, event: &Event, now_ms: f64) -> Result<bool, String> {
        let Some(Asked { request: own, is_run, is_heard, .. }) = self.asked else { return Ok(false) };
        let request = match event {
            Event::Started { request, .. }
            | Event::Prefilling { request, .. }
            | Event::Tokens { request, .. }
            | Event::Finished { request, .. }
            | Event::Failed { request: Some(request), .. } => *request,
            _ => return Ok(false),
        };
        if request != own {
            return Ok(false);
        }
        if let (true, Some(timeline)) = (is_run, &mut self.timeline) {
            timeline.note(event, now_ms);
        }
        match event {
            Event::Tokens { logprobs, .. } => {
                logprobs.iter().for_each(|token| self.read(token, is_run));
                if let Some(asked) = &mut self.asked {
                    asked.is_heard |= !logprobs.is_empty();
                }
            }
            Event::Finished { reason, usage, .. } => {
                self.asked = None;
                let (cached_tokens, prompt_tokens) = (usage.cached_tokens, usage.prompt_tokens);
                let computed_tokens = prompt_tokens.saturating_sub(cached_tokens);
                self.reading = Some(Reading { cached_tokens, computed_tokens });
                if is_run {
                    (self.wanted, self.ended) = (Some(Wanted::Look), Some(*reason));
                } else if !is_heard {
                    self.likely.clear();
                }
            }
            Event::Failed { error, .. } => {
                self.asked = None;
                self.likely.clear();
                return Err(error.clone());
            }
            _ => {}
        }
        Ok(true)
    }

    fn read(&mut self, token: &TokenLogprob, is_run: bool) {
        self.likely.clone_from(&token.top);
        self.likely.truncate(N_LIKELY as usize);
        if is_run {
            self.push(token.clone());
        }
    }

    fn push(&mut self, token: TokenLogprob) {
        self.n_made += 1;
        let (serial, likely) = (self.n_made, self.likely.clone());
        let TokenLogprob { id, text, logprob, .. } = token;
        self.taken.push(Taken { serial, id, text, logprob, likely });
    }
}
