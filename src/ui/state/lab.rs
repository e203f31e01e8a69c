//! The laboratory: what a person tries there, and what the engine said to it. It asks beside the chat, on the same engine.
//!
//! Invariant: what is shown is of the model that answers now: another vocabulary forgets all but the text. Nothing is asked
//! while the benchmark measures.
#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "each part hears only what it asked for; `State::apply` names every event"
)]

use super::{Part, State};
use crate::protocol::{Event, Message, ModelInfo, Prompt, Request, RequestId};

pub(crate) use self::{
    next::{N_LIKELY, Next, Taken},
    race::Race,
    reshape::{Sampling, Shaped, reshape},
    timeline::{Span, Timeline, Work},
    watch::{Cell, StepRows, Watch, strip},
};

mod next;
mod race;
mod reshape;
mod timeline;
mod watch;

/// So long (ms) a person types nothing before the text is read.
pub(crate) const PAUSE_MS: f64 = 150.0;
/// What stands there first.
const FIRST_TEXT: &str = "The capital of France is";
/// Said where the engine or its model went away meanwhile.
const INTERRUPTED: &str = "The engine or its model changed meanwhile; try it again.";

/// A panel of the laboratory, which changes as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Panel {
    /// The text and its tokens.
    Tokens,
    /// How it may go on.
    Next,
    /// With and without the cache.
    Race,
    /// The batch.
    Batch,
}

/// The laboratory as the screen shows it.
#[derive(Debug)]
pub(crate) struct Lab {
    /// It was opened: before that nothing is asked for it.
    pub(crate) is_open: bool,
    /// As it is typed.
    pub(crate) text: String,
    /// It is a person's message, put into the model's chat template.
    pub(crate) as_chat: bool,
    /// What the model reads of the text, once it has said so.
    pub(crate) read: Option<ReadText>,
    pub(crate) next: Next,
    pub(crate) race: Race,
    pub(crate) watch: Watch,
    /// What went wrong last, and where.
    pub(crate) problem: Option<(Panel, String)>,
    /// When the text is to be read.
    read_at_ms: Option<f64>,
    reading: Option<RequestId>,
    /// To be sent so that nothing goes on that nobody waits for.
    cancels: Vec<Request>,
}

/// A text as the model reads it.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ReadText {
    /// After the chat template.
    pub(crate) text: String,
    pub(crate) tokens: Vec<ReadToken>,
}

/// A token of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadToken {
    pub(crate) id: u32,
    /// As the vocabulary spells it.
    pub(crate) piece: String,
    /// What it stands for.
    pub(crate) bytes: Vec<u8>,
}

impl Default for Lab {
    fn default() -> Self {
        Self {
            is_open: false,
            text: FIRST_TEXT.to_owned(),
            as_chat: false,
            read: None,
            next: Next::default(),
            race: Race::default(),
            watch: Watch::default(),
            problem: None,
            read_at_ms: Some(0.0),
            reading: None,
            cancels: Vec::new(),
        }
    }
}

impl ReadText {
    /// Its tokens' ids.
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.id).collect()
    }
}

impl Lab {
    /// The text is this from `now_ms` on.
    pub(crate) fn write(&mut self, text: String, now_ms: f64) {
        self.text = text;
        self.read_at_ms = Some(now_ms + PAUSE_MS);
    }

    /// The text is raw, or a message of a chat.
    pub(crate) fn put_in_chat(&mut self, as_chat: bool, now_ms: f64) {
        self.as_chat = as_chat;
        self.read_at_ms = Some(now_ms);
    }

    /// The tokens of the text as it stands, if there are any.
    pub(crate) fn current_ids(&self) -> Option<Vec<u32>> {
        let is_current = self.read_at_ms.is_none() && self.reading.is_none();
        let ids = self.read.as_ref().filter(|_| is_current)?.ids();
        (!ids.is_empty()).then_some(ids)
    }

    /// Asks how the text goes on.
    pub(crate) fn predict(&mut self) {
        if let (Some(ids), Some(read)) = (self.current_ids(), &self.read) {
            self.cancels.extend(self.next.give_up());
            self.next.begin(ids, read.text.clone());
        }
    }

    /// Stops the run.
    pub(crate) fn stop_run(&mut self) {
        self.cancels.extend(self.next.stop());
    }

    /// Writes so many tokens with and without the cache.
    pub(crate) fn start_race(&mut self, n_tokens: u32) {
        if let Some(ids) = self.current_ids() {
            self.cancels.extend(self.race.stop());
            self.race.start(ids, n_tokens);
        }
    }

    /// Ends that.
    pub(crate) fn stop_race(&mut self) {
        self.cancels.extend(self.race.stop());
    }

    /// Has the text answered several times at once.
    pub(crate) fn fill_batch(&mut self) {
        if let Some(ids) = self.current_ids() {
            self.watch.fill(ids);
        }
    }

    /// Ends these answers.
    pub(crate) fn empty_batch(&mut self) {
        self.cancels.extend(self.watch.empty());
    }

    /// The sentence about what went wrong in a panel.
    pub(crate) fn problem_of(&self, panel: Panel) -> Option<String> {
        self.problem.as_ref().filter(|(of, _)| *of == panel).map(|(_, sentence)| sentence.clone())
    }

    /// Nothing that is on its way counts any more.
    fn give_up(&mut self) {
        let each = [self.next.give_up(), self.race.stop(), self.watch.give_up()];
        self.cancels.extend(each.into_iter().flatten());
    }

