//! Which models go so that another has room.
//!
//! Invariant: a model that somebody else uses goes only where the asker wants it replaced, and none goes in vain.

use super::machine::Computer;
use crate::protocol::ModelId;

/// Who uses a model, from the view of those who ask for another; those that go first come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Standing {
    /// Nobody does.
    Unused,
    /// Only those who ask for the other.
    Own,
    /// Others too.
    Used,
}

/// Room that a model takes, and where: a GPU's memory and that of the processor are two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    /// Bytes.
    pub(super) n_bytes: u64,
    /// Whether they are a GPU's.
    pub(super) is_on_gpu: bool,
}

impl Room {
    /// What a model takes.
    pub(super) fn of(model: &Computer) -> Self {
        Self { n_bytes: model.total_bytes(), is_on_gpu: model.is_on_gpu() }
    }

    /// As much as the other, where that is more of the same memory.
    pub(super) fn or_more(self, other: Self) -> Self {
        if self.is_on_gpu == other.is_on_gpu && other.n_bytes > self.n_bytes { other } else { self }
    }
}

/// A model that holds room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    /// Which.
    pub(super) id: ModelId,
    /// Bytes it takes of the memory that is asked for.
    pub(super) n_bytes: u64,
    /// Larger where it was used later.
    pub(super) used_at: u64,
    /// Who uses it.
    pub(super) standing: Standing,
}

/// Models that must go for `needed_bytes`, in order, or those of others that are in the way. A model that is alone always
/// has room: whether it fits, the device tells.
pub(super) fn make_room(
    needed_bytes: u64,
    budget_bytes: u64,
    holders: &[Holder],
    may_replace: bool,
) -> Result<Vec<ModelId>, Vec<ModelId>> {
    let mut holders = holders.to_vec();
    holders.sort_by_key(|holder| (holder.standing, holder.used_at));
    let mut going = Vec::new();
    let mut held: u64 = holders.iter().map(|holder| holder.n_bytes).sum();
    for holder in &holders {
        if held.checked_add(needed_bytes).is_some_and(|all_bytes| all_bytes <= budget_bytes) {
            break;
        }
        if holder.standing == Standing::Used && !may_replace {
            let used = holders.iter().filter(|holder| holder.standing == Standing::Used);
            return Err(used.map(|holder| holder.id).collect());
        }
        held -= holder.n_bytes;
        going.push(holder.id);
    }
    Ok(going)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDERS: [Holder; 4] = [
        Holder { id: 1, n_bytes: 10, used_at: 9, standing: Standing::Used },
        Holder { id: 2, n_bytes: 10, used_at: 3, standing: Standing::Own },
        Holder { id: 3, n_bytes: 10, used_at: 7, standing: Standing::Unused },
        Holder { id: 4, n_bytes: 10, used_at: 5, standing: Standing::Unused },
    ];

    #[test]
    fn as_few_go_as_must_and_those_of_others_last() {
        for (needed, budget, going) in [
            (10, 50, Ok(vec![])),
            (10, 49, Ok(vec![4])),
            (10, 35, Ok(vec![4, 3])),
            (10, 20, Ok(vec![4, 3, 2])),
            (11, 20, Err(vec![1])),
            (u64::MAX, 20, Err(vec![1])),
            (u64::MAX, u64::MAX, Err(vec![1])),
        ] {
            assert_eq!(make_room(needed, budget, &HOLDERS, false), going, "{needed} of {budget}");
        }
        assert_eq!(make_room(11, 20, &HOLDERS, true), Ok(vec![4, 3, 2, 1]));
    }

    #[test]
    fn one_that_is_alone_is_always_tried() {
        assert_eq!(make_room(100, 20, &[], false), Ok(vec![]));
        assert_eq!(make_room(100, 20, &HOLDERS[1..], false), Ok(vec![4, 3, 2]));
    }
}
