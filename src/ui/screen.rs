//! The state as components see it: they read a part and are run again when that part changed.
//!
//! Everything a person or the engine does goes through here to [`State`]. Parts that change with every token are
//! announced once a frame, however many tokens come.

use std::{collections::HashMap, ops::ControlFlow, rc::Rc, time::Duration};

use gloo_net::http;
use leptos::{ev, prelude::*};
use wasm_bindgen::JsValue;
use web_sys::{File, Storage};

pub(crate) use self::chat_files::Export;
use self::chats::Keeping;
use super::{
    address::Address,
    catalogue,
    choice::{Choice, choose},
    preferences::Preferences,
    state::{Engine, Part, State},
    turn::TurnId,
};
use crate::{
    client::{Client, Incoming},
    protocol::{AttachedFile, Event, GenerateOptions, IfFull, ModelSource, Request},
    store::{base_name, library::whole_url},
};

mod ask;
mod chat_files;
mod chats;
mod lab;
mod library;

/// Where settings are kept in the browser.
const PREFERENCES_KEY: &str = "pagelm.preferences";
/// How often a page that nobody sees catches up; browsers give it no frames.
const HIDDEN_PERIOD: Duration = Duration::from_millis(250);
/// How often it is looked whether the engine has gone silent.
const TICK: Duration = Duration::from_secs(1);

/// A handle on the state, for every component.
#[derive(Clone, Copy)]
pub(crate) struct Screen {
    state: StoredValue<State>,
    triggers: StoredValue<HashMap<Part, ArcTrigger>>,
    /// Parts to announce with the next frame.
    due: StoredValue<Vec<Part>>,
    client: StoredValue<Rc<Client>, LocalStorage>,
    /// The files of the last load, in case it is asked for again.
    attachments: StoredValue<Vec<JsValue>, LocalStorage>,
    keeping: StoredValue<Keeping, LocalStorage>,
}

impl Screen {
    /// A screen that hears the client, for all components below.
    pub(crate) fn provide(client: Rc<Client>) -> Self {
        let kept = storage().and_then(|storage| storage.get_item(PREFERENCES_KEY).ok().flatten());
        let preferences = kept.map_or_else(Preferences::default, |text| Preferences::from_json(&text));
        let screen = Self {
            state: StoredValue::new(State::new(preferences)),
            triggers: StoredValue::new(HashMap::new()),
            due: StoredValue::new(Vec::new()),
            client: StoredValue::new_local(client.clone()),
            attachments: StoredValue::new_local(Vec::new()),
            keeping: StoredValue::new_local(Keeping::default()),
        };
        screen.start_chats();
        let sharing = window_event_listener(ev::storage, move |event| {
            if let Some(text) = event.new_value().filter(|_| event.key().as_deref() == Some(PREFERENCES_KEY))
            {
                screen.change(|state| state.edit(|preferences| preferences.take_in(&text)));
            }
        });
        on_cleanup(move || sharing.remove());
        client.listen(move |incoming| {
            screen.hear(incoming);
            ControlFlow::Continue(())
        });
        client.restart();
        set_interval(move || screen.change(|state| state.tick(now_ms())), TICK);
        leptos::task::spawn_local(async move {
            let offers = fetch_catalogue().await.and_then(|text| catalogue::parse(&text));
            screen.change(|state| state.offer(offers));
        });
        screen.look_at_library();
        screen.look_at_machine();
        provide_context(screen);
        screen
    }

    /// The screen that [`Screen::provide`] made.
    pub(crate) fn expect() -> Self {
        expect_context()
    }

    /// Reads the state; what reads runs again when that part changed.
    pub(crate) fn read<T>(self, part: Part, read: impl FnOnce(&State) -> T) -> T {
        let known = self.triggers.with_value(|triggers| triggers.get(&part).cloned());
        let trigger = known.unwrap_or_else(|| {
            let trigger = ArcTrigger::new();
            self.triggers.update_value(|triggers| _ = triggers.insert(part, trigger.clone()));
            trigger
        });
        trigger.track();
        self.state.with_value(read)
    }

    /// Reads the state once.
    pub(crate) fn peek<T>(self, read: impl FnOnce(&State) -> T) -> T {
        self.state.with_value(read)
    }

