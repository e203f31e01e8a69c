//! Which rows of which sequences run next.
//!
//! Invariant: no sequence is in two steps at once, and one that decodes and is ready has a row in every step, unless it
//! loses its blocks or waits for some that are in flight.
//!
//! Why all get on. The senior of the sequences that run (the one that was first admitted earliest; preemption takes no
//! seniority) is never preempted: for a block it takes those of the juniors, and for balance only a client's youngest of
//! at least two goes. Its prompt takes turns with finitely many others and never lacks a block, its output is finite, so
//! it ends, and the next is senior. Of those that wait, the first in line gets its room in the end, since nobody passes
//! it but those of clients with fewer that run, and newcomers stand behind in their turn. One that is held back waits
//! only for earlier arrivals that are being prefilled, and those are finitely many and get on.

use std::collections::BTreeMap;

use super::clients::Clients;
use super::pools::{Lease, Pools};
use super::sequence::{Sequence, State};
use super::{Budget, ClientId, EngineConfig, SequenceId, Stats};
use crate::plan::batch::{Batch, RowKind};

/// A sequence's rows of one step.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Whose.
    pub(super) sequence: SequenceId,
    /// Rows, from the first token that was not cached.
    pub(super) n_rows: usize,
    /// So many of the last rows want logits.
    pub(super) n_logits: usize,
}

/// A step being put together.
struct Draft {
    batch: Batch,
    chunks: Vec<Chunk>,
}

/// All sequences, in order of arrival, and the pools they share.
#[derive(Debug)]
pub(super) struct Scheduler {
    pub(super) sequences: BTreeMap<SequenceId, Sequence>,
    pub(super) clients: Clients,
    pub(super) pools: Pools,
    pub(super) max_running: usize,
    max_logit_rows: usize,
    n_preemptions: u64,
}

