//! Which two tokens merge into which, and how soon: a pair's rank is its place in the model's list, and the lowest
//! merges first.

/// The pairs, grouped by their first token and sorted by their second within a group: 12 bytes a pair, 4 a token.
pub(super) struct MergeTable {
    /// For each token, where its group begins; one more at the end.
    starts: Vec<u32>,
    seconds: Vec<u32>,
    ranks: Vec<u32>,
    wholes: Vec<u32>,
}

/// Two tokens and what they become.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Merge {
    pub(super) first: u32,
    pub(super) second: u32,
    pub(super) whole: u32,
}

impl MergeTable {
    /// From the merges in the order of their ranks, fewer than 2³², of tokens below `n_tokens`. Of a pair that is
    /// listed twice the later counts, as in Hugging Face's tokenizer.
    pub(super) fn new(n_tokens: usize, merges: &[Merge]) -> Self {
        let mut order: Vec<u32> = (0..u32::MAX).take(merges.len()).collect();
        let pair = |rank: u32| (merges[rank as usize].first, merges[rank as usize].second);
        order.sort_unstable_by_key(|rank| (pair(*rank), std::cmp::Reverse(*rank)));
        order.dedup_by_key(|rank| pair(*rank));
        let mut starts = vec![0; n_tokens + 1];
        for rank in &order {
            starts[pair(*rank).0 as usize + 1] += 1;
        }
        for token in 0..n_tokens {
            starts[token + 1] += starts[token];
        }
        let seconds = order.iter().map(|rank| pair(*rank).1).collect();
        let wholes = order.iter().map(|rank| merges[*rank as usize].whole).collect();
        Self { starts, seconds, ranks: order, wholes }
    }

    /// The rank of a pair and what it becomes. Neither token need exist.
    pub(super) fn find(&self, first: u32, second: u32) -> Option<(u32, u32)> {
        let group = self.starts.get(first as usize..)?.get(..2)?;
        let (start, end) = (group[0] as usize, group[1] as usize);
        let place = start + self.seconds[start..end].binary_search(&second).ok()?;
        Some((self.ranks[place], self.wholes[place]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_is_found_with_its_rank() {
        let merges = [(3, 1, 5), (0, 2, 6), (3, 0, 7), (3, 4, 8), (0, 2, 9)]
            .map(|(first, second, whole)| Merge { first, second, whole });
        let table = MergeTable::new(10, &merges);
        let found = |first, second| table.find(first, second);
        assert_eq!((found(3, 0), found(3, 1), found(3, 4)), (Some((2, 7)), Some((0, 5)), Some((3, 8))));
        assert_eq!(found(0, 2), Some((4, 9)), "the later of two");
        for (first, second) in [(0, 3), (9, 9), (10, 0), (u32::MAX, 0), (3, u32::MAX)] {
            assert_eq!(found(first, second), None, "{first} {second}");
        }
        assert_eq!(MergeTable::new(0, &[]).find(0, 0), None);
    }
}
