//! Which blocks of a KV cache are free, and what those that are still hold.
//!
//! Invariant: a block is owned by as many sequences as share it, or else free. A free one is empty, or cached: it keeps
//! a published prefix until it is needed, least recently used first.

use std::collections::BTreeMap;

use super::prefixes::NodeId;
use crate::plan::batch::BLOCK_TOKENS;

/// How far back the layers of a cache look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// Positions that a row sees, its own included.
    pub tokens: usize,
    /// Most blocks that a sequence owns at once: a chunk's own and those that it sees.
    pub blocks: usize,
}

/// One of a model's caches, as the scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Blocks of its pool, [`BLOCK_TOKENS`] tokens each.
    pub n_blocks: usize,
    /// Where its layers see only a window: blocks behind it are released while the sequence goes on.
    pub window: Option<Window>,
}

impl CacheConfig {
    /// Most blocks that a sequence of so many tokens owns at once.
    pub fn blocks_for(&self, n_tokens: usize) -> usize {
        n_tokens.div_ceil(BLOCK_TOKENS).min(self.most_owned())
    }

    /// Most tokens of a sequence that has the pool to itself.
    pub fn max_tokens(&self) -> usize {
        if self.most_owned() <= self.n_blocks { usize::MAX } else { self.n_blocks * BLOCK_TOKENS }
    }

    /// Most blocks that a sequence owns at once, however long it is.
    pub(super) fn most_owned(&self) -> usize {
        self.window.map_or(usize::MAX, |window| window.blocks)
    }

    /// Whether the blocks that a sequence may own suffice for what a row sees, wherever it begins.
    pub(super) fn holds_its_window(&self) -> bool {
        self.window.is_none_or(|window| {
            window.tokens > 0 && window.blocks > (window.tokens - 1).div_ceil(BLOCK_TOKENS)
        })
    }

    /// The first block that a row at a position sees, counted from the sequence's start.
    pub(super) fn first_seen(&self, position: usize) -> usize {
        let first = self.window.map_or(0, |window| (position + 1).saturating_sub(window.tokens));
        first / BLOCK_TOKENS
    }
}

/// Hands out blocks, and takes them back.
#[derive(Debug)]
pub(super) struct BlockPool {
    /// Sequences that own each: (blocks)
    n_owners: Vec<u32>,
    /// The beginning whose last block each is, where it is published: (blocks)
    prefixes: Vec<Option<NodeId>>,
    /// Free, without a prefix. The last one is handed out next.
    empty: Vec<u32>,
    /// Free, with a prefix, by when the last owner left: the first is evicted next.
    cached: BTreeMap<u64, u32>,
    /// When the last owner left: (blocks)
    left: Vec<u64>,
    n_releases: u64,
}

impl BlockPool {
    /// A pool of empty blocks.
    ///
    /// # Panics
    /// If a block has no `u32`.
    pub(super) fn new(n_blocks: usize) -> Self {
        let end = u32::try_from(n_blocks).expect("a block is a u32");
        Self {
            n_owners: vec![0; n_blocks],
            prefixes: vec![None; n_blocks],
            empty: (0..end).rev().collect(),
            cached: BTreeMap::new(),
            left: vec![0; n_blocks],
            n_releases: 0,
        }
    }

    /// Blocks in all.
    pub(super) fn n_blocks(&self) -> usize {
        self.n_owners.len()
    }

    /// Blocks that nobody owns.
    pub(super) fn n_free(&self) -> usize {
        self.empty.len() + self.cached.len()
    }

    /// Those of them that hold a prefix.
    pub(super) fn n_cached(&self) -> usize {
        self.cached.len()
    }

    /// Blocks that one sequence owns, and blocks that several do.
    pub(super) fn n_owned(&self) -> (usize, usize) {
        let n_with = |is_meant: fn(u32) -> bool| self.n_owners.iter().filter(|&&n| is_meant(n)).count();
        (n_with(|n| n == 1), n_with(|n| n > 1))
    }

    /// Sequences that own a block.
    pub(super) fn n_owners(&self, block: u32) -> u32 {
        self.n_owners[block as usize]
    }

    /// A block for the caller to own and to write, if one is free, and the prefix that is lost with it.
    pub(super) fn take(&mut self) -> Option<(u32, Option<NodeId>)> {
        let block = self.empty.pop().or_else(|| self.cached.pop_first().map(|(_, block)| block))?;
        self.n_owners[block as usize] = 1;
        Some((block, self.prefixes[block as usize].take()))
    }

    /// One more owner of a published block, who only reads it.
    ///
    /// # Panics
    /// If it is not published.
    pub(super) fn share(&mut self, block: u32) {
        assert!(self.prefixes[block as usize].is_some(), "only published blocks are shared");
        if self.n_owners[block as usize] == 0 {
            self.cached.remove(&self.left[block as usize]);
        }
        self.n_owners[block as usize] += 1;
    }

