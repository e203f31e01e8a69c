//! The same answer twice: with the KV cache, and so that every token computes all before it again.
//!
//! Invariant: one token of one way is on its way at a time, and both ways choose the likeliest token, whatever it is.

use crate::{
    bench::sampling,
    protocol::{Event, FinishReason, GenerateOptions, Prompt, Request, RequestId},
};

/// Both ways.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Race {
    /// Tokens of the answer.
    n_tokens: u32,
    prompt: Vec<u32>,
    /// With the cache.
    pub(crate) with: Lap,
    /// Without it.
    pub(crate) without: Lap,
    asked: Option<Asked>,
    is_running: bool,
}

/// One way so far.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Lap {
    /// Its tokens.
    pub(crate) tokens: Vec<u32>,
    /// What each took, the first with the prompt before it.
    pub(crate) times_ms: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
struct Asked {
    request: RequestId,
    /// When it was asked, or when the last token of it came.
    since_ms: f64,
    with_cache: bool,
}

impl Lap {
    /// What all tokens took.
    pub(crate) fn total_ms(&self) -> f64 {
        self.times_ms.iter().sum()
    }
}

impl Race {
    /// Begins with an answer of so many tokens.
    pub(crate) fn start(&mut self, prompt: Vec<u32>, n_tokens: u32) {
        *self = Self { n_tokens, prompt, is_running: true, ..Self::default() };
    }

    /// Whether it is on its way.
    pub(crate) fn is_running(&self) -> bool {
        self.is_running
    }

    /// Tokens that came, and tokens that are to come in all.
    pub(crate) fn progress(&self) -> (u32, u32) {
        ((self.with.tokens.len() + self.without.tokens.len()) as u32, 2 * self.n_tokens)
    }

    /// Tokens before the answer.
    pub(crate) fn n_prompt(&self) -> usize {
        self.prompt.len()
    }

    /// How many times as long it took without the cache, once both are there.
    pub(crate) fn ratio(&self) -> Option<f64> {
        let is_over = !self.is_running && self.without.tokens.len() as u32 == self.n_tokens;
        (is_over && self.n_tokens > 0).then(|| self.without.total_ms() / self.with.total_ms())
    }

    /// Tokens that are the same in both ways, from the first on.
    pub(crate) fn n_alike(&self) -> usize {
        let both = self.with.tokens.iter().zip(&self.without.tokens);
        both.take_while(|(with, without)| with == without).count()
    }

    /// Ends it; what was measured stays. What is to be cancelled.
    pub(crate) fn stop(&mut self) -> Option<Request> {
        self.is_running = false;
        self.asked.take().map(|asked| Request::Cancel { request: asked.request })
    }

    /// What is to be asked now.
    pub(super) fn due(&mut self, now_ms: f64, new_id: &mut impl FnMut() -> RequestId) -> Option<Request> {
        if !self.is_running || self.asked.is_some() {
            return None;
        }
        let with_cache = self.with.tokens.len() < self.n_tokens as usize;
        let (tokens, max_tokens) = match with_cache {
            true => (self.prompt.clone(), self.n_tokens),
            false => ([&self.prompt[..], &self.without.tokens].concat(), 1),
        };
        let request = new_id();
        self.asked = Some(Asked { request, since_ms: now_ms, with_cache });
        Some(Request::Generate {
            request,
            model: None,
            prompts: vec![Prompt::Tokens(tokens)],
            // Neither finds its prompt cached.
            options: GenerateOptions { reuse_prefix: false, ..sampling(max_tokens) },
            generated: Vec::new(),
        })
    }

    /// Takes in what the engine said at `now_ms`; whether it was about this, or a sentence about what went wrong.
    pub(super) fn hear(&mut self, event: &Event, now_ms: f64) -> Result<bool, String> {
        let Some(asked) = &mut self.asked else { return Ok(false) };
        match event {
            Event::Tokens { request, ids, .. } if *request == asked.request => {
                let lap = if asked.with_cache { &mut self.with } else { &mut self.without };
                let ms = (now_ms - asked.since_ms) / ids.len().max(1) as f64;
                asked.since_ms = now_ms;
                lap.tokens.extend(ids);
                lap.times_ms.extend(ids.iter().map(|_| ms));
                Ok(true)
            }
            Event::Finished { request, reason, .. } if *request == asked.request => {
                let n_tokens = self.n_tokens as usize;
                let is_short = match asked.with_cache {
                    true => self.with.tokens.len() < n_tokens,
                    false => *reason == FinishReason::Cancelled,
                };
                self.asked = None;
                self.is_running = self.without.tokens.len() < n_tokens;
                if is_short {
                    self.is_running = false;
                    return Err(format!(
                        "The answer ended after {} of {n_tokens} tokens ({}); shorten the text, or take fewer tokens.",
                        self.with.tokens.len().min(n_tokens),
                        reason.name()
                    ));
                }
                Ok(true)
            }
            Event::Failed { request: Some(request), error } if *request == asked.request => {
                self.asked = None;
                self.is_running = false;
                Err(error.clone())
            }
            _ => Ok(false),
        }
    }
}
