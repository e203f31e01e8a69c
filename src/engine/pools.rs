//! The blocks of all caches: what a sequence owns, what it shares, and what it may still take.
//!
//! Invariant: only blocks whose 32 tokens are all computed, by a step that has retired, are shared; and nobody writes
//! them. So a row writes only to a block that its sequence owns alone, and nothing is ever copied.
//!
//! A prompt that has begun never lacks a block: what it will still take is *promised* to it. In a cache with a window it
//! owns at most [`Window::blocks`](super::blocks::Window::blocks) at once, and one that it owns alone comes back when it
//! falls behind the window; so it is promised as many as it lacks in its own ones.

use std::collections::VecDeque;

use super::blocks::{BlockPool, CacheConfig};
use super::prefixes::{NodeId, Prefixes, ROOT};
use super::snapshot::{BlockCounts, Held};
use crate::plan::batch::BLOCK_TOKENS;

/// A sequence's blocks in one cache: those from the `first`-th on, counted from the sequence's start.
#[derive(Debug, Default)]
struct Table {
    first: usize,
    blocks: VecDeque<u32>,
}

impl Table {
    fn end(&self) -> usize {
        self.first + self.blocks.len()
    }
}

/// What a sequence owns.
#[derive(Debug)]
pub(super) struct Lease {
    /// (caches)
    tables: Vec<Table>,
    /// The beginning of whole blocks that is computed.
    node: NodeId,
    /// Blocks of that beginning.
    n_whole: usize,
}

impl Lease {
    /// A lease of no blocks.
    pub(super) fn new(n_caches: usize) -> Self {
        Self { tables: (0..n_caches).map(|_| Table::default()).collect(), node: ROOT, n_whole: 0 }
    }

    /// Whether it owns no block.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.iter().all(|table| table.blocks.is_empty())
    }
}

/// A beginning of a sequence that is cached.
#[derive(Debug)]
pub(super) struct Hit {
    /// One a block: (blocks)
    nodes: Vec<NodeId>,
}

impl Hit {
    /// Nothing is cached.
    pub(super) fn none() -> Self {
        Self { nodes: Vec::new() }
    }

    /// Whole blocks of it.
    pub(super) fn n_blocks(&self) -> usize {
        self.nodes.len()
    }

    /// Its tokens.
    pub(super) fn n_tokens(&self) -> usize {
        self.n_blocks() * BLOCK_TOKENS
    }
}

/// The pools of all caches, and the beginnings that they hold.
#[derive(Debug)]
pub(super) struct Pools {
    caches: Vec<CacheConfig>,
    pools: Vec<BlockPool>,
    prefixes: Prefixes,
}

impl Pools {
    /// Pools of empty blocks.
    pub(super) fn new(caches: &[CacheConfig]) -> Self {
        let pools = caches.iter().map(|cache| BlockPool::new(cache.n_blocks)).collect();
        Self { caches: caches.to_vec(), pools, prefixes: Prefixes::new(caches.len()) }
    }

    /// Caches of a sequence.
    pub(super) fn n_caches(&self) -> usize {
        self.caches.len()
    }

    /// Blocks in all.
    pub(super) fn n_blocks(&self) -> usize {
        self.pools.iter().map(BlockPool::n_blocks).sum()
    }

    /// Blocks that nobody owns.
    pub(super) fn n_free(&self) -> usize {
        self.pools.iter().map(BlockPool::n_free).sum()
    }

    /// Those of them that hold a prefix.
    pub(super) fn n_cached(&self) -> usize {
        self.pools.iter().map(BlockPool::n_cached).sum()
    }

    /// What becomes of the blocks.
    pub(super) fn counts(&self) -> BlockCounts {
        self.pools.iter().fold(BlockCounts::default(), |sum, pool| {
            let (alone, shared) = pool.n_owned();
            BlockCounts {
                alone: sum.alone + alone,
                shared: sum.shared + shared,
                cached: sum.cached + pool.n_cached(),
                empty: sum.empty + pool.n_free() - pool.n_cached(),
            }
        })
    }

