//! Byte-pair encoding of one piece of text: the best pair of neighbours merges until none may, the leftmost of equals
//! first, in O(n log n).
//!
//! The algorithm is Sennrich et al.'s (2016), done as SentencePiece does it: a linked list of symbols, and a heap of
//! the pairs that stand next to each other, in which pairs that are gone are recognised when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// No symbol: the end of the list.
const NONE: u32 = u32::MAX;

/// A stretch of the text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Symbol {
    /// Its token, or `NO_TOKEN`.
    pub(super) id: u32,
    /// Where it begins in the text, bytes.
    pub(super) start: u32,
    /// Its length in bytes; 0 once it has become part of the one before it.
    pub(super) len: u32,
    previous: u32,
    next: u32,
}

impl Symbol {
    /// The bytes from this symbol's beginning to the end of `next`, which follows it.
    pub(super) fn range_with(&self, next: &Self) -> std::ops::Range<usize> {
        self.start as usize..next.start as usize + next.len as usize
    }
}

/// A pair that stood next to each other when it was noted.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    /// The lowest merges first.
    rank: u32,
    /// The first symbol of the pair.
    at: u32,
    /// Bytes of both together; another length means that the pair is gone.
    len: u32,
    /// The token they become.
    whole: u32,
}

/// The room for merging, used again for each piece.
#[derive(Default)]
pub(super) struct Merger {
    symbols: Vec<Symbol>,
    heap: BinaryHeap<Reverse<Candidate>>,
}

impl Merger {
    /// Begins a new piece.
    pub(super) fn clear(&mut self) {
        self.symbols.clear();
        self.heap.clear();
    }

    /// Appends a symbol: its token, where it begins in the text and its length, bytes. A piece has fewer than 2³²
    /// bytes.
    pub(super) fn push(&mut self, id: u32, start: u32, len: u32) {
        let at = self.symbols.len() as u32;
        if let Some(last) = self.symbols.last_mut() {
            last.next = at;
        }
        self.symbols.push(Symbol { id, start, len, previous: at.checked_sub(1).unwrap_or(NONE), next: NONE });
    }

    /// The last symbol that was appended.
    pub(super) fn last(&mut self) -> Option<&mut Symbol> {
        self.symbols.last_mut()
    }

    /// Merges; `find` gives a pair's rank and what it becomes. Then gives the symbols that are left, in order.
    pub(super) fn merge(
        &mut self,
        find: impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>,
    ) -> impl Iterator<Item = &Symbol> {
        for at in 1..self.symbols.len() as u32 {
            self.note(at - 1, at, &find);
        }
        while let Some(Reverse(candidate)) = self.heap.pop() {
            let left = self.symbols[candidate.at as usize];
            if left.len == 0 || left.next == NONE {
                continue;
            }
            let right = self.symbols[left.next as usize];
            if left.len + right.len != candidate.len {
                continue;
            }
            self.symbols[left.next as usize].len = 0;
            let joined = &mut self.symbols[candidate.at as usize];
            (joined.id, joined.len, joined.next) = (candidate.whole, candidate.len, right.next);
            if left.previous != NONE {
                self.note(left.previous, candidate.at, &find);
            }
            if right.next != NONE {
                self.symbols[right.next as usize].previous = candidate.at;
                self.note(candidate.at, right.next, &find);
            }
        }
        self.symbols.iter().filter(|symbol| symbol.len > 0)
    }

    /// Notes a pair of neighbours, if it may merge.
    fn note(&mut self, left: u32, right: u32, find: &impl Fn(&Symbol, &Symbol) -> Option<(u32, u32)>) {
        let (first, second) = (&self.symbols[left as usize], &self.symbols[right as usize]);
        if let Some((rank, whole)) = find(first, second) {
            self.heap.push(Reverse(Candidate { rank, at: left, len: first.len + second.len, whole }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Merges the letters of `text` by a list of pairs, the first the best; tokens are indices into `spelled`.
    fn run(text: &str, merges: &[(&str, &str)]) -> Vec<String> {
        let mut merger = Merger::default();
        merger.clear();
        for at in 0..text.len() as u32 {
            merger.push(0, at, 1);
        }
        let spelled =
            |symbol: &Symbol| &text[symbol.start as usize..symbol.start as usize + symbol.len as usize];
        let find = |left: &Symbol, right: &Symbol| {
            let rank = merges.iter().position(|pair| *pair == (spelled(left), spelled(right)))?;
            Some((rank as u32, 1))
        };
        merger.merge(find).map(|symbol| spelled(symbol).to_owned()).collect()
    }

    #[test]
    fn the_best_pair_merges_first_and_the_leftmost_of_equals() {
        let check = |text: &str, merges: &[(&str, &str)], expected: &[&str]| {
            assert_eq!(run(text, merges), expected, "{text}");
        };
        check("abc", &[("b", "c"), ("a", "b"), ("a", "bc")], &["abc"]);
        check("abc", &[("a", "b"), ("b", "c")], &["ab", "c"]);
        check("aaaaa", &[("a", "a"), ("aa", "a")], &["aa", "aaa"]);
        check("aaaaa", &[("aa", "a"), ("a", "a")], &["aaa", "aa"]);
        check("aaa", &[("aa", "a"), ("a", "a")], &["aaa"]);
        check("xyz", &[], &["x", "y", "z"]);
        check("", &[("a", "a")], &[]);
        check("a", &[("a", "a")], &["a"]);
    }

    #[test]
    fn a_long_run_merges_in_time() {
        const N: usize = 1 << 18;
        let text = "a".repeat(N);
        assert_eq!(run(&text, &[("a", "a"), ("aa", "aa")]).len(), N / 4);
    }
}
