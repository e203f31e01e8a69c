//! A page's side of the engine that all its tabs share: sends requests, hears events, and where an engine is lost, finds
//! the next one and has it go on.
//!
//! Invariant: whoever listens need not know which engine answers, nor by which way: a request ends once.

mod envelope;
mod exchange;
mod ledger;
mod link;
pub(crate) mod locks;
mod losses;
mod place;
mod shared;
mod tabs;

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    ops::ControlFlow,
    rc::Rc,
};

use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use wasm_bindgen_futures::spawn_local;

use self::{
    envelope::Heard,
    ledger::{Ledger, Moves},
    link::{Line, Link},
    locks::Claim,
    losses::Losses,
    shared::SharedLine,
    tabs::{Leader, TabsLine},
};
use crate::protocol::{Event, Request, RequestId};

/// A worker that was asked to listen says so within this, or is asked anew: it may have been about to end. Doubled each time.
const OPEN_MS: i32 = 4000;
/// An engine that said it cannot go on is gone within this; its lock tells earlier.
const LAST_WORDS_MS: i32 = 3000;
/// The same where its lock is not known.
const NO_LOCK_MS: i32 = 300;

/// What reaches the page.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "few wait at a time, and almost all are events")]
pub enum Incoming {
    /// The engine said something.
    Event(Event),
    /// The engine was lost, and one sentence why. Another one goes on with all that was asked, without being told to.
    Interrupted(String),
    /// There is no engine, and one sentence why; [`Client::restart`] tries again.
    Lost(String),
}

/// Called with everything that arrives, until it breaks.
type Listener = Box<dyn FnMut(&Incoming) -> ControlFlow<()>>;

/// How an engine is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// In a worker that tabs share and that has WebGPU.
    Shared,
    /// In one that needs none, where the page has none either.
    SharedWithoutGpu,
    /// In a worker of the tab that leads.
    Tabs,
}

/// This page's connection with the engine. Every request's id comes from [`Client::next_request`], so that all askers of
/// a page share the connection.
pub struct Client {
    ledger: RefCell<Ledger<JsValue>>,
    link: RefCell<Option<Link>>,
    way: Cell<Way>,
    channel_name: RefCell<String>,
    /// The browser refuses locks, with all that is kept.
    refuses_storage: Cell<bool>,
    leader: RefCell<Option<Rc<Leader>>>,
    /// How often this tab stood for election; only the last time counts.
    candidacy: Cell<u32>,
    /// How often a connection was begun or ended; what an earlier one still says counts for nothing.
    attempt: Cell<u32>,
    /// The engine that this tab lost last, by its name; empty where it lost none.
    lost: RefCell<String>,
    /// Nothing is tried before [`Self::restart`].
    rests: Cell<bool>,
    losses: RefCell<Losses>,
    last_words: RefCell<Option<String>>,
    listeners: RefCell<Vec<Listener>>,
    /// What the listeners have not heard yet.
    incoming: RefCell<VecDeque<Incoming>>,
    last_request: Cell<RequestId>,
}

impl Client {
    /// A connection without an engine: listen first, then [`Client::restart`].
    pub fn new() -> Rc<Self> {
        let client = Rc::new(Self {
            ledger: RefCell::default(),
            link: RefCell::new(None),
            way: Cell::new(if shared::exists() { Way::Shared } else { Way::Tabs }),
            channel_name: RefCell::new(tabs::channel_name()),
            refuses_storage: Cell::new(false),
            leader: RefCell::new(None),
            candidacy: Cell::new(0),
            attempt: Cell::new(0),
            lost: RefCell::default(),
            rests: Cell::new(true),
            losses: RefCell::default(),
            last_words: RefCell::new(None),
            listeners: RefCell::default(),
            incoming: RefCell::default(),
            last_request: Cell::new(0),
        });
        client.watch_the_page();
        client
    }

    /// Connects with the engine, and starts it if need be. Where one is connected already, a person has given up on it:
    /// it is abandoned, by the other tabs too. What was asked and not answered is asked again.
    pub fn restart(self: &Rc<Self>) {
        self.losses.borrow_mut().forgive();
        self.note_lost();
        if let Some(link) = self.link.borrow().as_ref() {
            self.abandon(link);
        }
        self.forget_link();
        self.connect(OPEN_MS);
    }

