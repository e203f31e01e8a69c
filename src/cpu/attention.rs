//! Attention of a few rows and the query heads that share a KV head, read from the paged cache.
//!
//! Invariant: what a row gathers is summed in ranges of fixed positions, each from its first to its last, and the ranges
//! in their order; the rows beside it only share what is read.

use super::cache::Cache;
use super::instructions::Instructions;
use super::nonlinearity::{cap_all, exp};
use crate::plan::Sizes;
use crate::plan::batch::{BLOCK_TOKENS, Batch};

/// Positions whose weights are relative to one greatest score.
const RANGE: usize = 256;

/// Rows that read keys and values together.
const TILE_ROWS: usize = 16;

/// Neighbouring rows of one sequence at positions one after the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tile {
    pub(super) first_row: usize,
    pub(super) n_rows: usize,
}

/// All rows of a batch.
pub(super) fn tiles(batch: &Batch) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = Vec::new();
    for row in 0..batch.n_rows() {
        let follows = row > 0
            && batch.sequences[row] == batch.sequences[row - 1]
            && batch.positions[row] == batch.positions[row - 1] + 1;
        match tiles.last_mut() {
            Some(tile) if follows && tile.n_rows < TILE_ROWS => tile.n_rows += 1,
            _ => tiles.push(Tile { first_row: row, n_rows: 1 }),
        }
    }
    tiles
}

/// One layer's attention in a step.
#[derive(Debug)]
pub(super) struct Attention<'a> {
    pub(super) cache: &'a Cache,
    pub(super) batch: &'a Batch,
    pub(super) sizes: Sizes,
    pub(super) layer: usize,
    /// Which block tables are its.
    pub(super) cache_idx: usize,
    pub(super) window: Option<usize>,
    pub(super) scale: f32,
    pub(super) softcap: Option<f32>,
    pub(super) instructions: Instructions,
    /// Queries are the first of each row: (rows, q, k and v)
    pub(super) projected: &'a [f32],
}

/// What queries gather of some positions; a query is a head of a row.
#[derive(Debug)]
struct Gathered {
    /// Greatest score: (queries)
    greatest: Vec<f32>,
    /// Sum of the weights, which are relative to it: (queries)
    total: Vec<f32>,
    /// Sum of weighted values: (queries, head_dim)
    sums: Vec<f32>,
}

