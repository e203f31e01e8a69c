//! Log-probabilities: the log-softmax of raw logits, before any sampling parameter changes them.
//!
//! Invariant: sums are f64, a tie goes to the lower token id, and no logit makes it panic: NaN counts as −∞ and +∞ as
//! the largest f32.

/// A token and the natural logarithm of its probability.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Logprob {
    /// Token id.
    pub token: u32,
    /// ≤ 0; −∞ where its logit is −∞ or NaN, or every logit is.
    pub logprob: f32,
}

/// A token's log-probability among the likeliest.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenLogprobs {
    /// The token that was chosen or given.
    pub chosen: Logprob,
    /// As many of the likeliest tokens as were asked for, likeliest first; the chosen one may be among them.
    pub top: Vec<Logprob>,
}

/// A logit that compares and adds like a number; there is one zero.
pub fn tame(logit: f32) -> f32 {
    if logit.is_nan() { f32::NEG_INFINITY } else { logit.min(f32::MAX) + 0.0 }
}

/// Log-probability of a token and of the `n_top` likeliest, given the logits of a row: (vocabulary)
pub fn log_softmax_at(logits: &[f32], token: u32, n_top: usize) -> TokenLogprobs {
    let max = f64::from(logits.iter().map(|&logit| tame(logit)).fold(f32::NEG_INFINITY, f32::max));
    let sum: f64 = logits.iter().map(|&logit| (f64::from(tame(logit)) - max).exp()).sum();
    let logprob_of = |token: u32| {
        let logit = tame(logits[token as usize]);
        // Where every logit is −∞ the sum is NaN.
        let logprob =
            if logit == f32::NEG_INFINITY { logit } else { (f64::from(logit) - max - sum.ln()) as f32 };
        Logprob { token, logprob }
    };
    let top = likeliest(logits, n_top).into_iter().map(logprob_of).collect();
    TokenLogprobs { chosen: logprob_of(token), top }
}

/// Ids of the `n` largest logits, largest first. One pass: `n` is small, and few logits enter the list.
fn likeliest(logits: &[f32], n: usize) -> Vec<u32> {
    let n = n.min(logits.len());
    let mut top: Vec<(f32, u32)> = Vec::with_capacity(n + 1);
    for (token, &logit) in (0..).zip(logits) {
        let logit = tame(logit);
        if top.len() < n || top.last().is_some_and(|&(least, _)| logit > least) {
            let place = top.partition_point(|&(other, _)| other >= logit);
            top.insert(place, (logit, token));
            top.truncate(n);
        }
    }
    top.into_iter().map(|(_, token)| token).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(logits: &[f32], token: u32, n_top: usize, expected: (f32, &[(u32, f32)])) {
        let found = log_softmax_at(logits, token, n_top);
        let is_close = |a: f32, b: f32| a == b || (a - b).abs() < 1e-6;
        assert_eq!(found.chosen.token, token);
        assert!(is_close(found.chosen.logprob, expected.0), "{found:?}");
        assert_eq!(found.top.len(), expected.1.len(), "{found:?}");
        for (found, &(token, logprob)) in found.top.iter().zip(expected.1) {
            assert!(
                found.token == token && is_close(found.logprob, logprob),
                "{found:?} is not {token}: {logprob}"
            );
        }
    }

    #[test]
    fn log_softmax() {
        const INF: f32 = f32::INFINITY;
        let quarters = [1_f32, 2.0, 4.0, 1.0].map(f32::ln);
        let ln = |p: f32| p.ln();
        check(&quarters, 0, 0, (ln(0.125), &[]));
        check(&quarters, 3, 2, (ln(0.125), &[(2, ln(0.5)), (1, ln(0.25))]));
        // Ties: the lower id first. More than there are: all.
        check(&quarters, 2, 9, (ln(0.5), &[(2, ln(0.5)), (1, ln(0.25)), (0, ln(0.125)), (3, ln(0.125))]));
        // A shift changes nothing, however far.
        check(&[3e38, 3e38], 1, 1, (ln(0.5), &[(0, ln(0.5))]));
        check(&[f32::NAN, 0.0, -INF, 0.0], 1, 3, (ln(0.5), &[(1, ln(0.5)), (3, ln(0.5)), (0, -INF)]));
        check(&[f32::NAN, 0.0], 0, 0, (-INF, &[]));
        check(&[INF, 0.0], 0, 2, (0.0, &[(0, 0.0), (1, -f32::MAX)]));
        check(&[f32::NAN, -INF], 1, 1, (-INF, &[(0, -INF)]));
    }

    #[test]
    fn many_small_probabilities_add_up() {
        // 2^18 equal logits: an f32 sum would already be off in the sixth digit once they are not powers of two.
        let logits = vec![-7.3; 262_144];
        check(&logits, 5, 1, (-(262_144_f32).ln(), &[(0, -(262_144_f32).ln())]));
    }
}
