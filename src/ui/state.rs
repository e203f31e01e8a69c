//! What the screen shows, as plain data, and the only code that changes it.
//!
//! Every change notes which [`Part`] of the screen it concerns, so that a token costs its own message and the status
//! line and nothing else. Events of requests that nobody waits for any more change nothing.
#![warn(clippy::wildcard_enum_match_arm)]

use std::mem;

use super::{
    catalogue::{Offer, default_options},
    preferences::Preferences,
    progress::Progress,
    tally::Tally,
    turn::{Speaker, Stage, Turn, TurnId},
};
use crate::protocol::{
    Event, FinishReason, GenerateOptions, IfFull, Message, ModelInfo, ModelSource, Prompt, Request,
    RequestId, VERSION,
};

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
    /// Counts and speed.
    Status,
    /// The sentences about what went wrong.
    Notices,
    /// Whether the engine has been silent for too long.
    Silence,
    /// Text given back to the message box.
    Returned,
    /// What a person set.
    Preferences,
}

/// Whether there is an engine to talk to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Engine {
    /// Its code is being fetched.
    #[default]
    Starting,
    /// It answers.
    Running,
    /// It is gone; loading a model starts another.
    Lost,
    /// It is of another build; only reloading the page helps.
    Foreign,
}

/// A load on its way.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loading {
    /// What is loaded, as the person chose it.
    pub(crate) name: String,
    /// How far it is.
    pub(crate) progress: Progress,
    /// What it starts with where it was on offer.
    defaults: Option<GenerateOptions>,
}

/// The model that answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Loaded {
    /// What the offer calls it, or else the engine.
    pub(crate) name: String,
    /// What the engine says of it.
    pub(crate) info: ModelInfo,
}

/// The answer on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answering {
    /// Its request.
    pub(crate) request: RequestId,
    /// It was asked to stop.
    pub(crate) stopping: bool,
    turn: TurnId,
}

/// A sentence about something that went wrong, until it is dismissed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) text: String,
}

/// Notices beyond this push out the oldest.
const MAX_NOTICES: usize = 4;