    /// The blocks that a sequence owns.
    pub(super) fn held(&self, lease: &Lease) -> Held {
        let each = lease.tables.iter().zip(&self.pools);
        let owners = each.flat_map(|(table, pool)| table.blocks.iter().map(|&block| pool.n_owners(block)));
        owners.fold(Held::default(), |held, n_owners| match n_owners {
            1 => Held { alone: held.alone + 1, ..held },
            _ => Held { shared: held.shared + 1, ..held },
        })
    }

    /// The longest cached beginning that leaves a token to compute: its logits are wanted. Of it, a cache with a window
    /// need hold only what the next row sees.
    pub(super) fn find(&self, tokens: &[u32]) -> Hit {
        let mut nodes = Vec::new();
        // The first of the blocks that each cache holds without a gap up to the last node: (caches)
        let mut held_from = vec![0; self.caches.len()];
        let mut n_usable = 0;
        let mut at = ROOT;
        for tokens in tokens[..tokens.len() - 1].chunks_exact(BLOCK_TOKENS) {
            let Some(node) = self.prefixes.child(at, tokens) else { break };
            nodes.push(node);
            at = node;
            for (cache, from) in held_from.iter_mut().enumerate() {
                if self.prefixes.block(node, cache).is_none() {
                    *from = nodes.len();
                }
            }
            let next = nodes.len() * BLOCK_TOKENS;
            let mut each = self.caches.iter().zip(&held_from);
            if each.all(|(cache, &from)| from <= cache.first_seen(next)) {
                n_usable = nodes.len();
            }
        }
        nodes.truncate(n_usable);
        Hit { nodes }
    }

    /// Of a cache, the blocks of a cached beginning that the row after it sees.
    fn seen_after<'a>(&'a self, hit: &'a Hit, cache: usize) -> impl Iterator<Item = u32> + 'a {
        let first = self.caches[cache].first_seen(hit.n_tokens()).min(hit.n_blocks());
        let block = move |&node: &NodeId| self.prefixes.block(node, cache);
        hit.nodes[first..].iter().map(block).map(|block| block.expect("a hit is held"))
    }

    /// Whether a sequence of so many tokens can begin after a cached beginning: every pool has what it will take, besides
    /// what is promised to others and a number to spare.
    pub(super) fn have_room(&self, hit: &Hit, n_tokens: usize, promised: &[usize], n_spare: usize) -> bool {
        (0..self.caches.len()).all(|cache| {
            let (config, pool) = (&self.caches[cache], &self.pools[cache]);
            let owners: Vec<u32> = self.seen_after(hit, cache).map(|block| pool.n_owners(block)).collect();
            let n_idle = owners.iter().filter(|&&n| n == 0).count();
            // One that its only owner shares from here on does not come back to it behind its window.
            let n_lone = owners.iter().filter(|&&n| n == 1 && config.window.is_some()).count();
            let n_ahead = n_tokens.div_ceil(BLOCK_TOKENS) - hit.n_blocks();
            let n_taken = n_ahead.min(config.most_owned().saturating_sub(n_idle));
            pool.n_free() >= n_idle + n_lone + n_taken + promised[cache] + n_spare
        })
    }

    /// Shares the blocks of a cached beginning with a sequence that owns none.
    pub(super) fn begin(&mut self, lease: &mut Lease, hit: &Hit) {
        assert!(lease.is_empty(), "a sequence begins once");
        for (cache, table) in lease.tables.iter_mut().enumerate() {
            table.blocks = self.seen_after(hit, cache).collect();
            table.first = hit.n_blocks() - table.blocks.len();
            table.blocks.iter().for_each(|&block| self.pools[cache].share(block));
        }
        lease.node = hit.nodes.last().copied().unwrap_or(ROOT);
        lease.n_whole = hit.n_blocks();
        self.prefixes.enter(lease.node);
    }

    /// Blocks that a sequence will still take, beyond those that come back to it, until it holds so many tokens: (caches)
    pub(super) fn promise(&self, lease: &Lease, n_tokens: usize) -> impl Iterator<Item = usize> {
        let each = lease.tables.iter().zip(&self.caches).zip(&self.pools);
        each.map(move |((table, cache), pool)| {
            let n_ahead = n_tokens.div_ceil(BLOCK_TOKENS).saturating_sub(table.end());
            let n_lone = || table.blocks.iter().filter(|&&block| pool.n_owners(block) == 1).count();
            if n_ahead == 0 { 0 } else { n_ahead.min(cache.most_owned().saturating_sub(n_lone())) }
        })
    }

