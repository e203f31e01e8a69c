//! `pagelm bench`: how fast a model runs with so many sequences at once; `crate::bench` measures, as it does in the page.
//!
//! Invariant: a time is the moment at which the step ended that made the token.

use std::time::Instant;

use super::CliError;
use super::arguments::{Arguments, Measured as Asked};
use super::model::{Opened, Running};
use super::output;
use super::{costs, floor, ops, surroundings, turns};
use crate::bench::percentiles::{self, Percentiles};
use crate::bench::plan::Plan;
use crate::bench::report::{Measured, Report};
use crate::bench::{self, Bench};
use crate::protocol::{Event, Request};
use crate::text::strftime;

const MAX_TOKENS: u32 = 32;
const RUNS: u32 = 3;

/// Runs the command.
pub(super) async fn bench(arguments: &Arguments) -> Result<(), CliError> {
    match arguments.measured {
        Asked::Speed => speed(arguments).await,
        Asked::Turns(n_turns) => {
            let max_tokens = arguments.max_tokens.unwrap_or(MAX_TOKENS);
            let opened = Opened::open(arguments).await?;
            opened.check_sampling(&bench::sampling(max_tokens))?;
            turns::bench(opened, arguments, n_turns, max_tokens, arguments.runs.unwrap_or(RUNS)).await
        }
        Asked::Plan => costs::plan(arguments).await,
        Asked::Host => costs::host(arguments).await,
        Asked::Ops => ops::ops(arguments).await,
        Asked::Floor => floor::floor(arguments).await,
    }
}

/// What the command line asks for; defaults where it says nothing.
fn plan(arguments: &Arguments) -> Plan {
    let or = |given: &[u32], default: Vec<u32>| if given.is_empty() { default } else { given.to_vec() };
    let default = Plan::default();
    Plan {
        warm_up: arguments.warm_up.unwrap_or(default.warm_up),
        runs: arguments.runs.unwrap_or(default.runs),
        prompt_tokens: or(&arguments.prompt_tokens, default.prompt_tokens),
        max_tokens: or(&arguments.answer_tokens, default.max_tokens),
        sequences: or(&arguments.sequences, default.sequences),
        without_cache: arguments.no_cache,
        time_ops: false,
    }
}

async fn speed(arguments: &Arguments) -> Result<(), CliError> {
    let report = measured(arguments, plan(arguments)).await?;
    if arguments.json { output::put_json(&report) } else { output::put(&table(&report.results)) }
}

/// Measures what a plan says.
pub(super) async fn measured(arguments: &Arguments, plan: Plan) -> Result<Report, CliError> {
    let opened = Opened::open(arguments).await?;
    for max_tokens in &plan.max_tokens {
        opened.check_sampling(&bench::sampling(*max_tokens))?;
    }
    let opened = with_room(opened, arguments, &plan)?;
    let mut running = opened.load(arguments).await?;
    if let Some(sentence) = plan.obstacle(running.info.context.into(), running.info.kv_tokens.into()) {
        return Err(CliError::Input(sentence));
    }
    let mut bench = Bench::new(plan, running.info.vocab_size as usize);
    measure(&mut running, &mut bench).await?;
    output::progress("");
    let date = strftime((surroundings().unix_secs)(), "%F");
    Ok(Report::new(&running.info, &arguments.load, date, &bench))
}

/// Asks what is due and tells what comes, until nothing is due.
async fn measure(running: &mut Running, bench: &mut Bench) -> Result<(), CliError> {
    let start = Instant::now();
    let mut n_requests = 0;
    let mut shown = None;
    while !bench.is_over() {
        let progress = bench.progress();
        if progress != shown {
            output::progress(progress.as_ref().map_or("", |progress| &progress.what));
            shown = progress;
        }
        let now_ms = start.elapsed().as_secs_f64() * 1000.0;
        let due = bench.due(now_ms, &mut || {
            n_requests += 1;
            n_requests
        });
        for request in due {
            if let Request::Generate { request, prompts, options, .. } = request {
                prompts.iter().for_each(|prompt| running.ask(request, prompt, &options));
            }
        }
        running.step().await;
        let now_ms = start.elapsed().as_secs_f64() * 1000.0;
        for event in running.take_events() {
            if let Event::Failed { error, .. } = &event {
                return Err(CliError::Failure(error.clone()));
            }
            bench.hear(&event, now_ms);
        }
    }
    bench.failure().map_or(Ok(()), |sentence| Err(CliError::Failure(sentence.to_owned())))
}

