//! Prompts that nobody wrote. Invariant: no prompt begins like one before it, so that nothing measured was found in the
//! cache.

/// Tokens scattered over the vocabulary: the same in every session, and never the same again in one.
#[derive(Debug)]
pub struct MadeUp {
    n_made: u64,
    vocab_size: u64,
}

impl MadeUp {
    /// Of such a vocabulary.
    pub fn new(vocab_size: usize) -> Self {
        Self { n_made: 0, vocab_size: vocab_size as u64 }
    }

    /// The same, going on after so many tokens: an engine that was measured before still has those in its cache.
    pub fn after(vocab_size: usize, n_made: u64) -> Self {
        Self { n_made, vocab_size: vocab_size as u64 }
    }

    /// Tokens made so far.
    pub fn n_made(&self) -> u64 {
        self.n_made
    }

    /// So many more (SplitMix64, Steele et al. 2014).
    pub fn tokens(&mut self, n: u32) -> Vec<u32> {
        let mut next = || {
            self.n_made += 1;
            let mut z = self.n_made.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ (z >> 31)) % self.vocab_size) as u32
        };
        (0..n).map(|_| next()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn no_prompt_begins_like_another() {
        // The smallest vocabulary of the tests, and of each prompt the first block of the cache.
        let mut made_up = MadeUp::new(384);
        let mut prompts: BTreeSet<Vec<u32>> = (0..10_000).map(|_| made_up.tokens(32)).collect();
        let mut later = MadeUp::after(384, made_up.n_made());
        prompts.extend((0..10_000).map(|_| later.tokens(32)));
        assert_eq!(prompts.len(), 20_000);
        assert!(prompts.iter().flatten().all(|token| *token < 384));
    }
}
