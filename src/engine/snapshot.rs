//! One moment of the engine, for whoever wants to look: whose rows the last step had, and whose the blocks are.
//!
//! Invariant: to look changes nothing. Blocks that one sequence owns, that several own, that are cached and that are empty are
//! all blocks; and those that one owns are those that the sequences own alone.

use std::collections::BTreeMap;

use super::scheduler::Chunk;
use super::{ClientId, Engine, SequenceId};

/// How the engine looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// Those that are here, in order of arrival.
    pub sequences: Vec<SequenceSnapshot>,
    /// The blocks of all caches.
    pub blocks: BlockCounts,
}

/// A sequence, of which nothing is told that was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SequenceSnapshot {
    /// Who asked.
    pub client: ClientId,
    /// Whether it was admitted.
    pub is_running: bool,
    /// Tokens of its prompt.
    pub prompt_tokens: usize,
    /// Tokens of its prompt and its output.
    pub n_tokens: usize,
    /// Of these, tokens whose keys and values are cached.
    pub cached_tokens: usize,
    /// Its rows in the last step that was submitted.
    pub rows: Rows,
    /// Blocks that it alone owns, and that it shares.
    pub held: Held,
}

/// Rows of a sequence in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rows {
    /// Of its prompt.
    pub prefill: usize,
    /// Of its output.
    pub decode: usize,
}

/// Blocks that a sequence owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Held {
    /// Nobody else does.
    pub alone: usize,
    /// Others do, too.
    pub shared: usize,
}

/// The blocks of all caches; each is one of these.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BlockCounts {
    /// One sequence owns them.
    pub alone: usize,
    /// Several do.
    pub shared: usize,
    /// Nobody does, and they keep a prefix.
    pub cached: usize,
    /// They hold nothing.
    pub empty: usize,
}

/// Whose rows a step held.
#[derive(Debug, Default)]
pub(super) struct LastRows(BTreeMap<SequenceId, Rows>);

impl LastRows {
    /// Of a step's chunks, the first of which are its decode rows, one each.
    pub(super) fn of(chunks: &[Chunk], n_decode: usize) -> Self {
        let rows = |(index, chunk): (usize, &Chunk)| match index < n_decode {
            true => (chunk.sequence, Rows { decode: chunk.n_rows, prefill: 0 }),
            false => (chunk.sequence, Rows { decode: 0, prefill: chunk.n_rows }),
        };
        Self(chunks.iter().enumerate().map(rows).collect())
    }
}

impl Engine {
    /// How it looks now.
    pub fn snapshot(&self) -> Snapshot {
        let pools = &self.scheduler.pools;
        let sequences = self.scheduler.sequences.iter().map(|(id, sequence)| SequenceSnapshot {
            client: sequence.client(),
            is_running: sequence.is_running(),
            prompt_tokens: sequence.n_prompt(),
            n_tokens: sequence.tokens().len(),
            cached_tokens: sequence.n_cached(),
            rows: self.last_rows.0.get(id).copied().unwrap_or_default(),
            held: pools.held(&sequence.lease),
        });
        Snapshot { sequences: sequences.collect(), blocks: pools.counts() }
    }
}
