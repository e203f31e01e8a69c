//! Tokens a second over the last seconds.

use std::collections::VecDeque;

/// So long (ms) a token counts.
const WINDOW_MS: f64 = 3000.0;
/// Tokens of so long (ms) are counted together.
const GRAIN_MS: f64 = 100.0;

/// Counts tokens.
#[derive(Debug, Default)]
pub(super) struct Rate {
    /// When each grain began, and its tokens.
    grains: VecDeque<(f64, u32)>,
}

impl Rate {
    /// So many tokens came.
    pub(super) fn count(&mut self, n_tokens: u32, now_ms: f64) {
        self.forget(now_ms);
        match self.grains.back_mut() {
            Some((start_ms, n)) if now_ms - *start_ms < GRAIN_MS => *n += n_tokens,
            _ => self.grains.push_back((now_ms, n_tokens)),
        }
    }

    /// Tokens a second.
    pub(super) fn per_sec(&mut self, now_ms: f64) -> f64 {
        self.forget(now_ms);
        let Some((start_ms, _)) = self.grains.front() else { return 0.0 };
        let n: u32 = self.grains.iter().map(|(_, n)| n).sum();
        // In its first second a rate would be a guess.
        f64::from(n) * 1000.0 / (now_ms - start_ms).max(1000.0)
    }

    fn forget(&mut self, now_ms: f64) {
        while self.grains.front().is_some_and(|(start_ms, _)| now_ms - start_ms >= WINDOW_MS) {
            self.grains.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_steady_stream_has_its_rate_and_an_ended_one_none() {
        let mut rate = Rate::default();
        assert_eq!(rate.per_sec(0.0), 0.0);
        for step in 0..1000 {
            rate.count(2, f64::from(step) * 10.0);
        }
        let found = rate.per_sec(9990.0);
        assert!((found - 200.0).abs() < 10.0, "{found}");
        assert!(rate.grains.len() <= 30);
        assert_eq!(rate.per_sec(13_000.0), 0.0);
    }
}
