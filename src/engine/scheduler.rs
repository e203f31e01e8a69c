//! Which rows of which sequences run next, and who owns which blocks.
//!
//! Invariant: sequences are admitted in order of arrival and lose their blocks in the reverse order, so the earliest
//! one always gets on; and no sequence is in two steps at once.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};

use super::blocks::Pools;
use super::sequence::{Sequence, State};
use super::{Budget, EngineConfig, SequenceId, Stats};
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

/// All sequences, in order of arrival, and the pool they share.
#[derive(Debug)]
pub(super) struct Scheduler {
    sequences: BTreeMap<SequenceId, Sequence>,
    pools: Pools,
    max_running: usize,
    max_logit_rows: usize,
    n_turns: u64,
    n_preemptions: u64,
}

impl Scheduler {
    /// A scheduler without sequences.
    pub(super) fn new(config: &EngineConfig) -> Self {
        Self {
            sequences: BTreeMap::new(),
            pools: Pools::new(&config.caches),
            max_running: config.max_sequences.min(config.max_logit_rows),
            max_logit_rows: config.max_logit_rows,
            n_turns: 0,
            n_preemptions: 0,
        }
    }

    /// Takes in a sequence that waits.
    pub(super) fn add(&mut self, id: SequenceId, mut sequence: Sequence) {
        sequence.blocks = self.pools.no_blocks();
        self.sequences.insert(id, sequence);
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
        self.pools.release(&mut sequence.blocks);
    }

    /// Rows of a sequence were computed. None if it was cancelled meanwhile and is now dropped.
    pub(super) fn land(&mut self, id: SequenceId, n_rows: usize) -> Option<&mut Sequence> {
        if self.sequence(id).state == State::Cancelled {
            self.remove(id);
            return None;
        }
        let sequence = self.sequence(id);
        sequence.state = State::Ready;
        sequence.advance(n_rows);
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

    /// The whole cache is lost.
    pub(super) fn restart_all(&mut self) {
        let ids: Vec<_> = self.sequences.keys().copied().collect();
        for id in ids {
            self.restart(id);
        }
    }

    /// The rows of the next step and whose they are, if there are any.
    pub(super) fn schedule(&mut self, budget: Budget) -> Option<(Batch, Vec<Chunk>)> {
        let mut draft = Draft { batch: Batch::default(), chunks: Vec::new() };
        self.schedule_decodes(&mut draft);
        self.admit();
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
            cached_blocks: 0,
            n_blocks: self.pools.n_blocks(),
            preemptions: self.n_preemptions,
        }
    }

    /// Whether there is no sequence, not even a cancelled one.
    pub(super) fn is_empty(&self) -> bool {
        self.sequences.is_empty()
    }

    /// In debug builds, panics if a block is leaked or owned twice.
    pub(super) fn assert_blocks(&self) {
        debug_assert!(
            self.pools.are_partitioned(self.sequences.values().map(|sequence| sequence.blocks.as_slice())),
            "every block is free or owned once"
        );
    }

    fn sequence(&mut self, id: SequenceId) -> &mut Sequence {
        self.sequences.get_mut(&id).expect("a sequence stays until it is removed")
    }

    fn n_running(&self) -> usize {
        self.sequences.values().filter(|sequence| sequence.is_running()).count()
    }

    fn ready(&self, kind: RowKind) -> Vec<SequenceId> {
        let is_ready = |sequence: &Sequence| sequence.state == State::Ready && sequence.next_kind() == kind;
        self.sequences.iter().filter(|(_, sequence)| is_ready(sequence)).map(|(&id, _)| id).collect()
    }

    /// One row for each sequence that decodes, earliest first. They are at most `max_running`, so within
    /// `max_logit_rows`, and a sequence that still prefills leaves itself one.
    fn schedule_decodes(&mut self, draft: &mut Draft) {
        for id in self.ready(RowKind::Decode) {
            // Making room for an earlier one may have preempted it.
            if self.sequence(id).state == State::Ready && self.make_room(id) {
                let end = self.sequence(id).n_cached() + 1;
                self.place(draft, id, RowKind::Decode, end);
            }
        }
    }

    /// Sees that a decoding sequence owns a block for its next row, at the cost of later arrivals or else of its own.
    fn make_room(&mut self, id: SequenceId) -> bool {
        loop {
            let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
            let n_tokens = sequence.n_cached() + 1;
            if self.pools.grow(&mut sequence.blocks, n_tokens) {
                return true;
            }
            let later = self.sequences.range((Excluded(id), Unbounded)).rev();
            let victim =
                later.filter(|(_, sequence)| sequence.state == State::Ready).map(|(&id, _)| id).next();
            match victim {
                Some(victim) => self.preempt(victim),
                // They come within reach when their step retires, so this one need not lose its own.
                None if self.are_blocks_in_flight(id) => return false,
                None => {
                    self.preempt(id);
                    return false;
                }
            }
        }
    }

    /// Whether a step in flight holds blocks of later arrivals or of cancelled sequences.
    fn are_blocks_in_flight(&self, id: SequenceId) -> bool {
        let comes_free = |(&other, sequence): (&SequenceId, &Sequence)| {
            sequence.state == State::Cancelled || (sequence.state == State::InFlight && other > id)
        };
        self.sequences.iter().any(comes_free)
    }

    fn preempt(&mut self, id: SequenceId) {
        self.n_preemptions += 1;
        self.release(id);
    }

    fn release(&mut self, id: SequenceId) {
        let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
        self.pools.release(&mut sequence.blocks);
        sequence.rewind();
    }

    /// Gives blocks to those that wait, in order of arrival, for all their tokens at once: a prompt that has begun
    /// never lacks one. A spare block for each that runs keeps an admission from being undone at their next block.
    fn admit(&mut self) {
        let waiting: Vec<_> =
            self.sequences.iter().filter(|(_, s)| !s.is_running()).map(|(&id, _)| id).collect();
        for (n_running, id) in (self.n_running()..).zip(waiting) {
            let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
            let n_tokens = sequence.tokens().len();
            if n_running >= self.max_running || !self.pools.have_room(n_tokens, n_running) {
                break;
            }
            assert!(self.pools.grow(&mut sequence.blocks, n_tokens), "there is room");
            sequence.state = State::Ready;
            self.take_turn(id);
        }
    }

    /// Puts a prompt behind all others.
    fn take_turn(&mut self, id: SequenceId) {
        self.n_turns += 1;
        self.sequence(id).turn = self.n_turns;
    }

    /// Chunks of prompts, in turn, each as long as the budget's rest allows.
    fn schedule_prefills(&mut self, draft: &mut Draft, budget: Budget) {
        let mut ids = self.ready(RowKind::Prefill);
        ids.sort_by_key(|&id| self.sequence(id).turn);
        for id in ids {
            let n_prefill = draft.batch.n_prefill();
            let max_rows = budget.prefill_rows - n_prefill;
            let max_logit_rows = self.max_logit_rows - draft.batch.logit_rows.len();
            // A later prompt rather comes first in the next step than to begin in the middle of a block.
            let end = self.sequence(id).chunk_end(max_rows, max_logit_rows, n_prefill == 0);
            if end > self.sequence(id).n_cached() {
                self.place(draft, id, RowKind::Prefill, end);
                self.take_turn(id);
            }
        }
    }

    /// Puts a sequence's tokens up to `end` into the step.
    fn place(&mut self, draft: &mut Draft, id: SequenceId, kind: RowKind, end: usize) {
        let sequence = self.sequences.get_mut(&id).expect("a sequence stays until it is removed");
        let index = draft.batch.push_sequence(self.pools.tables(&sequence.blocks, end));
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
