//! From the logits of a row to the next token, where parameters change the logits by what came before.
//!
//! Invariant: the token is a pure function of the logits, the sequence's own tokens and its parameters; never of what
//! was sampled before, by whom, or how often. No logit makes it panic.

use super::constraint::is_allowed;
use super::params::SamplingParams;
use crate::plan::logprobs::tame;
use crate::plan::sample::{Chooser, Sampling, argmax};

impl SamplingParams {
    /// How the token at a place in the output is chosen, once the logits are as the parameters want them.
    pub(super) fn sampling(&self, place: usize) -> Sampling {
        Sampling {
            temperature: self.temperature,
            top_k: u32::try_from(self.top_k).unwrap_or(0),
            top_p: self.top_p,
            min_p: self.min_p,
            seed: self.seed,
            place: place as u32,
            n_logprobs: self.logprobs.map(|n_top| n_top as u32),
        }
    }

    /// Whether nothing changes the logits at a place in the output, so that a device may choose without knowing the
    /// sequence.
    pub(super) fn leave_logits(&self, place: usize) -> bool {
        let Self { repetition_penalty, presence_penalty, frequency_penalty, .. } = *self;
        let holds_back =
            place < self.min_tokens && !(self.eog_ids.is_empty() && self.stop_token_ids.is_empty());
        (repetition_penalty, presence_penalty, frequency_penalty) == (1.0, 0.0, 0.0)
            && self.logit_bias.is_empty()
            && self.bad_words.is_empty()
            && !holds_back
    }
}

/// Samples one row after the other; holds only memory to work in.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The row's logits as the parameters change them: (vocabulary)
    logits: Vec<f32>,
    /// How often a token occurs; 0 between uses: (vocabulary)
    counts: Vec<u32>,
    chooser: Chooser,
}

impl Sampler {
    /// A sampler for rows of so many logits.
    pub(super) fn new(vocab_size: usize) -> Self {
        Self { logits: vec![0.0; vocab_size], counts: vec![0; vocab_size], chooser: Chooser::default() }
    }

    /// The next token of a sequence, given the logits of its last one: (vocabulary). The parameters must be valid. Where
    /// there is a mask, only its tokens come, at least one, whatever the parameters hold back.
    ///
    /// Where nothing has a probability (every logit NaN, −∞ or held back), it is the lowest id that is not held back; with
    /// a mask the likeliest of its tokens.
    pub(super) fn sample(
        &mut self,
        logits: &[f32],
        prompt: &[u32],
        output: &[u32],
        params: &SamplingParams,
        mask: Option<&[u32]>,
    ) -> u32 {
        for (own, &logit) in self.logits.iter_mut().zip(logits) {
            *own = tame(logit);
        }
        if let Some(mask) = mask {
            (0..).zip(&mut self.logits).filter(|(token, _)| !is_allowed(mask, *token)).for_each(
                |(_, logit)| {
                    *logit = f32::NEG_INFINITY;
                },
            );
        }
        for_each_held_back(params, output, |token| self.logits[token as usize] = f32::NEG_INFINITY);
        for &(token, bias) in &params.logit_bias {
            self.logits[token as usize] += bias;
        }
        self.apply_penalties(prompt, output, params);
        if argmax(&self.logits).1 == f32::NEG_INFINITY {
            return match mask {
                Some(mask) => likeliest_allowed(logits, mask),
                None => self.lowest_not_held_back(output, params),
            };
        }
        self.chooser.choose(&self.logits, &params.sampling(output.len()))
    }

    fn apply_penalties(&mut self, prompt: &[u32], output: &[u32], params: &SamplingParams) {
        let (repetition, frequency, presence) =
            (params.repetition_penalty, params.frequency_penalty, params.presence_penalty);
        if repetition != 1.0 {
            for &token in prompt.iter().chain(output) {
                let count = &mut self.counts[token as usize];
                if std::mem::replace(count, 1) == 0 {
                    let logit = &mut self.logits[token as usize];
                    *logit =
                        if *logit > 0.0 { (*logit / repetition).min(f32::MAX) } else { *logit * repetition };
                }
            }
            prompt.iter().chain(output).for_each(|&token| self.counts[token as usize] = 0);
        }
        if frequency != 0.0 || presence != 0.0 {
            output.iter().for_each(|&token| self.counts[token as usize] += 1);
            for &token in output {
                let count = std::mem::take(&mut self.counts[token as usize]);
                if count > 0 {
                    let logit = &mut self.logits[token as usize];
                    *logit -= frequency * count as f32;
                    *logit -= presence;
                }
            }
        }
    }

    fn lowest_not_held_back(&mut self, output: &[u32], params: &SamplingParams) -> u32 {
        self.logits.fill(0.0);
        for_each_held_back(params, output, |token| self.logits[token as usize] = f32::NEG_INFINITY);
        argmax(&self.logits).0
    }
}

/// The likeliest token of a mask, of equal ones the lowest id.
fn likeliest_allowed(logits: &[f32], mask: &[u32]) -> u32 {
    let allowed = (0..).zip(logits).filter(|(token, _)| is_allowed(mask, *token));
    let best = allowed
        .map(|(token, &logit)| (token, tame(logit)))
        .reduce(|best, other| if other.1 > best.1 { other } else { best });
    best.expect("a mask allows a token").0
}

/// Calls `hold_back` for each token that must not come next.
fn for_each_held_back(params: &SamplingParams, output: &[u32], mut hold_back: impl FnMut(u32)) {
    for word in &params.bad_words {
        if let Some((&last, before)) = word.split_last()
            && output.ends_with(before)
        {
            hold_back(last);
        }
    }
    if output.len() < params.min_tokens {
        params.eog_ids.iter().chain(&params.stop_token_ids).for_each(|&token| hold_back(token));
    }
}

#[cfg(test)]
mod tests;
