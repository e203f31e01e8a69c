//! A batch as the words that `common.wgsl` reads: a header, then arrays by activation row.
//!
//! Invariant: decode rows start at 0, prefill rows at the next whole tile, and rows that only fill a tile have no slot.

use super::layout::{Capacity, TILE_ROWS};
use super::sampled_words::{self, SAMPLING_WORDS};
use crate::plan::Sizes;
use crate::plan::batch::{BLOCK_TOKENS, Batch, Token};

/// Query vectors of a workgroup of `attend_tiled`: a row's heads that share a key head, of some rows.
pub const ATTENTION_QUERIES: usize = 32;

const HEADER: usize = 16;
const NO_SLOT: u32 = u32::MAX;
/// `SAMPLED` of common.wgsl: the token lies where the device keeps what it samples.
const SAMPLED: u32 = 1 << 31;

/// Words that the largest batch takes.
pub fn capacity_words(capacity: &Capacity, n_caches: usize) -> usize {
    let tables = (capacity.decode_rows + capacity.prefill_rows) * capacity.context.div_ceil(BLOCK_TOKENS);
    let attention_tiles = 2 * capacity.prefill_rows;
    HEADER
        + (2 + 2 * n_caches) * capacity.rows()
        + capacity.padded_logit_rows()
        + n_caches * tables
        + capacity.logit_rows * SAMPLING_WORDS
        + attention_tiles
}

/// Rows of a prompt that share a workgroup of `attend_tiled`; 0 where not even one row's heads fit.
pub fn attention_tile_rows(sizes: &Sizes) -> usize {
    ATTENTION_QUERIES / (sizes.n_heads / sizes.n_kv_heads)
}

/// First activation row and number of rows of each tile of `attend_tiled`: prompt rows of one sequence, at most so many.
pub fn attention_tiles(batch: &Batch, tile_rows: usize) -> impl Iterator<Item = [u32; 2]> {
    let first_prefill = batch.n_decode.next_multiple_of(TILE_ROWS);
    let of_sequences = batch.sequences[batch.n_decode..].chunk_by(|a, b| a == b);
    let mut start = first_prefill;
    of_sequences.flat_map(move |rows| {
        let first = start;
        start += rows.len();
        let n_rows = rows.len();
        (0..n_rows)
            .step_by(tile_rows.max(1))
            .map(move |row| [(first + row) as u32, tile_rows.max(1).min(n_rows - row) as u32])
    })
}

/// Lays a batch out in `words`, which keeps its allocation from step to step.
pub fn encode(batch: &Batch, capacity: &Capacity, n_caches: usize, tile_rows: usize, words: &mut Vec<u32>) {
    let first_prefill = batch.n_decode.next_multiple_of(TILE_ROWS);
    let n_rows = first_prefill + batch.n_prefill().next_multiple_of(TILE_ROWS);
    let activation_row =
        |row: usize| if row < batch.n_decode { row } else { row - batch.n_decode + first_prefill };
    let tokens = HEADER;
    let positions = tokens + n_rows;
    let slots = positions + n_rows;
    let tables = slots + n_caches * n_rows;
    let logit_rows = tables + n_caches * n_rows;
    words.clear();
    words.resize(logit_rows, 0);
    words[slots..tables].fill(NO_SLOT);
    words.extend(batch.logit_rows.iter().map(|row| activation_row(*row as usize) as u32));
    let mut starts = Vec::with_capacity(batch.block_tables.len());
    for tables in &batch.block_tables {
        let mut start_of = |table: &Vec<u32>| {
            let start = words.len() as u32;
            words.extend_from_slice(table);
            start
        };
        starts.push(tables.iter().map(&mut start_of).collect::<Vec<u32>>());
    }
    for row in 0..batch.n_rows() {
        let to = activation_row(row);
        words[tokens + to] = match batch.tokens[row] {
            Token::Known(token) => token,
            Token::Sampled(at) => SAMPLED | sampled_words::place(at, capacity) as u32,
        };
        words[positions + to] = batch.positions[row];
        for (cache, start) in starts[batch.sequences[row] as usize].iter().enumerate() {
            words[slots + cache * n_rows + to] = batch.slot(row, cache);
            words[tables + cache * n_rows + to] = *start;
        }
    }
    let samplings = words.len();
    sampled_words::encode(batch, capacity, words);
    let tiles = words.len();
    words.extend(attention_tiles(batch, tile_rows).flatten());
    let header = [
        batch.n_decode,
        batch.n_prefill(),
        first_prefill,
        batch.logit_rows.len(),
        tokens,
        positions,
        slots,
        tables,
        logit_rows,
        n_rows,
        batch.n_sampled(),
        samplings,
        tiles,
    ];
    for (word, value) in words.iter_mut().zip(header) {
        *word = value as u32;
    }
}
