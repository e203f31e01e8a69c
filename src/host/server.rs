//! What the loop serves: connections, models and loads; letters in, turns, events out.
//!
//! Invariant: nothing here waits. Whatever a letter holds is answered with events.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::hosted::Stepped;
use super::loads::Loads;
use super::losses::Losses;
use super::machine::{Computer, SharedProcessor};
use super::models::{Models, Slot};
use super::outbox::Outbox;
use super::rate::Rate;
use super::request::{Ask, RequestError};
use super::running::Running;
use super::serve::{Letter, Place};
use super::{ConnectionId, Surroundings};
use crate::gpu::{Gpu, GpuError};
use crate::protocol::{self, BUILD, Event, ModelId, Request, RequestId, Status, VERSION};

/// Most connections.
const MAX_CONNECTIONS: usize = 256;
/// So often (ms) a device is looked at while something is expected of it: a lost one wakes nobody.
const LOOK_MS: f64 = 1000.0;

/// A tab of this build.
pub(super) struct Connection<A> {
    pub(super) outbox: Outbox<A>,
    /// The model that answers it.
    pub(super) model: Option<ModelId>,
    /// It takes the first model that any tab loads, until it has had one; or again, once a fault took its own.
    pub(super) takes_any: bool,
    /// Tokens generated for it.
    pub(super) rate: Rate,
    /// The last that it was told unasked.
    pub(super) told: Option<Status>,
}

impl<A> Default for Connection<A> {
    fn default() -> Self {
        Self { outbox: Outbox::default(), model: None, takes_any: true, rate: Rate::default(), told: None }
    }
}

/// The engine of several tabs.
pub(super) struct Server<P: Place> {
    pub(super) place: Rc<P>,
    pub(super) surroundings: Surroundings,
    pub(super) connections: BTreeMap<ConnectionId, Connection<P::Attachment>>,
    /// Tabs of other builds that have greeted.
    foreign: BTreeSet<ConnectionId>,
    pub(super) models: Models<P>,
    pub(super) loads: Loads<P>,
    pub(super) gpu: Option<Rc<Gpu>>,
    pub(super) processor: SharedProcessor,
    /// Kernels of devices that are opened from now on return noise.
    pub(super) is_noisy: bool,
    pub(super) steps: Running,
    /// When the processor, and the GPU, had ended the last of their steps that was read.
    free_since_ms: [f64; 2],
    last_stepped: ModelId,
    /// A pipeline that is made because nobody asks for anything.
    pub(super) making: Option<LocalBoxFuture<'static, ()>>,
    /// When something was asked or computed last.
    pub(super) busy_ms: f64,
    /// When the last pipeline was made, or a load ended.
    pub(super) made_ms: f64,
    pub(super) losses: Losses,
    pub(super) n_losses: u32,
    pub(super) n_loads: u32,
    pub(super) rate: Rate,
    /// Something happened since tabs were told how the engine stands.
    pub(super) is_news: bool,
    pub(super) told_ms: f64,
    is_closed: bool,
}

impl<P: Place> Server<P> {
    /// Without tabs and models.
    pub(super) fn new(place: Rc<P>, surroundings: Surroundings) -> Self {
        Self {
            place,
            surroundings,
            connections: BTreeMap::new(),
            foreign: BTreeSet::new(),
            models: Models::new(),
            loads: Loads::new(),
            gpu: None,
            processor: SharedProcessor::new(surroundings),
            is_noisy: false,
            steps: Running::default(),
            free_since_ms: [f64::NEG_INFINITY; 2],
            last_stepped: 0,
            making: None,
            busy_ms: f64::NEG_INFINITY,
            made_ms: f64::NEG_INFINITY,
            losses: Losses::default(),
            n_losses: 0,
            n_loads: 0,
            rate: Rate::default(),
            is_news: false,
            told_ms: f64::NEG_INFINITY,
            is_closed: false,
        }
    }

    /// Whether it has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }

    pub(super) fn now_ms(&self) -> f64 {
        (self.surroundings.now_ms)()
    }

