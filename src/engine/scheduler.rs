//! Which rows of which sequences run next.
//!
//! Invariant: a sequence is in a second step only if the tokens of its rows there are known, on the host or on the device;
//! one that decodes and whose next token is known has a row in every step, unless it loses its blocks, waits for some that
//! are in flight, or is held so that a senior can take its own. Blocks change hands only once no step in flight uses them.
//!
//! Why all get on. The senior of the sequences that run (the one that was first admitted earliest; preemption takes no
//! seniority) is never preempted: for a block it takes those of the juniors, and for balance only a client's youngest of
//! at least two goes. Who is to lose blocks and is in flight gets no row in the next step, so it comes within reach when its
//! own has retired, however many steps are in flight. Its prompt takes turns with finitely many others and never lacks a block, its output is finite, so
//! it ends, and the next is senior. Of those that wait, the first in line gets its room in the end, since nobody passes
//! it but those of clients with fewer that run, and newcomers stand behind in their turn. One that is held back waits
//! only for earlier arrivals that are being prefilled, and those are finitely many and get on.

use std::collections::{BTreeMap, BTreeSet};

use super::clients::Clients;
use super::pools::{Lease, Pools};
use super::sequence::{Sequence, State};
use super::{Budget, ClientId, EngineConfig, SequenceId, Stats};
use crate::plan::batch::{Batch, RowKind, SampledAt, Wants};

/// A sequence's rows of one step.
#[derive(Debug)]
pub(super) struct Chunk {
    /// Whose.
    pub(super) sequence: SequenceId,
    /// Rows, from the first token that was not cached.
    pub(super) n_rows: usize,
    /// So many of the last rows want logits.
    pub(super) n_logits: usize,
    /// The device samples from the last of them.
    pub(super) is_sampled: bool,
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
    /// Tokens at which a sequence ends.
    max_tokens: usize,
    samples_on_device: bool,
    n_preemptions: u64,
    /// They are in flight and are to lose their blocks: no rows for them in the step being put together.
    held: BTreeSet<SequenceId>,
    /// The same for all that were admitted later.
    held_after: u64,
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
            max_tokens: config.max_tokens_of_sequence(),
            samples_on_device: config.samples_on_device,
            n_preemptions: 0,
            held: BTreeSet::new(),
            held_after: u64::MAX,
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

    /// Rows of a sequence were computed, and what is whole can be shared. None if it was cancelled or lost meanwhile; it is
    /// dropped, or waits again, once no other step has rows of it.
    pub(super) fn land(&mut self, id: SequenceId, n_rows: usize) -> Option<&mut Sequence> {
        let sequence = self.sequences.get_mut(&id).expect("a sequence in flight is there");
        sequence.land(n_rows);
        if !sequence.is_broken() {
            // A cancelled one may have rows of tokens that nobody was told of.
            let n_known = sequence.n_cached().min(sequence.tokens().len());
            let (tokens, lease) = sequence.tokens_and_lease();
            self.pools.publish(lease, &tokens[..n_known]);
        }
        let runs_on = self.sequence(id).runs_on();
        self.settle(id);
        runs_on.then(|| self.sequence(id))
    }

    /// Rows of a sequence failed: it waits again, or is dropped if it was cancelled, once no other step has rows of it.
    pub(super) fn fall(&mut self, id: SequenceId) {
        self.sequence(id).fall();
        self.settle(id);
    }

    /// What was put off until no step has rows of a sequence.
    fn settle(&mut self, id: SequenceId) {
        let sequence = self.sequence(id);
        if sequence.is_in_flight() {
            return;
        }
        if sequence.state == State::Cancelled {
            self.remove(id);
        } else if sequence.is_broken() {
            self.release(id);
        }
    }

    /// All steps are forgotten: a sequence waits again, or is dropped if it was cancelled.
    fn restart(&mut self, id: SequenceId) {
        self.sequence(id).forget_steps();
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
        self.max_tokens = config.max_tokens_of_sequence();
        self.samples_on_device = config.samples_on_device;
    }

    /// Sequences of more tokens than that.
    pub(super) fn longer_than(&self, n_tokens: usize) -> Vec<SequenceId> {
        let is_longer = |sequence: &Sequence| sequence.tokens().len() > n_tokens;
        self.sequences.iter().filter(|(_, sequence)| is_longer(sequence)).map(|(&id, _)| id).collect()
    }

    /// The rows of the next step and whose they are, if there are any. Those that wait come first: what they are given
    /// leaves each that runs a block, and for balance only one that is not yet in this step can go.
    pub(super) fn schedule(&mut self, budget: Budget, slot_of_step: u32) -> Option<(Batch, Vec<Chunk>)> {
        let batch = Batch { slot_of_step, ..Batch::default() };
        let mut draft = Draft { batch, chunks: Vec::new() };
        self.held.clear();
        self.held_after = u64::MAX;
        self.admit();
        self.schedule_decodes(&mut draft);
        self.schedule_prefills(&mut draft, budget);
        self.assert_blocks();
        (!draft.chunks.is_empty()).then_some((draft.batch, draft.chunks))
    }

