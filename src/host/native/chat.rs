//! `pagelm chat`: a conversation in the terminal, or with whatever writes lines to stdin. A message that cannot be answered
//! is left out of the conversation, which goes on.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use super::CliError;
use super::answer::Answer;
use super::arguments::Arguments;
use super::model::{self, Opened, Running};
use super::output;
use crate::protocol::{FinishReason, GenerateOptions, Message, Prompt, UNMET};
use crate::text::TextError;

/// Longest line that is read, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// What a line of input means.
enum Line<'a> {
    Message(&'a str),
    New,
    System(&'a str),
    Exit,
    Unknown(&'a str),
}

impl<'a> Line<'a> {
    fn read(line: &'a str) -> Self {
        let line = line.trim();
        let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        match word {
            "/exit" | "/quit" => Self::Exit,
            "/new" => Self::New,
            "/system" => Self::System(rest.trim()),
            word if word.starts_with('/') && !word[1..].contains('/') => Self::Unknown(word),
            _ => Self::Message(line),
        }
    }
}

/// Runs the command.
pub(super) async fn chat(arguments: &Arguments) -> Result<(), CliError> {
    let sampling = model::sampling(arguments, None)?;
    let opened = Opened::open(arguments).await?;
    opened.check_sampling(&sampling)?;
    if !opened.described.tokenizer().has_template() {
        return Err(CliError::Input(TextError::NoTemplate.to_string()));
    }
    let mut running = opened.load(arguments).await?;
    output::note(
        "Write a message and press Enter; /new begins anew, /system TEXT with a system prompt, /exit ends.",
    );

    let mut system = None;
    let mut messages: Vec<Message> = Vec::new();
    let mut n_requests = 0;
    while let Some(line) = next_line()? {
        match Line::read(&line) {
            Line::Exit => break,
            Line::Message("") => continue,
            Line::New => messages.clear(),
            Line::System(text) => {
                messages.clear();
                system = Some(text).filter(|text| !text.is_empty()).map(|text| Message::text("system", text));
                output::note("A new conversation begins.");
            }
            Line::Unknown(word) => {
                output::note(&format!("there is no {word}, only /new, /system TEXT and /exit"));
            }
            Line::Message(text) => {
                messages.push(Message::text("user", text));
                let conversation = system.iter().chain(&messages).cloned().collect();
                n_requests += 1;
                match answer(&mut running, n_requests, conversation, &sampling).await {
                    Ok(text) => messages.push(Message::text("assistant", text)),
                    Err(CliError::Input(sentence)) => {
                        messages.pop();
                        output::note(&format!("{sentence}; or begin anew with /new"));
                    }
                    Err(other) => return Err(other),
                }
            }
        }
    }
    Ok(())
}

/// Streams one answer, and gives its text.
async fn answer(
    running: &mut Running,
    request: u64,
    messages: Vec<Message>,
    sampling: &GenerateOptions,
) -> Result<String, CliError> {
    let mut answer = Answer::default();
    let prompt = Prompt::Chat { messages, tools: Vec::new(), template_arguments: Vec::new() };
    running.ask(request, &prompt, sampling);
    running
        .run(|event, now| {
            let text = answer.hear(event, now)?;
            if text.is_empty() { Ok(()) } else { output::put(&text) }
        })
        .await?;
    output::put("\n")?;
    if answer.reason == Some(FinishReason::Unmet) {
        output::note(UNMET);
    }
    let used = answer.usage.prompt_tokens + answer.usage.generated_tokens;
    output::note(&format!("[{}; {used} of {} tokens of context]", answer.summary(), running.info.context));
    Ok(answer.text)
}

/// The next line of stdin, or nothing at its end.
fn next_line() -> Result<Option<String>, CliError> {
    let stdin = io::stdin().lock();
    if stdin.is_terminal() {
        output::prompt();
    }
    let mut line = Vec::new();
    let read = stdin.take(MAX_LINE_BYTES).read_until(b'\n', &mut line);
    read.map_err(|error| CliError::Input(format!("cannot read stdin: {error}")))?;
    Ok((!line.is_empty()).then(|| String::from_utf8_lossy(&line).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let meant = |line: &str| match Line::read(line) {
            Line::Message(text) => format!("message {text}"),
            Line::New => "new".into(),
            Line::System(text) => format!("system {text}"),
            Line::Exit => "exit".into(),
            Line::Unknown(word) => format!("unknown {word}"),
        };
        for (line, expected) in [
            (" hello there \n", "message hello there"),
            ("\n", "message "),
            ("/new\n", "new"),
            ("/exit", "exit"),
            ("/system  You are brief. \n", "system You are brief."),
            ("/system\n", "system "),
            ("/nwe", "unknown /nwe"),
            ("/usr/bin is what?", "message /usr/bin is what?"),
        ] {
            assert_eq!(meant(line), expected, "{line:?}");
        }
    }
}