    /// Answers a letter.
    pub(super) fn receive(&mut self, letter: Letter<P::Attachment>) {
        self.is_news = true;
        let before_ms = self.busy_ms;
        self.busy_ms = self.now_ms();
        match letter {
            Letter::Gone { connection } => {
                self.forget(connection);
                self.close_if_outdated();
            }
            Letter::Garbled { connection } => {
                let error = "a message to the engine is no envelope of bytes; reload the page";
                self.fail(connection, None, error);
            }
            Letter::Message { connection, bytes, attachments } => {
                match protocol::decode::<Request>(&bytes) {
                    Ok(Request::Hello { version: VERSION, build, lock }) if build == BUILD => {
                        self.greet(connection, &lock);
                    }
                    Ok(Request::Hello { lock, .. }) => self.greet_foreign(connection, &lock),
                    // A greeting of another version need not end as ours does.
                    Err(_) if !self.connections.contains_key(&connection) && is_foreign_greeting(&bytes) => {
                        self.greet_foreign(connection, "");
                    }
                    Err(error) => self.fail(connection, None, &error.to_string()),
                    Ok(request) if self.foreign.contains(&connection) => {
                        let error = "this page and its engine are of different builds; reload the page, and close other tabs of this site if that does not help";
                        self.fail(connection, name_of(&request), error);
                    }
                    Ok(_) if !self.connections.contains_key(&connection) => {
                        self.post(connection, &Event::Unacquainted);
                    }
                    Ok(Request::Batch { request }) => {
                        // Who only looks makes nothing else wait.
                        self.busy_ms = before_ms;
                        let batch = self.batch(connection);
                        self.tell(connection, Event::Batch { request, batch });
                    }
                    Ok(request) => self.answer(connection, request, attachments),
                }
            }
        }
    }

    /// Answers a request of a tab that has greeted.
    fn answer(&mut self, connection: ConnectionId, request: Request, attachments: Vec<P::Attachment>) {
        match request {
            // Answered by `receive`.
            Request::Hello { .. } | Request::Batch { .. } => {}
            Request::Load { source, options, if_full } => {
                self.load(connection, source, options, if_full, attachments);
            }
            Request::Generate { request, model, prompts, options, generated } => {
                let (prompts, generated) = (&prompts[..], &generated[..]);
                let ask = Ask { connection, request, prompts, options: &options, generated };
                match self.generate(&ask, model) {
                    Ok(()) => {}
                    // By its number the client would take the running one for ended.
                    Err(error @ RequestError::Duplicate(_)) => {
                        self.fail(connection, None, &error.to_string());
                    }
                    Err(error) => self.fail(connection, Some(request), &error.to_string()),
                }
            }
            Request::Tokenize { request, model, prompt } => {
                let surroundings = self.surroundings;
                let slot = self.slot(connection, model);
                let event = slot.and_then(|(_, slot)| slot.hosted.tokenize(request, &prompt, &surroundings));
                match event {
                    Ok(event) => self.tell(connection, event),
                    Err(error) => self.fail(connection, Some(request), &error.to_string()),
                }
            }
            Request::Status { request } => {
                let status = self.status(connection);
                self.tell(connection, Event::Status { request: Some(request), status });
            }
            Request::Cancel { request } => {
                for id in self.models.latest_first() {
                    self.with_hosted(id, |hosted| hosted.cancel(connection, request));
                }
            }
            Request::GiveUpLoad => self.give_up_load(connection),
            Request::Received { n_events } => {
                if let Some(tab) = self.connections.get_mut(&connection) {
                    tab.outbox.acknowledge(n_events);
                }
            }
            Request::Bye => {
                self.forget(connection);
                self.close_if_outdated();
            }
            Request::Break { fault } => self.break_on_purpose(fault),
        }
    }

    fn generate(&mut self, ask: &Ask<'_>, model: Option<ModelId>) -> Result<(), RequestError> {
        let runs = |slot: &Slot<P>| slot.hosted.runs(ask.connection, ask.request);
        if self.models.slots.values().any(runs) {
            return Err(RequestError::Duplicate(ask.request));
        }
        let surroundings = self.surroundings;
        let (id, slot) = self.slot(ask.connection, model)?;
        slot.hosted.generate(ask, &surroundings)?;
        self.models.note_use(id);
        self.collect(id);
        Ok(())
    }

    /// The model that a request names, or the tab's own.
    fn slot(
        &mut self,
        connection: ConnectionId,
        model: Option<ModelId>,
    ) -> Result<(ModelId, &mut Slot<P>), RequestError> {
        let own = self.connections.get(&connection).and_then(|tab| tab.model);
        let id = model.or(own).ok_or(RequestError::NoModel)?;
        let slot = self.models.slots.get_mut(&id).ok_or(RequestError::NotLoaded(id))?;
        Ok((id, slot))
    }

