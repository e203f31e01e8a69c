//! Measures the built page's engine in Chromium: the default model, exact, one sequence and several together; each number of
//! one sequence is the mean of the runs.

use page_tests::{Gpu, Page, in_page};
use pagelm::protocol::{Event, GenerateOptions, Prompt, Request, Usage};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const RUNS: usize = 3;
/// So many answers run together, and so long they are.
const SEQUENCES: [u32; 4] = [1, 2, 4, 8];
const TOKENS_TOGETHER: u32 = 17;
const LIMIT: Duration = Duration::from_secs(600);

fn main() {
    in_page("bench", Gpu::Software, |page| {
        page.load_default_model()?;
        answer(page, 8, 2)?;
        let (mut decode_ms, mut prefill_ms) = (0.0, 0.0);
        for _ in 0..RUNS {
            decode_ms += answer(page, 64, 33)?.decode_ms;
            prefill_ms += answer(page, 128, 1)?.prefill_ms;
        }
        let per_sec = |tokens: f64, ms: f64| tokens * RUNS as f64 / ms * 1000.0;
        println!("decode, 32 tokens after a prompt of 64: {:.2} tokens/s", per_sec(32.0, decode_ms));
        println!("prefill of 128 tokens: {:.2} tokens/s", per_sec(128.0, prefill_ms));
        for n_sequences in SEQUENCES {
            println!("decode of {n_sequences} together: {:.2} tokens/s", together(page, n_sequences)?);
        }
        Ok(())
    });
}

/// Tokens a second of so many answers that run together, while all of them decode.
fn together(page: &Page, n_sequences: u32) -> Result<f64, String> {
    let requests: Vec<Request> =
        (0..n_sequences).map(|number| request(8, TOKENS_TOGETHER, number * 1000)).collect();
    let answers = page.request(&requests, LIMIT)?;
    let usages = answers.iter().map(|events| usage(events, 8, TOKENS_TOGETHER));
    let usages: Vec<Usage> = usages.collect::<Result<_, _>>()?;
    // They begin one after another, within a few steps.
    let longest_ms = usages.iter().map(|usage| usage.decode_ms).fold(0.0, f64::max);
    Ok(f64::from(n_sequences * (TOKENS_TOGETHER - 1)) / longest_ms * 1000.0)
}

/// What an answer of so many tokens to a prompt of so many takes.
fn answer(page: &Page, prompt_tokens: u32, max_tokens: u32) -> Result<Usage, String> {
    let events = page.request(&[request(prompt_tokens, max_tokens, page_seed())], LIMIT)?.remove(0);
    usage(&events, prompt_tokens, max_tokens)
}

/// Another prompt each time: one that was read before would be found in the cache.
fn page_seed() -> u32 {
    static SEED: AtomicU32 = AtomicU32::new(20_000);
    SEED.fetch_add(7, Ordering::Relaxed)
}

fn request(prompt_tokens: u32, max_tokens: u32, first: u32) -> Request {
    let options = GenerateOptions {
        temperature: 0.0,
        ignore_eos: true,
        max_tokens: Some(max_tokens),
        ..GenerateOptions::default()
    };
    let prompt = Prompt::Tokens((0..prompt_tokens).map(|i| 500 + (first + i * 37) % 9000).collect());
    Request::Generate { request: 0, model: None, prompts: vec![prompt], options, generated: Vec::new() }
}

fn usage(events: &[Event], prompt_tokens: u32, max_tokens: u32) -> Result<Usage, String> {
    let usage = events.iter().find_map(|event| match event {
        Event::Finished { usage, .. } => Some(*usage),
        _ => None,
    });
    let usage = usage.ok_or_else(|| format!("the answer did not end: {events:?}"))?;
    if usage.generated_tokens == max_tokens
        && usage.prompt_tokens == prompt_tokens
        && usage.cached_tokens == 0
    {
        Ok(usage)
    } else {
        Err(format!("not the tokens that were asked for: {usage:?}"))
    }
}