impl Attention<'_> {
    fn group(&self) -> usize {
        self.sizes.n_heads / self.sizes.n_kv_heads
    }

    /// Positions that a row sees, within others.
    fn seen(&self, row: usize, from: usize, to: usize) -> std::ops::Range<usize> {
        let end = self.batch.positions[row] as usize + 1;
        let first = end.saturating_sub(self.window.unwrap_or(usize::MAX));
        first.max(from)..end.min(to)
    }

    /// Products that a tile's attention for one KV head takes, about.
    pub(super) fn work(&self, tile: Tile) -> usize {
        let seen = self.seen(tile.first_row, 0, usize::MAX).len() + tile.n_rows;
        tile.n_rows * seen * self.group() * self.sizes.head_dim * 2
    }

    fn query(&self, row: usize, head: usize) -> &[f32] {
        let width = (self.sizes.n_heads + 2 * self.sizes.n_kv_heads) * self.sizes.head_dim;
        &self.projected[row * width + head * self.sizes.head_dim..][..self.sizes.head_dim]
    }

    /// What the heads that share a KV head gather for a tile's rows: `attended` is (rows, heads that share, head_dim).
    pub(super) fn attend(&self, tile: Tile, kv_head: usize, attended: &mut [f32]) {
        self.instructions.run(
            #[inline(always)]
            || self.attend_here(tile, kv_head, attended),
        );
    }

    #[inline(always)]
    fn attend_here(&self, tile: Tile, kv_head: usize, attended: &mut [f32]) {
        let (head_dim, n_queries) = (self.sizes.head_dim, tile.n_rows * self.group());
        let mut room = vec![0.0; BLOCK_TOKENS * head_dim];
        let mut scores = vec![0.0; n_queries * RANGE];
        let mut all = Gathered::new(n_queries, head_dim);
        let mut of_range = Gathered::new(n_queries, head_dim);
        let first = self.seen(tile.first_row, 0, usize::MAX).start;
        let end = self.batch.positions[tile.first_row] as usize + tile.n_rows;
        for range in (first / RANGE * RANGE..end).step_by(RANGE) {
            of_range.clear();
            self.gather(tile, kv_head, range, &mut room, &mut scores, &mut of_range);
            all.merge(&of_range, head_dim);
        }
        let queries =
            attended.chunks_exact_mut(head_dim).zip(all.sums.chunks_exact(head_dim)).zip(&all.total);
        for ((attended, sums), total) in queries {
            let inverse = 1.0 / total;
            attended.iter_mut().zip(sums).for_each(|(value, sum)| *value = sum * inverse);
        }
    }

    /// What a tile's queries gather of a range.
    #[inline(always)]
    fn gather(
        &self,
        tile: Tile,
        kv_head: usize,
        range: usize,
        room: &mut [f32],
        scores: &mut [f32],
        gathered: &mut Gathered,
    ) {
        let group = self.group();
        let first = self.seen(tile.first_row, range, range + RANGE).start;
        let end = self.seen(tile.first_row + tile.n_rows - 1, range, range + RANGE).end;
        let blocks = first / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS);
        for block in blocks.clone() {
            let keys = self.cache.keys(self.unit(tile, block, kv_head), room);
            self.score(tile, kv_head, block, keys, scores);
        }
        for row in 0..tile.n_rows {
            let span = self.span(tile.first_row + row, range);
            for query in row * group..(row + 1) * group {
                gathered.weigh(query, &mut scores[query * RANGE..][span.clone()]);
            }
        }
        for block in blocks {
            let values = self.cache.values(self.unit(tile, block, kv_head), room);
            self.add_values(tile, block, values, scores, &mut gathered.sums);
        }
    }

    /// The whole blocks of a range that a row sees something of, as places in the range.
    fn span(&self, row: usize, range: usize) -> std::ops::Range<usize> {
        let seen = self.seen(row, range, range + RANGE);
        if seen.is_empty() {
            return 0..0;
        }
        let (first, end) = (seen.start - range, seen.end - range);
        first / BLOCK_TOKENS * BLOCK_TOKENS..end.next_multiple_of(BLOCK_TOKENS)
    }

    fn unit(&self, tile: Tile, block: usize, kv_head: usize) -> usize {
        let tables = &self.batch.block_tables[self.batch.sequences[tile.first_row] as usize];
        self.cache.unit(self.layer, tables[self.cache_idx][block], kv_head)
    }

    /// Scores of a block's positions, at their places in the range.
    #[inline(always)]
    fn score(&self, tile: Tile, kv_head: usize, block: usize, keys: &[f32], scores: &mut [f32]) {
        let (start, group) = (block * BLOCK_TOKENS, self.group());
        for row in 0..tile.n_rows {
            let seen = self.seen(tile.first_row + row, start, start + BLOCK_TOKENS);
            if seen.is_empty() {
                continue;
            }
            for head in 0..group {
                let query = self.query(tile.first_row + row, kv_head * group + head);
                let to = &mut scores[(row * group + head) * RANGE + start % RANGE..][..BLOCK_TOKENS];
                score_block(query, keys, self.scale, to);
                cap_all(to, self.softcap);
                to[..seen.start - start].fill(f32::NEG_INFINITY);
                to[seen.end - start..].fill(f32::NEG_INFINITY);
            }
        }
    }

    /// Adds a block's values by their weights.
    #[inline(always)]
    fn add_values(&self, tile: Tile, block: usize, values: &[f32], weights: &[f32], sums: &mut [f32]) {
        let (start, head_dim, group) = (block * BLOCK_TOKENS, self.sizes.head_dim, self.group());
        for row in 0..tile.n_rows {
            let seen = self.seen(tile.first_row + row, start, start + BLOCK_TOKENS);
            if seen.is_empty() {
                continue;
            }
            let values = &values[(seen.start - start) * head_dim..(seen.end - start) * head_dim];
            for query in row * group..(row + 1) * group {
                let weights = &weights[query * RANGE + seen.start % RANGE..][..seen.len()];
                add_weighted(weights, values, &mut sums[query * head_dim..][..head_dim]);
            }
        }
    }
}