    /// The last position before which a chunk that starts at a position can end, for the blocks that it may own at once.
    pub(super) fn furthest_end(&self, start: usize) -> usize {
        let end = |cache: &CacheConfig| cache.first_seen(start).saturating_add(cache.most_owned());
        let n_blocks = self.caches.iter().map(end).min().expect("a model has a cache");
        n_blocks.saturating_mul(BLOCK_TOKENS)
    }

    /// Releases what lies behind the window of a row at `start`.
    pub(super) fn slide(&mut self, lease: &mut Lease, start: usize) {
        for ((table, cache), pool) in lease.tables.iter_mut().zip(&self.caches).zip(&mut self.pools) {
            while table.first < cache.first_seen(start)
                && let Some(block) = table.blocks.pop_front()
            {
                pool.release(block);
                table.first += 1;
            }
        }
    }

    /// Whether [`Self::slide`] would release a block.
    pub(super) fn would_slide(&self, lease: &Lease, start: usize) -> bool {
        let mut each = lease.tables.iter().zip(&self.caches);
        each.any(|(table, cache)| table.first < cache.first_seen(start) && !table.blocks.is_empty())
    }

    /// Whether a sequence owns blocks up to so many tokens.
    pub(super) fn has_blocks(&self, lease: &Lease, n_tokens: usize) -> bool {
        lease.tables.iter().all(|table| table.end() >= n_tokens.div_ceil(BLOCK_TOKENS))
    }

    /// Takes what a sequence lacks for so many tokens, all or nothing; whether it is there, besides what is promised to
    /// others.
    pub(super) fn grow(&mut self, lease: &mut Lease, n_tokens: usize, promised: &[usize]) -> bool {
        let n_blocks = n_tokens.div_ceil(BLOCK_TOKENS);
        let mut each = lease.tables.iter().zip(&self.pools).zip(promised);
        let n_lacking = |table: &Table| n_blocks.saturating_sub(table.end());
        if !each.all(|((table, pool), promised)| pool.n_free() >= n_lacking(table) + promised) {
            return false;
        }
        for (cache, table) in lease.tables.iter_mut().enumerate() {
            while table.end() < n_blocks {
                let (block, lost) = self.pools[cache].take().expect("one is free");
                table.blocks.push_back(block);
                if let Some(node) = lost {
                    self.prefixes.evict(node, cache);
                }
            }
        }
        true
    }

    /// The block of each position in each cache, for so many tokens: (caches)(blocks). Behind a window, which no row sees,
    /// it is the first that the sequence still owns, since a masked score of 0 times what lies there must be 0.
    pub(super) fn tables(&self, lease: &Lease, n_tokens: usize) -> Vec<Vec<u32>> {
        let block = |table: &Table, place: usize| table.blocks[place.saturating_sub(table.first)];
        let whole = |table| (0..n_tokens.div_ceil(BLOCK_TOKENS)).map(|place| block(table, place)).collect();
        lease.tables.iter().map(whole).collect()
    }

    /// Lets others share the blocks that are whole now, given all tokens that are computed.
    pub(super) fn publish(&mut self, lease: &mut Lease, computed: &[u32]) {
        for tokens in computed.chunks_exact(BLOCK_TOKENS).skip(lease.n_whole) {
            lease.node = self.prefixes.go_on(lease.node, tokens);
            for (cache, table) in lease.tables.iter().enumerate() {
                let block = table.blocks[lease.n_whole - table.first];
                if self.prefixes.publish(lease.node, cache, block) {
                    self.pools[cache].publish(block, lease.node);
                }
            }
            lease.n_whole += 1;
        }
    }

    /// Takes all back. The last block first: it is evicted first, so that a prefix outlives what follows it.
    pub(super) fn release(&mut self, lease: &mut Lease) {
        let lease = std::mem::replace(lease, Lease::new(self.n_caches()));
        for (pool, table) in self.pools.iter_mut().zip(lease.tables) {
            table.blocks.into_iter().rev().for_each(|block| pool.release(block));
        }
        self.prefixes.leave(lease.node);
    }

