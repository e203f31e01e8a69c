//! Rotary frequencies: plain, and stretched to a longer context than a model was first trained for.
//!
//! Invariant: computed in f32, as the models were trained with, whatever the weights' type.

use super::config::Config;

/// How rotary frequencies are stretched.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Scaling {
    /// Not at all, or by a tensor of divisors (Llama 3).
    None,
    /// All by one factor (Chen et al. 2023).
    Linear {
        /// Positions are divided by it.
        factor: f32,
    },
    /// Slow pairs by the factor, fast ones not, those between in part (Peng et al. 2023).
    Yarn {
        /// By which slow frequencies are divided.
        factor: f32,
        /// Positions the model was first trained for.
        original_context: usize,
        /// Sines and cosines are multiplied by it, beside the method's own 0.1 ln(factor) + 1.
        magnitude: f32,
        /// Pairs that turn more often than this within the original context are fast.
        beta_fast: f32,
        /// Pairs that turn less often than this are slow.
        beta_slow: f32,
    },
    /// By one tensor of divisors within the original context and another beyond it (Ding et al. 2024).
    Long {
        /// Positions the model was first trained for.
        original_context: usize,
        /// Sines and cosines are multiplied by it.
        magnitude: f32,
    },
}

/// Longrope's factor of sines and cosines: sqrt(1 + ln(context / original) / ln(original)).
pub(super) fn long_magnitude(context: usize, original_context: usize) -> f32 {
    let (context, original) = (context as f32, original_context as f32);
    if context <= original { 1.0 } else { (1.0 + (context / original).ln() / original.ln()).sqrt() }
}

impl Config {
    /// Frequencies in radians a position, and what multiplies sines and cosines: (head_dim / 2)
    pub(super) fn rotary(&self, base: f32, scaling: Scaling) -> (Vec<f32>, f32) {
        let exponent = |i: usize| (2 * i) as f32 / self.head_dim as f32;
        let plain = (0..self.head_dim / 2).map(|i| 1.0 / base.powf(exponent(i)));
        match scaling {
            Scaling::None => (plain.collect(), 1.0),
            Scaling::Linear { factor } => (plain.map(|frequency| frequency / factor).collect(), 1.0),
            Scaling::Long { magnitude, .. } => (plain.collect(), magnitude),
            Scaling::Yarn { factor, original_context, magnitude, beta_fast, beta_slow } => {
                let pair_turning = |turns: f32| {
                    let length = original_context as f32 / (turns * 2.0 * std::f32::consts::PI);
                    self.head_dim as f32 * length.ln() / (2.0 * base.ln())
                };
                let low = pair_turning(beta_fast).floor().max(0.0);
                let high = pair_turning(beta_slow).ceil().min(self.head_dim as f32 - 1.0);
                let high = if high == low { high + 0.001 } else { high };
                let stretch = |(i, frequency): (usize, f32)| {
                    let slowness = ((i as f32 - low) / (high - low)).clamp(0.0, 1.0);
                    frequency / factor * slowness + frequency * (1.0 - slowness)
                };
                let own = if factor > 1.0 { 0.1 * factor.ln() + 1.0 } else { 1.0 };
                (plain.enumerate().map(stretch).collect(), own * magnitude)
            }
        }
    }
}
