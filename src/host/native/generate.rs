//! `pagelm generate`: an answer, streamed as text or told as one JSON object.

use std::io::{self, IsTerminal as _};

use serde::Serialize;

use super::CliError;
use super::answer::Answer;
use super::arguments::Arguments;
use super::model::{self, Opened};
use super::output::{self, DeviceJson, LogprobJson, rounded_ms};
use crate::protocol::{FinishReason, GenerateOptions, Prompt, TokenLogprob};

#[derive(Serialize)]
struct GenerateJson {
    text: String,
    token_ids: Vec<u32>,
    prompt_token_ids: Vec<u32>,
    finish_reason: &'static str,
    logprobs: Option<Vec<LogprobJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<Option<LogprobJson>>>,
    timings: Timings,
    device: DeviceJson,
}

#[derive(Serialize)]
struct Timings {
    load_ms: f64,
    prefill_ms: f64,
    decode_ms: Vec<f64>,
}

/// Runs the command.
pub(super) async fn generate(arguments: &Arguments) -> Result<(), CliError> {
    let sampling = arguments.sampling(GenerateOptions::default().max_tokens);
    let prompt = model::prompt(arguments)?;
    let opened = Opened::open(arguments).await?;
    opened.check_sampling(&sampling)?;
    let ids = opened.encode(&prompt)?;
    opened.check_prompt(ids.len())?;
    let mut running = opened.load(arguments).await?;

    let mut answer = Answer::default();
    // An answer to a chat begins a text of its own; all else goes on from its tokens.
    let asked = match prompt {
        Prompt::Chat { .. } => prompt,
        Prompt::Text(_) | Prompt::Tokens(_) => Prompt::Tokens(ids.clone()),
    };
    running.ask(0, &asked, &sampling);
    let streams = !arguments.json;
    running
        .run(|event, now| {
            let text = answer.hear(event, now)?;
            if streams && !text.is_empty() { output::put(&text) } else { Ok(()) }
        })
        .await?;

    if streams {
        if io::stdout().is_terminal() && !answer.text.ends_with('\n') {
            output::put("\n")?;
        }
        for token in answer.prompt_logprobs.iter().flatten().flatten() {
            note_logprob("prompt ", token);
        }
        answer.logprobs.iter().for_each(|token| note_logprob("", token));
        output::note(&answer.summary());
        return Ok(());
    }
    output::put_json(&GenerateJson {
        text: answer.text,
        token_ids: answer.token_ids,
        prompt_token_ids: ids,
        finish_reason: answer.reason.map_or("none", FinishReason::name),
        logprobs: sampling.logprobs.map(|_| answer.logprobs.iter().map(LogprobJson::of).collect()),
        prompt_logprobs: answer
            .prompt_logprobs
            .map(|tokens| tokens.iter().map(|token| token.as_ref().map(LogprobJson::of)).collect()),
        timings: Timings {
            load_ms: rounded_ms(running.load_ms),
            prefill_ms: rounded_ms(answer.usage.prefill_ms),
            decode_ms: answer.decode_ms,
        },
        device: DeviceJson::of(&running.info),
    })
}

fn note_logprob(what: &str, token: &TokenLogprob) {
    let one = |token: &TokenLogprob| format!("{:.4} {:?}", token.logprob, token.text);
    let top: Vec<String> = token.top.iter().map(one).collect();
    output::note(&format!("{what}logprob {}; likeliest: {}", one(token), top.join(", ")));
}
