//! Every sampling parameter by examples that can be checked by hand.

use super::*;

const INF: f32 = f32::INFINITY;
const N_DRAWS: u64 = 20_000;

fn greedy() -> SamplingParams {
    SamplingParams { temperature: 0.0, ..SamplingParams::default() }
}

/// Samples with each of many seeds and checks the frequencies: a probability of 0 never occurs, and the others pass a
/// chi-squared test at about one in 10⁴ (the seeds are fixed, so it passes always or never).
fn check_distribution(logits: &[f32], params: &SamplingParams, probabilities: &[f64]) {
    check_distribution_after(logits, &[], &[], params, probabilities);
}

fn check_distribution_after(
    logits: &[f32],
    prompt: &[u32],
    output: &[u32],
    params: &SamplingParams,
    probabilities: &[f64],
) {
    params.validate(logits.len()).unwrap();
    let mut sampler = Sampler::new(logits.len());
    let mut counts = vec![0_u64; logits.len()];
    for seed in 0..N_DRAWS {
        let params = SamplingParams { seed, ..params.clone() };
        counts[sampler.sample(logits, prompt, output, &params, None) as usize] += 1;
    }
    assert_fits(&counts, probabilities);
}

fn assert_fits(counts: &[u64], probabilities: &[f64]) {
    let n = counts.iter().sum::<u64>() as f64;
    let mut chi_squared = 0.0;
    for (&count, &probability) in counts.iter().zip(probabilities) {
        if probability == 0.0 {
            assert_eq!(count, 0, "{counts:?} for {probabilities:?}");
        } else {
            chi_squared += (count as f64 - n * probability).powi(2) / (n * probability);
        }
    }
    let freedom = probabilities.iter().filter(|&&p| p > 0.0).count().max(2) as f64 - 1.0;
    // Wilson and Hilferty's approximation of the quantile 3.7 standard deviations up.
    let limit = freedom * (1.0 - 2.0 / (9.0 * freedom) + 3.7 * (2.0 / (9.0 * freedom)).sqrt()).powi(3);
    assert!(chi_squared < limit, "{chi_squared} ≥ {limit}: {counts:?} for {probabilities:?}");
}

/// Logits whose probabilities are tenths.
fn tenths(tenths: &[f32]) -> Vec<f32> {
    tenths.iter().map(|p| p.ln()).collect()
}

fn check_greedy(logits: &[f32], prompt: &[u32], output: &[u32], params: SamplingParams, expected: u32) {
    let params = SamplingParams { temperature: 0.0, ..params };
    params.validate(logits.len()).unwrap();
    assert_eq!(
        Sampler::new(logits.len()).sample(logits, prompt, output, &params, None),
        expected,
        "{params:?}"
    );
}

#[test]
fn greedy_takes_the_largest_and_of_equal_ones_the_lowest_id() {
    check_greedy(&[0.0, 2.0, 1.0], &[], &[], greedy(), 1);
    check_greedy(&[-3.0, 2.0, 2.0, 2.0], &[], &[], greedy(), 1);
    check_greedy(&[-0.0, 0.0], &[], &[], greedy(), 0);
    // Its filters keep the likeliest, so they change nothing.
    check_greedy(&[0.0, 2.0], &[], &[], SamplingParams { top_k: 1, top_p: 0.1, min_p: 1.0, ..greedy() }, 1);
}

#[test]
fn temperature() {
    let logits = tenths(&[1.0, 2.0, 3.0, 4.0]);
    check_distribution(&logits, &SamplingParams::default(), &[0.1, 0.2, 0.3, 0.4]);
    // Half the temperature squares the probabilities: 1, 4, 9, 16 of 30.
    let half = SamplingParams { temperature: 0.5, ..SamplingParams::default() };
    check_distribution(&logits, &half, &[1.0, 4.0, 9.0, 16.0].map(|p| p / 30.0));
    let tiny = SamplingParams { temperature: f32::MIN_POSITIVE, ..SamplingParams::default() };
    check_distribution(&[5.0, 5.0, 4.999, -3e38], &tiny, &[0.5, 0.5, 0.0, 0.0]);
    let vast = SamplingParams { temperature: f32::MAX, ..SamplingParams::default() };
    check_distribution(&[50.0, -50.0], &vast, &[0.5, 0.5]);
}

