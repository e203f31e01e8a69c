//! What the screen shows, as plain data, and the only code that changes it.
//!
//! Every change notes which [`Part`] of the screen it concerns, so that a token costs its own message and the status
//! line and nothing else. Events of requests that nobody waits for any more change nothing.
#![warn(clippy::wildcard_enum_match_arm)]

use std::mem;

pub(crate) use self::{
    answer::{Answering, Intent},
    bench::Choices,
    chats::{Deleted, OpenChat, Save},
    context::Full,
    models::{InUse, Loaded, Loading},
    notices::Notice,
};
use self::{
    bench::Benchmark,
    lab::{Lab, Panel},
    models::Expected,
};
use super::{
    catalogue::Offer,
    chat::{ChatId, Listed},
    fit::Reach,
    own::Own,
    preferences::Preferences,
    search::Index,
    tally::Tally,
    turn::{Stage, Turn, TurnId},
};
use crate::{
    protocol::{BUILD, Event, Request, Status, VERSION},
    store::library::StoredModel,
};

mod answer;
mod bench;
mod branches;
mod chats;
mod context;
pub(crate) mod lab;
mod models;
mod notices;
mod own;
mod search;
mod silence;
#[cfg(test)]
mod tests;

/// A piece of the screen that changes as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Part {
    /// The offers, what is loading and what answers.
    Models,
    /// How far the load is.
    Loading,
    /// Which turns there are.
    Turns,
    /// The content of one turn.
    Turn(TurnId),
    /// Whether an answer is on its way.
    Answering,
    /// Counts and speed of the last answer.
    Status,
    /// How the engine stands.
    Live,
    /// The sentences about what went wrong.
    Notices,
    /// Whether the engine has been silent for too long.
    Silence,
    /// Text given back to the message box.
    Returned,
    /// What a person set.
    Preferences,
    /// Which chat is on screen.
    Chat,
    /// The list of chats.
    Chats,
    /// The benchmark: what is chosen, how far it is, what came of it.
    Benchmark,
    /// A panel of the laboratory.
    Lab(Panel),
}

/// Whether there is an engine to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Engine {
    /// Its code is being fetched, or the client reaches for another.
    #[default]
    Starting,
    /// It answers.
    Running,
    /// It died; the client starts another, which takes up what this one did.
    Recovering,
    /// It is gone; loading a model starts another.
    Lost,
}

/// Said while the engine that runs is of another build.
const OTHER_BUILD: &str = "Another tab runs an older or newer build of this page; close or reload that tab, and this one \
    goes on by itself.";

/// Everything the screen shows.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) offers: Vec<Offer>,
    pub(crate) loading: Option<Loading>,
    pub(crate) model: Option<Loaded>,
    /// A load that found no room, until the person decides.
    pub(crate) in_use: Option<InUse>,
    /// The conversation on screen.
    pub(crate) turns: Vec<Turn>,
    /// What was said in its other branches.
    pub(crate) aside: Vec<Turn>,
    /// What the chat on screen has of its own.
    pub(crate) own: Own,
    /// The conversation that found no room in the model's context, until the person decides.
    pub(crate) full: Option<Full>,
    pub(crate) answering: Option<Answering>,
    pub(crate) tally: Option<Tally>,
    /// What the prompt of the answer on its way ends with that belongs to the answer.
    opening: String,
    /// How the engine stands, as it last said.
    pub(crate) live: Option<Status>,
    pub(crate) notices: Vec<Notice>,
    /// The last sentences that were notices, the oldest first.
    pub(crate) told: Vec<String>,
    pub(crate) preferences: Preferences,
    /// What this browser keeps of models.
    pub(crate) stored: Vec<StoredModel>,
    /// Bytes that it has room for, where it tells.
    pub(crate) free_bytes: Option<u64>,
    /// It takes nothing of that away by itself, where it tells.
    pub(crate) is_lasting: Option<bool>,
    /// What there is to compute with, once the browser told.
    pub(crate) reach: Option<Reach>,
    pub(crate) benchmark: Benchmark,
    pub(crate) lab: Lab,
    pub(crate) chat: OpenChat,
    /// All chats that are kept, the newest first.
    pub(crate) chats: Vec<Listed>,
    /// What is looked for in them.
    pub(crate) query: String,
    /// Those in which it is found; all while nothing is looked for.
    found: Option<Vec<ChatId>>,
    /// What is said in them, as far as it was looked at.
    index: Index,
    /// The chat deleted last, which can come back.
    pub(crate) deleted: Option<Deleted>,
    /// How often chats were imported, and how many of them last.
    pub(crate) imports: (u32, u32),
    /// The engine has long said nothing though it was asked to stop or to load.
    pub(crate) silent: bool,
    /// What the next engine loads, where this one was given up.
    expected: Option<Expected>,
    /// A text of the person's is about to become a turn.
    sending: bool,
    /// How often a change to a chat was refused.
    pub(crate) refusals: u32,
    /// The turns differ from what is kept.
    unsaved: bool,
    /// They differ still, though it was tried to keep them.
    write_failed: bool,
    /// It was said that chats cannot be kept.
    storage_failed: bool,
    /// When (ms) the engine last said something or was last asked to stop or to load.
    last_sign_ms: f64,
    returned: Option<String>,
    /// What an event made necessary to ask of the engine.
    due: Vec<Request>,
    last_id: u64,
    changed: Vec<Part>,
}

impl State {
    /// A fresh screen with what was set before.
    pub(crate) fn new(preferences: Preferences) -> Self {
        Self { preferences, ..Self::default() }
    }

