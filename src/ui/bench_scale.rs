//! From numbers to places along an axis, with round numbers beside it.

/// An axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Scale {
    from: f64,
    to: f64,
    start: f64,
    end: f64,
}

/// About so many numbers stand beside an axis.
const N_TICKS: f64 = 5.0;

impl Scale {
    /// From the least to the largest, between two places.
    pub(crate) fn around(values: impl Iterator<Item = f64> + Clone, start: f64, end: f64) -> Self {
        let from = values.clone().fold(f64::INFINITY, f64::min);
        let to = values.fold(f64::NEG_INFINITY, f64::max);
        match to > from {
            true => Self { from, to, start, end },
            // One value, or none: in the middle.
            false if to.is_finite() => Self { from: to - 1.0, to: to + 1.0, start, end },
            false => Self { from: 0.0, to: 1.0, start, end },
        }
    }

    /// From zero to a round number that is not below the largest.
    pub(crate) fn from_zero(values: impl Iterator<Item = f64>, start: f64, end: f64) -> Self {
        let largest = values.fold(0.0, f64::max);
        let largest = if largest > 0.0 { largest } else { 1.0 };
        let step = step_of(largest);
        Self { from: 0.0, to: (largest / step).ceil() * step, start, end }
    }

    /// Where a value stands.
    pub(crate) fn place(self, value: f64) -> f64 {
        self.start + (value - self.from) / (self.to - self.from) * (self.end - self.start)
    }

    /// Round numbers along it.
    pub(crate) fn ticks(self) -> Vec<f64> {
        let step = step_of(self.to - self.from);
        let first = (self.from / step).ceil() as i64;
        let last = (self.to / step + 1e-9).floor() as i64;
        (first..=last).map(|n| n as f64 * step).map(|tick| (tick * 1e6).round() / 1e6).collect()
    }
}

/// 1, 2 or 5 times a power of ten, so that about [`N_TICKS`] make the span.
fn step_of(span: f64) -> f64 {
    let power = 10.0_f64.powf((span / N_TICKS).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0].map(|step| step * power);
    steps.into_iter().find(|step| span / step <= N_TICKS + 1e-9).unwrap_or(10.0 * power)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_within() {
        let ticks = |values: &[f64]| Scale::from_zero(values.iter().copied(), 0.0, 1.0).ticks();
        assert_eq!(ticks(&[12.3]), [0.0, 5.0, 10.0, 15.0]);
        assert_eq!(ticks(&[0.31, 0.1]), [0.0, 0.1, 0.2, 0.3, 0.4]);
        assert_eq!(ticks(&[]), [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]);
        let around = Scale::around([33.0, 47.0].into_iter(), 10.0, 20.0);
        assert_eq!(around.ticks(), [35.0, 40.0, 45.0]);
        assert_eq!((around.place(33.0), around.place(47.0), around.place(40.0)), (10.0, 20.0, 15.0));
        assert_eq!(Scale::around([3.0].into_iter(), 0.0, 2.0).place(3.0), 1.0);
    }
}
