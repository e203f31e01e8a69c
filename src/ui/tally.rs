//! Counts and speed of an answer: the page's own measure while it grows, the engine's once it is complete.

use crate::protocol::Usage;

/// Counts of the last answer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Tally {
    /// Tokens of the prompt.
    pub(crate) prompt_tokens: u32,
    /// Tokens generated.
    pub(crate) generated_tokens: u32,
    /// When the first and the last token came, in ms.
    span_ms: Option<(f64, f64)>,
    /// The engine's own measure, which replaces the page's.
    usage: Option<Usage>,
}

impl Tally {
    /// Counts tokens that came at `now_ms`.
    pub(crate) fn add(&mut self, n_tokens: u32, now_ms: f64) {
        self.generated_tokens = self.generated_tokens.saturating_add(n_tokens);
        let first_ms = self.span_ms.map_or(now_ms, |(first_ms, _)| first_ms);
        self.span_ms = Some((first_ms, now_ms));
    }

    /// Takes the engine's own counts and times instead of the page's.
    pub(crate) fn settle(&mut self, usage: Usage) {
        self.prompt_tokens = usage.prompt_tokens;
        self.generated_tokens = usage.generated_tokens;
        self.usage = Some(usage);
    }

    /// Tokens of the prompt that were found in the cache, once that is known.
    pub(crate) fn cached_tokens(&self) -> u32 {
        self.usage.map_or(0, |usage| usage.cached_tokens)
    }

    /// Generated tokens a second after the first one; nothing before the second.
    pub(crate) fn tokens_per_sec(&self) -> Option<f64> {
        let decode_ms = match self.usage {
            Some(usage) => usage.decode_ms,
            None => self.span_ms.map(|(first_ms, last_ms)| last_ms - first_ms)?,
        };
        tokens_per_sec(self.generated_tokens, decode_ms)
    }

    /// Tokens of the context in use.
    pub(crate) fn context_tokens(&self) -> u32 {
        self.prompt_tokens.saturating_add(self.generated_tokens)
    }
}

/// The rate of tokens of which the last came `decode_ms` after the first; nothing where that says nothing.
pub(crate) fn tokens_per_sec(n_tokens: u32, decode_ms: f64) -> Option<f64> {
    let n_steps = n_tokens.checked_sub(1).filter(|&n_steps| n_steps > 0)?;
    (decode_ms > 0.0).then(|| f64::from(n_steps) / decode_ms * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_counts_the_steps_between_tokens() {
        let mut tally = Tally { prompt_tokens: 10, ..Tally::default() };
        assert_eq!(tally.tokens_per_sec(), None);
        tally.add(1, 1000.0);
        assert_eq!(tally.tokens_per_sec(), None, "one token has no step");
        tally.add(1, 1500.0);
        tally.add(2, 2000.0);
        assert_eq!(tally.tokens_per_sec(), Some(3.0));
        assert_eq!(tally.context_tokens(), 14);
    }

    #[test]
    fn the_engines_measure_wins() {
        let mut tally = Tally::default();
        tally.add(4, 0.0);
        let usage = Usage { prompt_tokens: 12, cached_tokens: 8, generated_tokens: 5, ..Usage::default() };
        tally.settle(Usage { prefill_ms: 90.0, decode_ms: 2000.0, ..usage });
        assert_eq!((tally.tokens_per_sec(), tally.context_tokens()), (Some(2.0), 17));
        assert_eq!(tally.cached_tokens(), 8);
    }

    #[test]
    fn no_time_is_no_speed() {
        let mut tally = Tally::default();
        tally.add(1, 5.0);
        tally.add(1, 5.0);
        assert_eq!(tally.tokens_per_sec(), None);
        tally.settle(Usage::default());
        assert_eq!((tally.tokens_per_sec(), tally.context_tokens()), (None, 0));
    }
}
