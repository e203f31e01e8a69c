//! What the engine tells of an answer and of itself.

use serde::{Deserialize, Serialize};

/// How the engine stands. Sequences, blocks and pipelines are those of the tab's own model, all else is of the engine.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct Status {
    /// Tabs that are connected.
    pub n_tabs: u32,
    /// Models that are loaded.
    pub n_models: u32,
    /// Models loaded since the engine started, those that replaced a lost device's included.
    pub n_loads: u32,
    /// GPU devices lost since the engine started.
    pub n_losses: u32,
    /// Buffers on the GPU.
    pub n_gpu_buffers: u32,
    /// Their bytes.
    pub gpu_bytes: u64,
    /// GPU pipelines of the tab's own model that are still to be made; until then others, slower ones, stand in for them.
    pub n_pipelines_left: u32,
    /// Bytes of the engine's wasm memory; absent natively.
    pub memory_bytes: Option<u64>,
    /// Sequences that run.
    pub running: u32,
    /// Sequences that wait for their turn or for room.
    pub waiting: u32,
    /// Of those that run and wait, the tab's own.
    pub own: u32,
    /// Blocks of the KV cache that no sequence uses, cached prefixes included.
    pub free_blocks: u32,
    /// Of the free blocks, those that keep a prefix for whoever comes with it.
    pub cached_blocks: u32,
    /// Blocks of the KV cache in all.
    pub n_blocks: u32,
    /// Steps submitted since the model was loaded.
    pub steps: u64,
    /// Times a sequence lost its blocks to another since the model was loaded.
    pub preemptions: u64,
    /// Tokens generated a second, all tabs together, over the last seconds.
    pub tokens_per_sec: f64,
    /// The same for this tab alone.
    pub own_tokens_per_sec: f64,
}

/// A model that holds room, and who uses it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelUse {
    /// Its name.
    pub name: String,
    /// Bytes it takes of the memory that another would need.
    pub n_bytes: u64,
    /// Tabs that use it.
    pub n_tabs: u32,
    /// Its sequences that run or wait.
    pub n_sequences: u32,
}

/// A token's log-probability among the likeliest: log-softmax of the raw logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Its text, U+FFFD where it is part of a character.
    pub text: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest tokens at this place, likeliest first; their own `top` is empty.
    #[serde(with = "flat")]
    pub top: Vec<Self>,
}

/// The likeliest tokens without what is empty in each: a message that nests without end would exhaust the reader's stack.
mod flat {
    use serde::{Deserialize as _, Deserializer, Serializer};

    use super::TokenLogprob;

    pub(super) fn serialize<S: Serializer>(top: &[TokenLogprob], to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(top.iter().map(|token| (token.id, &token.text, token.logprob)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<TokenLogprob>, D::Error> {
        let tokens = Vec::<(u32, String, f32)>::deserialize(from)?;
        let token = |(id, text, logprob)| TokenLogprob { id, text, logprob, top: Vec::new() };
        Ok(tokens.into_iter().map(token).collect())
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// An end-of-generation token, a stop token id or a stop string.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
    /// The tab cancelled it, or another model took the place of its own.
    Cancelled,
    /// No token fits the form of the answer any more, or its grammar is too complex to go on; what there is of it is not
    /// whole.
    Unmet,
}

impl FinishReason {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
            Self::Unmet => "unmet",
        }
    }
}

/// What an output took. Times are from one moment to the next: acceptance, admission, first token, last token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Of these, tokens whose keys and values were found in the cache.
    pub cached_tokens: u32,
    /// Tokens generated.
    pub generated_tokens: u32,
    /// From acceptance until it first ran.
    pub queue_ms: f64,
    /// From then to the first token. The time to the first token is both together.
    pub prefill_ms: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
}