    /// Nothing that was said counts any more: it was of another model, or there is none.
    fn forget(&mut self) {
        self.give_up();
        (self.read, self.reading, self.read_at_ms) = (None, None, Some(0.0));
        self.next.forget();
        self.race = Race::default();
    }

    fn prompt(&self) -> Prompt {
        match self.as_chat {
            true => Prompt::Chat {
                messages: vec![Message::text("user", &self.text)],
                tools: Vec::new(),
                template_arguments: Vec::new(),
            },
            false => Prompt::Text(self.text.clone()),
        }
    }

    /// What the engine said of the text's tokens; whether it was about them.
    fn hear_tokens(&mut self, event: &Event) -> Result<bool, String> {
        match event {
            Event::Tokenized { request, text, ids, pieces, bytes } if self.reading == Some(*request) => {
                let each = ids.iter().zip(pieces).zip(bytes);
                let token = |((id, piece), bytes): ((&u32, &String), &Vec<u8>)| ReadToken {
                    id: *id,
                    piece: piece.clone(),
                    bytes: bytes.clone(),
                };
                self.reading = None;
                self.read = Some(ReadText { text: text.clone(), tokens: each.map(token).collect() });
                Ok(true)
            }
            Event::Failed { request: Some(request), error } if self.reading == Some(*request) => {
                (self.reading, self.read) = (None, None);
                Err(error.clone())
            }
            _ => Ok(false),
        }
    }
}

impl State {
    /// Changes a panel of the laboratory; what went wrong there before is forgotten.
    pub(crate) fn change_lab(&mut self, panel: Panel, change: impl FnOnce(&mut Lab)) {
        self.lab.problem.take_if(|(of, _)| *of == panel);
        change(&mut self.lab);
        self.touch(Part::Lab(panel));
    }

    /// Takes in what the engine said at `now_ms`, if it is about the laboratory.
    pub(super) fn hear_lab(&mut self, event: &Event, now_ms: f64) {
        match event {
            Event::Ready { model, .. } if !self.is_of_same_vocabulary(model) => self.forget_lab(),
            Event::Unloaded { .. } | Event::LoadFailed { unloaded: true, .. } => self.forget_lab(),
            _ => {}
        }
        let heard = [
            (Panel::Tokens, self.lab.hear_tokens(event)),
            (Panel::Next, self.lab.next.hear(event, now_ms)),
            (Panel::Race, self.lab.race.hear(event, now_ms)),
            (Panel::Batch, self.lab.watch.hear(event)),
        ];
        for (panel, heard) in heard {
            if heard != Ok(false) {
                self.touch(Part::Lab(panel));
            }
            if let Err(sentence) = heard {
                self.lab.problem = Some((panel, sentence));
            }
        }
    }

    fn is_of_same_vocabulary(&self, info: &ModelInfo) -> bool {
        self.model.as_ref().is_some_and(|model| {
            let own = &model.info;
            (&own.name, own.vocab_size, own.n_parameters) == (&info.name, info.vocab_size, info.n_parameters)
        })
    }

    /// What it runs on went away: what was measured meanwhile would be no measure.
    pub(super) fn interrupt_lab(&mut self) {
        if self.lab.race.is_running() || self.lab.next.is_busy() {
            let panel = if self.lab.race.is_running() { Panel::Race } else { Panel::Next };
            self.lab.problem = Some((panel, INTERRUPTED.to_owned()));
        }
        self.lab.give_up();
        if self.lab.reading.take().is_some() {
            self.lab.read_at_ms = Some(0.0);
        }
        self.touch_lab();
    }

    /// Nothing it asked for goes on, as where a benchmark measures.
    pub(super) fn rest_lab(&mut self) {
        self.lab.give_up();
        self.touch_lab();
    }

    pub(super) fn forget_lab(&mut self) {
        self.lab.forget();
        self.touch_lab();
    }

    fn touch_lab(&mut self) {
        for panel in [Panel::Tokens, Panel::Next, Panel::Race, Panel::Batch] {
            self.touch(Part::Lab(panel));
        }
    }

    /// Why nothing can be asked there now, and what would help; nothing where it can.
    pub(crate) fn lab_obstacle(&self) -> Option<&'static str> {
        if self.benchmark.is_running() {
            Some("The benchmark is running; stop it first.")
        } else if self.model.is_some() {
            None
        } else if self.loading.is_some() {
            Some("The model is still loading.")
        } else {
            Some("Load a model first.")
        }
    }

    /// What is to be sent for it at `now_ms`.
    pub(crate) fn lab_due(&mut self, now_ms: f64, mut new_id: impl FnMut() -> RequestId) -> Vec<Request> {
        let mut due = std::mem::take(&mut self.lab.cancels);
        if self.lab_obstacle().is_some() {
            return due;
        }
        if self.lab.reading.is_none() && self.lab.read_at_ms.is_some_and(|at_ms| at_ms <= now_ms) {
            if self.lab.as_chat && self.only_continues() {
                self.lab.as_chat = false;
            }
            let request = new_id();
            (self.lab.reading, self.lab.read_at_ms) = (Some(request), None);
            due.push(Request::Tokenize { request, model: None, prompt: self.lab.prompt() });
            self.touch(Part::Lab(Panel::Tokens));
        }
        due.extend(self.lab.next.due(now_ms, &mut new_id));
        due.extend(self.lab.race.due(now_ms, &mut new_id));
        due.extend(self.lab.watch.due(&mut new_id));
        due
    }
}
