//! Functions of one value, made of additions and multiplications so that loops over them are vectorized.
//!
//! Invariant: no call of the platform's own functions: the bits are the same on every processor, and what is no number
//! stays none.

use super::instructions::Loops;
use super::vectors::{LANES, Vectors};
use crate::plan::Nonlinearity;

/// e to the power of x, within two places of its last bit; 0 where f32 would have it subnormal.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    /// Its last place is 1: adding it rounds to a whole number.
    const WHOLE: f32 = 12_582_912.0;
    let shifted = x * std::f32::consts::LOG2_E + WHOLE;
    let n = shifted - WHOLE;
    // ln 2 in two parts, the first of so few bits that its multiples are exact (Cephes, expf).
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4;
    let series = ((((1.987_569_1e-4 * r + 1.398_2e-3) * r + 8.333_452e-3) * r + 4.166_579_6e-2) * r
        + 1.666_666_5e-1)
        * r
        + 5e-1;
    let value = (series * r * r + r) + 1.0;
    let power = f32::from_bits(shifted.to_bits().wrapping_add(127) << 23);
    let result = if x < -87.0 { 0.0 } else { value * power };
    if x > 88.3 { f32::INFINITY } else { result }
}

#[inline(always)]
fn tanh(x: f32) -> f32 {
    let square = x * x;
    let size = x.abs();
    let far = 1.0 - 2.0 / (exp(2.0 * size) + 1.0);
    // Near zero the difference would have few places.
    let near = size * (1.0 + square * (-1.0 / 3.0 + square * (2.0 / 15.0 + square * (-17.0 / 315.0))));
    (if size < 0.1 { near } else { far }).copysign(x)
}

/// cap · tanh(x / cap), where there is a cap.
#[inline(always)]
pub(super) fn cap_all(values: &mut [f32], softcap: Option<f32>) {
    if let Some(cap) = softcap {
        let inverse = 1.0 / cap;
        each(
            values,
            #[inline(always)]
            |value| cap * tanh(value * inverse),
        );
    }
}

#[inline(always)]
fn silu(x: f32) -> f32 {
    x / (1.0 + exp(-x))
}

/// 0.5 · x · (1 + tanh u) is x / (1 + exp(−2u)).
#[inline(always)]
fn gelu_tanh(x: f32) -> f32 {
    x / (1.0 + exp(-1.595_769_2 * (x + 0.044_715 * x * x * x)))
}

/// The function of each value.
#[derive(Debug)]
pub(super) struct Apply<'a>(pub(super) Nonlinearity, pub(super) &'a mut [f32]);

impl Loops for Apply<'_> {
    #[inline(always)]
    fn run<V: Vectors>(self) {
        match self.0 {
            Nonlinearity::Silu => each(self.1, silu),
            Nonlinearity::GeluTanh => each(self.1, gelu_tanh),
        }
    }
}

/// Calls a function with each value; a vector of them at a time, also in builds for size.
#[inline(always)]
fn each(values: &mut [f32], function: impl Fn(f32) -> f32) {
    let (vectors, rest) = values.as_chunks_mut::<LANES>();
    for vector in vectors {
        for value in vector {
            *value = function(*value);
        }
    }
    for value in rest {
        *value = function(*value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Panics unless the first is the second within roundings of 2^-24 each: at most five of them make an exponent, where
    /// they count as often as it is large, and six all else. Below 1e-30 there is only zero.
    fn check(x: f32, got: f32, expected: f64, exponent: f64) {
        let bound = 2f64.powi(-24) * (6.0 + 5.0 * exponent.abs()) * expected.abs() + 1e-30;
        assert!((f64::from(got) - expected).abs() <= bound, "{x}: {got}, expected {expected}");
    }

    #[test]
    fn they_are_what_f64_has() {
        for i in -8600..=8800 {
            let x = i as f32 * 0.01;
            check(x, exp(x), f64::from(x).exp(), 0.0);
        }
        for i in -4000..=4000 {
            let x = i as f32 * 0.005;
            let wide = f64::from(x);
            let u = (2.0 / std::f64::consts::PI).sqrt() * (wide + 0.044715 * wide * wide * wide);
            check(x, silu(x), wide / (1.0 + (-wide).exp()), wide);
            check(x, gelu_tanh(x), wide / (1.0 + (-2.0 * u).exp()), 2.0 * u);
            let mut capped = [x];
            cap_all(&mut capped, Some(1.5));
            // 1 less what may leave a tenth of it.
            check(x, capped[0], 1.5 * (wide / 1.5).tanh(), 10.0);
        }
    }

    #[test]
    fn the_ends_are_right_and_what_is_no_number_stays_none() {
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(200.0), f32::INFINITY);
        assert_eq!([silu(-200.0), gelu_tanh(-200.0)], [0.0, 0.0]);
        assert_eq!([silu(200.0), gelu_tanh(200.0)], [200.0, 200.0]);
        assert_eq!([tanh(f32::INFINITY), tanh(-90.0)], [1.0, -1.0]);
        assert!(
            [exp(f32::NAN), silu(f32::NAN), gelu_tanh(f32::NAN), tanh(f32::NAN)].iter().all(|v| v.is_nan())
        );
    }
}