#[test]
fn top_k() {
    let logits = tenths(&[1.0, 4.0, 3.0, 2.0]);
    for (top_k, expected) in [
        (1, [0.0, 1.0, 0.0, 0.0]),
        (2, [0.0, 4.0 / 7.0, 3.0 / 7.0, 0.0]),
        (3, [0.0, 4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0]),
        (4, [0.1, 0.4, 0.3, 0.2]),
        (99, [0.1, 0.4, 0.3, 0.2]),
        (0, [0.1, 0.4, 0.3, 0.2]),
        (-1, [0.1, 0.4, 0.3, 0.2]),
    ] {
        check_distribution(&logits, &SamplingParams { top_k, ..SamplingParams::default() }, &expected);
    }
    // Of equal ones the lowest ids.
    let two = SamplingParams { top_k: 2, ..SamplingParams::default() };
    check_distribution(&[1.0, 0.0, 1.0, 1.0], &two, &[0.5, 0.0, 0.5, 0.0]);
}

#[test]
fn top_p() {
    let logits = tenths(&[1.0, 4.0, 3.0, 2.0]);
    for (top_p, expected) in [
        // At least one, however small p is.
        (1e-9, [0.0, 1.0, 0.0, 0.0]),
        (0.39, [0.0, 1.0, 0.0, 0.0]),
        (0.41, [0.0, 4.0 / 7.0, 3.0 / 7.0, 0.0]),
        (0.69, [0.0, 4.0 / 7.0, 3.0 / 7.0, 0.0]),
        (0.71, [0.0, 4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0]),
        (0.91, [0.1, 0.4, 0.3, 0.2]),
        (1.0, [0.1, 0.4, 0.3, 0.2]),
    ] {
        check_distribution(&logits, &SamplingParams { top_p, ..SamplingParams::default() }, &expected);
    }
    // Just p is enough, and of equal ones the lowest ids stay.
    let half = SamplingParams { top_p: 0.5, ..SamplingParams::default() };
    check_distribution(&[1.0; 4], &half, &[0.5, 0.5, 0.0, 0.0]);
}

#[test]
fn top_p_beyond_the_part_sorted_first() {
    // 1000 equal tokens: 0.7 of them stay, the lowest ids, through several rounds of sorting.
    let params = SamplingParams { top_p: 0.6995, ..SamplingParams::default() };
    let mut expected = vec![1.0 / 700.0; 700];
    expected.resize(1000, 0.0);
    check_distribution(&[2.5; 1000], &params, &expected);
}

#[test]
fn min_p() {
    let logits = tenths(&[1.0, 4.0, 3.0, 2.0]);
    for (min_p, expected) in [
        (0.0, [0.1, 0.4, 0.3, 0.2]),
        (0.24, [0.1, 0.4, 0.3, 0.2]),
        (0.26, [0.0, 4.0 / 9.0, 3.0 / 9.0, 2.0 / 9.0]),
        (0.7, [0.0, 4.0 / 7.0, 3.0 / 7.0, 0.0]),
        (1.0, [0.0, 1.0, 0.0, 0.0]),
    ] {
        check_distribution(&logits, &SamplingParams { min_p, ..SamplingParams::default() }, &expected);
    }
}

#[test]
fn repetition_penalty() {
    let params = |repetition_penalty| SamplingParams { repetition_penalty, ..greedy() };
    // Tokens of prompt and output, once however often they occur: positive logits are divided, negative multiplied.
    check_greedy(&[4.0, 3.9, 1.9], &[0], &[1, 1, 1], params(2.0), 0); // 2, 1.95, 1.9
    check_greedy(&[4.0, 3.9, 1.96], &[0, 0, 0], &[0, 1], params(2.0), 0); // 2, 1.95, 1.96
    check_greedy(&[4.0, 3.9, 2.1], &[0], &[1], params(2.0), 2);
    check_greedy(&[-1.0, -1.9, -3.0], &[0], &[], params(2.0), 1); // −2, −1.9, −3
    check_greedy(&[-1.0, -1.9], &[1], &[], params(0.5), 1); // −1, −0.95
    check_greedy(&[1.0, 3.0], &[0], &[], params(1e-38), 0); // overflows to the largest, not to NaN
}

