//! Which blocks hold the keys and values of which tokens, so that another sequence with the same beginning can share them.
//!
//! Invariant: a node stands for just one beginning, since it is found by its parent and its own 32 tokens, compared
//! token by token: no hash decides. It is there while it names a block, has a child, or a sequence stands at it.

use std::collections::BTreeMap;

use crate::plan::batch::BLOCK_TOKENS;

/// The tokens of a block.
type BlockOf = [u32; BLOCK_TOKENS];

/// Names a beginning of whole blocks; never used twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NodeId(u64);

/// The beginning without tokens.
pub(super) const ROOT: NodeId = NodeId(0);

/// A beginning of whole blocks: that of its parent, and one block more.
#[derive(Debug)]
struct Node {
    parent: NodeId,
    tokens: BlockOf,
    /// Where its last block lies in each cache, if it is still there: (caches)
    blocks: Vec<Option<u32>>,
    /// Children, and sequences that stand here.
    n_uses: usize,
}

/// The tree of all beginnings.
#[derive(Debug)]
pub(super) struct Prefixes {
    ids: BTreeMap<(NodeId, BlockOf), NodeId>,
    nodes: BTreeMap<NodeId, Node>,
    n_caches: usize,
    n_made: u64,
}

impl Prefixes {
    /// A tree that knows nothing.
    pub(super) fn new(n_caches: usize) -> Self {
        Self { ids: BTreeMap::new(), nodes: BTreeMap::new(), n_caches, n_made: 0 }
    }

    /// The beginning that goes on from `parent` with the tokens of one block, if it is known.
    pub(super) fn child(&self, parent: NodeId, tokens: &[u32]) -> Option<NodeId> {
        self.ids.get(&(parent, block_of(tokens))).copied()
    }

    /// Where a beginning's last block lies in a cache.
    pub(super) fn block(&self, node: NodeId, cache: usize) -> Option<u32> {
        self.nodes[&node].blocks[cache]
    }

    /// A sequence stands at a node.
    pub(super) fn enter(&mut self, node: NodeId) {
        if node != ROOT {
            self.node(node).n_uses += 1;
        }
    }

    /// It does no longer.
    pub(super) fn leave(&mut self, node: NodeId) {
        if node != ROOT {
            self.node(node).n_uses -= 1;
            self.prune(node);
        }
    }

    /// A sequence goes on from the node at which it stands, to one that is made where it is not known.
    pub(super) fn go_on(&mut self, from: NodeId, tokens: &[u32]) -> NodeId {
        let to = self.child(from, tokens).unwrap_or_else(|| self.make(from, block_of(tokens)));
        self.enter(to);
        self.leave(from);
        to
    }

    /// Notes where a beginning's last block lies; whether it is this one, and not another that was there before.
    pub(super) fn publish(&mut self, node: NodeId, cache: usize, block: u32) -> bool {
        let place = &mut self.node(node).blocks[cache];
        let is_new = place.is_none();
        if is_new {
            *place = Some(block);
        }
        is_new
    }

    /// The block is to hold something else.
    pub(super) fn evict(&mut self, node: NodeId, cache: usize) {
        let block = self.node(node).blocks[cache].take();
        debug_assert!(block.is_some(), "a block is evicted once");
        self.prune(node);
    }

    fn make(&mut self, parent: NodeId, tokens: BlockOf) -> NodeId {
        self.n_made += 1;
        let id = NodeId(self.n_made);
        self.ids.insert((parent, tokens), id);
        self.nodes.insert(id, Node { parent, tokens, blocks: vec![None; self.n_caches], n_uses: 0 });
        self.enter(parent);
        id
    }

    /// Forgets a node that is of no use, and then its parents.
    fn prune(&mut self, mut id: NodeId) {
        while id != ROOT {
            let node = self.node(id);
            if node.n_uses > 0 || node.blocks.iter().any(Option::is_some) {
                return;
            }
            let (parent, tokens) = (node.parent, node.tokens);
            self.nodes.remove(&id);
            self.ids.remove(&(parent, tokens));
            if parent != ROOT {
                self.node(parent).n_uses -= 1;
            }
            id = parent;
        }
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).expect("a node stays while it is used")
    }

    /// Every place that is noted: (node, cache, block)
    pub(super) fn places(&self) -> impl Iterator<Item = (NodeId, usize, u32)> {
        self.nodes.iter().flat_map(|(&id, node)| {
            let places = node.blocks.iter().enumerate();
            places.filter_map(move |(cache, block)| block.map(|block| (id, cache, block)))
        })
    }

    /// Whether each node is of use, and used by its children and just these sequences.
    pub(super) fn are_used_by(&self, standing: impl Iterator<Item = NodeId>) -> bool {
        let mut n_uses: BTreeMap<NodeId, usize> = BTreeMap::new();
        let parents = self.nodes.values().map(|node| node.parent);
        standing.chain(parents).for_each(|node| *n_uses.entry(node).or_default() += 1);
        let is_right = |(id, node): (&NodeId, &Node)| {
            let is_of_use = node.n_uses > 0 || node.blocks.iter().any(Option::is_some);
            is_of_use && node.n_uses == n_uses.get(id).copied().unwrap_or(0)
        };
        self.nodes.iter().all(is_right) && self.ids.len() == self.nodes.len()
    }
}

fn block_of(tokens: &[u32]) -> BlockOf {
    tokens.try_into().expect("a block's tokens")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_is_found_by_all_its_tokens() {
        let mut prefixes = Prefixes::new(1);
        let blocks: Vec<Vec<u32>> = (0..3).map(|first| (first..first + 32).collect()).collect();
        let mut at = ROOT;
        for block in &blocks {
            at = prefixes.go_on(at, block);
            assert!(prefixes.publish(at, 0, block[0]));
            assert!(!prefixes.publish(at, 0, 9), "the first stays");
        }
        let first = prefixes.child(ROOT, &blocks[0]).unwrap();
        let second = prefixes.child(first, &blocks[1]).unwrap();
        assert_eq!(prefixes.child(second, &blocks[2]), Some(at));
        assert_eq!(prefixes.block(at, 0), Some(2));
        assert_eq!(prefixes.child(ROOT, &blocks[1]), None, "the same tokens elsewhere");
        let mut other = blocks[1].clone();
        other[31] += 1;
        assert_eq!(prefixes.child(first, &other), None, "the last token counts");
    }

    #[test]
    fn a_node_stays_while_it_is_of_use() {
        let mut prefixes = Prefixes::new(1);
        let [a, b] = [[1; 32], [2; 32]];
        let first = prefixes.go_on(ROOT, &a);
        prefixes.publish(first, 0, 0);
        let second = prefixes.go_on(first, &b);
        prefixes.publish(second, 0, 1);
        prefixes.evict(first, 0);
        assert_eq!(prefixes.child(ROOT, &a), Some(first), "its child is there");
        prefixes.evict(second, 0);
        assert_eq!(prefixes.child(first, &b), Some(second), "a sequence stands there");
        assert!(prefixes.are_used_by([second].into_iter()) && !prefixes.are_used_by([].into_iter()));
        prefixes.leave(second);
        assert_eq!((prefixes.child(ROOT, &a), prefixes.nodes.len(), prefixes.ids.len()), (None, 0, 0));
        assert!(prefixes.go_on(ROOT, &a) > second, "no name is used twice");
    }
}
