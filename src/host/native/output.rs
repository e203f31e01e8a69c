//! What the terminal shows. A stdout that nobody reads ends the command quietly; a stderr that nobody reads is no matter.

use std::io::{self, IsTerminal as _, Write as _};

use serde::Serialize;

use super::CliError;
use crate::protocol::{ModelInfo, TokenLogprob};

/// Writes text to stdout, at once.
pub(super) fn put(text: &str) -> Result<(), CliError> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).map_err(|error| match error.kind() {
        io::ErrorKind::BrokenPipe => CliError::Closed,
        _ => CliError::Failure(format!("cannot write to stdout: {error}")),
    })
}

/// Writes one JSON value to stdout, in a line.
pub(super) fn put_json(value: &impl Serialize) -> Result<(), CliError> {
    let json = serde_json::to_string(value).expect("the values hold numbers, texts and lists only");
    put(&format!("{json}\n"))
}

/// Writes a line to stderr.
pub(super) fn note(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

/// Shows how far something is, where a person watches: the line is written over by the next, and wiped by an empty one.
pub(super) fn progress(line: &str) {
    let mut stderr = io::stderr();
    if stderr.is_terminal() {
        let _ = write!(stderr, "\r{line}\x1b[K");
        let _ = stderr.flush();
    }
}

/// A number of bytes as people read it.
pub(super) fn bytes(n_bytes: u64) -> String {
    match n_bytes {
        0..1_000 => format!("{n_bytes} B"),
        1_000..1_000_000 => format!("{:.1} kB", n_bytes as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", n_bytes as f64 / 1e6),
        _ => format!("{:.2} GB", n_bytes as f64 / 1e9),
    }
}

/// A number of parameters as people read it.
pub(super) fn parameters(n_parameters: u64) -> String {
    match n_parameters {
        0..1_000_000 => format!("{:.1} K", n_parameters as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} M", n_parameters as f64 / 1e6),
        _ => format!("{:.2} B", n_parameters as f64 / 1e9),
    }
}

/// Milliseconds to the microsecond: a clock tells no more.
pub(super) fn rounded_ms(ms: f64) -> f64 {
    (ms * 1000.0).round() / 1000.0
}

/// The device in JSON.
#[derive(Debug, Clone, Serialize)]
pub(super) struct DeviceJson {
    name: String,
    kind: &'static str,
    precision: &'static str,
}

impl DeviceJson {
    /// The device of a loaded model.
    pub(super) fn of(info: &ModelInfo) -> Self {
        Self {
            name: info.device_name.clone(),
            kind: info.device_kind.name(),
            precision: info.precision.name(),
        }
    }
}

/// A token's log-probability in JSON.
#[derive(Debug, Clone, Serialize)]
pub(super) struct LogprobJson {
    id: u32,
    text: String,
    logprob: f32,
    #[serde(skip_serializing_if = "Option::is_none")]
    top: Option<Vec<Self>>,
}

impl LogprobJson {
    /// A token with the likeliest ones in its place.
    pub(super) fn of(token: &TokenLogprob) -> Self {
        let alone = |token: &TokenLogprob| Self {
            id: token.id,
            text: token.text.clone(),
            logprob: token.logprob,
            top: None,
        };
        Self { top: Some(token.top.iter().map(alone).collect()), ..alone(token) }
    }
}

/// Shows that a line is waited for.
pub(super) fn prompt() {
    let mut stderr = io::stderr();
    let _ = write!(stderr, "> ");
    let _ = stderr.flush();
}