/// Refuses to measure where sequences would have to wait for each other.
pub(super) fn check_room(running: &Running, needed_tokens: u64) -> Result<(), CliError> {
    let found = running.info.kv_tokens;
    if u64::from(found) >= needed_tokens {
        return Ok(());
    }
    Err(CliError::Input(format!(
        "the KV cache holds {found} tokens, but {needed_tokens} are needed; take a shorter chat"
    )))
}

/// Makes room for all sequences at once.
fn with_room(opened: Opened, arguments: &Arguments, plan: &Plan) -> Result<Opened, CliError> {
    let context = plan.context();
    let most = arguments.load.context.map_or(opened.described.config().context, |context| context as usize);
    if context > most as u64 {
        return Err(CliError::Input(format!(
            "--prompt-tokens and --max-tokens make {context} tokens, but the context holds {most}; take fewer"
        )));
    }
    let (n_sequences, most) = (plan.most_sequences() as usize, opened.described.max_sequences());
    if n_sequences > most {
        return Err(CliError::Input(format!(
            "--sequences {n_sequences} was asked for, but {most} of this model run at once; take fewer"
        )));
    }
    opened.with_room(context as usize, n_sequences)
}

fn table(results: &[Measured]) -> String {
    let width = percentiles::WIDTH;
    let heading = |cells: [&str; 7], times: [&str; 2]| {
        let [sequences, lengths, cache, prefill, decode, speedup, total] = cells;
        let [token, first_token] = times;
        format!(
            "{sequences:>9}  {lengths:>11}  {cache:>5}  {prefill:>9}  {decode:>9}  {speedup:>6}  {total:>9}  {token:>width$}  {first_token:>width$}\n"
        )
    };
    let mut text = heading(
        ["", "prompt", "KV", "prefill", "decode", "", "total"],
        ["ms between tokens", "ms to the first token"],
    );
    text += &heading(
        ["sequences", "+ answer", "cache", "tokens/s", "tokens/s", "×", "tokens/s"],
        [percentiles::HEADINGS, percentiles::HEADINGS],
    );
    for result in results {
        let cell = |number: Option<f64>| number.map_or("-".into(), |number| format!("{number:.2}"));
        text += &heading(
            [
                &result.sequences.to_string(),
                &format!("{} + {}", result.prompt_tokens, result.max_tokens),
                if result.kv_cache { "yes" } else { "no" },
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

    #[test]
    fn all_lines_are_of_one_width() {
        let times = Percentiles::of(&[50.0, 12_000.0]);
        let result = |kv_cache, decode_tokens_per_sec, token_ms| Measured {
            sequences: 16,
            prompt_tokens: 1024,
            max_tokens: 128,
            runs: 3,
            kv_cache,
            prefill_tokens_per_sec: 12_345.678,
            decode_tokens_per_sec,
            speedup: decode_tokens_per_sec.map(|_| 1.0),
            total_tokens_per_sec: 3.0,
            cached_tokens: 0,
            token_ms,
            first_token_ms: times,
            position_ms: Vec::new(),
        };
        let text = table(&[result(true, Some(20.0), times), result(false, None, None)]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].contains("tokens/s       ×   tokens/s"), "{}", lines[1]);
        assert!(lines[2].contains("1024 + 128    yes") && lines[2].contains("    1.00  "), "{}", lines[2]);
        let widths: BTreeSet<usize> = lines.iter().map(|line| line.chars().count()).collect();
        assert_eq!(widths.len(), 1, "{lines:?}");
    }
}