#[test]
fn presence_and_frequency_penalties() {
    let presence = |presence_penalty| SamplingParams { presence_penalty, ..greedy() };
    let frequency = |frequency_penalty| SamplingParams { frequency_penalty, ..greedy() };
    // Output only.
    check_greedy(&[2.0, 1.5], &[0, 0], &[], presence(1.0), 0);
    check_greedy(&[2.0, 1.5], &[0, 0], &[], frequency(1.0), 0);
    // Once, and for each occurrence.
    check_greedy(&[2.0, 1.5], &[], &[0], presence(1.0), 1);
    check_greedy(&[2.0, 0.5], &[], &[0, 0, 0], presence(1.0), 0);
    check_greedy(&[2.0, 1.5, 0.5], &[], &[0, 1, 0], frequency(0.5), 0); // 1, 1, 0.5
    check_greedy(&[2.0, 1.5, 0.6], &[], &[0, 1, 0, 0, 1], frequency(0.5), 2); // 0.5, 0.5, 0.6
    // Negative ones encourage; both add up: 2 + 3 · 0.25 + 0.5 = 3.25.
    let both = SamplingParams { presence_penalty: -0.5, frequency_penalty: -0.25, ..greedy() };
    check_greedy(&[2.0, 3.24], &[], &[0, 0, 0], both.clone(), 0);
    check_greedy(&[2.0, 3.26], &[], &[0, 0, 0], both, 1);
}

#[test]
fn logit_bias() {
    let bias = |logit_bias| SamplingParams { logit_bias, ..greedy() };
    check_greedy(&[0.0, 1.0, 2.0], &[], &[], bias(vec![(0, 2.5)]), 0);
    check_greedy(&[0.0, 1.0, 2.0], &[], &[], bias(vec![(2, -100.0), (0, 0.5)]), 1);
    let even = SamplingParams { logit_bias: vec![(0, 2.0_f32.ln())], ..SamplingParams::default() };
    check_distribution(&tenths(&[2.0, 4.0]), &even, &[0.5, 0.5]);
}

#[test]
fn bad_words() {
    let bad = |words: &[&[u32]]| SamplingParams {
        bad_words: words.iter().map(|w| w.to_vec()).collect(),
        ..greedy()
    };
    let logits = [0.0, 1.0, 2.0, 3.0];
    // A single token is held back always.
    check_greedy(&logits, &[], &[], bad(&[&[3]]), 2);
    check_greedy(&logits, &[3], &[0, 1], bad(&[&[3], &[2]]), 1);
    // The last of several where the output (not the prompt) ends with the others.
    check_greedy(&logits, &[], &[1, 2], bad(&[&[1, 2, 3]]), 2);
    check_greedy(&logits, &[], &[1, 2, 0], bad(&[&[1, 2, 3]]), 3);
    check_greedy(&logits, &[], &[2], bad(&[&[1, 2, 3]]), 3);
    check_greedy(&logits, &[1, 2], &[], bad(&[&[1, 2, 3]]), 3);
    check_greedy(&logits, &[1], &[2], bad(&[&[1, 2, 3]]), 3);
    check_greedy(&logits, &[], &[3, 3], bad(&[&[3, 3, 3]]), 2);
}

#[test]
fn min_tokens_holds_back_what_would_stop() {
    let params = SamplingParams { min_tokens: 2, eog_ids: vec![3], stop_token_ids: vec![2], ..greedy() };
    let logits = [0.0, 1.0, 2.0, 3.0];
    check_greedy(&logits, &[3, 3], &[], params.clone(), 1);
    check_greedy(&logits, &[], &[0], params.clone(), 1);
    check_greedy(&logits, &[], &[0, 0], params, 3);
}

