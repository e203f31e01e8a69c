//! From the times of tokens to numbers.
//!
//! Invariant: decode counts only what comes while all sequences decode; what comes before or after comes of fewer.

use super::percentiles::{Percentiles, rounded};
use super::plan::Load;
use super::report::Measured;

/// What a run gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Times {
    /// When each token came, in ms from the start: (sequences, tokens)
    pub(super) tokens: Vec<Vec<f64>>,
    pub(super) cached_tokens: u64,
}

/// Sums up the runs of a load.
pub(super) fn summarize(load: Load, runs: &[Times]) -> Measured {
    let (mut prefill_ms, mut decode_ms, mut total_ms) = (0.0, 0.0, 0.0);
    let (mut n_decoded, mut n_generated) = (0, 0);
    let (mut token_ms, mut first_token_ms) = (Vec::new(), Vec::new());
    for Times { tokens, .. } in runs {
        let all_have_first = tokens.iter().filter_map(|times| times.first().copied()).fold(0.0, f64::max);
        let lasts = || tokens.iter().filter_map(|times| times.last().copied());
        let one_ends = lasts().fold(f64::INFINITY, f64::min);
        prefill_ms += all_have_first;
        decode_ms += (one_ends - all_have_first).max(0.0);
        total_ms += lasts().fold(0.0, f64::max);
        for times in tokens {
            n_generated += times.len();
            first_token_ms.extend(times.first());
            // By its middle: tokens of one step come one after the other, and the step that ends the time counts with all.
            let all_decode =
                |pair: &&[f64]| (all_have_first..one_ends).contains(&f64::midpoint(pair[0], pair[1]));
            for pair in times.windows(2).filter(all_decode) {
                n_decoded += 1;
                token_ms.push(pair[1] - pair[0]);
            }
        }
    }
    let n_prompt = runs.len() * load.n_sequences as usize * load.prompt_tokens as usize;
    let rate = |n: usize, ms: f64| if ms > 0.0 { rounded(n as f64 * 1000.0 / ms) } else { 0.0 };
    Measured {
        sequences: load.n_sequences,
        prompt_tokens: load.prompt_tokens,
        max_tokens: load.max_tokens,
        runs: runs.len() as u32,
        kv_cache: load.kv_cache,
        prefill_tokens_per_sec: rate(n_prompt, prefill_ms),
        decode_tokens_per_sec: (n_decoded > 0).then(|| rate(n_decoded, decode_ms)),
        speedup: None,
        total_tokens_per_sec: rate(n_generated, total_ms),
        cached_tokens: runs.iter().map(|run| run.cached_tokens).sum(),
        token_ms: Percentiles::of(&token_ms),
        first_token_ms: Percentiles::of(&first_token_ms),
        position_ms: by_position(load, runs),
    }
}

/// The mean time of the second token of all sequences and runs, of the third, and so on.
fn by_position(load: Load, runs: &[Times]) -> Vec<f64> {
    let sequences = || runs.iter().flat_map(|run| &run.tokens);
    let mean = |i: usize| {
        let times: Vec<f64> =
            sequences().filter_map(|times| Some(times.get(i)? - times.get(i - 1)?)).collect();
        (!times.is_empty()).then(|| rounded(times.iter().sum::<f64>() / times.len() as f64))
    };
    (1..load.max_tokens as usize).map_while(mean).collect()
}

/// Compares each with one sequence of the same lengths and with the cache, if that was measured.
pub(super) fn compare(results: &mut [Measured]) {
    let lengths = |result: &Measured| (result.prompt_tokens, result.max_tokens);
    let ones: Vec<_> = results
        .iter()
        .filter(|result| result.sequences == 1 && result.kv_cache)
        .filter_map(|one| Some((lengths(one), one.decode_tokens_per_sec?)))
        .collect();
    for result in results {
        let one = ones.iter().find(|(of, _)| *of == lengths(result));
        result.speedup =
            one.and_then(|(_, one)| result.decode_tokens_per_sec.map(|rate| rounded(rate / one)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(n_sequences: u32, prompt_tokens: u32, max_tokens: u32) -> Load {
        Load { n_sequences, prompt_tokens, max_tokens, kv_cache: true, time_ops: false }
    }

    fn run_of(secs: &[&[u32]]) -> Times {
        let ms = |times: &&[u32]| times.iter().map(|secs| f64::from(*secs) * 1000.0).collect();
        Times { tokens: secs.iter().map(ms).collect(), cached_tokens: 0 }
    }

    #[test]
    fn decode_counts_what_comes_while_all_decode() {
        // The first sequence decodes once beside the second's prefill, which ends at 4 s; it ends at 6 s, and the second
        // has a slow token more when it is alone.
        let result = summarize(load(2, 10, 4), &[run_of(&[&[2, 4, 5, 6], &[4, 5, 6, 8]])]);
        assert_eq!(result.prefill_tokens_per_sec, 20.0 / 4.0);
        assert_eq!(result.decode_tokens_per_sec, Some(4.0 / 2.0));
        assert_eq!(result.total_tokens_per_sec, 8.0 / 8.0);
        assert_eq!(result.token_ms, Percentiles::of(&[1000.0; 4]));
        assert_eq!(result.first_token_ms, Percentiles::of(&[2000.0, 4000.0]));
        assert_eq!(result.position_ms, [1500.0, 1000.0, 1500.0]);
    }

    #[test]
    fn a_step_counts_with_all_its_tokens() {
        // Eight prompts end one a step, so that there is but one step in which all decode. Its tokens come a little apart.
        let times = |sequence: u32| {
            let apart = f64::from(sequence) / 1000.0;
            (sequence..sequence + 9).map(|step| f64::from(1 + step) * 600.0 + apart).collect()
        };
        let run = Times { tokens: (0..8).map(times).collect(), cached_tokens: 0 };
        let result = summarize(load(8, 1, 9), &[run]);
        let rate = result.decode_tokens_per_sec.unwrap();
        assert!((rate - 8.0 / 0.6).abs() < 0.01, "{rate}");
    }

    #[test]
    fn without_a_moment_in_which_all_decode_there_is_no_decode() {
        let one = summarize(load(1, 1, 1), &[run_of(&[&[1]])]);
        assert_eq!((one.decode_tokens_per_sec, one.token_ms), (None, None));
        let two = summarize(load(2, 1, 2), &[run_of(&[&[1, 2], &[3, 4]])]);
        assert_eq!((two.decode_tokens_per_sec, two.token_ms), (None, None));
    }

    #[test]
    fn all_are_compared_with_one_of_their_lengths_and_with_the_cache() {
        let of = |n_sequences, times: &[&[u32]]| summarize(load(n_sequences, 1, 3), &[run_of(times)]);
        let mut results = vec![of(2, &[&[1, 3, 5], &[1, 3, 5]]), of(1, &[&[1, 2, 3]]), of(1, &[&[1, 5, 9]])];
        compare(&mut results[..1]);
        assert_eq!(results[0].speedup, None, "one was not measured");
        results[2].kv_cache = false;
        compare(&mut results);
        let speedups: Vec<_> = results.iter().map(|result| result.speedup).collect();
        assert_eq!(speedups, [Some(1.0), Some(1.0), Some(0.25)]);
        results[1].max_tokens = 4;
        compare(&mut results);
        assert_eq!(results[0].speedup, None, "one of other lengths does not count");
    }
}
