//! `pagelm bench --ops`: the time of a decode step by operation, by the device's own clock.
//!
//! Invariant: times are medians over runs of one batch. Each dispatch has a pass of its own, which the steps that answer do
//! not have, so their sum is more than a step takes, and the text says so.

use std::rc::Rc;

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::model::Opened;
use super::output::{self, DeviceJson};
use crate::bench::made_up::MadeUp;
use crate::engine::params::SamplingParams;
use crate::engine::{Budget, SequenceRequest};
use crate::gpu::Gpu;
use crate::gpu::timings::OpTime;
use crate::host::load::Loaded;
use crate::plan::Device as _;

/// Tokens of the prompt before the step that is timed.
const PROMPT_TOKENS: u32 = 64;
const RUNS: u32 = 5;

#[derive(Serialize)]
struct OpsJson {
    device: DeviceJson,
    position: u32,
    ops: Vec<OpJson>,
}

#[derive(Serialize)]
struct OpJson {
    name: String,
    dispatches: u32,
    ms: f64,
    weight_bytes: u64,
}

/// Runs the command.
pub(super) async fn ops(arguments: &Arguments) -> Result<(), CliError> {
    let opened = Opened::open(arguments).await?;
    let prompt_tokens = arguments.prompt_tokens.first().copied().unwrap_or(PROMPT_TOKENS);
    if prompt_tokens as usize + 2 > opened.described.context() {
        return Err(CliError::Input(format!(
            "--prompt-tokens {prompt_tokens} leaves no room in the context of {} tokens; take fewer",
            opened.described.context()
        )));
    }
    let gpu = Rc::new(Gpu::open(arguments.adapter_name.as_deref()).await?);
    if !gpu.has_timestamps() {
        return Err(CliError::Failure(format!(
            "{} has no timestamp queries, so its operations cannot be timed; another adapter may have them: `pagelm devices`",
            gpu.summary().name
        )));
    }
    let mut loaded = opened.described.load(gpu, |_, _| ()).await?;
    let runs = time(&mut loaded, prompt_tokens, arguments.runs.unwrap_or(RUNS)).await?;
    let ops = medians(&runs);
    if arguments.json {
        let device = DeviceJson::of(&loaded.info);
        return output::put_json(&OpsJson { device, position: prompt_tokens, ops });
    }
    output::put(&table(&ops))
}

/// The times of the first token after a prompt, run after run.
async fn time(loaded: &mut Loaded, prompt_tokens: u32, n_runs: u32) -> Result<Vec<Vec<OpTime>>, CliError> {
    let Loaded { model, engine, pace, .. } = loaded;
    let prompt = MadeUp::new(engine.config().vocab_size).tokens(prompt_tokens);
    let params = SamplingParams { temperature: 0.0, max_tokens: Some(2), ..SamplingParams::default() };
    let request = SequenceRequest { client: 0, prompt, generated: Vec::new(), params };
    engine.add(request).map_err(|error| CliError::Input(error.to_string()))?;
    let mut runs = Vec::new();
    let budget = Budget { prefill_rows: pace.budget().prefill_rows.max(1) };
    while let Some(step) = engine.next_step(budget) {
        if step.batch.n_decode > 0 {
            for _ in 0..n_runs {
                runs.push(model.time_ops(&step.batch).await?);
            }
        }
        let ticket = model.submit(&step.batch);
        let logits = model.read(ticket).await?;
        engine.retire(step.id, &logits);
    }
    Ok(runs)
}

/// Of each operation the median of the runs, those that take longest first.
fn medians(runs: &[Vec<OpTime>]) -> Vec<OpJson> {
    let Some(first) = runs.first() else { return Vec::new() };
    let median = |(op_idx, op): (usize, &OpTime)| {
        let mut times: Vec<f64> = runs.iter().map(|run| run[op_idx].ms).collect();
        times.sort_by(f64::total_cmp);
        OpJson {
            name: op.name.clone(),
            dispatches: op.dispatches,
            ms: output::rounded_ms(times[times.len() / 2]),
            weight_bytes: op.weight_bytes,
        }
    };
    let mut ops: Vec<OpJson> = first.iter().enumerate().map(median).collect();
    ops.sort_by(|a, b| b.ms.total_cmp(&a.ms));
    ops
}

fn table(ops: &[OpJson]) -> String {
    let sum: f64 = ops.iter().map(|op| op.ms).sum();
    let mut text =
        format!("{:<32}  {:>10}  {:>9}  {:>5}  {:>8}\n", "operation", "dispatches", "ms", "%", "GB/s");
    for op in ops {
        let rate = if op.weight_bytes > 0 && op.ms > 0.0 {
            format!("{:.2}", op.weight_bytes as f64 / op.ms / 1e6)
        } else {
            "-".to_owned()
        };
        let share = op.ms / sum * 100.0;
        text += &format!("{:<32}  {:>10}  {:>9.3}  {share:>5.1}  {rate:>8}\n", op.name, op.dispatches, op.ms);
    }
    text += &format!(
        "{:<32}  {:>10}  {sum:>9.3}\nEach dispatch was timed in a pass of its own, so this is more than a step takes.\n",
        "together",
        ops.iter().map(|op| op.dispatches).sum::<u32>(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_s_time_is_the_median_of_its_runs() {
        let op = |name: &str, ms| OpTime { name: name.into(), dispatches: 2, ms, weight_bytes: 3_000_000 };
        let runs = [1.0, 9.0, 3.0].map(|ms| vec![op("norm", 0.5), op("matmul", ms)]);
        let ops = medians(&runs);
        assert_eq!((ops[0].name.as_str(), ops[0].ms, ops[1].ms), ("matmul", 3.0, 0.5));
        let text = table(&ops);
        assert!(text.contains("matmul") && text.contains("85.7      1.00"), "{text}");
        assert!(medians(&[]).is_empty());
    }
}
