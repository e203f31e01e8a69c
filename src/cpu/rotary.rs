//! Rotation of queries and keys by angles that are made once a step.

use crate::plan::{Rotary, RotaryPairs};

/// Cosines and sines of a step's rows: (rows, 2 · frequencies), cosine and sine of each in turn.
#[derive(Debug, Default)]
pub(super) struct Angles {
    values: Vec<f32>,
    n_frequencies: usize,
}

impl Angles {
    /// Those of rows at such positions.
    pub(super) fn fill(&mut self, frequencies: &[f32], magnitude: f32, positions: &[u32]) {
        self.n_frequencies = frequencies.len();
        self.values.clear();
        for position in positions {
            self.values.extend(frequencies.iter().flat_map(|frequency| {
                // f32 throughout, as the models were trained with.
                let angle = *position as f32 * frequency;
                [angle.cos() * magnitude, angle.sin() * magnitude]
            }));
        }
    }

    /// Turns the pairs of a head of a row.
    pub(super) fn rotate(&self, row: usize, pairs: RotaryPairs, head: &mut [f32]) {
        let angles = self.values[row * 2 * self.n_frequencies..].chunks_exact(2).take(self.n_frequencies);
        let half = head.len() / 2;
        for (i, angle) in angles.enumerate() {
            let (first, second) = match pairs {
                RotaryPairs::Adjacent => (2 * i, 2 * i + 1),
                RotaryPairs::SplitHalf => (i, i + half),
            };
            let (a, b) = (head[first], head[second]);
            head[first] = a * angle[0] - b * angle[1];
            head[second] = a * angle[1] + b * angle[0];
        }
    }
}

/// A rotary's frequencies, divided as its file has it.
///
/// # Panics
/// If there are not as many divisors as frequencies.
pub(super) fn frequencies_of(rotary: &Rotary, divisors: Option<&[f32]>) -> Vec<f32> {
    assert!(divisors.is_none_or(|divisors| divisors.len() == rotary.frequencies.len()));
    let divided = |(i, frequency): (usize, &f32)| frequency / divisors.map_or(1.0, |divisors| divisors[i]);
    rotary.frequencies.iter().enumerate().map(divided).collect()
}
