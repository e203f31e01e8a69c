//! Each architecture as one page that records a plan.

use crate::format::checkpoint::Checkpoint;
use crate::plan::{KvType, Plan};
use config::{Config, ModelError};

pub mod config;
mod llama;
mod recorder;

/// Architectures that run, as GGUF names them.
pub const ARCHITECTURES: [&str; 1] = ["llama"];

/// The plan of a file's model.
pub fn plan(checkpoint: &Checkpoint, config: &Config, kv: KvType) -> Result<Plan, ModelError> {
    let recorder = recorder::Recorder::new(checkpoint, config, kv);
    match config.architecture.as_str() {
        "llama" => llama::forward(recorder),
        other => unreachable!("the config refuses architectures without a page, such as {other}"),
    }
}
