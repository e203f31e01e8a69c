//! `pagelm bench --ops`: the time of a decode step by operation, by the device's own clock.

use super::CliError;
use super::arguments::Arguments;
use super::{bench, output};
use crate::bench::plan::Plan;
use crate::bench::report::Ops;

/// Tokens of the prompt before the step that is timed.
const PROMPT_TOKENS: u32 = 64;
/// Room for the token whose step is timed.
const MAX_TOKENS: u32 = 2;

/// Runs the command.
pub(super) async fn ops(arguments: &Arguments) -> Result<(), CliError> {
    let prompt_tokens = arguments.prompt_tokens.first().copied().unwrap_or(PROMPT_TOKENS);
    let plan = Plan {
        prompt_tokens: vec![prompt_tokens],
        max_tokens: vec![MAX_TOKENS],
        sequences: Vec::new(),
        time_ops: true,
        ..Plan::default()
    };
    let report = bench::measured(arguments, plan).await?;
    match &report.ops {
        None => Err(CliError::Failure(format!(
            "{} has no timestamp queries, so its operations cannot be timed; another adapter may have them (`pagelm devices`), the processor has none",
            report.device.name
        ))),
        Some(_) if arguments.json => output::put_json(&report),
        Some(ops) => output::put(&table(ops)),
    }
}

fn table(ops: &Ops) -> String {
    let sum_ms = ops.sum_ms();
    let mut text =
        format!("{:<32}  {:>10}  {:>9}  {:>5}  {:>8}\n", "operation", "dispatches", "ms", "%", "GB/s");
    for op in &ops.ops {
        let rate = if op.weight_bytes > 0 && op.ms > 0.0 {
            format!("{:.2}", op.weight_bytes as f64 / op.ms / 1e6)
        } else {
            "-".to_owned()
        };
        let share = op.ms / sum_ms * 100.0;
        text += &format!("{:<32}  {:>10}  {:>9.3}  {share:>5.1}  {rate:>8}\n", op.name, op.dispatches, op.ms);
    }
    text += &format!(
        "{:<32}  {:>10}  {sum_ms:>9.3}\nEach dispatch was timed in a pass of its own, so this is more than a step takes.\n",
        "together",
        ops.ops.iter().map(|op| op.dispatches).sum::<u32>(),
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::OpTime;

    #[test]
    fn an_operation_has_its_share_and_its_rate() {
        let op = |name: &str, ms, weight_bytes| OpTime { name: name.into(), dispatches: 2, ms, weight_bytes };
        let text = table(&Ops { position: 9, ops: vec![op("matmul", 3.0, 3_000_000), op("norm", 0.5, 0)] });
        assert!(text.contains("85.7      1.00") && text.contains("14.3         -"), "{text}");
        assert!(text.contains("together") && text.contains("3.500"), "{text}");
    }
}
