//! `pagelm bench`: how fast a model runs with so many sequences at once. Rates count all sequences together.
//!
//! Invariant: no prompt begins like one before it, so that nothing measured was found in the cache.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::model::{Opened, Running};
use super::output::{self, DeviceJson};
use super::percentiles::{self, Percentiles};
use super::turns;
use crate::plan::batch::BLOCK_TOKENS;
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

#[derive(Debug, Serialize)]
struct ResultJson {
    sequences: usize,
    prefill_tokens_per_sec: f64,
    /// Nothing where no token comes while all decode.
    decode_tokens_per_sec: Option<f64>,
    /// Decode over that of one sequence, where that was measured.
    speedup: Option<f64>,
    total_tokens_per_sec: f64,
    /// Prompt tokens that were not computed after all.
    cached_tokens: u64,
    token_ms: Option<Percentiles>,
    first_token_ms: Option<Percentiles>,
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Load {
    n_sequences: usize,
    prompt_tokens: u32,
    max_tokens: u32,
}

/// What a run gave.
#[derive(Debug, Default)]
struct Run {
    /// When each token came, from the start: (sequences, tokens)
    times: Vec<Vec<Duration>>,
    cached_tokens: u64,
}

/// Runs the command.
pub(super) async fn bench(arguments: &Arguments) -> Result<(), CliError> {
    let max_tokens = arguments.max_tokens.unwrap_or(MAX_TOKENS);
    let n_runs = arguments.runs.unwrap_or(RUNS);
    let opened = Opened::open(arguments).await?;
    opened.check_sampling(&sampling(max_tokens))?;
    if let Some(n_turns) = arguments.turns {
        return turns::bench(opened, arguments, n_turns, max_tokens, n_runs).await;
    }
    let prompt_tokens = arguments.prompt_tokens.unwrap_or(PROMPT_TOKENS);
    let counts =
        if arguments.sequences.is_empty() { SEQUENCES.to_vec() } else { arguments.sequences.clone() };
    let opened = with_room(opened, arguments, prompt_tokens, max_tokens, &counts)?;
    let n_most = counts.iter().copied().max().unwrap_or(1);
    let mut prompts = MadeUp::new(opened.described.config().vocab_size);
    let mut running = opened.load(arguments).await?;
    // A block is kept free for each that runs when another is let in.
    let needed =
        n_most * (running.info.context as usize).next_multiple_of(BLOCK_TOKENS) + (n_most - 1) * BLOCK_TOKENS;
    check_room(&running, needed as u64)?;

    let mut results = Vec::new();
    for n_sequences in counts {
        let load = Load { n_sequences, prompt_tokens, max_tokens };
        output::progress(&format!("{n_sequences} at once: warming up"));
        let warm_up = Load { max_tokens: max_tokens.min(WARM_UP_TOKENS), ..load };
        run(&mut running, warm_up, &mut prompts).await?;
        let mut runs = Vec::new();
        for i in 0..n_runs {
            output::progress(&format!("{n_sequences} at once: run {} of {n_runs}", i + 1));
            runs.push(run(&mut running, load, &mut prompts).await?);
        }
        results.push(summarize(load, &runs));
    }
    output::progress("");
    compare(&mut results);
    let device = DeviceJson::of(&running.info);
    if arguments.json {
        output::put_json(&BenchJson { device, results })
    } else {
        output::put(&table(&results))
    }
}

/// Greedy, and so many tokens, whatever they are.
pub(super) fn sampling(max_tokens: u32) -> GenerateOptions {
    GenerateOptions {
        temperature: 0.0,
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..GenerateOptions::default()
    }
}

/// Refuses to measure where sequences would have to wait for each other.
pub(super) fn check_room(running: &Running, needed_tokens: u64) -> Result<(), CliError> {
    let found = running.info.kv_tokens;
    if u64::from(found) >= needed_tokens {
        return Ok(());
    }
    Err(CliError::Input(format!(
        "the GPU's KV cache holds {found} tokens, but {needed_tokens} are needed; take fewer --sequences, or shorter ones"
    )))
}

/// Tokens that nobody wrote, scattered over the vocabulary: the same in every session, and never the same again in one.
pub(super) struct MadeUp {
    n_made: u64,
    vocab_size: u64,
}

impl MadeUp {
    /// Of such a vocabulary.
    pub(super) fn new(vocab_size: usize) -> Self {
        Self { n_made: 0, vocab_size: vocab_size as u64 }
    }

