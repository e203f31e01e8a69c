//! The one rule by which a token is chosen from logits, on the host and on every device.
//!
//! Invariant: the token is a pure function of the logits and of [`Sampling`]. No logit makes it panic: NaN counts as −∞
//! and +∞ as the largest f32.
//!
//! Greedy takes the largest logit, of equal ones the lowest id. Else `top_k`, `min_p` and `top_p` leave some tokens, and of
//! these the one with the largest `logit / temperature + noise` comes, where the noise of a token is a Gumbel draw of the
//! seed, the place in the output and the token (Gumbel-max, Maddison, Tarlow and Minka 2014): each comes with exactly its
//! probability, no sum over the vocabulary decides, and a device finds it as it finds the largest logit.

use std::cmp::Ordering;

use super::logprobs::{TokenLogprobs, log_softmax_at, tame};
use super::philox::{gumbel, uniform, words_of};

/// How a row's token is chosen.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sampling {
    /// Divides the logits, ≥ 0; 0 is greedy, and nothing but `n_logprobs` matters then.
    pub temperature: f32,
    /// Keeps the k likeliest, of equal ones the lowest ids; 0 keeps all.
    pub top_k: u32,
    /// Keeps the fewest likeliest that hold so much of what `top_k` and `min_p` left, at least one; 1 keeps all.
    pub top_p: f32,
    /// Drops what is less likely than this times the likeliest.
    pub min_p: f32,
    /// Chooses the noise.
    pub seed: u64,
    /// Place in the output, from 0.
    pub place: u32,
    /// Whether the token's log-probability is wanted, and of how many likeliest ones besides.
    pub n_logprobs: Option<u32>,
}

/// What was chosen for a row.
#[derive(Debug, Clone, PartialEq)]
pub struct Sampled {
    /// The token; 0 where every logit is −∞ or NaN.
    pub token: u32,
    /// Where they were wanted: of the logits as they are, at temperature 1.
    pub logprobs: Option<TokenLogprobs>,
    /// Whether a logit is no number.
    pub has_nan: bool,
}

/// Chooses for one row after the other; holds only memory to work in.
#[derive(Debug, Default)]
pub struct Chooser {
    /// Tokens that may still be chosen.
    candidates: Vec<u32>,
}

impl Chooser {
    /// All that a device tells of a row: (vocabulary)
    pub fn sample(&mut self, logits: &[f32], sampling: &Sampling) -> Sampled {
        let token = self.choose(logits, sampling);
        let logprobs = sampling.n_logprobs.map(|n_top| log_softmax_at(logits, token, n_top as usize));
        Sampled { token, logprobs, has_nan: logits.iter().any(|logit| logit.is_nan()) }
    }

    /// The token alone.
    pub fn choose(&mut self, logits: &[f32], sampling: &Sampling) -> u32 {
        let (likeliest, max) = argmax(logits);
        if sampling.temperature == 0.0 || max == f32::NEG_INFINITY {
            return likeliest;
        }
        let scaled = |token: u32| {
            (f64::from(tame(logits[token as usize])) - f64::from(max)) / f64::from(sampling.temperature)
        };
        let ids = 0..logits.len() as u32;
        self.candidates.clear();
        self.candidates.extend(ids.filter(|&token| tame(logits[token as usize]) > f32::NEG_INFINITY));
        // That `min_p` is to come first makes no difference: it never drops the likeliest, which its bound depends on; and
        // so fewer exponentials are taken.
        self.keep_top_k(logits, sampling.top_k);
        if sampling.min_p > 0.0 {
            self.candidates.retain(|&token| scaled(token).exp() >= f64::from(sampling.min_p));
        }
        self.keep_top_p(logits, f64::from(sampling.top_p), scaled);
        self.race(sampling, scaled)
    }

    fn keep_top_k(&mut self, logits: &[f32], k: u32) {
        let k = k as usize;
        if k > 0 && k < self.candidates.len() {
            self.candidates.select_nth_unstable_by(k - 1, by_logit(logits));
            self.candidates.truncate(k);
            // From here on in order of id again.
            self.candidates.sort_unstable();
        }
    }

    /// Keeps the fewest likeliest candidates that hold p of all weight. Only as many are sorted as it takes, but for a
    /// factor.
    fn keep_top_p(&mut self, logits: &[f32], p: f64, scaled: impl Fn(u32) -> f64) {
        if p >= 1.0 {
            return;
        }
        let Self { candidates } = self;
        let wanted = p * candidates.iter().map(|&token| scaled(token).exp()).sum::<f64>();
        let mut n_sorted = 64;
        loop {
            if n_sorted < candidates.len() {
                candidates.select_nth_unstable_by(n_sorted, by_logit(logits));
            }
            n_sorted = n_sorted.min(candidates.len());
            let head = &mut candidates[..n_sorted];
            head.sort_unstable_by(by_logit(logits));
            let mut held = 0.0;
            let last = head.iter().position(|&token| {
                held += scaled(token).exp();
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
            candidates.sort_unstable();
            return;
        }
    }

    /// The candidate with the largest sum of logit and noise, of equal ones the lowest id.
    fn race(&self, sampling: &Sampling, scaled: impl Fn(u32) -> f64) -> u32 {
        let (mut winner, mut best) = (self.candidates[0], f64::NEG_INFINITY);
        let (mut group, mut words) = (u32::MAX, [0; 4]);
        for &token in &self.candidates {
            if token / 4 != group {
                group = token / 4;
                words = words_of(sampling.seed, sampling.place, group);
            }
            let (logit, draw) = (scaled(token), uniform(words[token as usize % 4]));
            // −ln(1 − u) ≥ u, so it cannot win: two logarithms saved.
            if draw >= (logit - best).exp() {
                continue;
            }
            let score = logit + gumbel(draw);
            if score > best {
                (winner, best) = (token, score);
            }
        }
        winner
    }
}

/// The token of the largest logit, of equal ones the lowest id, and that logit.
pub fn argmax(logits: &[f32]) -> (u32, f32) {
    let larger = |best: (u32, f32), other: (u32, f32)| if other.1 > best.1 { other } else { best };
    (0..).zip(logits.iter().map(|&logit| tame(logit))).fold((0, f32::NEG_INFINITY), larger)
}

/// The likelier first, of equal ones the lower id.
fn by_logit(logits: &[f32]) -> impl Fn(&u32, &u32) -> Ordering {
    |a, b| tame(logits[*b as usize]).total_cmp(&tame(logits[*a as usize])).then(a.cmp(b))
}
