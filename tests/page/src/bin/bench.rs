//! Measures the built page's engine in Chromium: the default model, one sequence, exact, each number the mean of the runs.

use page_tests::{Gpu, Page, in_page};
use pagelm::protocol::{Event, GenerateOptions, Prompt, Request, Usage};
use std::time::Duration;

const RUNS: usize = 3;
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
        Ok(())
    });
}

/// What an answer of so many tokens to a prompt of so many takes.
fn answer(page: &Page, prompt_tokens: u32, max_tokens: u32) -> Result<Usage, String> {
    let options = GenerateOptions {
        temperature: 0.0,
        ignore_eos: true,
        max_tokens: Some(max_tokens),
        ..GenerateOptions::default()
    };
    let prompt = Prompt::Tokens((0..prompt_tokens).map(|i| 500 + i * 37 % 9000).collect());
    let events = page.request(&[Request::Generate { request: 0, prompt, options }], LIMIT)?.remove(0);
    let usage = events.iter().find_map(|event| match event {
        Event::Finished { usage, .. } => Some(*usage),
        _ => None,
    });
    let usage = usage.ok_or_else(|| format!("the answer did not end: {events:?}"))?;
    if usage.generated_tokens == max_tokens && usage.prompt_tokens == prompt_tokens {
        Ok(usage)
    } else {
        Err(format!("not the tokens that were asked for: {usage:?}"))
    }
}