    /// Whether a step beside those in flight is worth it: not where sequences would be left out of it because the host must
    /// see their tokens first, unless others go on without the host. Else two halves would take turns from there on.
    pub(super) fn may_overlap(&self) -> bool {
        let all = || self.sequences.values().filter(|sequence| sequence.runs_on());
        let is_left_out =
            |s: &Sequence| s.is_in_flight() && !self.can_go_on(s) && !s.ends_in_flight(self.max_tokens);
        !all().any(is_left_out) || all().any(|s| self.can_go_on(s) && s.is_fed_by_device())
    }

    /// Whether a sequence can have rows in the next step, for all that it knows.
    fn can_go_on(&self, sequence: &Sequence) -> bool {
        sequence.has_next(self.max_tokens) && (self.samples_on_device || !sequence.is_in_flight())
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
        for sequence in self.sequences.values().filter(|sequence| sequence.runs_on()) {
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
        let is_ready = |(_, s): &(&SequenceId, &Sequence)| self.can_go_on(s) && s.next_kind() == kind;
        self.sequences.iter().filter(is_ready).map(|(&id, _)| id).collect()
    }

    fn is_held(&self, id: SequenceId) -> bool {
        self.held.contains(&id) || self.sequences[&id].seniority() > self.held_after
    }

    /// Keeps a sequence that is in flight out of this step, so that it comes within reach.
    pub(super) fn hold(&mut self, id: SequenceId) {
        self.held.insert(id);
    }

    /// One row for each sequence that decodes, the senior first. They are at most `max_running`, so within
    /// `max_logit_rows`, and a sequence that still prefills leaves itself one.
    fn schedule_decodes(&mut self, draft: &mut Draft) {
        let mut ids = self.ready(RowKind::Decode);
        ids.sort_by_key(|id| self.sequences[id].seniority());
        for id in ids {
            // Making room for a senior may have preempted it.
            if self.sequence(id).is_running() && !self.is_held(id) && self.make_room(id) {
                let end = self.sequence(id).n_placed() + 1;
                self.place(draft, id, RowKind::Decode, end);
            }
        }
    }

    /// Sees that a decoding sequence owns a block for its next row, at the cost of juniors or else of its own.
    fn make_room(&mut self, id: SequenceId) -> bool {
        let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
        let (n_placed, seniority) = (sequence.n_placed(), sequence.seniority());
        // What rows in flight see stays.
        let n_cached = sequence.n_cached();
        self.pools.slide(&mut sequence.lease, n_cached);
        if self.pools.has_blocks(&sequence.lease, n_placed + 1) {
            return true;
        }
        loop {
            let promised = self.promised();
            let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
            if self.pools.grow(&mut sequence.lease, n_placed + 1, &promised) {
                return true;
            }
            // Its own step gives back what falls behind a window.
            if self.pools.would_slide(&sequence.lease, n_placed) {
                return false;
            }
            let is_in_flight = sequence.is_in_flight();
            let juniors = || self.sequences.iter().filter(|(_, other)| other.seniority() > seniority);
            let at_rest = juniors().filter(|(_, other)| other.is_at_rest());
            match at_rest.max_by_key(|(_, other)| other.seniority()).map(|(&id, _)| id) {
                Some(victim) => self.preempt(victim),
                // They come within reach when their step retires, so this one need not lose its own.
                None if juniors().any(|(_, other)| other.is_in_flight()) => {
                    self.held_after = seniority;
                    return false;
                }
                None if self.is_any_ending() || is_in_flight => return false,
                None => {
                    self.preempt(id);
                    return false;
                }
            }
        }
    }

    /// Whether a sequence gives its blocks back when its steps in flight retire.
    fn is_any_ending(&self) -> bool {
        self.sequences.values().any(|sequence| sequence.is_in_flight() && !sequence.runs_on())
    }

    /// Prompts that are ready, in turn: of each client the first, then of each the second, and so on.
    fn prompts_in_turn(&self) -> Vec<SequenceId> {
        let mut ids = self.ready(RowKind::Prefill);
        ids.retain(|id| !self.is_held(*id));
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
            let (start, n_cached) = (self.sequence(id).n_placed(), self.sequence(id).n_cached());
            let furthest_end = self.pools.furthest_end(n_cached);
            let max_rows = (budget.prefill_rows - n_prefill).min(furthest_end.saturating_sub(start));
            let max_logit_rows = self.max_logit_rows - draft.batch.logit_rows.len();
            // A later prompt rather comes first in the next step than to begin in the middle of a block.
            let end = self.sequence(id).chunk_end(max_rows, max_logit_rows, n_prefill == 0);
            if end > start {
                let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
                self.pools.slide(&mut sequence.lease, n_cached);
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
        let start = sequence.n_placed();
        let mut is_sampled = false;
        for position in start..end {
            let wants = sequence.wants(position, self.samples_on_device);
            is_sampled = matches!(wants, Wants::Token(_));
            draft.batch.push_row(kind, index, sequence.token_at(position), position as u32, wants);
        }
        let n_logits = draft.batch.logit_rows.len() - n_logits_before;
        let sampled = is_sampled.then(|| SampledAt {
            slot_of_step: draft.batch.slot_of_step,
            logit_row: draft.batch.logit_rows.len() as u32 - 1,
        });
        sequence.place(end, sampled);
        draft.chunks.push(Chunk { sequence: id, n_rows: end - start, n_logits, is_sampled });
    }
}
