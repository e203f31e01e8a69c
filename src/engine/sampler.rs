//! From the logits of a row to the next token.
//!
//! Invariant: the token is a pure function of the logits, the sequence's own tokens and its parameters; never of what
//! was sampled before, by whom, or how often. No logit makes it panic.

use std::cmp::Ordering;

use super::logprobs::tame;
use super::params::SamplingParams;

/// Samples one row after the other; holds only memory to work in.
#[derive(Debug)]
pub(super) struct Sampler {
    /// The row's logits as the parameters change them, then the weights of `candidates`: (vocabulary)
    logits: Vec<f32>,
    /// How often a token occurs; 0 between uses: (vocabulary)
    counts: Vec<u32>,
    /// Tokens that may still be chosen.
    candidates: Vec<u32>,
}

impl Sampler {
    /// A sampler for rows of so many logits.
    pub(super) fn new(vocab_size: usize) -> Self {
        Self { logits: vec![0.0; vocab_size], counts: vec![0; vocab_size], candidates: Vec::new() }
    }

    /// The next token of a sequence, given the logits of its last one: (vocabulary). The parameters must be valid.
    ///
    /// Where nothing has a probability (every logit NaN, −∞ or held back), it is the lowest id that is not held back.
    pub(super) fn sample(
        &mut self,
        logits: &[f32],
        prompt: &[u32],
        output: &[u32],
        params: &SamplingParams,
    ) -> u32 {
        for (own, &logit) in self.logits.iter_mut().zip(logits) {
            *own = tame(logit);
        }
        for_each_held_back(params, output, |token| self.logits[token as usize] = f32::NEG_INFINITY);
        for &(token, bias) in &params.logit_bias {
            self.logits[token as usize] += bias;
        }
        self.apply_penalties(prompt, output, params);
        let (likeliest, max) = self.argmax();
        if max == f32::NEG_INFINITY {
            return self.lowest_not_held_back(output, params);
        }
        if params.temperature == 0.0 {
            return likeliest;
        }
        self.keep_top_k(params.top_k);
        self.weigh(max, params.temperature);
        self.keep_min_p(params.min_p);
        self.keep_top_p(params.top_p);
        self.draw(uniform(params.seed, output.len() as u64))
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

    /// The token of the largest logit, of equal ones the lowest id, and that logit.
    fn argmax(&self) -> (u32, f32) {
        let larger = |best: (u32, f32), other: (u32, f32)| if other.1 > best.1 { other } else { best };
        (0..).zip(self.logits.iter().copied()).fold((0, f32::NEG_INFINITY), larger)
    }

    fn lowest_not_held_back(&mut self, output: &[u32], params: &SamplingParams) -> u32 {
        self.logits.fill(0.0);
        for_each_held_back(params, output, |token| self.logits[token as usize] = f32::NEG_INFINITY);
        self.argmax().0
    }

    /// Makes the candidates those with the k largest logits, or all. That `min_p` is to come first makes no
    /// difference: it never drops the likeliest, which its bound depends on; and so fewer exponentials are taken.
    fn keep_top_k(&mut self, k: i32) {
        let Self { logits, candidates, .. } = self;
        candidates.clear();
        candidates.extend(
            (0..).zip(&*logits).filter(|&(_, &logit)| logit > f32::NEG_INFINITY).map(|(token, _)| token),
        );
        let k = usize::try_from(k).unwrap_or(0);
        if k > 0 && k < candidates.len() {
            candidates.select_nth_unstable_by(k - 1, by_weight(logits));
            candidates.truncate(k);
            // The order of a selection is the library's; the draw's must not be.
            candidates.sort_unstable();
        }
    }

    /// Turns the candidates' logits into weights: probabilities, but for a factor that makes the largest 1.
    fn weigh(&mut self, max: f32, temperature: f32) {
        for &token in &self.candidates {
            let logit = &mut self.logits[token as usize];
            *logit = ((f64::from(*logit) - f64::from(max)) / f64::from(temperature)).exp() as f32;
        }
    }

    fn keep_min_p(&mut self, min_p: f32) {
        let Self { logits: weights, candidates, .. } = self;
        candidates.retain(|&token| weights[token as usize] >= min_p);
    }

    /// Keeps the fewest likeliest candidates that hold p of all weight. Only as many are sorted as it takes, but for a
    /// factor.
    fn keep_top_p(&mut self, p: f32) {
        if p >= 1.0 {
            return;
        }
        let Self { logits: weights, candidates, .. } = self;
        let wanted = f64::from(p) * sum(weights, candidates);
        let mut n_sorted = 64;
        loop {
            if n_sorted < candidates.len() {
                candidates.select_nth_unstable_by(n_sorted, by_weight(weights));
            }
            n_sorted = n_sorted.min(candidates.len());
            let head = &mut candidates[..n_sorted];
            head.sort_unstable_by(by_weight(weights));
            let mut held = 0.0;
            let last = head.iter().position(|&token| {
                held += f64::from(weights[token as usize]);
                held >= wanted
            });
            match last {
                Some(last) => candidates.truncate(last + 1),
                None if n_sorted < candidates.len() => {
                    n_sorted *= 8;
                    continue;
                }
                None => {}
            }
            return;
        }
    }

    /// The candidate at a place in [0, 1) of all weight.
    fn draw(&self, place: f64) -> u32 {
        let wanted = place * sum(&self.logits, &self.candidates);
        let mut held = 0.0;
        let mut drawn = self.candidates[0];
        for &token in &self.candidates {
            let weight = f64::from(self.logits[token as usize]);
            if weight > 0.0 {
                drawn = token;
                held += weight;
                if held > wanted {
                    break;
                }
            }
        }
        drawn
    }
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

/// The heavier first, of equal ones the lower id.
fn by_weight(weights: &[f32]) -> impl Fn(&u32, &u32) -> Ordering {
    |a, b| weights[*b as usize].total_cmp(&weights[*a as usize]).then(a.cmp(b))
}

/// Weight of tokens together.
fn sum(weights: &[f32], tokens: &[u32]) -> f64 {
    tokens.iter().map(|&token| f64::from(weights[token as usize])).sum()
}

/// A number in [0, 1) for a place in a stream: two rounds of SplitMix64's finalizer, so that neighbouring seeds and
/// places have nothing in common.
fn uniform(seed: u64, place: u64) -> f64 {
    const WEYL: u64 = 0x9E37_79B9_7F4A_7C15;
    let mix = |mut x: u64| {
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    };
    let bits = mix(mix(seed.wrapping_add(WEYL)).wrapping_add(place.wrapping_mul(WEYL)));
    (bits >> 11) as f64 / (1_u64 << 53) as f64
}

#[cfg(test)]
mod tests;
