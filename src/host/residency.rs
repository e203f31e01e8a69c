//! Models come and go: what is wanted is loaded, what is in the way or unused is unloaded.
//!
//! Invariant: a model goes by [`Server::unload`] alone, which tells everyone whom it concerns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use super::ConnectionId;
use super::hosted::Hosted;
use super::load::{LoadError, Loaded};
use super::loads::{DeviceWanted, Done, Job, Opened, Stage};
use super::models::{Slot, Wanted};
use super::room::make_room;
use super::serve::Place;
use super::server::Server;
use crate::cpu::CpuError;
use crate::gpu::GpuError;
use crate::protocol::{Event, GIVEN_UP, IfFull, LoadOptions, ModelId, ModelSource, ModelUse};

/// How a model goes.
pub(super) enum Farewell<'a> {
    /// Nobody used it, or the tab that did has chosen another.
    Quiet,
    /// Another takes its place: answers end as cancelled.
    Replaced(&'a str),
    /// Something broke: answers fail.
    Failed(&'a str),
}

impl<P: Place> Server<P> {
    /// Everyone who uses a model: whom it answers, and whose answers it still generates.
    pub(super) fn users(&self, id: ModelId) -> BTreeSet<ConnectionId> {
        let tabs = self.connections.iter().filter(|(_, tab)| tab.model == Some(id)).map(|(tab, _)| *tab);
        let askers = self.models.slots.get(&id).into_iter().flat_map(|slot| slot.hosted.askers());
        tabs.chain(askers).collect()
    }

    /// A tab wants a model: one that is there or on its way is shared.
    pub(super) fn load(
        &mut self,
        connection: ConnectionId,
        source: ModelSource,
        options: LoadOptions,
        if_full: IfFull,
        attachments: Vec<P::Attachment>,
    ) {
        let wanted = Wanted { source, options };
        if let Some(id) = self.models.find(&wanted) {
            if let Some(slot) = self.models.slots.get_mut(&id) {
                slot.wanted.options.keep_unused_secs = wanted.options.keep_unused_secs;
            }
            return self.turn_to(connection, id);
        }
        if if_full == IfFull::Ask
            && let Some(models) = self.in_the_way_of(&wanted)
        {
            // Others wait for it, or this tab did; that is for this one to choose.
            self.loads.leave(connection);
            return self.tell(connection, Event::InUse { models });
        }
        let is_same = |job: &&mut Job<P>| job.again.is_none() && job.wanted.is_same(&wanted);
        let shared = self.loads.jobs().find(is_same).map(|job| {
            job.askers.insert(connection, if_full);
            job.stage.event()
        });
        if let Some(event) = shared {
            // Only now, so that a load that the tab asked for twice goes on.
            self.leave_other_loads(connection, &wanted);
            return self.tell(connection, event);
        }
        self.loads.leave(connection);
        let stage = Stage::new(if self.loads.job.is_some() {
            "Waiting for another model to load"
        } else {
            "Loading"
        });
        self.tell(connection, stage.event());
        self.loads.queue.push_back(Job {
            wanted,
            attachments,
            askers: BTreeMap::from([(connection, if_full)]),
            again: None,
            needed_bytes: None,
            stage,
        });
    }

    /// What holds the room that a load of the same waits for.
    fn in_the_way_of(&self, wanted: &Wanted) -> Option<Vec<ModelUse>> {
        let waits = |job: &&Job<P>| job.again.is_none() && job.wanted.is_same(wanted);
        let job = self.loads.queue.iter().find(waits)?;
        let in_the_way = self.room_for(job, job.needed_bytes?).err()?;
        Some(self.model_uses(&in_the_way))
    }

    fn model_uses(&self, ids: &[ModelId]) -> Vec<ModelUse> {
        ids.iter().map(|id| self.models.model_use(*id, self.users(*id).len())).collect()
    }

    fn leave_other_loads(&mut self, connection: ConnectionId, wanted: &Wanted) {
        for job in self.loads.jobs().filter(|job| !job.wanted.is_same(wanted)) {
            job.askers.remove(&connection);
        }
        self.loads.give_up_unwanted();
    }

    /// A tab that came while there is no model gets the first that is on its way.
    pub(super) fn join_load(&mut self, connection: ConnectionId) {
        let Some(job) = self.loads.jobs().next() else { return };
        job.askers.insert(connection, IfFull::default());
        let event = job.stage.event();
        self.tell(connection, event);
    }

    /// Tells how far the load under way is.
    fn tell_stage(&mut self) {
        let Some(job) = &self.loads.job else { return };
        let hearers = match &job.again {
            Some((id, _)) => self.users(*id),
            None => job.asker_set(),
        };
        let event = job.stage.event();
        hearers.into_iter().for_each(|hearer| self.tell(hearer, event.clone()));
    }

    /// Begins the next load that has a chance, where none is under way.
    pub(super) fn begin_load(&mut self) {
        if self.loads.job.is_some() {
            return;
        }
        let has_chance = |job: &Job<P>| match job.needed_bytes {
            Some(needed_bytes) => self.room_for(job, needed_bytes).is_ok(),
            None => true,
        };
        let Some(place) = self.loads.queue.iter().position(has_chance) else { return };
        if let Some(job) = self.loads.queue.remove(place) {
            let (gpu, is_patient, is_noisy) = (self.gpu.clone(), self.n_losses > 0, self.is_noisy);
            let device = DeviceWanted { gpu, is_patient, is_noisy, surroundings: self.surroundings };
            self.loads.open(&self.place, device, job);
        }
    }

    /// What must go for a job, or what is in the way.
    fn room_for(&self, job: &Job<P>, needed_bytes: u64) -> Result<Vec<ModelId>, Vec<ModelId>> {
        let default = || self.gpu.as_ref().map_or(u64::MAX, |gpu| gpu.max_buffer_bytes().saturating_mul(2));
        let budget_bytes = self.place.budget_bytes().unwrap_or_else(default);
        let holders = self.models.holders(|id| self.users(id), &job.asker_set());
        let may_replace = job.askers.values().any(|if_full| *if_full == IfFull::Replace);
        make_room(needed_bytes, budget_bytes, &holders, may_replace)
    }

    /// The load under way came further, or to its end.
    pub(super) fn advance_load(&mut self, done: Option<Done<P>>) {
        match done {
            None => self.tell_stage(),
            Some(Done::Opened(Ok(opened))) => self.opened(*opened),
            Some(Done::Opened(Err(error))) => self.fail_load(&error),
            Some(Done::Brought(_, Ok(loaded))) if self.is_of_another(&loaded) => {
                let error = "its file was replaced by that of another model meanwhile; load it anew";
                self.fail_load(error);
            }
            Some(Done::Brought(sources, Ok(loaded))) => self.brought(sources, *loaded),
            Some(Done::Brought(_, Err(error))) => self.not_brought(error),
        }
    }

    /// The files are good: what is in the way goes, or the load waits.
    fn opened(&mut self, opened: Opened<P>) {
        let Some(job) = &self.loads.job else { return };
        if let Some(gpu) = opened.chosen.machine.gpu() {
            self.gpu = Some(Rc::clone(gpu));
        }
        if job.again.is_none() {
            // What once filled the device alone is not tried again beside others.
            let needed_bytes =
                job.needed_bytes.map_or(opened.needed_bytes, |known| known.max(opened.needed_bytes));
            match self.room_for(job, needed_bytes) {
                Ok(going) => {
                    let askers = job.asker_set();
                    going.into_iter().for_each(|id| self.replace(id, &askers));
                }
                Err(in_the_way) => return self.wait_for_room(needed_bytes, &in_the_way),
            }
        }
        self.loads.bring(opened);
    }

    /// Unloads a model for those who asked for another.
    fn replace(&mut self, id: ModelId, askers: &BTreeSet<ConnectionId>) {
        if self.users(id).is_subset(askers) {
            self.unload(id, &Farewell::Quiet);
        } else {
            let reason = "another tab put its own model in place of this one; load it again, which may do the same to that tab";
            self.unload(id, &Farewell::Replaced(reason));
        }
    }

    /// There is no room: those who want to know are told who uses it, the others wait.
    fn wait_for_room(&mut self, needed_bytes: u64, in_the_way: &[ModelId]) {
        let Some(mut job) = self.loads.interrupt() else { return };
        let models = self.model_uses(in_the_way);
        for asker in job.askers_who(IfFull::Ask) {
            job.askers.remove(&asker);
            self.tell(asker, Event::InUse { models: models.clone() });
        }
        let name = |model: &ModelUse| match model.n_tabs {
            1 => format!("1 tab uses {}", model.name),
            n => format!("{n} tabs use {}", model.name),
        };
        let names: Vec<String> = models.iter().map(name).collect();
        job.needed_bytes = Some(needed_bytes);
        job.stage = Stage::new(format!("Waiting for room: {}", names.join(", ")));
        let event = job.stage.event();
        job.asker_set().into_iter().for_each(|asker| self.tell(asker, event.clone()));
        if !job.askers.is_empty() {
            self.loads.queue.push_back(job);
        }
    }

    /// A model is on the device.
    fn brought(&mut self, sources: Vec<P::Source>, loaded: Loaded) {
        let Some(job) = self.loads.interrupt() else { return };
        self.is_news = true;
        self.n_loads += 1;
        let now_ms = self.now_ms();
        let id = match job.again {
            Some((id, _)) => {
                let Some(slot) = self.models.slots.get_mut(&id) else { return };
                slot.is_lost = false;
                slot.gpu_bytes = loaded.model.gpu_bytes();
                self.with_hosted(id, |hosted| hosted.move_to(loaded, now_ms));
                id
            }
            None => self.models.insert(Slot::new(job.wanted, job.attachments, sources, Hosted::new(loaded))),
        };
        let waits: BTreeSet<ConnectionId> = self.loads.jobs().flat_map(|other| other.asker_set()).collect();
        for (connection, tab) in &mut self.connections {
            let joins = tab.model.is_none() && tab.takes_any && !waits.contains(connection);
            if joins || job.askers.contains_key(connection) {
                (tab.model, tab.takes_any) = (Some(id), false);
            }
        }
        let Some(slot) = self.models.slots.get(&id) else { return };
        let (event, attachments) = (slot.ready(), slot.attachments.clone());
        let tabs: Vec<ConnectionId> =
            self.connections.iter().filter(|(_, tab)| tab.model == Some(id)).map(|(tab, _)| *tab).collect();
        tabs.into_iter().for_each(|tab| self.tell_with(tab, event.clone(), attachments.clone()));
    }

    /// Whether what was loaded again has another vocabulary: tokens of the model before mean nothing to it.
    fn is_of_another(&self, loaded: &Loaded) -> bool {
        let again = self.loads.job.as_ref().and_then(|job| job.again.as_ref());
        let slot = again.and_then(|(id, _)| self.models.slots.get(id));
        slot.is_some_and(|slot| slot.hosted.info.vocab_size != loaded.info.vocab_size)
    }

    /// Unloads the models that the processor computes and nobody else uses than those who ask for another; whether there
    /// were any.
    fn makes_memory(&mut self) -> bool {
        let Some(job) = &self.loads.job else { return false };
        let (askers, on_gpu) = (job.asker_set(), self.models.on_gpu());
        let is_free = |id: &ModelId| !on_gpu.contains(id) && self.users(*id).is_subset(&askers);
        let free: Vec<ModelId> = self.models.latest_first().into_iter().filter(is_free).collect();
        free.iter().for_each(|id| self.replace(*id, &askers));
        !free.is_empty()
    }

    /// A model did not reach the device.
    fn not_brought(&mut self, error: LoadError) {
        let is_alone = self.models.on_gpu().is_empty();
        match error {
            LoadError::Gpu(GpuError::Lost { reason }) => self.lose_device(&reason),
            // Memory did not suffice beside the others: there is less of it than the budget says.
            LoadError::Gpu(GpuError::OutOfMemory { .. }) if !is_alone && self.is_new_load() => {
                if let Some(mut job) = self.loads.interrupt() {
                    job.needed_bytes = Some(u64::MAX);
                    match self.room_for(&job, u64::MAX) {
                        Ok(_) => self.loads.queue.push_front(job),
                        Err(in_the_way) => {
                            self.loads.job = Some(job);
                            self.wait_for_room(u64::MAX, &in_the_way);
                        }
                    }
                }
            }
            LoadError::Cpu(CpuError::OutOfMemory { .. }) if self.is_new_load() && self.makes_memory() => {
                let job = self.loads.interrupt();
                self.loads.queue.extend(job);
            }
            error => {
                let sentence = self.place.in_words(&error);
                self.fail_load(&sentence);
            }
        }
    }

    /// A tab wants no more of what is on its way for it.
    pub(super) fn give_up_load(&mut self, connection: ConnectionId) {
        if self.loads.jobs().any(|job| job.askers.contains_key(&connection)) {
            self.loads.leave(connection);
            self.is_news = true;
            self.tell_load_failed(BTreeSet::from([connection]), GIVEN_UP);
        }
    }

    fn is_new_load(&self) -> bool {
        self.loads.job.as_ref().is_some_and(|job| job.again.is_none())
    }

    /// The load under way has failed.
    fn fail_load(&mut self, error: &str) {
        let Some(job) = self.loads.interrupt() else { return };
        self.is_news = true;
        if let Some((id, _)) = job.again {
            self.unload(id, &Farewell::Failed(error));
        }
        self.tell_load_failed(job.asker_set(), error);
    }

    pub(super) fn tell_load_failed(&mut self, askers: BTreeSet<ConnectionId>, error: &str) {
        for asker in askers {
            let unloaded = self.connections.get(&asker).is_some_and(|tab| tab.model.is_none());
            self.tell(asker, Event::LoadFailed { error: error.into(), unloaded });
        }
    }

    /// Frees a model.
    pub(super) fn unload(&mut self, id: ModelId, farewell: &Farewell<'_>) {
        self.is_news = true;
        self.with_hosted(id, |hosted| match farewell {
            Farewell::Quiet | Farewell::Replaced(_) => hosted.cancel_all(None),
            // Why, its tabs are told beside this.
            Farewell::Failed(_) => hosted.fail_all("its model is gone"),
        });
        // With the step that is under way goes the model that it computes with.
        self.steps.forget(id);
        self.models.slots.remove(&id);
        self.forget_again(id);
        let askers = self.loads.job.as_ref().map(Job::asker_set).unwrap_or_default();
        let mut left = Vec::new();
        for (connection, tab) in &mut self.connections {
            if tab.model == Some(id) {
                tab.model = None;
                tab.takes_any = matches!(farewell, Farewell::Failed(_));
                left.push(*connection);
            }
        }
        if let Farewell::Replaced(reason) | Farewell::Failed(reason) = farewell {
            for connection in left.into_iter().filter(|connection| !askers.contains(connection)) {
                self.tell(connection, Event::Unloaded { reason: (*reason).into() });
            }
        }
    }

    /// A lost model need not be loaded again, but for those who came meanwhile and wait for it.
    fn forget_again(&mut self, id: ModelId) {
        let is_its = |job: &Job<P>| job.again.as_ref().is_some_and(|(again, _)| *again == id);
        let under_way =
            if self.loads.job.as_ref().is_some_and(is_its) { self.loads.interrupt() } else { None };
        let (its, others): (VecDeque<_>, _) =
            std::mem::take(&mut self.loads.queue).into_iter().partition(is_its);
        self.loads.queue = others;
        let wanted = its.into_iter().chain(under_way).filter(|job| !job.askers.is_empty());
        self.loads.queue.extend(wanted.map(|job| Job { again: None, ..job }));
    }

    /// Frees models that nobody has used for long.
    pub(super) fn unload_unused(&mut self) {
        let now_ms = self.now_ms();
        let used: BTreeSet<ModelId> =
            self.models.slots.keys().copied().filter(|id| !self.users(*id).is_empty()).collect();
        for id in self.models.outdated(|id| used.contains(&id), now_ms) {
            self.unload(id, &Farewell::Quiet);
        }
    }
}