    /// So many more (SplitMix64, Steele et al. 2014).
    pub(super) fn tokens(&mut self, n: u32) -> Vec<u32> {
        let mut next = || {
            self.n_made += 1;
            let mut z = self.n_made.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % self.vocab_size) as u32
        };
        (0..n).map(|_| next()).collect()
    }
}

/// Makes room for all sequences at once.
fn with_room(
    opened: Opened,
    arguments: &Arguments,
    prompt_tokens: u32,
    max_tokens: u32,
    counts: &[usize],
) -> Result<Opened, CliError> {
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
    opened.with_room(context as usize, n_sequences)
}

/// Answers all prompts at once, each of tokens of its own.
async fn run(running: &mut Running, load: Load, prompts: &mut MadeUp) -> Result<Run, CliError> {
    let sampling = sampling(load.max_tokens);
    let prompts: Vec<Prompt> =
        (0..load.n_sequences).map(|_| Prompt::Tokens(prompts.tokens(load.prompt_tokens))).collect();
    let start = Instant::now();
    for (sequence, prompt) in prompts.iter().enumerate() {
        running.ask(sequence as u64, prompt, &sampling);
    }
    let mut run = Run { times: vec![Vec::new(); load.n_sequences], cached_tokens: 0 };
    running
        .run(|event, now| match event {
            Event::Tokens { request, ids, .. } => {
                run.times[request as usize].extend(ids.iter().map(|_| now - start));
                Ok(())
            }
            Event::Finished { usage, .. } => {
                run.cached_tokens += u64::from(usage.cached_tokens);
                Ok(())
            }
            Event::Failed { error, .. } => Err(CliError::Failure(error)),
            _ => Ok(()),
        })
        .await?;
    Ok(run)
}

fn summarize(load: Load, runs: &[Run]) -> ResultJson {
    let (mut prefill_secs, mut decode_secs, mut total_secs) = (0.0, 0.0, 0.0);
    let (mut n_decoded, mut n_generated) = (0, 0);
    let (mut token_ms, mut first_token_ms) = (Vec::new(), Vec::new());
    for Run { times, .. } in runs {
        let firsts = times.iter().filter_map(|times| times.first());
        let all_have_first = firsts.max().copied().unwrap_or_default();
        let lasts = || times.iter().filter_map(|times| times.last()).copied();
        let end = lasts().max().unwrap_or_default();
        // What comes later comes of fewer sequences.
        let one_ends = lasts().min().unwrap_or_default();
        prefill_secs += all_have_first.as_secs_f64();
        decode_secs += one_ends.saturating_sub(all_have_first).as_secs_f64();
        total_secs += end.as_secs_f64();
        for times in times {
            n_generated += times.len();
            first_token_ms.extend(times.first().map(|first| first.as_secs_f64() * 1000.0));
            let all_decode = |pair: &&[Duration]| pair[1] > all_have_first && pair[1] <= one_ends;
            for pair in times.windows(2).filter(all_decode) {
                n_decoded += 1;
                token_ms.push((pair[1] - pair[0]).as_secs_f64() * 1000.0);
            }
        }
    }
    let n_prompt = runs.len() * load.n_sequences * load.prompt_tokens as usize;
    let rate = |n: usize, secs: f64| rounded(n as f64 / secs);
    ResultJson {
        sequences: load.n_sequences,
        prefill_tokens_per_sec: rate(n_prompt, prefill_secs),
        decode_tokens_per_sec: (n_decoded > 0).then(|| rate(n_decoded, decode_secs)),
        speedup: None,
        total_tokens_per_sec: rate(n_generated, total_secs),
        cached_tokens: runs.iter().map(|run| run.cached_tokens).sum(),
        token_ms: Percentiles::of(&token_ms),
        first_token_ms: Percentiles::of(&first_token_ms),
    }
}

/// Compares all with one sequence, if that was measured.
fn compare(results: &mut [ResultJson]) {
    let one = results.iter().find(|result| result.sequences == 1).and_then(|one| one.decode_tokens_per_sec);
    let Some(one) = one else { return };
    for result in results {
        result.speedup = result.decode_tokens_per_sec.map(|rate| rounded(rate / one));
    }
}

fn rounded(rate: f64) -> f64 {
    (rate * 1000.0).round() / 1000.0
}

