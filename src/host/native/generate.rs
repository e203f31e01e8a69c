//! `pagelm generate`: answers, as text or told in JSON. A lone answer streams; several come in order, each once it is
//! complete.

use std::io::{self, IsTerminal as _};
use std::time::Instant;

use serde::Serialize;

use super::CliError;
use super::answer::Answer;
use super::arguments::Arguments;
use super::batch::{self, Asked, Batch};
use super::model::{self, Opened};
use super::output::{self, DeviceJson, LogprobJson, rounded_ms};
use super::prompts;
use crate::protocol::{FinishReason, GenerateOptions, Prompt, TokenLogprob, UNMET};

/// What one prompt gave.
#[derive(Serialize)]
#[serde(untagged)]
enum ResultJson {
    One(OneJson),
    Several(SeveralJson),
}

#[derive(Serialize)]
struct OneJson {
    text: String,
    token_ids: Vec<u32>,
    prompt_token_ids: Vec<u32>,
    finish_reason: &'static str,
    logprobs: Option<Vec<LogprobJson>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<Option<LogprobJson>>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cached_tokens: Option<u32>,
    timings: Timings,
    device: DeviceJson,
}

#[derive(Serialize)]
struct SeveralJson {
    prompt_token_ids: Vec<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_logprobs: Option<Vec<Option<LogprobJson>>>,
    outputs: Vec<OutputJson>,
    timings: LoadTimings,
    device: DeviceJson,
}

#[derive(Serialize)]
struct OutputJson {
    text: String,
    token_ids: Vec<u32>,
    finish_reason: &'static str,
    logprobs: Option<Vec<LogprobJson>>,
    cached_tokens: u32,
    timings: Timings,
}

#[derive(Serialize)]
struct LoadTimings {
    load_ms: f64,
}

#[derive(Serialize)]
struct Timings {
    #[serde(skip_serializing_if = "Option::is_none")]
    load_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    queue_ms: Option<f64>,
    prefill_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_token_ms: Option<f64>,
    decode_ms: Vec<f64>,
}

/// What the objects tell beside the answers.
struct Told {
    load_ms: f64,
    device: DeviceJson,
    with_logprobs: bool,
    /// Of a batch: when each output ran, and what it found in the cache.
    is_batch: bool,
}

/// Runs the command.
pub(super) async fn generate(arguments: &Arguments) -> Result<(), CliError> {
    let sampling = model::sampling(arguments, GenerateOptions::default().max_tokens)?;
    let prompts = prompts(arguments)?;
    let mut opened = Opened::open(arguments).await?;
    opened.check_sampling(&sampling)?;
    let mut asked = read(&opened, prompts)?;
    let n_outputs = asked.len() * sampling.n as usize;
    if n_outputs > 1 {
        opened = batch::with_room(opened, &asked, &sampling)?;
    }
    let mut running = opened.load(arguments).await?;
    let told = Told {
        load_ms: running.load_ms,
        device: DeviceJson::of(&running.info),
        with_logprobs: sampling.logprobs.is_some(),
        is_batch: n_outputs > 1 || arguments.prompts.is_some(),
    };

    let names = Names { n_prompts: asked.len(), n: sampling.n as usize };
    let streams = n_outputs == 1 && !arguments.json;
    let start = Instant::now();
    let (mut n_tokens, mut n_told, mut n_unmet, mut results) = (0, 0, 0, Vec::new());
    let batch = Batch { asked: &asked, sampling: &sampling, streams };
    batch
        .run(&mut running, |prompt_idx, outputs| {
            n_tokens += outputs.iter().map(|answer| answer.token_ids.len()).sum::<usize>();
            n_told += outputs.len();
            n_unmet += outputs.iter().filter(|answer| answer.reason == Some(FinishReason::Unmet)).count();
            if arguments.json {
                output::progress(&format!("{n_told} of {n_outputs} outputs"));
                results.push(outputs);
                return Ok(());
            }
            outputs.iter().enumerate().try_for_each(|(i, answer)| show(answer, &names.of(prompt_idx, i)))
        })
        .await?;
    output::progress("");
    if n_outputs > 1 {
        output::note(&total(n_outputs, n_tokens, start.elapsed().as_secs_f64()));
    }
    let outcome = if n_unmet == 0 { Ok(()) } else { Err(CliError::Failure(UNMET.into())) };
    if !arguments.json {
        return outcome;
    }
    let ids = asked.iter_mut().map(|asked| std::mem::take(&mut asked.ids));
    let mut results: Vec<ResultJson> =
        ids.zip(results).map(|(ids, outputs)| told.result(ids, outputs)).collect();
    match results.pop() {
        Some(only) if arguments.prompts.is_none() => output::put_json(&only)?,
        last => {
            results.extend(last);
            output::put_json(&results)?;
        }
    }
    outcome
}

/// What the command line asks to be answered.
fn prompts(arguments: &Arguments) -> Result<Vec<Prompt>, CliError> {
    let Some(path) = &arguments.prompts else { return Ok(vec![model::prompt(arguments)?]) };
    let text = model::read_text(path, "split it into several files")?;
    let texts =
        prompts::parse(&text).map_err(|problem| CliError::Input(format!("{}: {problem}", path.display())))?;
    Ok(texts.into_iter().map(Prompt::Text).collect())
}