#[test]
fn order_held_back_then_bias_then_penalties() {
    // No bias brings back what is held back.
    let params =
        SamplingParams { bad_words: vec![vec![0]], logit_bias: vec![(0, 100.0)], min_tokens: 1, ..greedy() };
    check_greedy(&[5.0, 0.0], &[], &[], params, 1);
    let params = SamplingParams { eog_ids: vec![0], logit_bias: vec![(0, 100.0)], min_tokens: 1, ..greedy() };
    check_greedy(&[5.0, 0.0], &[], &[], params, 1);
    // Bias before repetition: (−1 + 3.5) / 2 = 1.25, and not −1 · 2 + 3.5 = 1.5.
    let params = SamplingParams { logit_bias: vec![(0, 3.5)], repetition_penalty: 2.0, ..greedy() };
    check_greedy(&[-1.0, 1.4], &[0], &[], params, 1);
    // Repetition before presence: 4 / 2 − 1 = 1, and not (4 − 1) / 2 = 1.5.
    let params = SamplingParams { repetition_penalty: 2.0, presence_penalty: 1.0, ..greedy() };
    check_greedy(&[4.0, 1.2], &[], &[0], params, 1);
    // Repetition before frequency: 4 / 2 − 2 · 0.5 = 1, and not (4 − 1) / 2 = 1.5.
    let params = SamplingParams { repetition_penalty: 2.0, frequency_penalty: 0.5, ..greedy() };
    check_greedy(&[4.0, 1.2], &[], &[0, 0], params, 1);
}

