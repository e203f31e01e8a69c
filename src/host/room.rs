//! Which models go so that another has room.
//!
//! Invariant: a model that somebody else uses goes only where the asker wants it replaced, and none goes in vain.

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

/// A model that holds room.
#[derive(Debug, Clone, Copy)]
pub(super) struct Holder {
    /// Which.
    pub(super) id: ModelId,
    /// Bytes it takes.
    pub(super) gpu_bytes: u64,
    /// Larger where it was used later.
    pub(super) used_at: u64,
    /// Who uses it.
    pub(super) standing: Standing,
}

/// Models that must go for `needed_bytes`, in order, or those of others that are in the way. Nothing is in the way of a model
/// that needs nothing of the GPU. A model that is alone always
/// has room: whether it fits, the device tells.
pub(super) fn make_room(
    needed_bytes: u64,
    budget_bytes: u64,
    holders: &[Holder],
    may_replace: bool,
) -> Result<Vec<ModelId>, Vec<ModelId>> {
    if needed_bytes == 0 {
        return Ok(Vec::new());
    }
    let mut holders = holders.to_vec();
    holders.sort_by_key(|holder| (holder.standing, holder.used_at));
    let mut going = Vec::new();
    let mut held: u64 = holders.iter().map(|holder| holder.gpu_bytes).sum();
    for holder in &holders {
        if held.saturating_add(needed_bytes) <= budget_bytes {
            break;
        }
        if holder.standing == Standing::Used && !may_replace {
            let used = holders.iter().filter(|holder| holder.standing == Standing::Used);
            return Err(used.map(|holder| holder.id).collect());
        }
        held -= holder.gpu_bytes;
        going.push(holder.id);
    }
    Ok(going)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOLDERS: [Holder; 4] = [
        Holder { id: 1, gpu_bytes: 10, used_at: 9, standing: Standing::Used },
        Holder { id: 2, gpu_bytes: 10, used_at: 3, standing: Standing::Own },
        Holder { id: 3, gpu_bytes: 10, used_at: 7, standing: Standing::Unused },
        Holder { id: 4, gpu_bytes: 10, used_at: 5, standing: Standing::Unused },
    ];

    #[test]
    fn as_few_go_as_must_and_those_of_others_last() {
        for (needed, budget, going) in [
            (10, 50, Ok(vec![])),
            (10, 49, Ok(vec![4])),
            (10, 35, Ok(vec![4, 3])),
            (10, 20, Ok(vec![4, 3, 2])),
            (0, 20, Ok(vec![])),
            (11, 20, Err(vec![1])),
            (u64::MAX, 20, Err(vec![1])),
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
