//! What changes between steps: rows, the sequences they belong to, and where their keys and values lie.
//!
//! Invariant: decode rows come before prefill rows, and the rows of a sequence are in order of position.

/// Tokens in a block of the KV cache.
pub const BLOCK_TOKENS: usize = 32;

/// Why a row is computed, which alone chooses its kernels (never the number of rows: a sequence alone and the same
/// sequence in a crowd must give the same bits).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowKind {
    /// A sampled or drafted token.
    Decode,
    /// A token of a prompt.
    Prefill,
}

/// One step's rows as flat arrays.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Batch {
    /// Decode rows; they come first.
    pub n_decode: usize,
    /// Token of each row: (rows)
    pub tokens: Vec<u32>,
    /// Place of each row in its sequence: (rows)
    pub positions: Vec<u32>,
    /// Sequence of each row, an index into `block_tables`: (rows)
    pub sequences: Vec<u32>,
    /// Blocks of each sequence of this step in each cache of the plan, in order of position: (sequences)(caches)(blocks).
    /// Behind a cache's window, where no row of the step sees it, an entry names another block of the same sequence.
    pub block_tables: Vec<Vec<Vec<u32>>>,
    /// Rows whose logits are wanted, ascending: (logit rows)
    pub logit_rows: Vec<u32>,
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
        token: u32,
        position: u32,
        wants_logits: bool,
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
        self.tokens.push(token);
        self.positions.push(position);
        self.sequences.push(sequence);
        if wants_logits {
            self.logit_rows.push(row);
        }
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

    /// Slot of a row in a cache: block · 32 + place in the block.
    pub fn slot(&self, row: usize, cache: usize) -> u32 {
        let position = self.positions[row] as usize;
        let blocks = &self.block_tables[self.sequences[row] as usize][cache];
        blocks[position / BLOCK_TOKENS] * BLOCK_TOKENS as u32 + (position % BLOCK_TOKENS) as u32
    }
}
