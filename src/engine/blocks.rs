//! Which blocks of the KV pool are free.
//!
//! Invariant: every block is either free or owned by exactly one sequence.

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