    /// Changes the state and announces what changed.
    pub(crate) fn change<T>(self, change: impl FnOnce(&mut State) -> T) -> T {
        let mut result = None;
        let mut changed = Vec::new();
        self.state.update_value(|state| {
            result = Some(change(state));
            changed = state.take_changed();
        });
        let (with_frame, at_once): (Vec<_>, Vec<_>) = changed.into_iter().partition(|part| {
            matches!(part, Part::Turn(_) | Part::Status | Part::Live | Part::Loading | Part::Lab(_))
        });
        if at_once.contains(&Part::Turns) {
            self.forget_gone_turns();
        }
        self.announce_with_frame(with_frame);
        self.announce(&at_once);
        self.keep();
        result.expect("a change ran")
    }

    /// Asks for an offered model.
    pub(crate) fn load_offer(self, offer_idx: usize) {
        let offer = self.peek(|state| state.offers.get(offer_idx).cloned());
        if let Some(offer) = offer {
            let source = ModelSource::Url { url: offer.url };
            self.load(&offer.name, source, Some(offer.options), Vec::new());
        }
    }

    /// Asks for the model in files of the person's own, each with its path; their bytes stay where they are.
    pub(crate) fn load_files(self, files: Vec<(String, File)>) {
        let (paths, files): (Vec<String>, Vec<File>) = files.into_iter().unzip();
        match choose(&paths) {
            Ok(Choice { name, files: chosen }) => {
                let attached = |file: &usize| AttachedFile {
                    name: paths[*file].clone(),
                    len_bytes: files[*file].size() as u64,
                    modified_ms: files[*file].last_modified() as u64,
                };
                let attached = chosen.iter().map(attached).collect();
                let attachments: Vec<JsValue> =
                    chosen.iter().map(|file| files[*file].clone().into()).collect();
                self.load(&name, ModelSource::Attachments { files: attached }, None, attachments);
            }
            Err(sentence) => self.change(|state| state.refuse(sentence)),
        }
    }

    fn load(
        self,
        name: &str,
        source: ModelSource,
        defaults: Option<GenerateOptions>,
        attachments: Vec<JsValue>,
    ) {
        if matches!(source, ModelSource::Url { .. }) {
            self.keep_lastingly();
        }
        let lost = self.peek(|state| state.engine == Engine::Lost);
        let client = self.client.get_value();
        let request = self.change(|state| state.load(name, source, defaults, now_ms()));
        if lost {
            client.restart();
        }
        client.send(&request, &attachments);
        self.attachments.set_value(attachments);
    }

    /// Asks again for the model that found no room.
    pub(crate) fn load_again(self, if_full: IfFull) {
        let is_own = self.peek(State::asks_about_own);
        if let Some(request) = self.change(|state| state.load_again(if_full, now_ms())) {
            let attachments = if is_own { Vec::new() } else { self.attachments.get_value() };
            self.client.get_value().send(&request, &attachments);
        }
    }

    /// Loads no more of what is on its way.
    pub(crate) fn give_up_load(self) {
        self.send(Some(Request::GiveUpLoad));
    }

    /// Asks for the model at an address that was typed, or says what is wrong with it.
    pub(crate) fn load_address(self, text: &str) {
        match Address::parse(text) {
            Ok(Address { name, url }) => self.load(&name, ModelSource::Url { url }, None, Vec::new()),
            Err(sentence) => self.change(|state| state.refuse(sentence)),
        }
    }

    /// Asks for a model that this browser keeps.
    pub(crate) fn load_stored(self, url: &str) {
        let offered = self.peek(|state| {
            state.offers.iter().position(|offer| whole_url(&offer.url).as_deref() == Some(url))
        });
        match offered {
            Some(offer_idx) => self.load_offer(offer_idx),
            None => self.load(base_name(url), ModelSource::Url { url: url.to_owned() }, None, Vec::new()),
        }
    }

    /// Gives up the model that found no room.
    pub(crate) fn cancel_load(self) {
        self.send(self.change(State::cancel_load));
    }

    /// Stops the answer on its way.
    pub(crate) fn stop(self) {
        self.send(self.change(|state| state.stop(now_ms())));
    }

    /// Replaces an engine that no longer says anything.
    pub(crate) fn restart_engine(self) {
        self.send(self.change(State::restart));
        self.client.get_value().restart();
    }

    /// Changes what the person set, and keeps it.
    pub(crate) fn edit(self, edit: impl FnOnce(&mut Preferences)) {
        self.edit_state(|state| state.edit(edit));
    }