    /// Welcomes a tab. One that greets again begins anew.
    fn greet(&mut self, connection: ConnectionId, lock: &str) {
        self.forget(connection);
        if self.connections.len() >= MAX_CONNECTIONS {
            let error = format!("{MAX_CONNECTIONS} tabs use the engine already; close some of them");
            return self.fail(connection, None, &error);
        }
        self.connections.insert(connection, Connection::default());
        if !lock.is_empty() {
            self.place.watch(connection, lock);
        }
        let welcome = self.welcome();
        self.tell(connection, welcome);
        if let Some(id) = self.models.latest() {
            self.turn_to(connection, id);
        } else {
            self.join_load(connection);
        }
    }

    /// Tells a tab of another build which build this is; nothing else is served to it.
    fn greet_foreign(&mut self, connection: ConnectionId, lock: &str) {
        self.forget(connection);
        self.post(connection, &self.welcome());
        if self.foreign.len() < MAX_CONNECTIONS && !lock.is_empty() {
            self.place.watch(connection, lock);
        }
        self.foreign.insert(connection);
        self.close_if_outdated();
        while self.foreign.len() > MAX_CONNECTIONS {
            self.foreign.pop_first();
        }
    }

    fn welcome(&self) -> Event {
        Event::Welcome { version: VERSION, build: BUILD.into(), epoch: self.place.epoch() }
    }

    /// Makes a loaded model the one that answers a tab, and tells it.
    pub(super) fn turn_to(&mut self, connection: ConnectionId, id: ModelId) {
        self.loads.leave(connection);
        self.models.note_use(id);
        if let Some(tab) = self.connections.get_mut(&connection) {
            (tab.model, tab.takes_any) = (Some(id), false);
        }
        let Some(slot) = self.models.slots.get(&id) else { return };
        if slot.is_lost {
            let is_its =
                |job: &&mut super::loads::Job<P>| job.again.as_ref().is_some_and(|(again, _)| *again == id);
            let event = self.loads.jobs().find(is_its).map(|job| job.stage.event());
            event.into_iter().for_each(|event| self.tell(connection, event));
        } else {
            let (event, attachments) = (slot.ready(), slot.attachments.clone());
            self.tell_with(connection, event, attachments);
        }
    }

    /// Forgets a tab: what runs for it ends.
    fn forget(&mut self, connection: ConnectionId) {
        self.foreign.remove(&connection);
        if self.connections.remove(&connection).is_none() {
            return;
        }
        for id in self.models.latest_first() {
            self.with_hosted(id, |hosted| hosted.cancel_all(Some(connection)));
        }
        self.loads.leave(connection);
    }

    /// Ends where only tabs of other builds are left: they wait for an engine of theirs.
    fn close_if_outdated(&mut self) {
        if self.connections.is_empty() && !self.foreign.is_empty() {
            self.steps = Running::default();
            self.loads = Loads::new();
            self.models = Models::new();
            self.gpu = None;
            self.is_closed = true;
            self.place.close();
        }
    }

    /// Does what can be done without waiting, begins what is to be waited for, and sends what there is to tell.
    pub(super) fn turn(&mut self) {
        self.look_at_device();
        self.unload_unused();
        self.begin_load();
        while self.begin_step() {}
        self.begin_pipeline();
        self.tell_standing();
        self.send();
    }

    /// When the next turn is due, if nothing happens before.
    pub(super) fn due_ms(&self) -> Option<f64> {
        let goes_at = self.models.slots.values().filter_map(Slot::goes_at_ms);
        let look = (!self.steps.is_empty() || self.loads.job.is_some()).then(|| self.now_ms() + LOOK_MS);
        let pipeline = self.lacks_pipelines().then(|| self.pipeline_due_ms());
        goes_at.chain(look).chain(pipeline).chain(self.standing_due_ms()).min_by(f64::total_cmp)
    }

