//! `pagelm score`: how well a model predicts a text. Every token is predicted from all before it: no windows.

use serde::Serialize;

use super::CliError;
use super::answer::Answer;
use super::arguments::Arguments;
use super::model::{self, Opened};
use super::output;
use crate::protocol::{GenerateOptions, Prompt};

#[derive(Serialize)]
struct ScoreJson {
    tokens: usize,
    mean_nll: f64,
    perplexity: f64,
}

/// Runs the command.
pub(super) async fn score(arguments: &Arguments) -> Result<(), CliError> {
    let path = arguments.text();
    let text = model::read_text(path, model::TOO_LONG)?;
    let mut opened = Opened::open(arguments).await?;
    let ids = opened.encode(&Prompt::Text(text))?;
    let tokens = ids.len();
    if tokens < 2 {
        let found = if tokens == 1 { "1 token" } else { "no tokens" };
        let sentence = format!(
            "{} has {found}, but a score needs at least 2: one to predict from and one to predict",
            path.display()
        );
        return Err(CliError::Input(sentence));
    }
    opened = fit(opened, arguments, tokens)?;
    let mut running = opened.load(arguments).await?;

    let sampling = GenerateOptions {
        temperature: 0.0,
        max_tokens: Some(1),
        prompt_logprobs: Some(0),
        ..GenerateOptions::default()
    };
    let mut answer = Answer::default();
    running.ask(0, &Prompt::Tokens(ids), &sampling);
    running
        .run(|event, now| {
            if let crate::protocol::Event::Prefilling { done_tokens, total_tokens, .. } = &event {
                output::progress(&format!("scoring: {done_tokens} of {total_tokens} tokens"));
            }
            answer.hear(event, now).map(|_| ())
        })
        .await?;
    output::progress("");

    let logprobs = answer.prompt_logprobs.iter().flatten().flatten().map(|token| f64::from(token.logprob));
    let mean_nll = -logprobs.sum::<f64>() / (tokens - 1) as f64;
    let scored = ScoreJson { tokens, mean_nll, perplexity: mean_nll.exp() };
    if arguments.json {
        return output::put_json(&scored);
    }
    output::put(&format!(
        "tokens {}\nmean negative log-likelihood {:.6}\nperplexity {:.4}\n",
        scored.tokens, scored.mean_nll, scored.perplexity
    ))
}

/// A context that holds the text and the one token that the engine samples after it.
fn fit(opened: Opened, arguments: &Arguments, tokens: usize) -> Result<Opened, CliError> {
    let most = opened.described.config().context;
    let needed = tokens + 1;
    if arguments.load.context.is_some() || needed > most {
        if needed > opened.described.context() {
            let asked = if needed <= most {
                format!("give --context {needed} or more, or leave it out")
            } else {
                format!("the model reads {most} at most: cut the text")
            };
            let context = opened.described.context();
            let sentence = format!(
                "the text has {tokens} tokens, and a context of {context} tokens does not hold them and one more; {asked}"
            );
            return Err(CliError::Input(sentence));
        }
        return Ok(opened);
    }
    opened.with_room(needed, 1)
}