    /// An id that no request of this page has had.
    pub fn next_request(&self) -> RequestId {
        self.last_request.set(self.last_request.get() + 1);
        self.last_request.get()
    }

    /// Sends a request, with the files it names by index: now, or once there is an engine to hear it. Where none is coming,
    /// that is heard as [`Incoming::Lost`].
    pub fn send(&self, request: &Request, attachments: &[JsValue]) {
        let moves = self.ledger.borrow_mut().ask(request.clone(), attachments.to_vec());
        self.make(moves);
        if self.rests.get() {
            self.tell(Incoming::Lost(
                "The engine is not running; load a model to start it again.".to_owned(),
            ));
        }
    }

    /// Nobody waits for this answer any more.
    fn withdraw(&self, request: RequestId) {
        let moves = self.ledger.borrow_mut().ask(Request::Cancel { request }, Vec::new());
        self.make(moves);
    }

    /// Calls `listener` with everything that arrives from now on, until it breaks.
    pub fn listen(&self, listener: impl FnMut(&Incoming) -> ControlFlow<()> + 'static) {
        self.listeners.borrow_mut().push(Box::new(listener));
    }

    /// Tells every listener. They are taken out meanwhile, so that a listener may itself use the client; what comes of that
    /// is told after this.
    fn tell(&self, incoming: Incoming) {
        self.incoming.borrow_mut().push_back(incoming);
        if self.incoming.borrow().len() > 1 {
            return;
        }
        while let Some(incoming) = self.first_incoming() {
            let mut listeners = self.listeners.take();
            listeners.retain_mut(|listener| listener(&incoming).is_continue());
            let mut added = self.listeners.borrow_mut();
            listeners.append(&mut added);
            *added = listeners;
            self.incoming.borrow_mut().pop_front();
        }
    }

    fn first_incoming(&self) -> Option<Incoming> {
        self.incoming.borrow().front().cloned()
    }

    /// Does what the ledger says.
    fn make(&self, moves: Moves<JsValue>) {
        let mut failed = None;
        if let Some(link) = self.link.borrow().as_ref().filter(|link| link.is_open()) {
            for (request, attachments) in &moves.send {
                failed = link.post(request, attachments).err().or(failed);
            }
        }
        moves.tell.into_iter().for_each(|event| self.tell(Incoming::Event(event)));
        if let Some(sentence) = failed {
            self.give_up(sentence);
        }
    }

    /// Begins a connection, in the way that other tabs have theirs: there is one engine. A worker that does not answer at
    /// all within `open_ms` is asked anew.
    fn connect(self: &Rc<Self>, open_ms: i32) {
        let attempt = self.next_attempt();
        self.rests.set(false);
        let client = Rc::clone(self);
        spawn_local(async move {
            let is_led = locks::is_taken(&place::name("leader")).await;
            let lock = locks::hold(&place::random_name("tab")).await;
            client.refuses_storage.set(locks::exist() && matches!(lock, Claim::Unavailable));
            if client.refuses_storage.get() {
                // A browser may have locks and refuse them, with all that is kept: then there is no election either.
                let is_shared = *client.channel_name.borrow() == place::name("tabs");
                is_shared.then(|| client.channel_name.replace(place::random_name("tab")));
            }
            let lock = lock.held();
            if client.attempt.get() != attempt {
                return;
            }
            if is_led {
                client.way.set(Way::Tabs);
            }
            if client.way.get() == Way::Tabs {
                client.stand_for_election();
            }
            match client.open_line(attempt) {
                Ok(line) => {
                    client.link.replace(Some(Link::new(line, lock)));
                    client.after(open_ms, attempt, move |client| {
                        if !client.is_open() {
                            client.link.replace(None);
                            client.connect(open_ms.saturating_mul(2));
                        }
                    });
                }
                Err(sentence) => client.give_up(sentence),
            }
        });
    }

    /// Whether a worker listens.
    fn is_open(&self) -> bool {
        self.link.borrow().as_ref().is_some_and(Link::is_open)
    }