impl Scheduler {
    /// A scheduler without sequences.
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            sequences: BTreeMap::new(),
            clients: Clients::default(),
            pools: Pools::new(&config.caches),
            max_running: config.max_sequences.min(config.max_logit_rows),
            max_logit_rows: config.max_logit_rows,
            n_preemptions: 0,
        }
    }

    /// Takes in a sequence that waits.
    pub(super) fn add(&mut self, id: SequenceId, mut sequence: Sequence) {
        sequence.lease = Lease::new(self.pools.n_caches());
        self.clients.come(sequence.client());
        self.sequences.insert(id, sequence);
    }

    /// Sequences of a client that wait.
    pub(super) fn n_waiting(&self, client: ClientId) -> usize {
        let waits = |sequence: &&Sequence| sequence.client() == client && !sequence.is_running();
        self.sequences.values().filter(waits).count()
    }

    /// Drops a sequence, if it is still there: now, or when its step in flight retires.
    pub(super) fn cancel(&mut self, id: SequenceId) {
        match self.sequences.get_mut(&id) {
            Some(sequence) if sequence.is_in_flight() => sequence.state = State::Cancelled,
            Some(_) => self.remove(id),
            None => {}
        }
    }

    /// Drops a sequence and frees its blocks.
    pub(super) fn remove(&mut self, id: SequenceId) {
        let mut sequence = self.sequences.remove(&id).expect("a sequence is removed once");
        self.pools.release(&mut sequence.lease);
        let client = sequence.client();
        if self.sequences.values().all(|other| other.client() != client) {
            self.clients.go(client);
        }
    }

    /// Rows of a sequence were computed, and what is whole can be shared. None if it was cancelled meanwhile and is now
    /// dropped.
    pub(super) fn land(&mut self, id: SequenceId, n_rows: usize) -> Option<&mut Sequence> {
        let sequence = self.sequences.get_mut(&id).expect("a sequence in flight is there");
        sequence.advance(n_rows);
        let n_cached = sequence.n_cached();
        let (tokens, lease) = sequence.tokens_and_lease();
        self.pools.publish(lease, &tokens[..n_cached]);
        if sequence.state == State::Cancelled {
            self.remove(id);
            return None;
        }
        let sequence = self.sequence(id);
        sequence.state = State::Ready;
        Some(sequence)
    }

    /// Rows of a sequence are lost: it waits again, or is dropped if it was cancelled.
    pub(super) fn restart(&mut self, id: SequenceId) {
        if self.sequence(id).state == State::Cancelled {
            self.remove(id);
        } else {
            self.release(id);
        }
    }

    /// All that was cached is lost, and the caches are these from here on: every sequence waits again.
    pub(super) fn restart_all(&mut self, config: &EngineConfig) {
        let ids: Vec<_> = self.sequences.keys().copied().collect();
        ids.into_iter().for_each(|id| self.restart(id));
        self.pools = Pools::new(&config.caches);
        self.sequences.values_mut().for_each(|sequence| sequence.lease = Lease::new(config.caches.len()));
        self.max_running = config.max_sequences.min(config.max_logit_rows);
        self.max_logit_rows = config.max_logit_rows;
    }

    /// Sequences of more tokens than that.
    pub(super) fn longer_than(&self, n_tokens: usize) -> Vec<SequenceId> {
        let is_longer = |sequence: &Sequence| sequence.tokens().len() > n_tokens;
        self.sequences.iter().filter(|(_, sequence)| is_longer(sequence)).map(|(&id, _)| id).collect()
    }

    /// The rows of the next step and whose they are, if there are any. Those that wait come first: what they are given
    /// leaves each that runs a block, and for balance only one that is not yet in this step can go.
    pub(super) fn schedule(&mut self, budget: Budget) -> Option<(Batch, Vec<Chunk>)> {
        let mut draft = Draft { batch: Batch::default(), chunks: Vec::new() };
        self.admit();
        self.schedule_decodes(&mut draft);
        self.schedule_prefills(&mut draft, budget);
        self.assert_blocks();
        (!draft.chunks.is_empty()).then_some((draft.batch, draft.chunks))
    }

    /// Everything but the steps in flight, which are not the scheduler's.
    pub(super) fn stats(&self) -> Stats {
        let running = self.n_running();
        Stats {
            running,
            waiting: self.sequences.len() - running,
            steps_in_flight: 0,
            free_blocks: self.pools.n_free(),
            cached_blocks: self.pools.n_cached(),
            n_blocks: self.pools.n_blocks(),
            preemptions: self.n_preemptions,
        }
    }

    /// Whether there is no sequence, not even a cancelled one.
    pub(super) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// In debug builds, panics if a block is leaked, or has other owners than those that name it.
    pub(super) fn assert_blocks(&self) {
        debug_assert!(
            self.pools.are_leased(self.sequences.values().map(|sequence| &sequence.lease)),
            "every block is free or owned by those that name it"
        );
    }

    pub(super) fn sequence(&mut self, id: SequenceId) -> &mut Sequence {
        self.sequences.get_mut(&id).expect("a sequence stays until it is removed")
    }

    pub(super) fn n_running(&self) -> usize {
        self.sequences.values().filter(|sequence| sequence.is_running()).count()
    }

    /// Blocks that are promised to the prompts being read: (caches)
    pub(super) fn promised(&self) -> Vec<usize> {
        let mut promised = vec![0; self.pools.n_caches()];
        let run_on = |s: &&Sequence| matches!(s.state, State::Ready | State::InFlight);
        for sequence in self.sequences.values().filter(run_on) {
            let own = self.pools.promise(&sequence.lease, sequence.prefill_end());
            promised.iter_mut().zip(own).for_each(|(sum, own)| *sum += own);
        }
        promised
    }

    pub(super) fn preempt(&mut self, id: SequenceId) {
        self.n_preemptions += 1;
        self.release(id);
    }

    fn release(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
        self.pools.release(&mut sequence.lease);
        sequence.rewind();
    }

    fn ready(&self, kind: RowKind) -> Vec<SequenceId> {
        let is_ready = |sequence: &Sequence| sequence.state == State::Ready && sequence.next_kind() == kind;
        self.sequences.iter().filter(|(_, sequence)| is_ready(sequence)).map(|(&id, _)| id).collect()
    }

    /// One row for each sequence that decodes, the senior first. They are at most `max_running`, so within
    /// `max_logit_rows`, and a sequence that still prefills leaves itself one.
    fn schedule_decodes(&mut self, draft: &mut Draft) {
        let mut ids = self.ready(RowKind::Decode);
        ids.sort_by_key(|id| self.sequences[id].seniority());
        for id in ids {
            // Making room for a senior may have preempted it.
            if self.sequence(id).state == State::Ready && self.make_room(id) {
                let end = self.sequence(id).n_cached() + 1;
                self.place(draft, id, RowKind::Decode, end);
            }
        }
    }

    /// Sees that a decoding sequence owns a block for its next row, at the cost of juniors or else of its own.
    fn make_room(&mut self, id: SequenceId) -> bool {
        let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
        let (n_cached, seniority) = (sequence.n_cached(), sequence.seniority());
        self.pools.slide(&mut sequence.lease, n_cached);
        if self.pools.has_blocks(&sequence.lease, n_cached + 1) {
            return true;
        }
        loop {
            let promised = self.promised();
            let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
            if self.pools.grow(&mut sequence.lease, n_cached + 1, &promised) {
                return true;
            }
            let juniors = || self.sequences.iter().filter(|(_, other)| other.seniority() > seniority);
            let ready = juniors().filter(|(_, other)| other.state == State::Ready);
            match ready.max_by_key(|(_, other)| other.seniority()).map(|(&id, _)| id) {
                Some(victim) => self.preempt(victim),
                // They come within reach when their step retires, so this one need not lose its own.
                None if juniors().any(|(_, other)| other.is_in_flight()) || self.is_any_cancelled() => {
                    return false;
                }
                None => {
                    self.preempt(id);
                    return false;
                }
            }
        }
    }

    fn is_any_cancelled(&self) -> bool {
        self.sequences.values().any(|sequence| sequence.state == State::Cancelled)
    }

    /// Prompts that are ready, in turn: of each client the first, then of each the second, and so on.
    fn prompts_in_turn(&self) -> Vec<SequenceId> {
        let mut ids = self.ready(RowKind::Prefill);
        ids.sort_by_key(|id| self.sequences[id].turn);
        let mut n_before: BTreeMap<ClientId, usize> = BTreeMap::new();
        let mut place_of = |id: &SequenceId| {
            let client = self.sequences[id].client();
            let n = n_before.entry(client).or_default();
            *n += 1;
            (*n, self.clients.read(client))
        };
        let mut places: Vec<_> = ids.into_iter().map(|id| (place_of(&id), id)).collect();
        places.sort_unstable();
        places.into_iter().map(|(_, id)| id).collect()
    }

    /// Puts a prompt behind all others, and its client behind all others.
    pub(super) fn take_turn(&mut self, id: SequenceId) {
        let client = self.sequence(id).client();
        self.sequence(id).turn = self.clients.take_turn(client);
    }

    /// Chunks of prompts, in turn, each as long as the budget's rest allows.
    fn schedule_prefills(&mut self, draft: &mut Draft, budget: Budget) {
        for id in self.prompts_in_turn() {
            let n_prefill = draft.batch.n_prefill();
            let start = self.sequence(id).n_cached();
            let max_rows = (budget.prefill_rows - n_prefill).min(self.pools.furthest_end(start) - start);
            let max_logit_rows = self.max_logit_rows - draft.batch.logit_rows.len();
            // A later prompt rather comes first in the next step than to begin in the middle of a block.
            let end = self.sequence(id).chunk_end(max_rows, max_logit_rows, n_prefill == 0);
            if end > start {
                let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
                self.pools.slide(&mut sequence.lease, start);
                let nothing = vec![0; self.pools.n_caches()];
                assert!(self.pools.grow(&mut sequence.lease, end, &nothing), "a prompt never lacks a block");
                self.place(draft, id, RowKind::Prefill, end);
                self.take_turn(id);
            }
        }
    }

    /// Puts a sequence's tokens up to `end` into the step.
    fn place(&mut self, draft: &mut Draft, id: SequenceId, kind: RowKind, end: usize) {
        let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
        let index = draft.batch.push_sequence(self.pools.tables(&sequence.lease, end));
        let n_logits_before = draft.batch.logit_rows.len();
        let start = sequence.n_cached();
        for position in start..end {
            let (token, wants_logits) = (sequence.tokens()[position], sequence.wants_logits(position));
            draft.batch.push_row(kind, index, token, position as u32, wants_logits);
        }
        sequence.state = State::InFlight;
        let n_logits = draft.batch.logit_rows.len() - n_logits_before;
        draft.chunks.push(Chunk { sequence: id, n_rows: end - start, n_logits });
    }
}