#[test]
fn order_penalties_then_temperature_then_filters() {
    // Penalty before temperature: (2 − 1) / 0.5 against 1 / 0.5 is even; 2 / 0.5 − 1 would not be.
    let params = SamplingParams { presence_penalty: 1.0, temperature: 0.5, ..SamplingParams::default() };
    check_distribution_after(&[2.0, 1.0], &[], &[0], &params, &[0.5, 0.5]);
    // Temperature before min_p: 4 : 3 : 2 : 1 become 16 : 9 : 4 : 1 of 30, and 0.5 · 16 drops 4 and 1.
    let logits = tenths(&[4.0, 3.0, 2.0, 1.0]);
    let params = SamplingParams { temperature: 0.5, min_p: 0.5, ..SamplingParams::default() };
    check_distribution(&logits, &params, &[16.0 / 25.0, 9.0 / 25.0, 0.0, 0.0]);
    // Temperature before top_p: the first two hold 25/30, not 7/10.
    let params = SamplingParams { temperature: 0.5, top_p: 0.8, ..SamplingParams::default() };
    check_distribution(&logits, &params, &[16.0 / 25.0, 9.0 / 25.0, 0.0, 0.0]);
    // top_k before top_p: of 4 : 3 : 2 the first two hold 7/9 ≥ 0.75, of all only 7/10.
    let params = SamplingParams { top_k: 3, top_p: 0.75, ..SamplingParams::default() };
    check_distribution(&logits, &params, &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
    // min_p before top_p: the same, with 0.4 · 4 dropping 1.
    let params = SamplingParams { min_p: 0.4, top_p: 0.75, ..SamplingParams::default() };
    check_distribution(&logits, &params, &[4.0 / 7.0, 3.0 / 7.0, 0.0, 0.0]);
}

#[test]
fn a_large_vocabulary() {
    // Three likely tokens among 2^18 of next to no weight, through each way of dropping the rest.
    let mut logits = vec![-40.0; 262_144];
    for (token, weight) in [(7, 1.0_f32), (100_000, 2.0), (262_143, 1.0)] {
        logits[token] = weight.ln();
    }
    let all = SamplingParams::default();
    for params in [
        all.clone(),
        SamplingParams { top_k: 3, ..all.clone() },
        SamplingParams { top_p: 0.9999, ..all.clone() },
        SamplingParams { min_p: 0.1, ..all },
    ] {
        let mut sampler = Sampler::new(logits.len());
        let mut counts = [0; 3];
        for seed in 0..100 {
            let token =
                sampler.sample(&logits, &[1; 50], &[2; 50], &SamplingParams { seed, ..params.clone() }, None);
            counts[[7, 100_000, 262_143].iter().position(|&likely| likely == token).unwrap()] += 1;
        }
        assert_fits(&counts, &[0.25, 0.5, 0.25]);
    }
}

#[test]
fn a_seed_repeats_whatever_was_sampled_before() {
    let logits: Vec<f32> = (0..500).map(|i| (i as f32 * 0.37).sin() * 3.0).collect();
    let params =
        |seed| SamplingParams { seed, top_p: 0.95, repetition_penalty: 1.1, ..SamplingParams::default() };
    let run = |sampler: &mut Sampler, seed| {
        let mut output = Vec::new();
        for _ in 0..40 {
            output.push(sampler.sample(&logits, &[1, 2], &output, &params(seed), None));
        }
        output
    };
    let mut used = Sampler::new(500);
    let (first, other) = (run(&mut used, 7), run(&mut used, 8));
    assert_eq!(first, run(&mut used, 7));
    assert_eq!(first, run(&mut Sampler::new(500), 7));
    assert_ne!(first, other);
}

#[test]
fn draws_at_all_places_of_one_seed_follow_the_distribution() {
    // One seed, 20 000 places: as often as its probability says, and independent of the place before (16 cells).
    let logits = tenths(&[1.0, 2.0, 3.0, 4.0]);
    for seed in [0, 1, u64::MAX] {
        let params = SamplingParams { seed, ..SamplingParams::default() };
        let mut chooser = Chooser::default();
        let drawn: Vec<u32> =
            (0..N_DRAWS as usize).map(|place| chooser.choose(&logits, &params.sampling(place))).collect();
        let (mut counts, mut pairs) = ([0; 4], [0; 16]);
        drawn.iter().for_each(|&token| counts[token as usize] += 1);
        drawn.chunks_exact(2).for_each(|pair| pairs[(pair[0] * 4 + pair[1]) as usize] += 1);
        assert_fits(&counts, &[0.1, 0.2, 0.3, 0.4]);
        let cells: Vec<f64> = (0..16).map(|i| f64::from((i / 4 + 1) * (i % 4 + 1)) / 100.0).collect();
        assert_fits(&pairs, &cells);
    }
}

#[test]
fn of_many_equals_each_comes_as_often_as_the_others() {
    // 2^17 equal logits in 16 ranges: coarser draws would tie, and prefer low ids.
    let logits = vec![0.5; 1 << 17];
    let mut chooser = Chooser::default();
    let mut counts = [0; 16];
    for seed in 0..400 {
        let params = SamplingParams { seed, ..SamplingParams::default() };
        counts[chooser.choose(&logits, &params.sampling(3)) as usize >> 13] += 1;
    }
    assert_fits(&counts, &[1.0 / 16.0; 16]);
}

#[test]
fn logits_that_are_no_numbers() {
    const NAN: f32 = f32::NAN;
    let any = SamplingParams::default();
    check_greedy(&[NAN, 1.0, NAN, 2.0], &[], &[], greedy(), 3);
    check_distribution(&[NAN, 1.0, -INF, 1.0], &any, &[0.0, 0.5, 0.0, 0.5]);
    check_distribution(&[INF, 1.0, INF, NAN], &any, &[0.5, 0.0, 0.5, 0.0]);
    let filters = SamplingParams { top_k: 3, top_p: 0.9, min_p: 0.2, ..any.clone() };
    check_distribution(&[NAN, 1.0, -INF, 1.0], &filters, &[0.0, 0.5, 0.0, 0.5]);
    // Nothing has a probability: the lowest id that is not held back, or 0.
    for params in [greedy(), any] {
        let held_back =
            SamplingParams { bad_words: vec![vec![0]], eog_ids: vec![1], min_tokens: 1, ..params.clone() };
        let all_held_back =
            SamplingParams { bad_words: (0..3).map(|token| vec![token]).collect(), ..params.clone() };
        let mut sampler = Sampler::new(3);
        for logits in [[NAN; 3], [-INF; 3], [NAN, -INF, NAN]] {
            assert_eq!(sampler.sample(&logits, &[0], &[], &params, None), 0);
            assert_eq!(sampler.sample(&logits, &[0], &[], &held_back, None), 2);
        }
        assert_eq!(sampler.sample(&[1.0; 3], &[0], &[], &all_held_back, None), 0);
    }
}
