//! The native binary `pagelm`: a terminal in the place of a tab, on the same host and engine.
//!
//! Invariant: results go to stdout and everything else to stderr; the exit code is 0 where the work was done, 1 where the
//! device failed and 2 where the input was bad. A reader of stdout that went away is no failure.

use std::ffi::OsString;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::process::ExitCode;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt as _;

use super::Surroundings;
use super::load::LoadError;
use super::serve::yield_now;
use crate::gpu::GpuError;
use crate::store::StoreError;
use arguments::{Arguments, Asked};
use spec::Command;

mod answer;
mod arguments;
mod batch;
mod bench;
mod chat;
mod costs;
mod export;
mod floor;
mod generate;
mod info;
mod messages;
mod model;
mod output;
mod ops;
mod prompts;
pub mod records;
mod score;
mod slips;
mod spec;
mod tokenize;
mod turns;

/// Why a command did not do its work.
#[derive(Debug, thiserror::Error)]
enum CliError {
    /// The command line.
    #[error("{sentence}")]
    Usage {
        /// What is wrong with it.
        sentence: String,
        /// Whose usage would help; all commands' where absent.
        command: Option<Command>,
    },
    /// A file, a model, a prompt or an option.
    #[error("{0}")]
    Input(String),
    /// The device, or stdout.
    #[error("{0}")]
    Failure(String),
    /// Nobody reads stdout any more.
    #[error("stdout was closed")]
    Closed,
}

impl From<GpuError> for CliError {
    fn from(error: GpuError) -> Self {
        if matches!(error, GpuError::Lower(_) | GpuError::NotNamed { .. }) {
            Self::Input(error.to_string())
        } else {
            Self::Failure(error.to_string())
        }
    }
}

impl From<LoadError> for CliError {
    fn from(error: LoadError) -> Self {
        match error {
            LoadError::Gpu(error) => error.into(),
            LoadError::WrongGpu { .. } => Self::Failure(error.to_string()),
            other => Self::Input(other.to_string()),
        }
    }
}

impl From<StoreError> for CliError {
    fn from(error: StoreError) -> Self {
        Self::Input(error.to_string())
    }
}

/// Runs one command line, without the program's name.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let done = arguments::parse(arguments).and_then(|asked| match asked {
        Asked::Help(command) => output::put(&spec::help(command)),
        Asked::Version => output::put(concat!("pagelm ", env!("CARGO_PKG_VERSION"), "\n")),
        Asked::Command(command, arguments) => pollster::block_on(execute(command, &arguments)),
    });
    match done {
        Ok(()) | Err(CliError::Closed) => ExitCode::SUCCESS,
        Err(CliError::Failure(sentence)) => {
            output::note(&format!("pagelm: {sentence}"));
            ExitCode::from(1)
        }
        Err(CliError::Input(sentence)) => {
            output::note(&format!("pagelm: {sentence}"));
            ExitCode::from(2)
        }
        Err(CliError::Usage { sentence, command }) => {
            output::note(&format!("pagelm: {sentence}\n{}", spec::usage_hint(command)));
            ExitCode::from(2)
        }
    }
}

async fn execute(command: Command, arguments: &Arguments) -> Result<(), CliError> {
    match command {
        Command::Info => info::info(arguments).await,
        Command::Tokenize => tokenize::tokenize(arguments).await,
        Command::Generate => generate::generate(arguments).await,
        Command::Score => score::score(arguments).await,
        Command::Bench => bench::bench(arguments).await,
        Command::Chat => chat::chat(arguments).await,
        Command::Quantize | Command::Convert => export::export(command, arguments).await,
        Command::Devices => info::devices(arguments).await,
    }
}

/// The clock and the entropy of this machine.
pub fn surroundings() -> Surroundings {
    Surroundings {
        now_ms,
        unix_secs,
        entropy,
        memory_bytes: || None,
        turn: || yield_now().boxed_local(),
        n_threads: std::thread::available_parallelism().map_or(1, usize::from),
        processor_bytes: || None,
    }
}

fn now_ms() -> f64 {
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1000.0
}

fn unix_secs() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() as i64)
}

/// The standard library seeds its hash maps from the system's randomness.
fn entropy() -> u64 {
    RandomState::new().build_hasher().finish()
}
