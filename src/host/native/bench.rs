//! `pagelm bench`: how fast a model runs with so many sequences at once. Rates count all sequences together.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::model::{Opened, Running};
use super::output::{self, DeviceJson, rounded_ms};
use crate::protocol::{Event, GenerateOptions, Prompt};

const PROMPT_TOKENS: u32 = 64;
const MAX_TOKENS: u32 = 32;
const SEQUENCES: [usize; 4] = [1, 2, 4, 8];
const RUNS: u32 = 3;

/// Tokens that a warm-up generates for each sequence.
const WARM_UP_TOKENS: u32 = 3;

#[derive(Serialize)]
struct BenchJson {
    device: DeviceJson,
    results: Vec<ResultJson>,
}

#[derive(Serialize)]
struct ResultJson {
    sequences: usize,
    prefill_tokens_per_sec: f64,
    /// Nothing where no token comes after every sequence has its first.
    decode_tokens_per_sec: Option<f64>,
    total_tokens_per_sec: f64,
    token_ms: Option<Percentiles>,
    first_token_ms: Option<Percentiles>,
}

#[derive(Debug, PartialEq, Serialize)]
struct Percentiles {
    mean: f64,
    p50: f64,
    p95: f64,
    p99: f64,
}

impl Percentiles {
    /// By nearest rank: the smallest value that so many percent of all are not above. Nothing of nothing.
    fn of(values_ms: &[f64]) -> Option<Self> {
        let mut sorted = values_ms.to_vec();
        sorted.sort_by(f64::total_cmp);
        let rank = |percent: usize| sorted.get((percent * sorted.len()).div_ceil(100).max(1) - 1).copied();
        let mean = sorted.iter().sum::<f64>() / sorted.len() as f64;
        Some(Self {
            mean: rounded_ms(mean),
            p50: rounded_ms(rank(50)?),
            p95: rounded_ms(rank(95)?),
            p99: rounded_ms(rank(99)?),
        })
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    n_sequences: usize,
    prompt_tokens: u32,
    max_tokens: u32,
}

/// When each token of a run came, from its start: (sequences, tokens)
type Times = Vec<Vec<Duration>>;

/// Runs the command.
pub(super) async fn bench(arguments: &Arguments) -> Result<(), CliError> {
    let prompt_tokens = arguments.prompt_tokens.unwrap_or(PROMPT_TOKENS);
    let max_tokens = arguments.max_tokens.unwrap_or(MAX_TOKENS);
    let counts =
        if arguments.sequences.is_empty() { SEQUENCES.to_vec() } else { arguments.sequences.clone() };
    let opened = Opened::open(arguments).await?;
    opened.check_sampling(&GenerateOptions { max_tokens: Some(max_tokens), ..GenerateOptions::default() })?;
    let (opened, needed_tokens) = with_room(opened, arguments, prompt_tokens, max_tokens, &counts)?;
    let vocab_size = opened.described.config().vocab_size as u64;
    let mut running = opened.load(arguments).await?;
    if u64::from(running.info.kv_tokens) < needed_tokens {
        let found = running.info.kv_tokens;
        return Err(CliError::Input(format!(
            "the GPU's KV cache holds {found} tokens, but the sequences need {needed_tokens}; take fewer --sequences, or shorter ones"
        )));
    }

    let mut results = Vec::new();
    for n_sequences in counts {
        let load = Load { n_sequences, prompt_tokens, max_tokens };
        output::progress(&format!("{n_sequences} at once: warming up"));
        let warm_up = Load { max_tokens: max_tokens.min(WARM_UP_TOKENS), ..load };
        run(&mut running, warm_up, vocab_size).await?;
        let n_runs = arguments.runs.unwrap_or(RUNS);
        let mut runs = Vec::new();
        for i in 0..n_runs {
            output::progress(&format!("{n_sequences} at once: run {} of {n_runs}", i + 1));
            runs.push(run(&mut running, load, vocab_size).await?);
        }
        results.push(summarize(load, &runs));
    }
    output::progress("");
    let device = DeviceJson::of(&running.info);
    if arguments.json {
        output::put_json(&BenchJson { device, results })
    } else {
        output::put(&table(&results))
    }
}

/// Makes room for all sequences at once; gives the tokens of it.
fn with_room(
    opened: Opened,
    arguments: &Arguments,
    prompt_tokens: u32,
    max_tokens: u32,
    counts: &[usize],
) -> Result<(Opened, u64), CliError> {
    let context = u64::from(prompt_tokens) + u64::from(max_tokens);
    let most = arguments.load.context.map_or(opened.described.config().context, |context| context as usize);
    if context > most as u64 {
        return Err(CliError::Input(format!(
            "--prompt-tokens {prompt_tokens} and --max-tokens {max_tokens} make {context} tokens, but the context holds {most}; take fewer"
        )));
    }
    let most = opened.described.max_sequences();
    let n_sequences = counts.iter().copied().max().unwrap_or(1);
    if n_sequences > most {
        return Err(CliError::Input(format!(
            "--sequences {n_sequences} was asked for, but {most} of this model run at once; take fewer"
        )));
    }
    Ok((opened.with_room(context as usize, n_sequences)?, context * n_sequences as u64))
}

/// Answers all prompts at once, each of tokens of its own.
async fn run(running: &mut Running, load: Load, vocab_size: u64) -> Result<Times, CliError> {
    let sampling = GenerateOptions {
        temperature: 0.0,
        max_tokens: Some(load.max_tokens),
        ignore_eos: true,
        ..GenerateOptions::default()
    };
    let start = Instant::now();
    for sequence in 0..load.n_sequences as u64 {
        // Scattered over the vocabulary, and the same every time.
        let token = |i: u64| ((i + 1) * 7919 + sequence * 104_729) % vocab_size;
        let ids = (0..u64::from(load.prompt_tokens)).map(|i| token(i) as u32).collect();
        running.ask(sequence, &Prompt::Tokens(ids), &sampling);
    }
    let mut times = vec![Vec::new(); load.n_sequences];
    running
        .run(|event, now| match event {
            Event::Tokens { request, ids, .. } => {
                times[request as usize].extend(ids.iter().map(|_| now - start));
                Ok(())
            }
            Event::Failed { error, .. } => Err(CliError::Failure(error)),
            _ => Ok(()),
        })
        .await?;
    Ok(times)
}

fn summarize(load: Load, runs: &[Times]) -> ResultJson {
    let (mut prefill_secs, mut decode_secs, mut total_secs) = (0.0, 0.0, 0.0);
    let (mut n_decoded, mut n_generated) = (0, 0);
    let (mut token_ms, mut first_token_ms) = (Vec::new(), Vec::new());
    for times in runs {
        let all_have_first =
            times.iter().filter_map(|times| times.first()).max().copied().unwrap_or_default();
        let end = times.iter().filter_map(|times| times.last()).max().copied().unwrap_or_default();
        prefill_secs += all_have_first.as_secs_f64();
        decode_secs += (end - all_have_first).as_secs_f64();
        total_secs += end.as_secs_f64();
        for times in times {
            n_generated += times.len();
            first_token_ms.extend(times.first().map(|first| first.as_secs_f64() * 1000.0));
            for pair in times.windows(2).filter(|pair| pair[1] > all_have_first) {
                n_decoded += 1;
                token_ms.push((pair[1] - pair[0]).as_secs_f64() * 1000.0);
            }
        }
    }
    let n_prompt = runs.len() * load.n_sequences * load.prompt_tokens as usize;
    let rate = |n: usize, secs: f64| (n as f64 / secs * 1000.0).round() / 1000.0;
    ResultJson {
        sequences: load.n_sequences,
        prefill_tokens_per_sec: rate(n_prompt, prefill_secs),
        decode_tokens_per_sec: (n_decoded > 0).then(|| rate(n_decoded, decode_secs)),
        total_tokens_per_sec: rate(n_generated, total_secs),
        token_ms: Percentiles::of(&token_ms),
        first_token_ms: Percentiles::of(&first_token_ms),
    }
}

fn table(results: &[ResultJson]) -> String {
    let mut text = format!(
        "{:>9}  {:>9}  {:>9}  {:>9}  {:>31}  {:>31}\n{:>9}  {:>9}  {:>9}  {:>9}  {:>7} {:>7} {:>7} {:>7}  {:>7} {:>7} {:>7} {:>7}\n",
        "",
        "prefill",
        "decode",
        "total",
        "ms between tokens",
        "ms to the first token",
        "sequences",
        "tokens/s",
        "tokens/s",
        "tokens/s",
        "mean",
        "p50",
        "p95",
        "p99",
        "mean",
        "p50",
        "p95",
        "p99",
    );
    for result in results {
        let times = |percentiles: &Option<Percentiles>| match percentiles {
            Some(Percentiles { mean, p50, p95, p99 }) => {
                format!("{mean:>7.1} {p50:>7.1} {p95:>7.1} {p99:>7.1}")
            }
            None => format!("{:>31}", "-"),
        };
        let decode = result.decode_tokens_per_sec.map_or("-".into(), |rate| format!("{rate:.2}"));
        text.push_str(&format!(
            "{:>9}  {:>9.2}  {decode:>9}  {:>9.2}  {}  {}\n",
            result.sequences,
            result.prefill_tokens_per_sec,
            result.total_tokens_per_sec,
            times(&result.token_ms),
            times(&result.first_token_ms)
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_by_nearest_rank() {
        let hundred: Vec<f64> = (1..=100).rev().map(f64::from).collect();
        assert_eq!(
            Percentiles::of(&hundred),
            Some(Percentiles { mean: 50.5, p50: 50.0, p95: 95.0, p99: 99.0 })
        );
        assert_eq!(Percentiles::of(&[7.0]), Some(Percentiles { mean: 7.0, p50: 7.0, p95: 7.0, p99: 7.0 }));
        assert_eq!(
            Percentiles::of(&[4.0, 1.0, 3.0]),
            Some(Percentiles { mean: 2.667, p50: 3.0, p95: 4.0, p99: 4.0 })
        );
        assert_eq!(Percentiles::of(&[]), None);
    }

    #[test]
    fn decode_counts_what_comes_after_every_first_token() {
        let secs = |times: &[u64]| times.iter().map(|secs| Duration::from_secs(*secs)).collect::<Vec<_>>();
        // The first sequence decodes once beside the second's prefill, which ends at 4 s.
        let times = vec![secs(&[2, 4, 5, 6]), secs(&[4, 5, 6, 8])];
        let result = summarize(Load { n_sequences: 2, prompt_tokens: 10, max_tokens: 4 }, &[times]);
        assert_eq!(result.prefill_tokens_per_sec, 20.0 / 4.0);
        assert_eq!(result.decode_tokens_per_sec, Some(5.0 / 4.0));
        assert_eq!(result.total_tokens_per_sec, 8.0 / 8.0);
        assert_eq!(
            result.token_ms,
            Some(Percentiles { mean: 1200.0, p50: 1000.0, p95: 2000.0, p99: 2000.0 })
        );
        assert_eq!(
            result.first_token_ms,
            Some(Percentiles { mean: 3000.0, p50: 2000.0, p95: 4000.0, p99: 4000.0 })
        );
    }

    #[test]
    fn one_token_each_has_no_decode() {
        let times = vec![vec![Duration::from_secs(1)]];
        let result = summarize(Load { n_sequences: 1, prompt_tokens: 1, max_tokens: 1 }, &[times]);
        assert_eq!((result.decode_tokens_per_sec, result.token_ms), (None, None));
    }
}
