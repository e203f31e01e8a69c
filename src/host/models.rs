//! The models of an engine by their ids, and by what was asked for.
//!
//! Invariant: no two are of the same files and options.

use std::collections::{BTreeMap, BTreeSet};

use super::ConnectionId;
use super::hosted::Hosted;
use super::room::{Holder, Room, Standing};
use super::serve::Place;
use crate::protocol::{Event, LoadOptions, ModelId, ModelSource, ModelUse};

/// So long (s) a model stays while nobody uses it, where the asker names no time.
const KEEP_UNUSED_SECS: u32 = 300;

/// What was asked for: the same is the same model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    /// Where it comes from.
    pub(super) source: ModelSource,
    /// How it runs.
    pub(super) options: LoadOptions,
}

impl Wanted {
    /// Whether one model serves both.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        let without_time = |options: &LoadOptions| LoadOptions { keep_unused_secs: None, ..options.clone() };
        self.source == other.source && without_time(&self.options) == without_time(&other.options)
    }

    fn keep_ms(&self) -> f64 {
        f64::from(self.options.keep_unused_secs.unwrap_or(KEEP_UNUSED_SECS)) * 1000.0
    }
}

/// A model and what it was loaded from, so that it can be loaded again.
pub(super) struct Slot<P: Place> {
    pub(super) wanted: Wanted,
    pub(super) attachments: Vec<P::Attachment>,
    pub(super) sources: Vec<P::Source>,
    pub(super) hosted: Hosted,
    pub(super) room: Room,
    /// Its device was lost, and it is loaded again.
    pub(super) is_lost: bool,
    used_at: u64,
    unused_since_ms: Option<f64>,
}

impl<P: Place> Slot<P> {
    /// A model that was just loaded.
    pub(super) fn new(
        wanted: Wanted,
        attachments: Vec<P::Attachment>,
        sources: Vec<P::Source>,
        hosted: Hosted,
    ) -> Self {
        let empty = Room { n_bytes: 0, is_on_gpu: false };
        let room = hosted.model.as_ref().map_or(empty, Room::of);
        Self { wanted, attachments, sources, hosted, room, is_lost: false, used_at: 0, unused_since_ms: None }
    }

    /// What a tab is told that it answers.
    pub(super) fn ready(&self) -> Event {
        let Wanted { source, options } = self.wanted.clone();
        Event::Ready { model: self.hosted.info.clone(), source, options }
    }

    /// When it goes because nobody uses it.
    pub(super) fn goes_at_ms(&self) -> Option<f64> {
        self.unused_since_ms.map(|since_ms| since_ms + self.wanted.keep_ms())
    }
}

/// All models.
pub(super) struct Models<P: Place> {
    pub(super) slots: BTreeMap<ModelId, Slot<P>>,
    n_loaded: ModelId,
    n_uses: u64,
}

impl<P: Place> Models<P> {
    /// None.
    pub(super) fn new() -> Self {
        Self { slots: BTreeMap::new(), n_loaded: 0, n_uses: 0 }
    }

    /// Takes a model in, and names it.
    pub(super) fn insert(&mut self, mut slot: Slot<P>) -> ModelId {
        self.n_loaded += 1;
        let id = self.n_loaded;
        slot.hosted.info.id = id;
        self.slots.insert(id, slot);
        self.note_use(id);
        id
    }

    /// The model that serves what is wanted.
    pub(super) fn find(&self, wanted: &Wanted) -> Option<ModelId> {
        self.slots.iter().find(|(_, slot)| slot.wanted.is_same(wanted)).map(|(id, _)| *id)
    }

    /// Models that a GPU computes, or did until it was lost; the one that was used last first.
    pub(super) fn on_gpu(&self) -> Vec<ModelId> {
        let is_on_gpu = |id: &ModelId| self.slots[id].room.is_on_gpu;
        self.latest_first().into_iter().filter(is_on_gpu).collect()
    }

    /// Whether any is in that memory.
    pub(super) fn share(&self, room: Room) -> bool {
        self.slots.values().any(|slot| slot.room.is_on_gpu == room.is_on_gpu)
    }

    /// The model that was used last.
    pub(super) fn latest(&self) -> Option<ModelId> {
        self.slots.iter().max_by_key(|(_, slot)| slot.used_at).map(|(id, _)| *id)
    }

    /// All, the one that was used last first.
    pub(super) fn latest_first(&self) -> Vec<ModelId> {
        let mut ids: Vec<ModelId> = self.slots.keys().copied().collect();
        ids.sort_by_key(|id| std::cmp::Reverse(self.slots[id].used_at));
        ids
    }

    /// A tab turned to it.
    pub(super) fn note_use(&mut self, id: ModelId) {
        self.n_uses += 1;
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.used_at = self.n_uses;
            slot.unused_since_ms = None;
        }
    }

    /// Notes who uses none of them, and tells which have gone unused for too long.
    pub(super) fn outdated(&mut self, users: impl Fn(ModelId) -> bool, now_ms: f64) -> Vec<ModelId> {
        for (id, slot) in &mut self.slots {
            if users(*id) || slot.hosted.has_work() {
                slot.unused_since_ms = None;
            } else {
                slot.unused_since_ms.get_or_insert(now_ms);
            }
        }
        let is_outdated = |slot: &Slot<P>| slot.goes_at_ms().is_some_and(|goes_at_ms| goes_at_ms <= now_ms);
        self.slots.iter().filter(|(_, slot)| is_outdated(slot)).map(|(id, _)| *id).collect()
    }

    /// The next model after `last` in turn that may have a step.
    pub(super) fn next_with_work(&self, last: ModelId) -> Vec<ModelId> {
        let has_work = |id: &ModelId| self.slots[id].hosted.has_work();
        let after = self.slots.keys().filter(|id| **id > last);
        after.chain(self.slots.keys().filter(|id| **id <= last)).copied().filter(has_work).collect()
    }

    /// Every model in the memory that is asked for, as those who ask for another see it; `users` tells who uses one.
    pub(super) fn holders(
        &self,
        is_on_gpu: bool,
        users: impl Fn(ModelId) -> BTreeSet<ConnectionId>,
        askers: &BTreeSet<ConnectionId>,
    ) -> Vec<Holder> {
        let holder = |(id, slot): (&ModelId, &Slot<P>)| {
            let users = users(*id);
            let standing = if users.is_empty() {
                Standing::Unused
            } else if users.is_subset(askers) {
                Standing::Own
            } else {
                Standing::Used
            };
            Holder { id: *id, n_bytes: slot.room.n_bytes, used_at: slot.used_at, standing }
        };
        self.slots.iter().filter(|(_, slot)| slot.room.is_on_gpu == is_on_gpu).map(holder).collect()
    }

    /// What a tab is told of a model that holds room.
    pub(super) fn model_use(&self, id: ModelId, n_tabs: usize) -> ModelUse {
        let slot = &self.slots[&id];
        ModelUse {
            name: slot.hosted.info.name.clone(),
            n_bytes: slot.room.n_bytes,
            n_tabs: n_tabs as u32,
            n_sequences: slot.hosted.n_sequences(None),
        }
    }
}
