//! Which blocks of the KV caches are free.
//!
//! Invariant: every block is either free or owned by exactly one sequence. A sequence owns blocks in every cache of the
//! model; in one with a window they are a ring, so that a block behind the window serves again.

use crate::plan::batch::BLOCK_TOKENS;

/// One of a model's caches, as the scheduler sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheConfig {
    /// Blocks of its pool, [`BLOCK_TOKENS`] tokens each.
    pub n_blocks: usize,
    /// Most blocks that a sequence has use for, where layers see only a window: the position p lies in the
    /// (p / 32 mod ring)-th of them.
    pub ring_blocks: Option<usize>,
}

impl CacheConfig {
    /// Blocks for so many tokens of a sequence.
    pub fn blocks_for(&self, n_tokens: usize) -> usize {
        let n_blocks = n_tokens.div_ceil(BLOCK_TOKENS);
        self.ring_blocks.map_or(n_blocks, |ring| n_blocks.min(ring))
    }

    /// Most tokens of a sequence that has the pool to itself.
    pub fn max_tokens(&self) -> usize {
        let is_endless = self.ring_blocks.is_some_and(|ring| ring <= self.n_blocks);
        if is_endless { usize::MAX } else { self.n_blocks * BLOCK_TOKENS }
    }
}

/// The pools of all caches, and how a sequence uses them.
#[derive(Debug)]
pub(super) struct Pools {
    caches: Vec<CacheConfig>,
    pools: Vec<BlockPool>,
}

impl Pools {
    /// Pools of free blocks.
    pub(super) fn new(caches: &[CacheConfig]) -> Self {
        let pools = caches.iter().map(|cache| BlockPool::new(cache.n_blocks)).collect();
        Self { caches: caches.to_vec(), pools }
    }

    /// No blocks, in each cache.
    pub(super) fn no_blocks(&self) -> Vec<Vec<u32>> {
        vec![Vec::new(); self.pools.len()]
    }

    /// Blocks in all.
    pub(super) fn n_blocks(&self) -> usize {
        self.pools.iter().map(BlockPool::n_blocks).sum()
    }

    /// Blocks that nobody owns.
    pub(super) fn n_free(&self) -> usize {
        self.pools.iter().map(BlockPool::n_free).sum()
    }

    /// Whether every pool has blocks for so many tokens, and `spare` besides.
    pub(super) fn have_room(&self, n_tokens: usize, spare: usize) -> bool {
        let mut each = self.caches.iter().zip(&self.pools);
        each.all(|(cache, pool)| pool.n_free() >= cache.blocks_for(n_tokens) + spare)
    }

    /// Gives an owner what it lacks for so many tokens, or as much of it as is there; whether that suffices.
    pub(super) fn grow(&mut self, blocks: &mut [Vec<u32>], n_tokens: usize) -> bool {
        let mut suffices = true;
        for ((cache, pool), blocks) in self.caches.iter().zip(&mut self.pools).zip(blocks) {
            let n_lacking = cache.blocks_for(n_tokens).saturating_sub(blocks.len());
            blocks.extend((0..n_lacking).map_while(|_| pool.allocate()));
            suffices &= blocks.len() >= cache.blocks_for(n_tokens);
        }
        suffices
    }

    /// Takes back all blocks of an owner.
    pub(super) fn release(&mut self, blocks: &mut [Vec<u32>]) {
        for (pool, blocks) in self.pools.iter_mut().zip(blocks) {
            pool.release(blocks);
        }
    }

    /// The block of each position of an owner in each cache, for so many tokens: (caches)(blocks)
    pub(super) fn tables(&self, blocks: &[Vec<u32>], n_tokens: usize) -> Vec<Vec<u32>> {
        let n_blocks = n_tokens.div_ceil(BLOCK_TOKENS);
        let around = |ring: &Vec<u32>| ring.iter().copied().cycle().take(n_blocks).collect();
        blocks.iter().map(around).collect()
    }

