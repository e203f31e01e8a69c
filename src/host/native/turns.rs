//! `pagelm bench --turns`: what a chat's turns find in the cache, and how soon they answer.
//!
//! Invariant: every run is another chat, so a turn finds what its own chat left and nothing else.

use std::time::{Duration, Instant};

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::bench;
use super::model::{Opened, Running};
use super::output::{self, DeviceJson};
use crate::bench::made_up::MadeUp;
use crate::bench::percentiles::{self, Percentiles};
use crate::bench::sampling;
use crate::protocol::{Event, Prompt};

/// Tokens of the first prompt.
const PROMPT_TOKENS: u32 = 1000;
/// Tokens that each turn adds: a short question.
const MESSAGE_TOKENS: u32 = 24;
/// Most tokens of the prompt that warms up.
const WARM_UP_PROMPT_TOKENS: u32 = 64;

#[derive(Serialize)]
struct TurnsJson {
    device: DeviceJson,
    turns: Vec<TurnJson>,
}

#[derive(Debug, Serialize)]
struct TurnJson {
    turn: usize,
    prompt_tokens: usize,
    new_tokens: usize,
    cached_tokens: usize,
    prefilled_tokens: usize,
    first_token_ms: Option<Percentiles>,
}

/// A chat to measure.
#[derive(Debug, Clone, Copy)]
struct Chat {
    n_turns: u32,
    prompt_tokens: u32,
    max_tokens: u32,
}

/// A turn of one chat.
#[derive(Debug, Clone, Copy)]
struct Turn {
    prompt_tokens: usize,
    /// Those that the model had not read.
    new_tokens: usize,
    cached_tokens: usize,
    first_token: Duration,
}

/// Measures so many chats.
pub(super) async fn bench(
    opened: Opened,
    arguments: &Arguments,
    n_turns: u32,
    max_tokens: u32,
    n_runs: u32,
) -> Result<(), CliError> {
    let chat = Chat {
        n_turns,
        prompt_tokens: arguments.prompt_tokens.first().copied().unwrap_or(PROMPT_TOKENS),
        max_tokens,
    };
    let context = chat.context();
    let most = arguments.load.context.map_or(opened.described.config().context, |context| context as usize);
    if context > most as u64 {
        let Chat { n_turns, prompt_tokens, max_tokens } = chat;
        return Err(CliError::Input(format!(
            "--turns {n_turns} of --max-tokens {max_tokens} after --prompt-tokens {prompt_tokens} make {context} tokens, but the context holds {most}; take fewer"
        )));
    }
    let opened = opened.with_room(context as usize, 1)?;
    let mut made_up = MadeUp::new(opened.described.config().vocab_size);
    let mut running = opened.load(arguments).await?;
    bench::check_room(&running, context)?;

    output::progress("warming up");
    let warm_up = Chat { n_turns: 1, prompt_tokens: chat.prompt_tokens.min(WARM_UP_PROMPT_TOKENS), ..chat };
    run(&mut running, warm_up, &mut made_up).await?;
    let mut chats = Vec::new();
    for i in 0..n_runs {
        output::progress(&format!("chat {} of {n_runs}", i + 1));
        chats.push(run(&mut running, chat, &mut made_up).await?);
    }
    output::progress("");
    let turns = summarize(&chats);
    if arguments.json {
        output::put_json(&TurnsJson { device: DeviceJson::of(&running.info), turns })
    } else {
        output::put(&table(&turns))
    }
}

impl Chat {
    /// Tokens at its end.
    fn context(self) -> u64 {
        let n_turns = u64::from(self.n_turns);
        let messages = u64::from(MESSAGE_TOKENS) * (n_turns - 1);
        u64::from(self.prompt_tokens) + u64::from(self.max_tokens) * n_turns + messages
    }
}