/// Prompts as tokens; one that the engine would refuse is refused by its number.
fn read(opened: &Opened, prompts: Vec<Prompt>) -> Result<Vec<Asked>, CliError> {
    let is_one = prompts.len() == 1;
    let read_one = |(index, prompt): (usize, Prompt)| {
        let ids = opened.encode(&prompt).and_then(|ids| opened.check_prompt(ids.len()).map(|()| ids));
        let ids = ids.map_err(|error| match error {
            CliError::Input(sentence) if !is_one => {
                CliError::Input(format!("prompt {}: {sentence}", index + 1))
            }
            other => other,
        })?;
        // An answer to a chat begins a text of its own; all else goes on from its tokens.
        let prompt = match prompt {
            Prompt::Chat { .. } => prompt,
            Prompt::Text(_) | Prompt::Tokens(_) => Prompt::Tokens(ids.clone()),
        };
        Ok(Asked { prompt, ids })
    };
    prompts.into_iter().enumerate().map(read_one).collect()
}

/// What outputs are called where there are several.
struct Names {
    n_prompts: usize,
    n: usize,
}

impl Names {
    /// Nothing for a lone output.
    fn of(&self, prompt_idx: usize, output_idx: usize) -> String {
        let (prompt, output) = (prompt_idx + 1, output_idx + 1);
        match (self.n_prompts, self.n) {
            (1, 1) => String::new(),
            (1, _) => format!("output {output}"),
            (_, 1) => format!("prompt {prompt}"),
            _ => format!("prompt {prompt}, output {output}"),
        }
    }
}

/// Shows an answer that is complete; the text of a lone one was shown as it came.
fn show(answer: &Answer, name: &str) -> Result<(), CliError> {
    let mark = if name.is_empty() { String::new() } else { format!("{name}: ") };
    let end = if answer.text.ends_with('\n') { "" } else { "\n" };
    if !name.is_empty() {
        output::put(&format!("== {name} ==\n{}{end}\n", answer.text))?;
    } else if io::stdout().is_terminal() {
        output::put(end)?;
    }
    for token in answer.prompt_logprobs.iter().flatten().flatten() {
        note_logprob(&format!("{mark}prompt "), token);
    }
    answer.logprobs.iter().for_each(|token| note_logprob(&mark, token));
    output::note(&format!("{mark}{}", answer.summary()));
    Ok(())
}

/// What all took together, in a line.
fn total(n_outputs: usize, n_tokens: usize, secs: f64) -> String {
    let rate = n_tokens as f64 / secs;
    format!("{n_outputs} outputs, {n_tokens} tokens in {secs:.2} s ({rate:.1} tokens/s)")
}

impl Told {
    /// The object of one prompt.
    fn result(&self, prompt_token_ids: Vec<u32>, mut outputs: Vec<Answer>) -> ResultJson {
        let prompt_logprobs = outputs.first_mut().and_then(|first| first.prompt_logprobs.take());
        let prompt_logprobs = prompt_logprobs
            .map(|tokens| tokens.iter().map(|token| token.as_ref().map(LogprobJson::of)).collect());
        if let [only] = &mut outputs[..] {
            let OutputJson { text, token_ids, finish_reason, logprobs, cached_tokens, timings } =
                self.output(std::mem::take(only));
            let cached_tokens = self.is_batch.then_some(cached_tokens);
            let timings = Timings { load_ms: Some(rounded_ms(self.load_ms)), ..timings };
            return ResultJson::One(OneJson {
                text,
                token_ids,
                prompt_token_ids,
                finish_reason,
                logprobs,
                prompt_logprobs,
                cached_tokens,
                timings,
                device: self.device.clone(),
            });
        }
        ResultJson::Several(SeveralJson {
            prompt_token_ids,
            prompt_logprobs,
            outputs: outputs.into_iter().map(|answer| self.output(answer)).collect(),
            timings: LoadTimings { load_ms: rounded_ms(self.load_ms) },
            device: self.device.clone(),
        })
    }

    fn output(&self, answer: Answer) -> OutputJson {
        let Answer { text, token_ids, logprobs, reason, usage, decode_ms, .. } = answer;
        let of_batch = |ms: f64| self.is_batch.then(|| rounded_ms(ms));
        OutputJson {
            text,
            token_ids,
            finish_reason: reason.map_or("none", FinishReason::name),
            logprobs: self.with_logprobs.then(|| logprobs.iter().map(LogprobJson::of).collect()),
            cached_tokens: usage.cached_tokens,
            timings: Timings {
                load_ms: None,
                queue_ms: of_batch(usage.queue_ms),
                prefill_ms: rounded_ms(usage.prefill_ms),
                first_token_ms: of_batch(usage.queue_ms + usage.prefill_ms),
                decode_ms,
            },
        }
    }
}

fn note_logprob(what: &str, token: &TokenLogprob) {
    let one = |token: &TokenLogprob| format!("{:.4} {:?}", token.logprob, token.text);
    let top: Vec<String> = token.top.iter().map(one).collect();
    output::note(&format!("{what}logprob {}; likeliest: {}", one(token), top.join(", ")));
}