    /// Whether `owners` own, without overlap, just the blocks that are not free.
    pub(super) fn are_partitioned<'a>(&self, owners: impl Iterator<Item = &'a [Vec<u32>]> + Clone) -> bool {
        let of_cache = |cache: usize| owners.clone().map(move |blocks| blocks[cache].as_slice());
        self.pools.iter().enumerate().all(|(cache, pool)| pool.is_partitioned(of_cache(cache)))
    }
}

/// Hands out blocks, and takes them back.
#[derive(Debug)]
pub(super) struct BlockPool {
    /// The last one is handed out next.
    free: Vec<u32>,
    /// Whether a block is owned: (blocks)
    is_owned: Vec<bool>,
}

impl BlockPool {
    /// A pool of free blocks.
    ///
    /// # Panics
    /// If a block has no `u32`.
    pub(super) fn new(n_blocks: usize) -> Self {
        let end = u32::try_from(n_blocks).expect("a block is a u32");
        Self { free: (0..end).rev().collect(), is_owned: vec![false; n_blocks] }
    }

    /// Blocks in all.
    pub(super) fn n_blocks(&self) -> usize {
        self.is_owned.len()
    }

    /// Blocks that nobody owns.
    pub(super) fn n_free(&self) -> usize {
        self.free.len()
    }

    /// A block for the caller to own, if one is free.
    pub(super) fn allocate(&mut self) -> Option<u32> {
        let block = self.free.pop()?;
        self.is_owned[block as usize] = true;
        Some(block)
    }

    /// Takes back all blocks of an owner.
    ///
    /// # Panics
    /// If one of them is free.
    pub(super) fn release(&mut self, blocks: &mut Vec<u32>) {
        for block in blocks.drain(..).rev() {
            let is_owned = std::mem::replace(&mut self.is_owned[block as usize], false);
            assert!(is_owned, "a block is released by its owner, once");
            self.free.push(block);
        }
    }

    /// Whether `owners` own, without overlap, just the blocks that are not free.
    pub(super) fn is_partitioned<'a>(&self, owners: impl Iterator<Item = &'a [u32]>) -> bool {
        let mut n_owners = vec![0; self.n_blocks()];
        self.free.iter().for_each(|&block| n_owners[block as usize] += 1);
        owners.flatten().for_each(|&block| n_owners[block as usize] += 1);
        n_owners.iter().all(|&n| n == 1) && self.free.iter().all(|&block| !self.is_owned[block as usize])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_free_or_owned_once() {
        let mut pool = BlockPool::new(5);
        let mut owners = [Vec::new(), Vec::new()];
        for turn in 0..5 {
            owners[turn % 2].push(pool.allocate().unwrap());
            assert!(pool.is_partitioned(owners.iter().map(Vec::as_slice)));
        }
        assert_eq!((pool.allocate(), pool.n_free()), (None, 0));
        pool.release(&mut owners[0]);
        assert_eq!((owners[0].len(), pool.n_free()), (0, 3));
        assert!(pool.is_partitioned(owners.iter().map(Vec::as_slice)));
        owners[0].push(pool.allocate().unwrap());
        assert!(pool.is_partitioned(owners.iter().map(Vec::as_slice)));
    }

    #[test]
    fn a_partition_has_no_leak_and_no_overlap() {
        let mut pool = BlockPool::new(2);
        let block = pool.allocate().unwrap();
        let (own, both) = ([block], [block, 1 - block]);
        assert!(pool.is_partitioned([&own[..]].into_iter()));
        assert!(!pool.is_partitioned([].into_iter()), "leaked");
        assert!(!pool.is_partitioned([&own[..], &own[..]].into_iter()), "owned twice");
        assert!(!pool.is_partitioned([&both[..]].into_iter()), "owned and free");
    }

    #[test]
    #[should_panic(expected = "released by its owner, once")]
    fn a_block_is_not_released_twice() {
        let mut pool = BlockPool::new(2);
        let block = pool.allocate().unwrap();
        pool.release(&mut vec![block]);
        pool.release(&mut vec![block]);
    }
}
