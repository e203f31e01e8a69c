//! Attention of a few rows and the query heads that share a KV head, read from the paged cache.
//!
//! Invariant: what a row gathers is summed in ranges of fixed positions, each from its first to its last, and the ranges
//! in their order; the rows beside it only share what is read.

use super::cache::Cache;
use super::instructions::{Instructions, Loops};
use super::nonlinearity::{cap_all, exp};
use super::vectors::{LANES, Lanes, Vectors};
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

/// Products of a tile for one KV head where it has more rows than one: few milliseconds, since a tile is not interrupted.
const TILE_WORK: usize = 1 << 24;

/// All rows of a batch.
pub(super) fn tiles(batch: &Batch, sizes: &Sizes) -> Vec<Tile> {
    let mut tiles: Vec<Tile> = Vec::new();
    let of_position = 2 * sizes.n_heads / sizes.n_kv_heads * sizes.head_dim;
    for row in 0..batch.n_rows() {
        let most_rows = TILE_WORK / (of_position * (batch.positions[row] as usize + 1));
        let follows = row > 0
            && batch.sequences[row] == batch.sequences[row - 1]
            && batch.positions[row] == batch.positions[row - 1] + 1;
        match tiles.last_mut() {
            Some(tile) if follows && tile.n_rows < TILE_ROWS.min(most_rows) => tile.n_rows += 1,
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
    pub(super) fn work(&self, tile: Tile) -> u64 {
        let seen = self.seen(tile.first_row, 0, usize::MAX).len() + tile.n_rows;
        (tile.n_rows * seen) as u64 * (self.group() * self.sizes.head_dim * 2) as u64
    }

    fn query(&self, row: usize, head: usize) -> &[f32] {
        let width = (self.sizes.n_heads + 2 * self.sizes.n_kv_heads) * self.sizes.head_dim;
        &self.projected[row * width + head * self.sizes.head_dim..][..self.sizes.head_dim]
    }

    /// What the heads that share a KV head gather for a tile's rows: `attended` is (rows, heads that share, head_dim).
    pub(super) fn attend(&self, tile: Tile, kv_head: usize, attended: &mut [f32]) {
        self.instructions.run(OfTile { attention: self, tile, kv_head, attended });
    }

    #[inline(always)]
    fn attend_by<V: Vectors>(&self, tile: Tile, kv_head: usize, attended: &mut [f32]) {
        let (head_dim, n_queries) = (self.sizes.head_dim, tile.n_rows * self.group());
        let mut room = vec![Lanes::ZERO; BLOCK_TOKENS / LANES * head_dim];
        let mut scores = vec![0.0; n_queries * RANGE];
        let mut all = Gathered::new(n_queries, head_dim);
        let mut of_range = Gathered::new(n_queries, head_dim);
        let first = self.seen(tile.first_row, 0, usize::MAX).start;
        let end = self.batch.positions[tile.first_row] as usize + tile.n_rows;
        for range in (first / RANGE * RANGE..end).step_by(RANGE) {
            of_range.clear();
            self.gather::<V>(tile, kv_head, range, &mut room, &mut scores, &mut of_range);
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
    fn gather<V: Vectors>(
        &self,
        tile: Tile,
        kv_head: usize,
        range: usize,
        room: &mut [Lanes],
        scores: &mut [f32],
        gathered: &mut Gathered,
    ) {
        let group = self.group();
        let first = self.seen(tile.first_row, range, range + RANGE).start;
        let end = self.seen(tile.first_row + tile.n_rows - 1, range, range + RANGE).end;
        let blocks = first / BLOCK_TOKENS..end.div_ceil(BLOCK_TOKENS);
        for block in blocks.clone() {
            self.cache.keys::<V>(self.unit(tile, block, kv_head), room);
            self.score::<V>(tile, kv_head, block, room, scores);
        }
        for row in 0..tile.n_rows {
            let span = self.span(tile.first_row + row, range);
            for query in row * group..(row + 1) * group {
                gathered.weigh(query, &mut scores[query * RANGE..][span.clone()]);
            }
        }
        for block in blocks {
            self.cache.values::<V>(self.unit(tile, block, kv_head), room);
            self.add_values::<V>(tile, block, room, scores, &mut gathered.sums);
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

    /// The rows of a tile that see something of a block.
    fn rows_of(&self, tile: Tile, block: usize) -> std::ops::Range<usize> {
        let start = block * BLOCK_TOKENS;
        let sees = |row: &usize| !self.seen(tile.first_row + row, start, start + BLOCK_TOKENS).is_empty();
        let first = (0..tile.n_rows).find(sees).unwrap_or(tile.n_rows);
        first..(first..tile.n_rows).take_while(sees).last().map_or(first, |last| last + 1)
    }

    /// Scores of a block's positions, at their places in the range.
    #[inline(always)]
    fn score<V: Vectors>(
        &self,
        tile: Tile,
        kv_head: usize,
        block: usize,
        keys: &[Lanes],
        scores: &mut [f32],
    ) {
        let (start, group) = (block * BLOCK_TOKENS, self.group());
        let rows = self.rows_of(tile, block);
        let (mut query, end) = (rows.start * group, rows.end * group);
        let values_of = |query: usize| {
            &self.query(tile.first_row + query / group, kv_head * group + query % group)[..keys.len() / 2]
        };
        let mut keep = |query: usize, sums: [Lanes; 2]| {
            let seen = self.seen(tile.first_row + query / group, start, start + BLOCK_TOKENS);
            let to = &mut scores[query * RANGE + start % RANGE..][..BLOCK_TOKENS];
            to[..LANES].copy_from_slice(&sums[0].0);
            to[LANES..].copy_from_slice(&sums[1].0);
            cap_all(to, self.softcap);
            to[..seen.start - start].fill(f32::NEG_INFINITY);
            to[seen.end - start..].fill(f32::NEG_INFINITY);
        };
        while query < end {
            query += match end - query {
                4.. if V::TILE >= 8 => score_4::<V>(query, values_of, keys, self.scale, &mut keep),
                2.. if V::TILE >= 4 => score_2::<V>(query, values_of, keys, self.scale, &mut keep),
                _ => score_1::<V>(query, values_of, keys, self.scale, &mut keep),
            };
        }
    }

    /// Adds a block's values by their weights.
    #[inline(always)]
    fn add_values<V: Vectors>(
        &self,
        tile: Tile,
        block: usize,
        values: &[Lanes],
        weights: &[f32],
        sums: &mut [f32],
    ) {
        let (start, head_dim, group) = (block * BLOCK_TOKENS, self.sizes.head_dim, self.group());
        for row in self.rows_of(tile, block) {
            let seen = self.seen(tile.first_row + row, start, start + BLOCK_TOKENS);
            for query in row * group..(row + 1) * group {
                let weights = &weights[query * RANGE + seen.start % RANGE..][..seen.len()];
                let sums = &mut sums[query * head_dim..][..head_dim];
                add_weighted::<V>(weights, values, (seen.start - start) * head_dim, sums);
            }
        }
    }
}

/// A tile's attention for one KV head.
struct OfTile<'a> {
    attention: &'a Attention<'a>,
    tile: Tile,
    kv_head: usize,
    attended: &'a mut [f32],
}

impl Loops for OfTile<'_> {
    #[inline(always)]
    fn run<V: Vectors>(self) {
        self.attention.attend_by::<V>(self.tile, self.kv_head, self.attended);
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

/// Loops over so many vectors of sums, written out: builds for size unroll no loop, and sums must stay in registers.
macro_rules! sums_of {
    ($score:ident, $add:ident, $n:literal: $($i:literal)*) => {
        /// Scores of a block for so many queries from the first on: `keys` are (head_dim, slots), so that a loop over slots
        /// is one over neighbours.
        #[inline(always)]
        fn $score<'a, V: Vectors>(
            first: usize,
            values_of: impl Fn(usize) -> &'a [f32],
            keys: &[Lanes],
            scale: f32,
            mut keep: impl FnMut(usize, [Lanes; 2]),
        ) -> usize {
            let queries: [&[f32]; $n] = [$(values_of(first + $i)),*];
            let (mut low, mut high) = ([V::splat(0.0); $n], [V::splat(0.0); $n]);
            for (d, [keys_low, keys_high]) in keys.as_chunks::<2>().0.iter().enumerate() {
                let (keys_low, keys_high) = (V::floats(keys_low), V::floats(keys_high));
                $(
                    let value = V::splat(queries[$i][d]);
                    low[$i] = V::plus(low[$i], V::times(value, keys_low));
                    high[$i] = V::plus(high[$i], V::times(value, keys_high));
                )*
            }
            let scale = V::splat(scale);
            $(
                let mut sums = [Lanes::ZERO; 2];
                V::store(V::times(low[$i], scale), &mut sums[0]);
                V::store(V::times(high[$i], scale), &mut sums[1]);
                keep(first + $i, sums);
            )*
            $n
        }

        /// Adds so many lanes of values, which lie every `stride` lanes, by their weights.
        #[inline(always)]
        fn $add<V: Vectors>(weights: &[f32], values: &[Lanes], stride: usize, sums: &mut [[f32; LANES]]) -> usize {
            let mut own = [$(V::floats(&Lanes(sums[$i]))),*];
            let mut at = 0;
            for weight in weights {
                let values: &[Lanes; $n] = values[at..].first_chunk().expect("there are as many as sums");
                let weight = V::splat(*weight);
                $(own[$i] = V::plus(own[$i], V::times(weight, V::floats(&values[$i])));)*
                at += stride;
            }
            $(
                let mut sum = Lanes::ZERO;
                V::store(own[$i], &mut sum);
                sums[$i] = sum.0;
            )*
            $n
        }
    };
}

sums_of!(score_1, add_1, 1: 0);
sums_of!(score_2, add_2, 2: 0 1);
sums_of!(score_4, add_4, 4: 0 1 2 3);

/// Adds values, (slots, head_dim) from the first on, by the weights of their slots.
#[inline(always)]
fn add_weighted<V: Vectors>(weights: &[f32], values: &[Lanes], first: usize, sums: &mut [f32]) {
    let head_dim = sums.len();
    let (lanes, rest) = sums.as_chunks_mut::<LANES>();
    if !rest.is_empty() {
        // Heads are no whole lanes.
        for (slot, weight) in weights.iter().enumerate() {
            for (d, sum) in sums.iter_mut().enumerate() {
                let i = first + slot * head_dim + d;
                *sum += weight * values[i / LANES].0[i % LANES];
            }
        }
        return;
    }
    let (first, stride) = (first / LANES, head_dim / LANES);
    let mut i = 0;
    while i < lanes.len() {
        let (values, sums) = (&values[first + i..], &mut lanes[i..]);
        i += match sums.len() {
            4.. if V::TILE >= 4 => add_4::<V>(weights, values, stride, sums),
            2.. if V::TILE >= 2 => add_2::<V>(weights, values, stride, sums),
            _ => add_1::<V>(weights, values, stride, sums),
        };
    }
}
