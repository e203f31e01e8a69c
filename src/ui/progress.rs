//! How far a load is and how long it still takes, from what its events say and when they came.

use std::collections::VecDeque;

/// The rate is that of the last few seconds, so that it follows a line that changes its speed.
const WINDOW_MS: f64 = 5000.0;

/// One stage of a load after the other.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Progress {
    /// What is being done, in the engine's words.
    pub(crate) stage: String,
    /// Bytes done in this stage.
    pub(crate) done_bytes: u64,
    /// Bytes of this stage in all; 0 while unknown.
    pub(crate) total_bytes: u64,
    /// When (ms) how many bytes were done: this stage, the last [`WINDOW_MS`], oldest first.
    marks: VecDeque<(f64, u64)>,
}

impl Progress {
    /// The start of a stage of unknown length.
    pub(crate) fn of_stage(stage: &str) -> Self {
        Self { stage: stage.to_owned(), ..Self::default() }
    }

    /// Takes in one report at `now_ms`. Another stage, or bytes that went back, start the measurement anew.
    pub(crate) fn report(&mut self, stage: String, done_bytes: u64, total_bytes: u64, now_ms: f64) {
        if stage != self.stage || done_bytes < self.done_bytes {
            self.marks.clear();
        }
        while self.marks.len() > 1 && self.marks[1].0 <= now_ms - WINDOW_MS {
            self.marks.pop_front();
        }
        // Reports may come by the thousand; ten marks a second measure as well.
        match self.marks.back() {
            Some((last_ms, _)) if self.marks.len() > 1 && now_ms - last_ms < 100.0 => {}
            _ => self.marks.push_back((now_ms, done_bytes)),
        }
        (self.stage, self.done_bytes, self.total_bytes) = (stage, done_bytes, total_bytes);
    }

    /// The part that is done, in [0, 1]; nothing while the total is unknown.
    pub(crate) fn fraction(&self) -> Option<f64> {
        (self.total_bytes > 0).then(|| (self.done_bytes as f64 / self.total_bytes as f64).min(1.0))
    }

    /// Bytes a second over the window; nothing until two marks lie apart.
    pub(crate) fn bytes_per_sec(&self) -> Option<f64> {
        let (first_ms, first_bytes) = *self.marks.front()?;
        let (last_ms, last_bytes) = *self.marks.back()?;
        (last_ms > first_ms && last_bytes > first_bytes)
            .then(|| (last_bytes - first_bytes) as f64 / (last_ms - first_ms) * 1000.0)
    }

    /// Seconds that this stage still takes at that rate.
    pub(crate) fn secs_left(&self) -> Option<f64> {
        let left_bytes = self.total_bytes.checked_sub(self.done_bytes).filter(|_| self.total_bytes > 0)?;
        Some(left_bytes as f64 / self.bytes_per_sec()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A progress after reports of (ms, bytes done) of 1000 bytes.
    fn progress_from_reports(reports: &[(f64, u64)]) -> Progress {
        let mut progress = Progress::default();
        for &(now_ms, done_bytes) in reports {
            progress.report("Fetching".to_owned(), done_bytes, 1000, now_ms);
        }
        progress
    }

    #[test]
    fn rate_and_time_left() {
        for (reports, rate, secs_left) in [
            (&[][..], None, None),
            (&[(0.0, 0)], None, None),
            (&[(0.0, 0), (0.0, 100)], None, None),
            (&[(0.0, 0), (1000.0, 100)], Some(100.0), Some(9.0)),
            (&[(0.0, 0), (1000.0, 100), (2000.0, 400)], Some(200.0), Some(3.0)),
            // The slow first seconds leave the window.
            (&[(0.0, 0), (3000.0, 10), (8000.0, 510)], Some(100.0), Some(4.9)),
            // Bytes that go back are a new attempt.
            (&[(0.0, 0), (1000.0, 500), (2000.0, 0), (3000.0, 250)], Some(250.0), Some(3.0)),
            (&[(0.0, 500), (1000.0, 1000)], Some(500.0), Some(0.0)),
        ] {
            let progress = progress_from_reports(reports);
            assert_eq!(progress.bytes_per_sec(), rate, "{reports:?}");
            assert_eq!(progress.secs_left(), secs_left, "{reports:?}");
        }
    }

    #[test]
    fn another_stage_is_measured_anew() {
        let mut progress = progress_from_reports(&[(0.0, 0), (1000.0, 1000)]);
        progress.report("Compiling".to_owned(), 1000, 0, 1500.0);
        assert_eq!((progress.bytes_per_sec(), progress.fraction(), progress.secs_left()), (None, None, None));
    }

    #[test]
    fn many_reports_cost_few_marks() {
        let mut progress = Progress::default();
        for report_idx in 0..100_000_u32 {
            let now_ms = f64::from(report_idx) / 10.0;
            progress.report("Fetching".to_owned(), report_idx.into(), 100_000, now_ms);
        }
        assert!(progress.marks.len() < 60, "{}", progress.marks.len());
        let rate = progress.bytes_per_sec().unwrap();
        assert!((9_990.0..10_010.0).contains(&rate), "{rate}");
    }

    #[test]
    fn a_fraction_never_exceeds_one() {
        let mut progress = Progress::default();
        progress.report("Fetching".to_owned(), 30, 20, 0.0);
        assert_eq!((progress.fraction(), progress.secs_left()), (Some(1.0), None));
    }
}