    fn open_line(self: &Rc<Self>, attempt: u32) -> Result<Line, String> {
        let client = Rc::downgrade(self);
        let hear = move |heard: Heard| {
            if let Some(client) = client.upgrade().filter(|client| client.attempt.get() == attempt) {
                client.hear(heard);
            }
        };
        match self.way.get() {
            way @ (Way::Shared | Way::SharedWithoutGpu) => {
                let generation = place::generation();
                SharedLine::open(generation, way == Way::Shared, hear)
                    .map(|line| Line::Shared { line, generation })
            }
            Way::Tabs => {
                TabsLine::open(&self.channel_name.borrow(), &self.lost.borrow(), hear).map(Line::Tabs)
            }
        }
    }

    fn hear(self: &Rc<Self>, heard: Heard) {
        match heard {
            Heard::Open(instance) => {
                let opened = self.link.borrow_mut().as_mut().map(|link| link.opened(instance));
                match opened {
                    Some(Ok(true)) => self.lose("The engine was started anew.", true),
                    Some(Err(sentence)) => self.give_up(sentence),
                    Some(Ok(false)) | None => {}
                }
            }
            Heard::NoGpu => {
                let attempt = self.next_attempt();
                self.link.replace(None);
                let client = Rc::clone(self);
                // One that does not answer has no GPU to give.
                self.after(OPEN_MS, attempt, |client| {
                    client.way.set(Way::SharedWithoutGpu);
                    client.connect(OPEN_MS);
                });
                spawn_local(async move {
                    let way = if shared::page_has_gpu().await { Way::Tabs } else { Way::SharedWithoutGpu };
                    if client.attempt.get() == attempt {
                        client.way.set(way);
                        client.connect(OPEN_MS);
                    }
                });
            }
            Heard::Event(event, attachments) => {
                let received = self.link.borrow_mut().as_mut().map(|link| link.received(&event));
                match received {
                    Some(Ok(Some(epoch))) => self.watch(&epoch),
                    Some(Err(sentence)) => return self.give_up(sentence),
                    Some(Ok(None)) | None => {}
                }
                if *event == Event::Unacquainted {
                    return self.lose("The engine was restarted.", false);
                }
                let moves = self.ledger.borrow_mut().hear(*event, attachments);
                self.make(moves);
            }
            Heard::Fatal(sentence) => {
                let knows_lock = self.link.borrow().as_ref().is_some_and(|link| link.epoch().is_some());
                let told_before = self.last_words.replace(Some(sentence)).is_some();
                if !told_before {
                    let wait_ms = if knows_lock { LAST_WORDS_MS } else { NO_LOCK_MS };
                    self.after(wait_ms, self.attempt.get(), |client| {
                        client.lose("The engine stopped.", true);
                    });
                }
            }
            // Where a page may keep nothing, a browser starts no shared worker, and says so by an error without words.
            Heard::Broken(_)
                if self.refuses_storage.get() && self.way.get() != Way::Tabs && !self.is_open() =>
            {
                self.link.replace(None);
                self.way.set(Way::Tabs);
                self.connect(OPEN_MS);
            }
            Heard::Broken(sentence) => self.give_up(sentence),
        }
    }

    /// Notices the end of the engine that holds this lock.
    fn watch(self: &Rc<Self>, epoch: &str) {
        let (client, attempt, epoch) = (Rc::downgrade(self), self.attempt.get(), epoch.to_owned());
        spawn_local(async move {
            if !locks::until_free(&epoch).await {
                return;
            }
            if let Some(client) = client.upgrade().filter(|client| client.attempt.get() == attempt) {
                client.lose("The engine stopped, as where the browser ends it to save memory.", true);
            }
        });
    }

    /// The engine is gone, or does not know this tab: the next one goes on, unless that happened too often.
    fn lose(self: &Rc<Self>, sentence: &str, engine_died: bool) {
        let last_words = self.last_words.take();
        let counts = losses::counts(self.way.get() != Way::Tabs, engine_died, last_words.is_some());
        let sentence = last_words.unwrap_or_else(|| sentence.to_owned());
        if engine_died {
            self.note_lost();
        }
        if counts && self.losses.borrow_mut().another(js_sys::Date::now()) {
            return self.give_up(format!("{sentence} It was the third time within a minute; a smaller model or a shorter context may help."));
        }
        self.forget_link();
        self.tell(Incoming::Interrupted(sentence));
        self.connect(OPEN_MS);
    }

    /// The engine of this line is not wanted again.
    fn note_lost(&self) {
        if let Some(instance) = self.link.borrow().as_ref().and_then(Link::instance) {
            self.lost.replace(instance.to_owned());
        }
    }

