//! How often an engine was lost lately: one that cannot live is not started for ever.

/// So many losses within [`WINDOW_MS`] are enough.
const MOST: usize = 3;
const WINDOW_MS: f64 = 60_000.0;

/// Whether a loss speaks against the engine. One that a tab runs goes with that tab, without a word and through no fault
/// of its own, and so does one that a person had replaced; a worker that tabs share does not.
pub(super) fn counts(is_shared: bool, engine_died: bool, said_why: bool) -> bool {
    is_shared || !engine_died || said_why
}

/// When the last losses were that count, in milliseconds.
#[derive(Debug, Default)]
pub(super) struct Losses(Vec<f64>);

impl Losses {
    /// Notes one; tells whether that is enough.
    pub(super) fn another(&mut self, now_ms: f64) -> bool {
        self.0.retain(|then| now_ms - then < WINDOW_MS);
        self.0.push(now_ms);
        self.0.len() >= MOST
    }

    /// A person wants to try again.
    pub(super) fn forgive(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leading_tab_that_is_closed_counts_for_nothing() {
        assert!(!counts(false, true, false));
        assert!(counts(false, true, true), "it said why it cannot go on");
        assert!(counts(false, false, false), "it does not know the tab, and may not the next time");
        assert!(counts(true, true, false), "the browser ended it, and may again");
    }

    #[test]
    fn three_within_a_minute_are_enough() {
        let mut losses = Losses::default();
        let told: Vec<bool> =
            [0.0, 59_000.0, 61_000.0, 62_000.0].map(|now| losses.another(now)).into_iter().collect();
        assert_eq!(told, [false, false, false, true]);
        losses.forgive();
        assert!(!losses.another(63_000.0));
    }
}
