//! Who runs: which of those that wait comes next, and who makes room for it.
//!
//! Invariant: if the first in line has no room, nobody passes it; and a client loses a sequence to another's only where
//! that brings the two closer.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::pools::Hit;
use super::scheduler::Scheduler;
use super::sequence::Sequence;
use super::{ClientId, SequenceId};
use crate::plan::batch::BLOCK_TOKENS;

impl Scheduler {
    /// Starts those that wait, in line, each once there is a slot and blocks for all its tokens. A spare block for each
    /// that runs keeps an admission from being undone at their next block.
    pub(super) fn admit(&mut self) {
        while let Some(id) = self.first_in_line() {
            let Some(hit) = self.find_room(id) else { return };
            let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
            self.pools.begin(&mut sequence.lease, &hit);
            sequence.begin(hit.n_tokens(), self.clients.admit(sequence.client()));
            self.take_turn(id);
        }
    }

    /// The client with the fewest that run comes first, of several the one that was served least recently; of its own,
    /// the senior of those that were preempted, then the earliest arrival.
    fn first_in_line(&self) -> Option<SequenceId> {
        let n_running = self.n_running_of_clients();
        let mut waiting: Vec<_> = self.sequences.iter().filter(|(_, s)| !s.is_running()).collect();
        waiting.sort_by_cached_key(|(id, sequence)| {
            let client = sequence.client();
            let n_running = n_running.get(&client).copied().unwrap_or(0);
            (n_running, self.clients.admitted(client), sequence.seniority(), **id)
        });
        let is_next = |(id, sequence): &(&SequenceId, &Sequence)| !self.is_held_back(**id, sequence);
        waiting.into_iter().find(is_next).map(|(&id, _)| id)
    }

    fn n_running_of_clients(&self) -> BTreeMap<ClientId, usize> {
        let mut n_running = BTreeMap::new();
        for sequence in self.sequences.values().filter(|sequence| sequence.runs_on()) {
            *n_running.entry(sequence.client()).or_default() += 1;
        }
        n_running
    }

    /// Whether an earlier arrival is just computing blocks that this one could share, more than there are already. It
    /// waits for them without being in the way of others.
    fn is_held_back(&self, id: SequenceId, sequence: &Sequence) -> bool {
        let earlier = self.sequences.range(..id).map(|(_, other)| other);
        let reading = earlier.filter(|other| other.runs_on());
        let n_coming = reading.filter_map(|other| {
            let n_shared = sequence.n_whole_shared(&other.tokens()[..other.prefill_end()]);
            (n_shared > other.n_cached() / BLOCK_TOKENS).then_some(n_shared)
        });
        let n_coming = n_coming.max().unwrap_or(0);
        n_coming > 0 && sequence.may_hit() && n_coming > self.find(sequence).n_blocks()
    }

    fn find(&self, sequence: &Sequence) -> Hit {
        if sequence.may_hit() { self.pools.find(sequence.tokens()) } else { Hit::none() }
    }

    /// What a sequence shares when it starts now; none if it has no room, after clients that have too many made some.
    fn find_room(&mut self, id: SequenceId) -> Option<Hit> {
        loop {
            let n_running = self.n_running();
            let sequence = &self.sequences[&id];
            if n_running < self.max_running {
                let (hit, n_tokens) = (self.find(sequence), sequence.tokens().len());
                if self.pools.have_room(&hit, n_tokens, &self.promised(), n_running) {
                    return Some(hit);
                }
            }
            let victim = self.surplus(sequence.client())?;
            self.preempt(victim);
        }
    }

    /// The youngest of the client with the most that run, if they are at least two more than this one's. None while it is
    /// in flight: it is held, and comes within reach when its step retires.
    fn surplus(&mut self, client: ClientId) -> Option<SequenceId> {
        let n_running = self.n_running_of_clients();
        let own = n_running.get(&client).copied().unwrap_or(0);
        let (&richest, &most) = n_running.iter().max_by_key(|&(&client, &n)| (n, Reverse(client)))?;
        if most < own + 2 {
            return None;
        }
        let of_richest = self.sequences.iter().filter(|(_, s)| s.client() == richest && s.runs_on());
        let (&youngest, sequence) = of_richest.max_by_key(|(_, sequence)| sequence.seniority())?;
        if sequence.is_at_rest() {
            return Some(youngest);
        }
        self.hold(youngest);
        None
    }
}
