//! What changes between steps: rows, the sequences they belong to, and where their keys and values lie.
//!
//! Invariant: decode rows come before prefill rows, and the rows of a sequence are in order of position.

use super::sample::Sampling;

/// Tokens in a block of the KV cache.
pub const BLOCK_TOKENS: usize = 32;

/// Steps that may be submitted and not yet read; a device keeps what it sampled for so many.
pub const STEPS_IN_FLIGHT: usize = 2;

/// How many rows a step may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Decode rows.
    pub decode_rows: usize,
    /// Prefill rows.
    pub prefill_rows: usize,
    /// Rows with logits.
    pub logit_rows: usize,
    /// Positions of a sequence.
    pub context: usize,
}

/// Why a row is computed, which alone chooses its kernels (never the number of rows: a sequence alone and the same
/// sequence in a crowd must give the same bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A sampled or drafted token.
    Decode,
    /// A token of a prompt.
    Prefill,
}

/// Where a device keeps a token that it sampled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampledAt {
    /// [`Batch::slot_of_step`] of the step that sampled it, which is not yet read.
    pub slot_of_step: u32,
    /// Which of that step's [`Batch::logit_rows`].
    pub logit_row: u32,
}

/// A row's token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    /// The host knows it.
    Known(u32),
    /// Only the device does, as yet.
    Sampled(SampledAt),
}

impl Token {
    /// The token, where the host knows it.
    pub fn known(self) -> Option<u32> {
        match self {
            Self::Known(token) => Some(token),
            Self::Sampled(_) => None,
        }
    }
}

impl From<u32> for Token {
    fn from(token: u32) -> Self {
        Self::Known(token)
    }
}

/// What becomes of a row's logits.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wants {
    /// Nobody needs them: they are not computed.
    Nothing,
    /// The host reads them.
    Logits,
    /// The device chooses a token from them, and the host reads that.
    Token(Sampling),
}

impl From<bool> for Wants {
    /// Whether the host reads logits.
    fn from(wants_logits: bool) -> Self {
        if wants_logits { Self::Logits } else { Self::Nothing }
    }
}

/// One step's rows as flat arrays.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Batch {
    /// Decode rows; they come first.
    pub n_decode: usize,
    /// Token of each row: (rows)
    pub tokens: Vec<Token>,
    /// Place of each row in its sequence: (rows)
    pub positions: Vec<u32>,
    /// Sequence of each row, an index into `block_tables`: (rows)
    pub sequences: Vec<u32>,
    /// Blocks of each sequence of this step in each cache of the plan, in order of position: (sequences)(caches)(blocks).
    /// Behind a cache's window, where no row of the step sees it, an entry names another block of the same sequence.
    pub block_tables: Vec<Vec<Vec<u32>>>,
    /// Rows whose logits are computed, ascending: (logit rows)
    pub logit_rows: Vec<u32>,
    /// How the device samples each of them; absent where the host reads the logits: (logit rows)
    pub samplings: Vec<Option<Sampling>>,
    /// Where the device keeps what this step samples, below [`STEPS_IN_FLIGHT`]: not where a step does that is in flight.
    pub slot_of_step: u32,
}

impl Batch {
    /// Adds a sequence by the blocks of its positions in each cache, and returns its index in this step.
    pub fn push_sequence(&mut self, tables: Vec<Vec<u32>>) -> u32 {
        self.block_tables.push(tables);
        (self.block_tables.len() - 1) as u32
    }

    /// Adds a row and returns its index.
    ///
    /// # Panics
    /// If a decode row follows a prefill row, or the sequence owns no block for the position.
    pub fn push_row(
        &mut self,
        kind: RowKind,
        sequence: u32,
        token: impl Into<Token>,
        position: u32,
        wants: impl Into<Wants>,
    ) -> u32 {
        let row = self.tokens.len() as u32;
        if kind == RowKind::Decode {
            assert_eq!(self.n_decode, self.tokens.len(), "decode rows come first");
            self.n_decode += 1;
        }
        for blocks in &self.block_tables[sequence as usize] {
            assert!(
                (position as usize) < blocks.len() * BLOCK_TOKENS,
                "a row needs a block for its position"
            );
        }
        self.tokens.push(token.into());
        self.positions.push(position);
        self.sequences.push(sequence);
        let sampling = match wants.into() {
            Wants::Nothing => return row,
            Wants::Logits => None,
            Wants::Token(sampling) => Some(sampling),
        };
        self.logit_rows.push(row);
        self.samplings.push(sampling);
        row
    }

    /// All rows.
    pub fn n_rows(&self) -> usize {
        self.tokens.len()
    }

    /// Prefill rows; they come after the decode rows.
    pub fn n_prefill(&self) -> usize {
        self.n_rows() - self.n_decode
    }

    /// Rows whose token the device chooses.
    pub fn n_sampled(&self) -> usize {
        self.samplings.iter().flatten().count()
    }

    /// Rows whose logits the host reads.
    pub fn n_host_rows(&self) -> usize {
        self.logit_rows.len() - self.n_sampled()
    }

    /// Slot of a row in a cache: block · 32 + place in the block.
    pub fn slot(&self, row: usize, cache: usize) -> u32 {
        let position = self.positions[row] as usize;
        let blocks = &self.block_tables[self.sequences[row] as usize][cache];
        blocks[position / BLOCK_TOKENS] * BLOCK_TOKENS as u32 + (position % BLOCK_TOKENS) as u32
    }
}