    /// There is no engine before [`Self::restart`].
    fn give_up(&self, sentence: String) {
        self.rests.set(true);
        self.forget_link();
        self.tell(Incoming::Lost(sentence));
    }

    /// Whatever the engine knew, it knows no more.
    fn forget_link(&self) {
        self.next_attempt();
        self.link.replace(None);
        let moves = self.ledger.borrow_mut().lose();
        self.make(moves);
    }

    /// Leaves an engine that does not answer, and makes every tab leave it: its locks are taken away. A worker whose loop
    /// hangs cannot be told to end; it ends once it finds its lock gone, or by the browser when no tab is connected.
    fn abandon(&self, link: &Link) {
        match link.line() {
            Line::Shared { .. } => {
                place::next_generation();
                if let Some(epoch) = link.epoch() {
                    locks::steal(epoch);
                }
                locks::steal(&place::name("engine"));
            }
            Line::Tabs(line) => line.ask_to_restart(link.instance()),
        }
    }

    fn stand_for_election(self: &Rc<Self>) {
        if self.candidacy.get() % 2 == 1 {
            return;
        }
        let candidacy = self.candidacy.get() + 1;
        self.candidacy.set(candidacy);
        let client = Rc::clone(self);
        spawn_local(async move {
            let channel_name = client.channel_name.borrow().clone();
            let leader = Leader::elected(channel_name).await;
            if client.candidacy.get() == candidacy {
                client.leader.replace(Some(leader));
            }
        });
    }

    /// A page that is put aside lets go of everything; one that is shown again begins anew.
    fn watch_the_page(self: &Rc<Self>) {
        let Some(window) = web_sys::window() else { return };
        let on = |event: &str, act: fn(&Rc<Self>, &JsValue)| {
            let client = Rc::downgrade(self);
            let listener = Closure::<dyn Fn(JsValue)>::new(move |event: JsValue| {
                if let Some(client) = client.upgrade() {
                    act(&client, &event);
                }
            });
            // A window takes every listener; this one stays as long as the page.
            let _ = window.add_event_listener_with_callback(event, listener.as_ref().unchecked_ref());
            listener.forget();
        };
        on("pagehide", |client, _| {
            if let Some(link) = client.link.borrow().as_ref().filter(|link| link.is_open()) {
                // Where this does not arrive, the lock that is let go tells the same.
                let _ = link.post(&Request::Bye, &[]);
            }
            client.forget_link();
            client.candidacy.set(client.candidacy.get().next_multiple_of(2));
            client.leader.replace(None);
        });
        on("pageshow", |client, event| {
            if is_true(event, "persisted") && !client.rests.get() {
                client.connect(OPEN_MS);
            }
        });
        on("storage", |client, _| {
            // Only this page's number counts, and only if it is another one than this tab uses.
            let moved = client.link.borrow().as_ref().is_some_and(|link| match link.line() {
                Line::Shared { generation, .. } => *generation != place::generation(),
                Line::Tabs(_) => false,
            });
            if moved {
                if let Some(epoch) = client.link.borrow().as_ref().and_then(Link::epoch) {
                    locks::steal(epoch);
                }
                client.forget_link();
                client.tell(Incoming::Interrupted("Another tab started the engine anew.".to_owned()));
                client.connect(OPEN_MS);
            }
        });
    }

    fn next_attempt(&self) -> u32 {
        self.last_words.take();
        self.attempt.set(self.attempt.get().wrapping_add(1));
        self.attempt.get()
    }

    /// Does something later, unless another connection was begun or this one ended meanwhile.
    fn after(self: &Rc<Self>, ms: i32, attempt: u32, act: impl FnOnce(&Rc<Self>) + 'static) {
        let client = Rc::downgrade(self);
        let later = Closure::once_into_js(move || {
            if let Some(client) = client.upgrade().filter(|client| client.attempt.get() == attempt) {
                act(&client);
            }
        });
        if let Some(window) = web_sys::window() {
            let _ = window.set_timeout_with_callback_and_timeout_and_arguments_0(later.unchecked_ref(), ms);
        }
    }
}

fn is_true(object: &JsValue, property: &str) -> bool {
    js_sys::Reflect::get(object, &property.into()).is_ok_and(|value| value.is_truthy())
}