/// Goes through a chat: each prompt is the one before it, its answer, and a message.
async fn run(running: &mut Running, chat: Chat, made_up: &mut MadeUp) -> Result<Vec<Turn>, CliError> {
    let sampling = sampling(chat.max_tokens);
    let mut conversation = made_up.tokens(chat.prompt_tokens);
    let (mut n_read, mut turns) = (0, Vec::new());
    for turn_idx in 0..chat.n_turns {
        if turn_idx > 0 {
            conversation.extend(made_up.tokens(MESSAGE_TOKENS));
        }
        let prompt_tokens = conversation.len();
        let prompt = Prompt::Tokens(conversation.clone());
        let (mut first_token, mut cached_tokens) = (None, 0);
        let start = Instant::now();
        running.ask(u64::from(turn_idx), &prompt, &sampling);
        running
            .run(|event, now| match event {
                Event::Tokens { ids, .. } => {
                    first_token.get_or_insert(now - start);
                    conversation.extend(ids);
                    Ok(())
                }
                Event::Finished { usage, .. } => {
                    cached_tokens = usage.cached_tokens as usize;
                    Ok(())
                }
                Event::Failed { error, .. } => Err(CliError::Failure(error)),
                _ => Ok(()),
            })
            .await?;
        let first_token = first_token.unwrap_or_default();
        turns.push(Turn { prompt_tokens, new_tokens: prompt_tokens - n_read, cached_tokens, first_token });
        // The answer's last token was sampled, and nothing was computed of it.
        n_read = conversation.len() - 1;
    }
    Ok(turns)
}

/// Each turn over all chats, which are alike but for their tokens; of what they found in the cache, the least.
fn summarize(chats: &[Vec<Turn>]) -> Vec<TurnJson> {
    let Some(first) = chats.first() else { return Vec::new() };
    let one = |(index, turn): (usize, &Turn)| {
        let of_chats = chats.iter().map(|chat| &chat[index]);
        let cached_tokens = of_chats.clone().map(|turn| turn.cached_tokens).min().unwrap_or_default();
        let times: Vec<f64> = of_chats.map(|turn| turn.first_token.as_secs_f64() * 1000.0).collect();
        TurnJson {
            turn: index + 1,
            prompt_tokens: turn.prompt_tokens,
            new_tokens: turn.new_tokens,
            cached_tokens,
            prefilled_tokens: turn.prompt_tokens - cached_tokens,
            first_token_ms: Percentiles::of(&times),
        }
    };
    first.iter().enumerate().map(one).collect()
}

fn table(turns: &[TurnJson]) -> String {
    let width = percentiles::WIDTH;
    let mut text = format!(
        "{:>4}  {:>7}  {:>7}  {:>7}  {:>9}  {:>width$}\n{:>4}  {:>7}  {:>7}  {:>7}  {:>9}  {}\n",
        "",
        "prompt",
        "new",
        "cached",
        "prefilled",
        "ms to the first token",
        "turn",
        "tokens",
        "tokens",
        "tokens",
        "tokens",
        percentiles::HEADINGS,
    );
    for turn in turns {
        text += &format!(
            "{:>4}  {:>7}  {:>7}  {:>7}  {:>9}  {}\n",
            turn.turn,
            turn.prompt_tokens,
            turn.new_tokens,
            turn.cached_tokens,
            turn.prefilled_tokens,
            Percentiles::cells(turn.first_token_ms.as_ref())
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chat_holds_its_turns() {
        let chat = |n_turns| Chat { n_turns, prompt_tokens: 1000, max_tokens: 32 }.context();
        assert_eq!((chat(1), chat(2), chat(3)), (1032, 1088, 1144));
    }

    #[test]
    fn of_what_chats_found_the_least_counts() {
        let turn = |cached_tokens, secs| Turn {
            prompt_tokens: 100,
            new_tokens: 25,
            cached_tokens,
            first_token: Duration::from_secs(secs),
        };
        let turns = summarize(&[vec![turn(64, 1)], vec![turn(32, 3)]]);
        assert_eq!((turns.len(), turns[0].cached_tokens, turns[0].prefilled_tokens), (1, 32, 68));
        assert_eq!(turns[0].first_token_ms, Percentiles::of(&[1000.0, 3000.0]));
    }
}
