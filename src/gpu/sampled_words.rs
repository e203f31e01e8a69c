//! What the host tells `sample_rule.wgsl` of a row, and what that leaves of it, as words.
//!
//! Invariant: what a step samples lies in its slot by logit row, so that the next step's rows find their tokens there.

use super::layout::Capacity;
use crate::plan::batch::{Batch, STEPS_IN_FLIGHT, SampledAt};
use crate::plan::logprobs::{Logprob, TokenLogprobs};
use crate::plan::sample::{Sampled, Sampling};

/// Words that tell how a row is sampled.
pub(super) const SAMPLING_WORDS: usize = 10;
/// Words that are left of a row: token, has a NaN, log-probability, 0, likeliest tokens, their log-probabilities.
pub(super) const SAMPLED_WORDS: usize = TOP + 2 * MAX_TOP;

const TOP: usize = 4;
const MAX_TOP: usize = 20;
/// `NONE` of common.wgsl.
const NONE: u32 = u32::MAX;

/// Words of all slots: (slots)(logit rows)
pub(super) fn capacity_words(capacity: &Capacity) -> usize {
    STEPS_IN_FLIGHT * capacity.logit_rows * SAMPLED_WORDS
}

/// Where the words of a row begin.
pub(super) fn place(at: SampledAt, capacity: &Capacity) -> usize {
    assert!((at.slot_of_step as usize) < STEPS_IN_FLIGHT && (at.logit_row as usize) < capacity.logit_rows);
    (at.slot_of_step as usize * capacity.logit_rows + at.logit_row as usize) * SAMPLED_WORDS
}

/// Lays out how a batch's rows are sampled.
pub(super) fn encode(batch: &Batch, capacity: &Capacity, words: &mut Vec<u32>) {
    for (row, sampling) in (0..).zip(&batch.samplings) {
        let Some(sampling) = sampling else { continue };
        let at = SampledAt { slot_of_step: batch.slot_of_step, logit_row: row };
        let Sampling { temperature, top_k, top_p, min_p, seed, place: token_place, n_logprobs } = *sampling;
        // The kernel divides by it, and a device may take a smaller one for 0.
        let temperature = if temperature > 0.0 { temperature.max(2.0 * f32::MIN_POSITIVE) } else { 0.0 };
        words.extend([
            row,
            place(at, capacity) as u32,
            temperature.to_bits(),
            top_k,
            top_p.to_bits(),
            min_p.to_bits(),
            seed as u32,
            (seed >> 32) as u32,
            token_place,
            n_logprobs.unwrap_or(NONE),
        ]);
    }
}

/// Reads what is left of a row.
pub(super) fn decode(words: &[u32], n_logprobs: Option<u32>, vocab_size: usize) -> Sampled {
    let token = words[0];
    let logprob = |token: u32, bits: u32| Logprob { token, logprob: f32::from_bits(bits) };
    let logprobs = n_logprobs.map(|n_top| {
        let n_top = (n_top as usize).min(MAX_TOP).min(vocab_size);
        let (tokens, logprobs) = (&words[TOP..][..n_top], &words[TOP + MAX_TOP..][..n_top]);
        let top = tokens.iter().zip(logprobs).map(|(&token, &bits)| logprob(token, bits)).collect();
        TokenLogprobs { chosen: logprob(token, words[2]), top }
    });
    Sampled { token, logprobs, has_nan: words[1] != 0 }
}