/// Everything the screen shows.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) engine: Engine,
    pub(crate) offers: Vec<Offer>,
    pub(crate) loading: Option<Loading>,
    pub(crate) model: Option<Loaded>,
    pub(crate) turns: Vec<Turn>,
    pub(crate) answering: Option<Answering>,
    pub(crate) tally: Option<Tally>,
    pub(crate) notices: Vec<Notice>,
    pub(crate) preferences: Preferences,
    /// The engine has long said nothing though it was asked to stop or to load.
    pub(crate) silent: bool,
    /// When (ms) the engine last said something or was last asked to stop or to load.
    last_sign_ms: f64,
    returned: Option<String>,
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

    /// The models on offer, or why there is no list. The first one's options are shown until one is loaded.
    pub(crate) fn offer(&mut self, offers: Result<Vec<Offer>, String>) {
        match offers {
            Ok(offers) => {
                if let (Some(first), None, None) = (offers.first(), &self.loading, &self.model) {
                    self.preferences.use_model(&first.name, first.options.clone());
                    self.touch(Part::Preferences);
                }
                self.offers = offers;
                self.touch(Part::Models);
            }
            Err(sentence) => self.notify(sentence),
        }
    }

    /// Asks for a model at `now_ms`: one on offer comes with its options, a person's own file uses the page's. An answer
    /// on its way goes on until the engine ends it: what was chosen may be no model.
    pub(crate) fn load(
        &mut self,
        name: &str,
        source: ModelSource,
        defaults: Option<GenerateOptions>,
        now_ms: f64,
    ) -> Request {
        let progress = Progress::of_stage("Asking the engine");
        self.loading = Some(Loading { name: name.to_owned(), progress, defaults });
        if self.engine == Engine::Lost {
            self.engine = Engine::Starting;
        }
        self.forget_notices();
        self.hear_sign(now_ms);
        self.touch(Part::Models);
        self.touch(Part::Loading);
        Request::Load { source, options: self.preferences.load.clone(), if_full: IfFull::Ask }
    }

    /// Why nothing can be sent now, and what would help; nothing where it can.
    pub(crate) fn obstacle(&self) -> Option<&'static str> {
        if self.engine == Engine::Foreign {
            Some("Reload the page first: it and its engine are of different builds.")
        } else if self.answering.is_some() {
            Some("An answer is on its way; stop it to send something else.")
        } else if self.model.is_some() {
            None
        } else if self.loading.is_some() {
            Some("The model is still loading.")
        } else {
            Some("Load a model first.")
        }
    }

    /// Sends the person's text as the next turn. Nothing happens where there is an obstacle or only blanks.
    pub(crate) fn submit(&mut self, text: &str, request: RequestId) -> Option<Request> {
        if self.obstacle().is_some() || text.trim().is_empty() {
            return None;
        }
        self.push_turn(Speaker::User, text.to_owned(), Stage::Done(FinishReason::Stop));
        let prompt = self.prompt(text);
        let turn = self.push_turn(
            Speaker::Assistant,
            String::new(),
            Stage::Reading { done_tokens: 0, total_tokens: 0 },
        );
        self.answering = Some(Answering { request, stopping: false, turn });
        self.tally = Some(Tally::default());
        self.forget_notices();
        self.touch(Part::Answering);
        self.touch(Part::Status);
        let options = self.preferences.options().clone();
        Some(Request::Generate {
            request,
            model: None,
            prompts: vec![prompt],
            options,
            generated: Vec::new(),
        })
    }

    /// Whether the model only continues text, for want of a chat template.
    pub(crate) fn only_continues(&self) -> bool {
        self.model.as_ref().is_some_and(|model| !model.info.has_chat_template)
    }

    /// What the model is asked: the conversation, or, where it knows none, the text alone.
    fn prompt(&self, text: &str) -> Prompt {
        if self.only_continues() {
            return Prompt::Text(text.to_owned());
        }
        Prompt::Chat { messages: self.messages(), tools: Vec::new(), template_arguments: Vec::new() }
    }

    /// The conversation as the engine reads it.
    fn messages(&self) -> Vec<Message> {
        let system = Some(self.preferences.system_prompt.as_str()).filter(|prompt| !prompt.trim().is_empty());
        let turns = self.turns.iter().map(|turn| match turn.speaker {
            Speaker::User => Message::text("user", &turn.text),
            Speaker::Assistant => Message::text("assistant", &turn.text),
        });
        system.map(|prompt| Message::text("system", prompt)).into_iter().chain(turns).collect()
    }

    /// Stops the answer on its way, at `now_ms`; what there is of it stays.
    pub(crate) fn stop(&mut self, now_ms: f64) -> Option<Request> {
        let answering = self.answering.as_mut().filter(|answering| !answering.stopping)?;
        answering.stopping = true;
        let request = answering.request;
        self.hear_sign(now_ms);
        self.touch(Part::Answering);
        Some(Request::Cancel { request })
    }

    /// Forgets the conversation, and stops the answer on its way.
    pub(crate) fn new_chat(&mut self) -> Option<Request> {
        let request = self.answering.take().map(|answering| answering.request);
        self.turns.clear();
        self.tally = None;
        for part in [Part::Turns, Part::Answering, Part::Status] {
            self.touch(part);
        }
        request.map(|request| Request::Cancel { request })
    }

    /// Changes what the person set.
    pub(crate) fn edit(&mut self, edit: impl FnOnce(&mut Preferences)) {
        edit(&mut self.preferences);
        self.touch(Part::Preferences);
    }

    /// Shows a sentence about something that went wrong; one that is shown already stays the only one.
    pub(crate) fn notify(&mut self, text: String) {
        if self.notices.iter().any(|notice| notice.text == text) {
            return;
        }
        let id = self.next_id();
        self.notices.push(Notice { id, text });
        if self.notices.len() > MAX_NOTICES {
            self.notices.remove(0);
        }
        self.touch(Part::Notices);
    }

    /// The same about something the person tried anew: what went wrong before matters no more.
    pub(crate) fn refuse(&mut self, text: String) {
        self.forget_notices();
        self.notify(text);
    }

    /// The person has read a notice.
    pub(crate) fn dismiss(&mut self, notice_id: u64) {
        self.notices.retain(|notice| notice.id != notice_id);
        self.touch(Part::Notices);
    }

    /// What went wrong before matters no more once the person tries anew.
    fn forget_notices(&mut self) {
        if !self.notices.is_empty() {
            self.notices.clear();
            self.touch(Part::Notices);
        }
    }

    /// Text that comes back to the message box because it was not answered.
    pub(crate) fn take_returned(&mut self) -> Option<String> {
        self.returned.take()
    }

    /// The turn of that id.
    pub(crate) fn turn(&self, turn_id: TurnId) -> Option<&Turn> {
        self.turns.iter().find(|turn| turn.id == turn_id)
    }

    /// The engine is gone: what it was doing has failed, and its model with it.
    pub(crate) fn lose_engine(&mut self, sentence: String) {
        self.engine = Engine::Lost;
        self.loading = None;
        self.model = None;
        self.touch(Part::Models);
        self.end_answer(Stage::Broken);
        self.notify(sentence);
        self.hear_sign(self.last_sign_ms);
    }

    /// Takes in what the engine says at `now_ms`.
    pub(crate) fn apply(&mut self, event: Event, now_ms: f64) {
        self.hear_sign(now_ms);
        match event {
            Event::Welcome { version, .. } => self.welcome(version),
            Event::Loading { stage, done_bytes, total_bytes } => {
                if let Some(loading) = &mut self.loading {
                    loading.progress.report(stage, done_bytes, total_bytes, now_ms);
                    self.touch(Part::Loading);
                }
            }
            Event::Ready { model, .. } => self.ready(model),
            Event::LoadFailed { error, unloaded } => {
                self.loading = None;
                if unloaded {
                    self.model = None;
                }
                self.touch(Part::Models);
                self.notify(error);
            }
            Event::Started { request, prompt_tokens } => {
                if self.answers(request) {
                    self.count(|tally| tally.prompt_tokens = prompt_tokens.iter().sum());
                }
            }
            Event::Prefilling { request, output: _, done_tokens, total_tokens } => {
                if let Some(turn) = self.answer(request) {
                    turn.stage = Stage::Reading { done_tokens, total_tokens };
                }
            }
            Event::Tokens { request, output: _, text, ids, logprobs: _ } => {
                if let Some(turn) = self.answer(request) {
                    turn.text.push_str(&text);
                    turn.stage = Stage::Growing;
                    let n_tokens = u32::try_from(ids.len()).unwrap_or(u32::MAX);
                    self.count(|tally| tally.add(n_tokens, now_ms));
                }
            }
            Event::Finished { request, output: _, reason, usage, n_left: _ } => {
                if self.answers(request) {
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
            // The page asks for none of these; a developer's request does, and hears of it elsewhere.
            Event::PromptLogprobs { .. } | Event::Tokenized { .. } | Event::Status { .. } => {}
            Event::Unacquainted | Event::InUse { .. } | Event::Unloaded { .. } => {}
        }
    }

    fn welcome(&mut self, version: u32) {
        self.engine = if version == VERSION { Engine::Running } else { Engine::Foreign };
        if self.engine == Engine::Foreign {
            self.notify(format!(
                "This page speaks version {VERSION} of its engine's protocol and the engine version {version}; \
                 reload the page so that both are of one build."
            ));
        }
        self.touch(Part::Models);
    }

    fn ready(&mut self, info: ModelInfo) {
        let (name, defaults) = match self.loading.take() {
            Some(Loading { name, defaults: Some(defaults), .. }) => (name, defaults),
            Some(Loading { defaults: None, .. }) | None => (info.name.clone(), default_options()),
        };
        self.preferences.use_model(&name, defaults);
        self.model = Some(Loaded { name, info });
        // Counts and speed were those of another model.
        self.tally = None;
        for part in [Part::Models, Part::Preferences, Part::Status] {
            self.touch(part);
        }
    }

    /// Whether that request is the answer on its way.
    fn answers(&self, request: RequestId) -> bool {
        self.answering.is_some_and(|answering| answering.request == request)
    }

    /// The turn that a request's answer goes to, if it is the one on its way; counts as changed.
    fn answer(&mut self, request: RequestId) -> Option<&mut Turn> {
        let turn_id = self.answering.filter(|answering| answering.request == request)?.turn;
        self.touch(Part::Turn(turn_id));
        self.turns.iter_mut().find(|turn| turn.id == turn_id)
    }

    /// Nothing more comes of the answer. One that failed before its first word never was: the person's text goes
    /// back to the message box.
    fn end_answer(&mut self, stage: Stage) {
        let Some(answering) = self.answering.take() else { return };
        self.touch(Part::Answering);
        self.touch(Part::Turn(answering.turn));
        let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == answering.turn) else { return };
        turn.stage = stage;
        if stage == Stage::Broken && turn.text.is_empty() {
            self.turns.pop();
            self.returned = self.turns.pop().map(|turn| turn.text);
            self.tally = None;
            for part in [Part::Turns, Part::Returned, Part::Status] {
                self.touch(part);
            }
        }
    }

    fn count(&mut self, count: impl FnOnce(&mut Tally)) {
        count(self.tally.get_or_insert_default());
        self.touch(Part::Status);
    }

    fn push_turn(&mut self, speaker: Speaker, text: String, stage: Stage) -> TurnId {
        let id = self.next_id();
        self.turns.push(Turn { id, speaker, text, stage });
        self.touch(Part::Turns);
        id
    }

    fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    fn touch(&mut self, part: Part) {
        if !self.changed.contains(&part) {
            self.changed.push(part);
        }
    }
}
