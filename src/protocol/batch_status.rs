//! What the batch of a model holds at one moment: whose rows, and whose blocks. Never what anybody wrote.

use serde::{Deserialize, Serialize};

/// The batch of the tab's own model.
///
/// Blocks are those of all its KV caches: `alone_blocks`, `shared_blocks`, `cached_blocks` and `empty_blocks` are all there
/// are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct BatchStatus {
    /// Steps submitted since the model was loaded; rows are those of the last.
    pub steps: u64,
    /// Those that run and wait, in order of arrival.
    pub sequences: Vec<SequenceStatus>,
    /// Blocks that one sequence owns.
    pub alone_blocks: u32,
    /// Blocks that several own.
    pub shared_blocks: u32,
    /// Blocks that nobody owns, and that keep a beginning for whoever comes with it.
    pub cached_blocks: u32,
    /// Blocks that hold nothing.
    pub empty_blocks: u32,
}

/// A sequence as any tab may see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct SequenceStatus {
    /// Whose it is: tabs are numbered from 1 in the order in which they came, and nothing else is told of them. 0 is one that
    /// has gone.
    pub tab: u32,
    /// Whether that is the tab that asks.
    pub is_own: bool,
    /// Whether it runs; else it waits for its turn or for room.
    pub is_running: bool,
    /// Tokens of its prompt.
    pub prompt_tokens: u32,
    /// Tokens of its prompt and its answer.
    pub n_tokens: u32,
    /// Of these, tokens whose keys and values are cached.
    pub cached_tokens: u32,
    /// Its rows of prefill in the last step.
    pub prefill_rows: u32,
    /// Its rows of decode in the last step.
    pub decode_rows: u32,
    /// Blocks that it alone owns.
    pub alone_blocks: u32,
    /// Blocks that it shares with others.
    pub shared_blocks: u32,
}