    /// Looks at what is waited for; whether there is something to do.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> bool {
        let mut is_ready = false;
        for on_gpu in [false, true] {
            if let Some((id, stepped)) = self.steps.poll(on_gpu, context) {
                self.end_step(id, on_gpu, stepped);
                is_ready = true;
            }
        }
        if self.making.as_mut().is_some_and(|making| making.poll_unpin(context).is_ready()) {
            self.making = None;
            self.is_news = true;
            is_ready = true;
        }
        if let Poll::Ready(done) = self.loads.poll(context) {
            (self.busy_ms, self.made_ms) = (self.now_ms(), self.now_ms());
            self.advance_load(done);
            is_ready = true;
        }
        is_ready
    }

    /// Begins a step of the model whose turn it is, if there is one and the device has room for it.
    fn begin_step(&mut self) -> bool {
        let now_ms = self.now_ms();
        for id in self.models.next_with_work(self.last_stepped) {
            let Some(Slot { hosted, .. }) = self.models.slots.get_mut(&id) else { continue };
            let on_gpu = hosted.model.as_ref().is_some_and(Computer::is_on_gpu);
            if let Some(stepping) = hosted.begin_step(now_ms, self.steps.count(on_gpu)) {
                self.last_stepped = id;
                self.steps.push(id, on_gpu, stepping.read().boxed_local());
                return true;
            }
        }
        false
    }

    fn end_step(&mut self, id: ModelId, on_gpu: bool, stepped: Stepped) {
        self.is_news = true;
        let now_ms = self.now_ms();
        self.busy_ms = now_ms;
        let free_since_ms = std::mem::replace(&mut self.free_since_ms[usize::from(on_gpu)], now_ms);
        let Some(slot) = self.models.slots.get_mut(&id) else { return };
        let ended = slot.hosted.end_step(stepped, free_since_ms, now_ms);
        self.collect(id);
        match ended {
            Ok(()) => {}
            Err(GpuError::Lost { reason }) => self.lose_device(&reason),
            Err(error) => self.fail_device(&error),
        }
    }

    /// Does something with a model, and passes on what it tells.
    pub(super) fn with_hosted(&mut self, id: ModelId, act: impl FnOnce(&mut super::hosted::Hosted)) {
        if let Some(slot) = self.models.slots.get_mut(&id) {
            act(&mut slot.hosted);
            self.collect(id);
        }
    }

    fn collect(&mut self, id: ModelId) {
        let events = self.models.slots.get_mut(&id).map(|slot| slot.hosted.take_events()).unwrap_or_default();
        for (connection, event) in events {
            self.tell(connection, event);
        }
    }

    fn fail(&mut self, connection: ConnectionId, request: Option<RequestId>, error: &str) {
        let event = Event::Failed { request, error: error.into() };
        if self.connections.contains_key(&connection) {
            self.tell(connection, event);
        } else {
            self.post(connection, &event);
        }
    }

    /// Tells a tab; one that is gone is told nothing.
    pub(super) fn tell(&mut self, connection: ConnectionId, event: Event) {
        self.tell_with(connection, event, Vec::new());
    }

    pub(super) fn tell_with(
        &mut self,
        connection: ConnectionId,
        event: Event,
        attachments: Vec<P::Attachment>,
    ) {
        let now_ms = self.now_ms();
        let Some(tab) = self.connections.get_mut(&connection) else { return };
        if let Event::Tokens { ids, .. } = &event
            && !ids.is_empty()
        {
            tab.rate.count(ids.len() as u32, now_ms);
            self.rate.count(ids.len() as u32, now_ms);
        }
        tab.outbox.push(event, attachments);
    }

    /// Sends what tabs have room for; one that reads nothing and asks on is forgotten, and will be asked to greet.
    fn send(&mut self) {
        let mut hopeless = Vec::new();
        for (connection, tab) in &mut self.connections {
            for (event, attachments) in tab.outbox.take() {
                self.place.post(*connection, &protocol::encode(&event), &attachments);
            }
            if tab.outbox.is_full() {
                hopeless.push(*connection);
            }
        }
        hopeless.into_iter().for_each(|connection| self.forget(connection));
    }

    fn post(&self, connection: ConnectionId, event: &Event) {
        self.place.post(connection, &protocol::encode(event), &[]);
    }
}

/// Whether bytes begin as a greeting of another version does.
fn is_foreign_greeting(bytes: &[u8]) -> bool {
    protocol::version_of_greeting(bytes).is_some_and(|version| version != VERSION)
}

/// A request's own number.
fn name_of(request: &Request) -> Option<RequestId> {
    match request {
        Request::Generate { request, .. }
        | Request::Tokenize { request, .. }
        | Request::Status { request }
        | Request::Batch { request } => Some(*request),
        _ => None,
    }
}
