//! How often a device was lost of late: where that repeats, loading once more helps nobody.

/// So many losses within [`WITHIN_MS`] are too many.
const TOO_MANY: usize = 3;
/// A minute.
const WITHIN_MS: f64 = 60_000.0;

/// When devices were lost.
#[derive(Debug, Default)]
pub(super) struct Losses {
    at_ms: Vec<f64>,
}

impl Losses {
    /// A device was lost. Whether there is no use in going on; from then on they are counted anew.
    pub(super) fn count(&mut self, now_ms: f64) -> bool {
        self.at_ms.retain(|at_ms| now_ms - at_ms < WITHIN_MS);
        self.at_ms.push(now_ms);
        let is_too_many = self.at_ms.len() >= TOO_MANY;
        if is_too_many {
            self.at_ms.clear();
        }
        is_too_many
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_third_within_a_minute_is_too_many() {
        let mut losses = Losses::default();
        let found = [0.0, 59_000.0, 61_000.0, 62_000.0, 63_000.0, 64_000.0].map(|at| losses.count(at));
        assert_eq!(found, [false, false, false, true, false, false]);
    }
}