    /// One owner less.
    ///
    /// # Panics
    /// If the block is free.
    pub(super) fn release(&mut self, block: u32) {
        let place = block as usize;
        assert!(self.n_owners[place] > 0, "a block is released by its owners, once each");
        self.n_owners[place] -= 1;
        if self.n_owners[place] > 0 {
            return;
        }
        if self.prefixes[place].is_some() {
            self.n_releases += 1;
            self.left[place] = self.n_releases;
            self.cached.insert(self.n_releases, block);
        } else {
            self.empty.push(block);
        }
    }

    /// From here on the block can be shared, and nobody writes it until it is taken again.
    pub(super) fn publish(&mut self, block: u32, prefix: NodeId) {
        let before = self.prefixes[block as usize].replace(prefix);
        assert!(before.is_none() && self.n_owners(block) > 0, "an owner publishes a block, once");
    }

    /// Whether `owned` names each block as often as it has owners, and the rest is free.
    pub(super) fn is_owned_by(&self, owned: impl Iterator<Item = u32>) -> bool {
        let mut n_owners = vec![0; self.n_blocks()];
        owned.for_each(|block| n_owners[block as usize] += 1);
        let mut n_free = vec![0; self.n_blocks()];
        self.empty.iter().chain(self.cached.values()).for_each(|&block| n_free[block as usize] += 1);
        let is_cached = |block: &u32| self.prefixes[*block as usize].is_some();
        n_owners == self.n_owners
            && n_owners.iter().zip(&n_free).all(|(&owners, &free)| free == u32::from(owners == 0))
            && self.cached.values().all(is_cached)
            && !self.empty.iter().any(is_cached)
    }

    /// The beginning whose last block this is, where it is published.
    pub(super) fn prefix(&self, block: u32) -> Option<NodeId> {
        self.prefixes[block as usize]
    }

    /// Blocks that hold a published prefix, owned or not.
    pub(super) fn n_published(&self) -> usize {
        self.prefixes.iter().flatten().count()
    }
}

#[cfg(test)]
mod tests {
    use super::super::prefixes::ROOT;
    use super::*;

    #[test]
    fn a_block_is_free_once_all_its_owners_left() {
        let mut pool = BlockPool::new(3);
        let blocks = [0; 3].map(|_| pool.take().unwrap().0);
        assert_eq!((pool.take(), pool.n_free()), (None, 0));
        assert!(pool.is_owned_by(blocks.into_iter()));
        pool.publish(blocks[1], ROOT);
        pool.share(blocks[1]);
        assert!(pool.is_owned_by(blocks.into_iter().chain([blocks[1]])));
        blocks.iter().for_each(|&block| pool.release(block));
        assert_eq!((pool.n_free(), pool.n_cached()), (2, 0));
        pool.release(blocks[1]);
        assert_eq!((pool.n_free(), pool.n_cached()), (3, 1));
        pool.share(blocks[1]);
        assert_eq!((pool.n_free(), pool.n_cached()), (2, 0));
        assert!(pool.is_owned_by([blocks[1]].into_iter()));
        assert!(!pool.is_owned_by([].into_iter()), "leaked");
        assert!(!pool.is_owned_by([blocks[1]; 2].into_iter()), "owned twice");
        assert!(!pool.is_owned_by([blocks[1], blocks[0]].into_iter()), "owned and free");
    }

    #[test]
    fn empty_blocks_go_first_and_then_the_least_recently_used() {
        let mut pool = BlockPool::new(4);
        let blocks = [0; 4].map(|_| pool.take().unwrap().0);
        for &block in &blocks[..3] {
            pool.publish(block, ROOT);
        }
        for place in [2, 0, 3, 1] {
            pool.release(blocks[place]);
        }
        pool.share(blocks[2]);
        pool.release(blocks[2]);
        let taken: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
        let expected = [(3, None), (0, Some(ROOT)), (1, Some(ROOT)), (2, Some(ROOT))];
        assert_eq!(taken, expected.map(|(place, prefix)| (blocks[place], prefix)));
        assert_eq!(pool.n_published(), 0);
    }

    #[test]
    #[should_panic(expected = "released by its owners, once each")]
    fn a_block_is_not_released_twice() {
        let mut pool = BlockPool::new(2);
        let (block, _) = pool.take().unwrap();
        pool.release(block);
        pool.release(block);
    }

    #[test]
    #[should_panic(expected = "only published blocks are shared")]
    fn what_is_still_written_is_not_shared() {
        let mut pool = BlockPool::new(2);
        let (block, _) = pool.take().unwrap();
        pool.share(block);
    }
}
