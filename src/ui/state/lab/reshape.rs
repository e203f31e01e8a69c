//! What temperature, top-k and top-p make of the likeliest tokens' probabilities, as the engine's sampler does it: scaled by
//! the temperature, then the k likeliest, then as many of these as hold p.
//!
//! Invariant: what is called exact is what the sampler draws from. Only the likeliest are known here, so where the rest of
//! the vocabulary counts, and is not known from its sum, the shares are those among the likeliest alone.

/// How the next token is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Sampling {
    /// Divides the logits; 0 takes the likeliest.
    pub(crate) temperature: f32,
    /// Only so many of the likeliest are drawn from; nothing draws from all.
    pub(crate) top_k: Option<u32>,
    /// Only the likeliest that hold so much together are drawn from.
    pub(crate) top_p: f32,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 1.0, top_k: None, top_p: 1.0 }
    }
}

/// The likeliest tokens' shares.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shaped {
    /// One for each, 0 where it is never drawn.
    pub(crate) shares: Vec<f64>,
    /// Whether they are those that the sampler draws from; else they are shares among the likeliest alone.
    pub(crate) is_exact: bool,
}

/// The shares of the likeliest tokens, of which these are the log-probabilities, the likeliest first.
pub(crate) fn reshape(logprobs: &[f32], sampling: Sampling) -> Shaped {
    let Sampling { temperature, top_k, top_p } = sampling;
    let Some(&first) = logprobs.first() else { return Shaped { shares: Vec::new(), is_exact: true } };
    if temperature == 0.0 {
        let shares = (0..logprobs.len()).map(|place| if place == 0 { 1.0 } else { 0.0 }).collect();
        return Shaped { shares, is_exact: true };
    }
    let weight = |logprob: &f32| (f64::from(logprob - first) / f64::from(temperature)).exp();
    let weights: Vec<f64> = logprobs.iter().map(weight).collect();
    let n_candidates = top_k.map_or(usize::MAX, |k| k as usize);
    let is_within = n_candidates <= weights.len();
    let n_known = n_candidates.min(weights.len());
    let known: f64 = weights[..n_known].iter().sum();
    // All of the vocabulary's probabilities sum to 1, and so their weights at temperature 1 are known.
    let of_all = (!is_within && top_k.is_none() && temperature == 1.0).then(|| (-f64::from(first)).exp());
    let candidates = if is_within { known } else { of_all.unwrap_or(known) };
    let mut is_exact = is_within || of_all.is_some();
    let (mut n_kept, mut sum) = (n_known, candidates);
    if top_p < 1.0 {
        let wanted = f64::from(top_p) * candidates;
        let held = weights[..n_known].iter().scan(0.0, |held, weight| {
            *held += weight;
            Some(*held)
        });
        match held.enumerate().find(|(_, held)| *held >= wanted) {
            Some((last, held)) => (n_kept, sum) = (last + 1, held),
            // They do not hold p: others are drawn, too. Of the k likeliest, rounding alone says so.
            None => (is_exact, sum) = (is_within, known),
        }
    }
    let share = |(place, weight): (usize, &f64)| if place < n_kept { weight / sum } else { 0.0 };
    Shaped { shares: weights.iter().enumerate().map(share).collect(), is_exact }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A vocabulary of six, of which four are known.
    const LOGITS: [f32; 6] = [2.0, 1.5, 1.0, 0.0, -0.5, -1.0];

    fn logprobs() -> Vec<f32> {
        let sum: f32 = LOGITS.iter().map(|logit| logit.exp()).sum();
        LOGITS[..4].iter().map(|logit| logit - sum.ln()).collect()
    }

    /// The same, knowing all.
    fn known(sampling: Sampling) -> Vec<f64> {
        let mut weights: Vec<f64> =
            LOGITS.iter().map(|logit| (f64::from(*logit) / f64::from(sampling.temperature)).exp()).collect();
        weights.truncate(sampling.top_k.map_or(6, |k| k as usize));
        let wanted = f64::from(sampling.top_p) * weights.iter().sum::<f64>();
        let mut n_kept = 1;
        while n_kept < weights.len() && weights[..n_kept].iter().sum::<f64>() < wanted {
            n_kept += 1;
        }
        let sum: f64 = weights[..n_kept].iter().sum();
        (0..4).map(|i| if i < n_kept { weights[i] / sum } else { 0.0 }).collect()
    }

    #[test]
    fn what_is_exact_is_what_the_sampler_draws_from() {
        let mut n_exact = 0;
        for temperature in [0.3, 1.0, 1.7] {
            for top_k in [None, Some(1), Some(3), Some(4), Some(5)] {
                for top_p in [0.2, 0.6, 0.9, 1.0] {
                    let sampling = Sampling { temperature, top_k, top_p };
                    let shaped = reshape(&logprobs(), sampling);
                    if shaped.is_exact {
                        n_exact += 1;
                        for (found, known) in shaped.shares.iter().zip(known(sampling)) {
                            assert!((found - known).abs() < 1e-5, "{sampling:?}: {shaped:?}, {known}");
                        }
                    }
                    let within = top_k.is_some_and(|k| k <= 4);
                    assert!(shaped.is_exact || !within, "{sampling:?}: the k likeliest are all known");
                }
            }
        }
        // Where k is within the four, and at temperature 1 where all are drawn from.
        assert_eq!(n_exact, 3 * 3 * 4 + 4);
    }

    #[test]
    fn without_a_temperature_the_likeliest_is_certain() {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        assert_eq!(reshape(&logprobs(), sampling).shares, [1.0, 0.0, 0.0, 0.0]);
        assert!(reshape(&[], sampling).shares.is_empty());
    }

    #[test]
    fn shares_of_the_likeliest_alone_are_called_so() {
        let shaped = reshape(&logprobs(), Sampling { temperature: 0.5, ..Sampling::default() });
        assert!(!shaped.is_exact && (shaped.shares.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{shaped:?}");
        let plain = reshape(&logprobs(), Sampling::default());
        assert!(plain.is_exact && plain.shares.iter().sum::<f64>() < 0.95, "{plain:?}");
    }
}
