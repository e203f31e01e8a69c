//! How many prompt rows a step takes, and in how many submits, so that a page stays responsive: measured, not guessed.
//!
//! Invariant: a submit with prefill rows is expected to stay within 50 ms on a GPU and 500 ms on a software adapter.

use crate::engine::Budget;
use crate::plan::batch::{BLOCK_TOKENS, Batch};

/// The measured cost of prefill rows.
#[derive(Debug, Clone, PartialEq)]
pub struct Pace {
    submit_ms: f64,
    most_rows: usize,
    /// Smoothed; `None` before the first measurement.
    ms_per_row: Option<f64>,
}

/// A whole tile: fewer rows cost as much.
const LEAST_ROWS: usize = 8;

/// Submits of one step at most.
const MOST_SUBMITS: f64 = 16.0;

impl Pace {
    /// Nothing is measured yet.
    pub fn new(is_software: bool) -> Self {
        let submit_ms = if is_software { 500.0 } else { 50.0 };
        Self { submit_ms, most_rows: Self::most_rows(is_software), ms_per_row: None }
    }

    /// Rows of prefill that a step may ever have.
    pub fn most_rows(is_software: bool) -> usize {
        if is_software { 64 } else { 256 }
    }

    /// Rows for the next step: as many as one submit holds, in whole blocks where that is more than one.
    pub fn budget(&self) -> Budget {
        let rows = match self.ms_per_row {
            None => LEAST_ROWS,
            Some(ms_per_row) => (self.submit_ms / ms_per_row.max(1e-3)) as usize,
        };
        let step = if rows >= BLOCK_TOKENS { BLOCK_TOKENS } else { LEAST_ROWS };
        Budget { prefill_rows: (rows / step * step).clamp(LEAST_ROWS, self.most_rows) }
    }

    /// Submits for a step: more than one only where even the fewest rows take too long.
    pub fn submits(&self, batch: &Batch) -> usize {
        let expected_ms = self.ms_per_row.unwrap_or(0.0) * batch.n_prefill() as f64;
        (expected_ms / self.submit_ms).ceil().clamp(1.0, MOST_SUBMITS) as usize
    }

    /// Learns from a step that was submitted and had ended at such times, where the device had ended the step before at
    /// `free_since_ms`: until then it waited.
    pub fn learn(&mut self, batch: &Batch, submitted_ms: f64, free_since_ms: f64, ended_ms: f64) {
        let elapsed_ms = ended_ms - submitted_ms.max(free_since_ms);
        if batch.n_prefill() < LEAST_ROWS {
            return;
        }
        let measured = elapsed_ms / batch.n_rows() as f64;
        // Where the host comes late, this step may have ended with the one before: when it began is not known.
        let is_late =
            free_since_ms > submitted_ms && self.ms_per_row.is_some_and(|before| measured < before / 4.0);
        if is_late {
            return;
        }
        let smoothed = self.ms_per_row.map_or(measured, |before| 0.7 * before + 0.3 * measured);
        self.ms_per_row = Some(smoothed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::batch::RowKind;

    fn prefill(n_rows: usize) -> Batch {
        let mut batch = Batch::default();
        let blocks: Vec<u32> = (0..8).collect();
        let sequence = batch.push_sequence(vec![blocks]);
        for position in 0..n_rows {
            batch.push_row(RowKind::Prefill, sequence, 0, position as u32, false);
        }
        batch
    }

    fn paced(is_software: bool, ms_per_row: f64) -> Pace {
        let mut pace = Pace::new(is_software);
        pace.learn(&prefill(8), 1000.0, 0.0, 1000.0 + 8.0 * ms_per_row);
        pace
    }

    #[test]
    fn a_submit_stays_within_its_time() {
        let cases = [
            (false, 0.01, 256, 1),
            (false, 1.0, 32, 1),
            (false, 10.0, 8, 2),
            (true, 10.0, 32, 1),
            (true, 250.0, 8, 4),
        ];
        for (is_software, ms_per_row, rows, submits) in cases {
            let pace = paced(is_software, ms_per_row);
            assert_eq!(pace.budget().prefill_rows, rows, "{ms_per_row} ms a row");
            assert_eq!(pace.submits(&prefill(rows)), submits, "{ms_per_row} ms a row");
        }
    }

    #[test]
    fn a_step_that_waited_for_another_took_what_came_after_it() {
        let mut pace = Pace::new(false);
        // Both submitted at once, 8 ms each.
        pace.learn(&prefill(8), 100.0, 0.0, 108.0);
        let before = pace.clone();
        pace.learn(&prefill(8), 100.0, 108.0, 116.0);
        assert_eq!(pace, before);
    }

    #[test]
    fn a_decode_step_is_one_submit_and_teaches_nothing() {
        let mut pace = paced(true, 250.0);
        let before = pace.clone();
        let mut decode = Batch::default();
        let sequence = decode.push_sequence(vec![vec![0]]);
        decode.push_row(RowKind::Decode, sequence, 0, 0, true);
        pace.learn(&decode, 0.0, 0.0, 10_000.0);
        assert_eq!(pace, before);
        assert_eq!(pace.submits(&decode), 1);
    }
}