impl Gathered {
    fn new(n_queries: usize, head_dim: usize) -> Self {
        Self {
            greatest: vec![f32::NEG_INFINITY; n_queries],
            total: vec![0.0; n_queries],
            sums: vec![0.0; n_queries * head_dim],
        }
    }

    fn clear(&mut self) {
        self.greatest.fill(f32::NEG_INFINITY);
        self.total.fill(0.0);
        self.sums.fill(0.0);
    }

    /// Makes a query's scores, of whole blocks, its weights. What is no number stays none.
    #[inline(always)]
    fn weigh(&mut self, query: usize, scores: &mut [f32]) {
        let mut most = [f32::NEG_INFINITY; BLOCK_TOKENS];
        for block in scores.as_chunks::<BLOCK_TOKENS>().0 {
            // Not `f32::max`, which takes longer to do the same with what is no number.
            most.iter_mut()
                .zip(block)
                .for_each(|(most, score)| *most = if score > most { *score } else { *most });
        }
        let greatest = most.into_iter().fold(f32::NEG_INFINITY, f32::max);
        let mut lanes = [0f32; BLOCK_TOKENS];
        for block in scores.as_chunks_mut::<BLOCK_TOKENS>().0 {
            for (score, lane) in block.iter_mut().zip(&mut lanes) {
                *score = exp(*score - greatest);
                *lane += *score;
            }
        }
        self.greatest[query] = greatest;
        self.total[query] = lanes.iter().sum();
    }

    /// Adds what was gathered of later positions.
    #[inline(always)]
    fn merge(&mut self, later: &Self, head_dim: usize) {
        for (query, sums) in self.sums.chunks_exact_mut(head_dim).enumerate() {
            let (own, other) = (self.greatest[query], later.greatest[query]);
            let greatest = own.max(other);
            if other == f32::NEG_INFINITY && later.total[query] == 0.0 {
                // It sees nothing there.
                continue;
            }
            let (own, other) = (exp(own - greatest), exp(other - greatest));
            self.greatest[query] = greatest;
            self.total[query] = self.total[query] * own + later.total[query] * other;
            for (sum, value) in sums.iter_mut().zip(&later.sums[query * head_dim..]) {
                *sum = *sum * own + value * other;
            }
        }
    }
}

/// Scores of a block: `keys` are (head_dim, slots), so that a loop over slots is one over neighbours.
#[inline(always)]
fn score_block(query: &[f32], keys: &[f32], scale: f32, scores: &mut [f32]) {
    let mut sums = [0f32; BLOCK_TOKENS];
    for (q, keys) in query.iter().zip(keys.as_chunks::<BLOCK_TOKENS>().0) {
        sums.iter_mut().zip(keys).for_each(|(sum, key)| *sum += q * key);
    }
    scores.iter_mut().zip(sums).for_each(|(score, sum)| *score = sum * scale);
}

/// Dimensions that are summed together in registers.
const DIMS: usize = 32;

/// Adds values (slots, head_dim) by the weights of their slots.
#[inline(always)]
fn add_weighted(weights: &[f32], values: &[f32], sums: &mut [f32]) {
    let head_dim = sums.len();
    let (wholes, rest) = sums.as_chunks_mut::<DIMS>();
    let rest_start = wholes.len() * DIMS;
    for (i, sums) in wholes.iter_mut().enumerate() {
        let mut own = *sums;
        for (weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
            let values = &values[i * DIMS..][..DIMS];
            own.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
        }
        *sums = own;
    }
    if !rest.is_empty() {
        for (weight, values) in weights.iter().zip(values.chunks_exact(head_dim)) {
            rest.iter_mut().zip(&values[rest_start..]).for_each(|(sum, value)| *sum += weight * value);
        }
    }
}