fn table(results: &[ResultJson]) -> String {
    let width = percentiles::WIDTH;
    let heading = |cells: [&str; 5], times: [&str; 2]| {
        let [sequences, prefill, decode, speedup, total] = cells;
        let [token, first_token] = times;
        format!(
            "{sequences:>9}  {prefill:>9}  {decode:>9}  {speedup:>6}  {total:>9}  {token:>width$}  {first_token:>width$}\n"
        )
    };
    let mut text =
        heading(["", "prefill", "decode", "", "total"], ["ms between tokens", "ms to the first token"]);
    text += &heading(
        ["sequences", "tokens/s", "tokens/s", "×", "tokens/s"],
        [percentiles::HEADINGS, percentiles::HEADINGS],
    );
    for result in results {
        let cell = |number: Option<f64>| number.map_or("-".into(), |number| format!("{number:.2}"));
        text += &heading(
            [
                &result.sequences.to_string(),
                &cell(Some(result.prefill_tokens_per_sec)),
                &cell(result.decode_tokens_per_sec),
                &cell(result.speedup),
                &cell(Some(result.total_tokens_per_sec)),
            ],
            [
                &Percentiles::cells(result.token_ms.as_ref()),
                &Percentiles::cells(result.first_token_ms.as_ref()),
            ],
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn run_of(times: &[&[u64]]) -> Run {
        let secs = |times: &&[u64]| times.iter().map(|secs| Duration::from_secs(*secs)).collect();
        Run { times: times.iter().map(secs).collect(), cached_tokens: 0 }
    }

    #[test]
    fn decode_counts_what_comes_while_all_decode() {
        // The first sequence decodes once beside the second's prefill, which ends at 4 s; it ends at 6 s, and the second
        // has a slow token more when it is alone.
        let runs = [run_of(&[&[2, 4, 5, 6], &[4, 5, 6, 8]])];
        let result = summarize(Load { n_sequences: 2, prompt_tokens: 10, max_tokens: 4 }, &runs);
        assert_eq!(result.prefill_tokens_per_sec, 20.0 / 4.0);
        assert_eq!(result.decode_tokens_per_sec, Some(4.0 / 2.0));
        assert_eq!(result.total_tokens_per_sec, 8.0 / 8.0);
        assert_eq!(result.token_ms, Percentiles::of(&[1000.0; 4]));
        assert_eq!(result.first_token_ms, Percentiles::of(&[2000.0, 4000.0]));
    }

    #[test]
    fn without_a_moment_in_which_all_decode_there_is_no_decode() {
        let one = summarize(Load { n_sequences: 1, prompt_tokens: 1, max_tokens: 1 }, &[run_of(&[&[1]])]);
        assert_eq!((one.decode_tokens_per_sec, one.token_ms), (None, None));
        let runs = [run_of(&[&[1, 2], &[3, 4]])];
        let two = summarize(Load { n_sequences: 2, prompt_tokens: 1, max_tokens: 2 }, &runs);
        assert_eq!((two.decode_tokens_per_sec, two.token_ms), (None, None));
    }

    #[test]
    fn all_are_compared_with_one() {
        let of = |n_sequences, times: &[&[u64]]| {
            summarize(Load { n_sequences, prompt_tokens: 1, max_tokens: 3 }, &[run_of(times)])
        };
        let mut results = vec![of(2, &[&[1, 3, 5], &[1, 3, 5]]), of(1, &[&[1, 2, 3]])];
        compare(&mut results[..1]);
        assert_eq!(results[0].speedup, None, "one was not measured");
        compare(&mut results);
        assert_eq!(results.iter().map(|result| result.speedup).collect::<Vec<_>>(), [Some(1.0), Some(1.0)]);
        let lines: Vec<String> = table(&results).lines().map(str::to_owned).collect();
        assert!(lines[1].contains("tokens/s       ×   tokens/s"), "{}", lines[1]);
        assert!(lines[2].contains("     1.00    1.00  "), "{}", lines[2]);
        let widths: BTreeSet<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 1, "{lines:?}");
    }

    #[test]
    fn no_prompt_begins_like_another() {
        // The smallest vocabulary of the tests, and of each prompt the first block of the cache.
        let mut made_up = MadeUp::new(384);
        let prompts: BTreeSet<Vec<u32>> = (0..10_000).map(|_| made_up.tokens(32)).collect();
        assert_eq!(prompts.len(), 10_000);
        assert!(prompts.iter().flatten().all(|token| *token < 384));
    }
}
