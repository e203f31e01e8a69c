//! What many measured times have in common. By nearest rank: every percentile is a time that was measured.

use serde::{Deserialize, Serialize};

/// Times in milliseconds, summed up.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Their sum over their number.
    pub mean: f64,
    /// Half are not above it.
    pub p50: f64,
    /// 95 of a hundred are not above it.
    pub p95: f64,
    /// 99 of a hundred are not above it.
    pub p99: f64,
}

impl Percentiles {
    /// By nearest rank: the smallest value that so many percent of all are not above. Nothing of nothing.
    pub fn of(values_ms: &[f64]) -> Option<Self> {
        let mut sorted = values_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = |percent: usize| sorted.get((percent * sorted.len()).div_ceil(100).max(1) - 1).copied();
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self {
            mean: rounded(mean),
            p50: rounded(rank(50)?),
            p95: rounded(rank(95)?),
            p99: rounded(rank(99)?),
        })
    }

    /// As cells below [`HEADINGS`]; a dash where nothing was measured.
    pub fn cells(times: Option<&Self>) -> String {
        match times {
            Some(Self { mean, p50, p95, p99 }) => format!("{mean:>7.1} {p50:>7.1} {p95:>7.1} {p99:>7.1}"),
            None => format!("{:>WIDTH$}", "-"),
        }
    }
}

/// The columns of a table that percentiles take.
pub const HEADINGS: &str = "   mean     p50     p95     p99";
/// Their width.
pub const WIDTH: usize = HEADINGS.len();

/// To three decimals: of milliseconds a clock tells no more.
pub(super) fn rounded(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            Percentiles::of(&hundred),
            Some(Percentiles { mean: 50.5, p50: 50.0, p95: 95.0, p99: 99.0 })
        );
        assert_eq!(Percentiles::of(&[7.0]), Some(Percentiles { mean: 7.0, p50: 7.0, p95: 7.0, p99: 7.0 }));
        assert_eq!(
            Percentiles::of(&[4.0, 1.0, 3.0]),
            Some(Percentiles { mean: 2.667, p50: 3.0, p95: 4.0, p99: 4.0 })
        );
        assert_eq!(Percentiles::of(&[]), None);
    }

    #[test]
    fn cells_are_as_wide_as_their_headings() {
        for times in [None, Percentiles::of(&[1.0, 12_345.6])] {
            assert_eq!(Percentiles::cells(times.as_ref()).len(), WIDTH);
        }
    }
}