    /// Whether these leases are all, every block is owned by those that name it, and every prefix lies where it is noted.
    pub(super) fn are_leased<'a>(&self, leases: impl Iterator<Item = &'a Lease> + Clone) -> bool {
        let owned_by = |cache: usize| move |lease: &'a Lease| lease.tables[cache].blocks.iter().copied();
        let owned = |cache| leases.clone().flat_map(owned_by(cache));
        let is_noted = |(node, cache, block): (_, usize, _)| self.pools[cache].prefix(block) == Some(node);
        let n_published: usize = self.pools.iter().map(BlockPool::n_published).sum();
        self.pools.iter().enumerate().all(|(cache, pool)| pool.is_owned_by(owned(cache)))
            && self.prefixes.places().count() == n_published
            && self.prefixes.places().all(is_noted)
            && self.prefixes.are_used_by(leases.map(|lease| lease.node))
    }
}

#[cfg(test)]
mod tests {
    use super::super::blocks::Window;
    use super::*;

    fn begun(pools: &mut Pools, tokens: &[u32], n_computed: usize) -> Lease {
        let mut lease = Lease::new(pools.n_caches());
        let hit = pools.find(tokens);
        pools.begin(&mut lease, &hit);
        assert!(pools.grow(&mut lease, n_computed, &vec![0; pools.n_caches()]), "there is room");
        pools.publish(&mut lease, &tokens[..n_computed]);
        lease
    }

    #[test]
    fn a_long_prompt_has_its_blocks_though_another_keeps_some_of_them() {
        let window = Some(Window { tokens: 33, blocks: 3 });
        let long: Vec<u32> = (0..320).collect();
        for n_blocks in [4, 5] {
            let mut pools = Pools::new(&[CacheConfig { n_blocks, window }]);
            let mut first = begun(&mut pools, &long, 64);
            let promised: Vec<usize> = pools.promise(&first, long.len()).collect();
            assert_eq!(promised, [1], "three at once, two of which it has alone");
            let other = [&long[..64], &[7]].concat();
            let hit = pools.find(&other);
            assert_eq!((hit.n_blocks(), pools.seen_after(&hit, 0).count()), (2, 1));
            // It takes one, and what it shares does not come back to the first.
            assert_eq!(pools.have_room(&hit, other.len(), &promised, 0), n_blocks == 5);
            if n_blocks == 5 {
                let second = begun(&mut pools, &other, 65);
                for start in (64..long.len()).step_by(BLOCK_TOKENS) {
                    pools.slide(&mut first, start);
                    assert!(pools.grow(&mut first, start + BLOCK_TOKENS, &[0]), "it never lacks a block");
                    pools.publish(&mut first, &long[..start + BLOCK_TOKENS]);
                    assert!(pools.are_leased([&first, &second].into_iter()));
                }
            }
        }
    }

    #[test]
    fn a_hit_needs_of_a_window_only_what_the_next_row_sees() {
        let window = Some(Window { tokens: 40, blocks: 3 });
        let mut pools =
            Pools::new(&[CacheConfig { n_blocks: 8, window: None }, CacheConfig { n_blocks: 4, window }]);
        let tokens: Vec<u32> = (0..161).collect();
        let mut lease = Lease::new(2);
        for start in (0..160).step_by(BLOCK_TOKENS) {
            pools.slide(&mut lease, start);
            assert!(pools.grow(&mut lease, start + BLOCK_TOKENS, &[0, 0]), "there is room");
            pools.publish(&mut lease, &tokens[..start + BLOCK_TOKENS]);
        }
        pools.release(&mut lease);
        assert_eq!(pools.find(&tokens).n_blocks(), 5);
        // The block of the first 32 tokens was evicted from the window's cache: nothing can go on after it alone.
        assert_eq!(pools.find(&tokens[..33]).n_blocks(), 0);
        assert_eq!(pools.find(&tokens[..160]).n_blocks(), 4, "a token is left to compute");
        let hit = pools.find(&tokens);
        pools.begin(&mut lease, &hit);
        assert_eq!(lease.tables.iter().map(|table| table.blocks.len()).collect::<Vec<_>>(), [5, 2]);
        // Behind the window stands the first block that is seen.
        let tables = pools.tables(&lease, 160);
        assert_eq!(tables[1][..3], [tables[1][3]; 3]);
    }
}
