//! `pagelm tokenize`: the tokens of a text, without a device.

use std::fmt::Write as _;

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::model::Opened;
use super::output;
use crate::protocol::Prompt;

#[derive(Serialize)]
struct TokenizeJson {
    ids: Vec<u32>,
    pieces: Vec<String>,
}

/// Runs the command.
pub(super) async fn tokenize(arguments: &Arguments) -> Result<(), CliError> {
    let opened = Opened::open(arguments).await?;
    let text = arguments.positional.clone().unwrap_or_default();
    let ids = opened.encode(&Prompt::Text(text))?;
    let pieces = opened.described.tokenizer().pieces(&ids);
    if arguments.json {
        return output::put_json(&TokenizeJson { ids, pieces });
    }
    let mut lines = String::new();
    for (id, piece) in ids.iter().zip(&pieces) {
        let _ = writeln!(lines, "{id}\t{piece}");
    }
    output::put(&lines)?;
    output::note(&format!("{} tokens", ids.len()));
    Ok(())
}