    /// The parts changed since the last call.
    pub(crate) fn take_changed(&mut self) -> Vec<Part> {
        mem::take(&mut self.changed)
    }

    /// Changes what the person set.
    pub(crate) fn edit(&mut self, edit: impl FnOnce(&mut Preferences)) {
        edit(&mut self.preferences);
        self.touch(Part::Preferences);
    }

    /// The turn of that id.
    pub(crate) fn turn(&self, turn_id: TurnId) -> Option<&Turn> {
        self.turns.iter().find(|turn| turn.id == turn_id)
    }

    /// The engine is gone for good: what it was doing has failed, and its model with it. The answer is cancelled, so that
    /// another engine does not take it up.
    pub(crate) fn lose_engine(&mut self, sentence: String) -> Option<Request> {
        self.interrupt_bench();
        self.forget_lab();
        let request = self.answering.map(|answering| answering.request);
        let is_news = self.engine != Engine::Lost;
        self.set_engine(Engine::Lost);
        self.loading = None;
        self.in_use = None;
        self.model = None;
        self.live = None;
        self.touch(Part::Models);
        self.touch(Part::Live);
        self.end_answer(Stage::Broken);
        // The client says it again of whatever is sent to nobody, that cancel among them.
        if is_news {
            self.notify(sentence);
        }
        self.hear_sign(self.last_sign_ms);
        request.map(|request| Request::Cancel { request })
    }

    /// The engine died at `now_ms` and the client is starting another one, which loads the model again and goes on with
    /// the answer.
    pub(crate) fn interrupt(&mut self, now_ms: f64) {
        self.interrupt_bench();
        self.interrupt_lab();
        self.hear_sign(now_ms);
        self.set_engine(Engine::Recovering);
        self.live = None;
        self.touch(Part::Live);
        self.pause_answer();
    }

    /// What the answer runs on is lost for now; more comes once it is back.
    fn pause_answer(&mut self) {
        if let Some(request) = self.answering.map(|answering| answering.request)
            && let Some(turn) = self.answer(request)
        {
            turn.stage = Stage::Recovering;
        }
    }

    /// Takes in what the engine says at `now_ms`.
    pub(crate) fn apply(&mut self, event: Event, now_ms: f64) {
        self.hear_sign(now_ms);
        self.hear_bench(&event, now_ms);
        self.hear_lab(&event, now_ms);
        match event {
            Event::Welcome { version, build, .. } => self.welcome(version, &build),
            Event::Loading { stage, done_bytes, total_bytes } => {
                self.report(stage, done_bytes, total_bytes, now_ms);
            }
            Event::Ready { model, source, options } => self.ready(model, source, options),
            Event::LoadFailed { error, unloaded } => self.load_failed(error, unloaded),
            Event::InUse { models } => self.ask_for_room(models),
            Event::Unloaded { reason } => self.unloaded(reason),
            Event::Started { request, prompt_tokens, openings } => {
                if self.answers(request) {
                    self.opening = openings.into_iter().next().unwrap_or_default();
                    self.count(|tally| tally.prompt_tokens = prompt_tokens.iter().sum());
                }
            }
            Event::Prefilling { request, output: _, done_tokens, total_tokens } => {
                if let Some(turn) = self.answer(request) {
                    turn.stage = Stage::Reading { done_tokens, total_tokens };
                }
            }
            Event::Tokens { request, output: _, text, ids, logprobs: _ } => {
                let opening = if text.is_empty() { String::new() } else { mem::take(&mut self.opening) };
                let n_tokens = u32::try_from(ids.len()).unwrap_or(u32::MAX);
                if self.grow(request, opening, &text, ids) {
                    self.count(|tally| tally.add(n_tokens, now_ms));
                }
            }
            Event::Finished { request, output: _, reason, usage, n_left: _ } => {
                if let Some(usage) = self.settle_usage(request, usage) {
                    self.count(|tally| tally.settle(usage));
                    self.end_answer(Stage::Done(reason));
                }
            }
            Event::Failed { request: Some(request), error } => {
                if self.answers(request) {
                    self.end_answer(Stage::Broken);
                    self.notify(error);
                }
            }
            Event::Failed { request: None, error } => self.notify(error),
            Event::Status { request: None, status } => {
                self.live = Some(status);
                self.touch(Part::Live);
                if self.benchmark.is_running() {
                    self.touch(Part::Benchmark);
                }
            }
            Event::Tokenized { request, text, ids, .. } => self.tokenized(request, &text, ids),
            // The page asks for none of these but for its laboratory; a developer's request does, and hears of it elsewhere.
            // The client itself greets again.
            Event::PromptLogprobs { .. }
            | Event::OpTimes { .. }
            | Event::Batch { .. }
            | Event::Status { request: Some(_), .. }
            | Event::Unacquainted => {}
        }
    }

    fn welcome(&mut self, version: u32, build: &str) {
        if (version, build) == (VERSION, BUILD) {
            self.set_engine(Engine::Running);
            self.withdraw(OTHER_BUILD);
        } else {
            self.notify_lastingly(OTHER_BUILD.to_owned());
        }
    }

    fn set_engine(&mut self, engine: Engine) {
        if self.engine != engine {
            self.engine = engine;
            self.touch(Part::Models);
            self.touch(Part::Live);
        }
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn touch(&mut self, part: Part) {
        if matches!(part, Part::Turns | Part::Turn(_)) {
            self.unsaved = true;
        }
        if !self.changed.contains(&part) {
            self.changed.push(part);
        }
    }
}
