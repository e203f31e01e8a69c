//! How often something may be shown anew, from how long that takes: it never fills more than a small part of the time.

use std::time::Duration;

/// What takes less than this may be done with every frame, of which there are sixty a second.
const QUICK_MS: f64 = 8.0;
/// What takes longer is followed by a pause of so many times that.
const PAUSE_FACTOR: f64 = 10.0;
/// A pause is no longer than this, so that what grows is seen to grow.
const MAX_PAUSE_MS: f64 = 10_000.0;

/// What it took to show it last, and the pause after that.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Pace {
    cost_ms: f64,
    next_ms: f64,
}

impl Pace {
    /// It is shown anew.
    pub(crate) fn begin(&mut self) {
        self.cost_ms = 0.0;
    }

    /// How long to wait at `now_ms`; nothing where there is no need.
    pub(crate) fn wait(&self, now_ms: f64) -> Option<Duration> {
        let wait_ms = self.next_ms - now_ms;
        (wait_ms > 0.0).then(|| Duration::from_secs_f64(wait_ms.min(MAX_PAUSE_MS) / 1000.0))
    }

    /// Showing it took `cost_ms` more, until `now_ms`.
    pub(crate) fn add(&mut self, now_ms: f64, cost_ms: f64) {
        self.cost_ms += cost_ms;
        if self.cost_ms > QUICK_MS {
            self.next_ms = now_ms + (self.cost_ms * PAUSE_FACTOR).min(MAX_PAUSE_MS);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_follows_the_cost() {
        for (cost_ms, pause_ms) in [(0.0, 0.0), (8.0, 0.0), (9.0, 90.0), (100.0, 1000.0), (1e6, MAX_PAUSE_MS)]
        {
            let mut pace = Pace::default();
            pace.begin();
            pace.add(450.0, cost_ms / 2.0);
            pace.add(500.0, cost_ms / 2.0);
            let wait_ms = pace.wait(500.0).map_or(0.0, |wait| wait.as_secs_f64() * 1000.0);
            assert!((wait_ms - pause_ms).abs() < 1e-6, "{cost_ms}: {wait_ms}");
            assert_eq!(pace.wait(500.0 + pause_ms), None, "{cost_ms}");
        }
    }
}
