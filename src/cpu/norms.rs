//! Norms of rows, with sums whose order depends on the length alone.

use crate::plan::{Norm, NormKind};

/// Partial sums of a row, each of every so-manieth value.
const LANES: usize = 16;

#[inline(always)]
fn sum_of(values: &[f32], term: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [0f32; LANES];
    let chunks = values.chunks_exact(LANES);
    let rest = chunks.remainder();
    for chunk in chunks {
        for (lane, value) in lanes.iter_mut().zip(chunk) {
            *lane += term(*value);
        }
    }
    for (lane, value) in lanes.iter_mut().zip(rest) {
        *lane += term(*value);
    }
    lanes.iter().sum()
}

/// A row's norm, in its place.
pub(super) fn norm_row(norm: &Norm, vectors: &[Vec<f32>], values: &mut [f32]) {
    let n = values.len() as f32;
    let mean = match norm.kind {
        NormKind::RootMeanSquare => 0.0,
        NormKind::Layer => sum_of(values, |v| v) / n,
    };
    let variance = sum_of(values, |v| (v - mean) * (v - mean)) / n;
    let inverse = 1.0 / (variance + norm.epsilon).sqrt();
    for (value, weight) in values.iter_mut().zip(&vectors[norm.weight.0]) {
        *value = (*value - mean) * inverse * weight;
    }
    if let Some(bias) = norm.bias {
        for (value, bias) in values.iter_mut().zip(&vectors[bias.0]) {
            *value += bias;
        }
    }
}