    /// Changes what the person set together with other things, and keeps it.
    pub(crate) fn edit_state(self, edit: impl FnOnce(&mut State)) {
        let before = self.peek(|state| state.preferences.clone());
        self.change(edit);
        // What did not change here may be newer there, by another tab.
        if let Some(storage) = storage().filter(|_| self.peek(|state| state.preferences != before)) {
            // A full or forbidden storage only means that the next visit starts anew.
            let _ = storage.set_item(PREFERENCES_KEY, &self.peek(|state| state.preferences.to_json()));
        }
    }

    /// The turns there are, oldest first.
    pub(crate) fn turn_ids(self) -> Vec<TurnId> {
        self.read(Part::Turns, |state| state.turns.iter().map(|turn| turn.id).collect())
    }

    /// Begins to measure.
    pub(crate) fn start_bench(self, date: String, n_made: u64) {
        self.change(|state| state.start_bench(date, n_made));
        self.drive_lab();
        self.drive_bench();
    }

    /// Ends the benchmark that runs.
    pub(crate) fn stop_bench(self) {
        self.change(State::stop_bench);
        self.drive_bench();
    }

    /// Sends what is due for the benchmark.
    fn drive_bench(self) {
        if !self.peek(State::may_be_due) {
            return;
        }
        let client = self.client.get_value();
        let due = self.change(|state| state.bench_due(now_ms(), || client.next_request()));
        due.into_iter().for_each(|request| self.send(Some(request)));
    }

    fn send(self, request: Option<Request>) {
        if let Some(request) = request {
            self.client.get_value().send(&request, &[]);
        }
    }

    fn hear(self, incoming: &Incoming) {
        match incoming {
            Incoming::Event(Event::Ready { model, source: ModelSource::Url { url }, options }) => {
                self.describe_stored(url, model, options);
            }
            Incoming::Event(Event::LoadFailed { .. }) => self.look_at_library(),
            _ => {}
        }
        let request = self.change(|state| match incoming {
            Incoming::Event(event) => {
                state.apply(event.clone(), now_ms());
                None
            }
            Incoming::Interrupted(_) => {
                state.interrupt(now_ms());
                None
            }
            Incoming::Lost(sentence) => state.lose_engine(sentence.clone()),
        });
        self.send(request);
        self.send_due();
        self.drive_bench();
        self.drive_lab();
    }

    /// Sends what the answer on its way made necessary to ask.
    fn send_due(self) {
        if self.peek(State::has_due) {
            self.change(State::take_due).into_iter().for_each(|request| self.send(Some(request)));
        }
    }

    /// Nothing reads the turns of a chat that left the screen.
    fn forget_gone_turns(self) {
        let is_there = |part: &Part| match part {
            Part::Turn(turn_id) => self.peek(|state| state.turn(*turn_id).is_some()),
            _ => true,
        };
        self.triggers.update_value(|triggers| triggers.retain(|part, _| is_there(part)));
    }

    fn announce(self, parts: &[Part]) {
        // Cloned out first: what is notified may read, and so add a trigger.
        let triggers: Vec<ArcTrigger> = self
            .triggers
            .with_value(|triggers| parts.iter().filter_map(|part| triggers.get(part).cloned()).collect());
        for trigger in triggers {
            trigger.notify();
        }
    }

    fn announce_with_frame(self, parts: Vec<Part>) {
        if parts.is_empty() {
            return;
        }
        let mut first = false;
        self.due.update_value(|due| {
            first = due.is_empty();
            for part in parts {
                if !due.contains(&part) {
                    due.push(part);
                }
            }
        });
        if !first {
            return;
        }
        let announce_due = move || {
            let mut due = Vec::new();
            self.due.update_value(|waiting| due.append(waiting));
            self.announce(&due);
        };
        if document().hidden() {
            set_timeout(announce_due, HIDDEN_PERIOD);
        } else {
            request_animation_frame(announce_due);
        }
    }
}

/// Milliseconds since the page was opened.
pub(crate) fn now_ms() -> f64 {
    window().performance().map_or(0.0, |performance| performance.now())
}

/// The browser's storage, where it allows one.
fn storage() -> Option<Storage> {
    window().local_storage().ok().flatten()
}

/// The text of the list of models. The error is a sentence.
async fn fetch_catalogue() -> Result<String, String> {
    let url = catalogue::CATALOGUE_URL;
    let sentence = |cause: String| {
        format!(
            "The list of models, {url}, could not be fetched ({cause}); a .gguf file of your own can be opened."
        )
    };
    let response = http::Request::get(url).send().await.map_err(|error| sentence(error.to_string()))?;
    if !response.ok() {
        return Err(sentence(format!("status {}", response.status())));
    }
    response.text().await.map_err(|error| sentence(error.to_string()))
}
