//! Each architecture as one page that records a plan.

use crate::format::checkpoint::Checkpoint;
use crate::plan::{KvType, Plan};
use config::Config;
use error::ModelError;
use recorder::Recorder;

pub mod config;
pub mod error;
mod gemma2;
mod gemma3;
mod gpt2;
mod llama;
mod phi3;
mod qwen2;
mod qwen3;
mod recorder;
pub mod rotary;
mod tensors;

/// Architectures that run, as GGUF names them.
pub const ARCHITECTURES: [&str; 7] = ["gpt2", "llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3"];

/// The plan of a model that will run with such a context.
pub fn plan(
    checkpoint: &Checkpoint,
    config: &Config,
    kv: KvType,
    context: usize,
) -> Result<Plan, ModelError> {
    let recorder = Recorder::new(checkpoint, config, kv, context);
    match config.architecture.as_str() {
        "gpt2" => gpt2::forward(recorder),
        "llama" => llama::forward(recorder),
        "qwen2" => qwen2::forward(recorder),
        "qwen3" => qwen3::forward(recorder),
        "gemma2" => gemma2::forward(recorder),
        "gemma3" => gemma3::forward(recorder),
        "phi3" => phi3::forward(recorder),
        other => unreachable!("the config refuses architectures without a page, such as {other}"),
    }
}
