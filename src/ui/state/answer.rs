//! What a person asks and what becomes of it. A text is never lost: what cannot be asked goes back to the message box.

use super::{Part, State};
use crate::{
    protocol::{FinishReason, Message, Prompt, Request, RequestId},
    ui::{
        tally::Tally,
        turn::{Speaker, Stage, Turn, TurnId},
    },
};

/// The answer on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answering {
    /// Its request.
    pub(crate) request: RequestId,
    /// It was asked to stop.
    pub(crate) stopping: bool,
    turn: TurnId,
}

impl State {
    /// Why nothing can be sent now, and what would help; nothing where it can.
    pub(crate) fn obstacle(&self) -> Option<&'static str> {
        if self.answering.is_some() {
            Some("An answer is on its way; stop it to send something else.")
        } else if self.benchmark.is_running() {
            Some("The benchmark is running; stop it first.")
        } else if self.sending {
            Some("Your message is being sent.")
        } else if self.chat.elsewhere {
            Some("An answer is on its way in another tab.")
        } else if self.chat.opening {
            Some("The chat is being opened.")
        } else if self.model.is_some() {
            None
        } else if self.loading.is_some() {
            Some("The model is still loading.")
        } else {
            Some("Load a model first.")
        }
    }

    /// Takes the person's text, which [`State::submit`] or [`State::give_back`] follows once it is known whether another
    /// tab answers in this chat. Nothing happens where there is an obstacle or only blanks.
    pub(crate) fn begin(&mut self, text: &str) -> bool {
        if self.obstacle().is_some() || text.trim().is_empty() {
            return false;
        }
        self.sending = true;
        // Now, and not once it is sent: what goes wrong meanwhile is news.
        self.forget_notices();
        self.touch(Part::Answering);
        true
    }

    /// Sends the person's text as the next turn. Nothing happens where there is an obstacle or only blanks.
    pub(crate) fn submit(&mut self, text: &str, request: RequestId) -> Option<Request> {
        self.sending = false;
        if self.obstacle().is_some() || text.trim().is_empty() {
            return None;
        }
        self.push_turn(Speaker::User, text.to_owned(), Stage::Done(FinishReason::Stop));
        let prompt = self.prompt(text);
        let reading = Stage::Reading { done_tokens: 0, total_tokens: 0 };
        let turn = self.push_turn(Speaker::Assistant, String::new(), reading);
        self.answering = Some(Answering { request, stopping: false, turn });
        self.tally = Some(Tally::default());
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

    /// The text that was begun cannot be sent after all.
    pub(crate) fn give_back(&mut self, text: String) {
        self.sending = false;
        self.returned = Some(text);
        self.touch(Part::Answering);
        self.touch(Part::Returned);
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

    /// Text that comes back to the message box because it was not answered.
    pub(crate) fn take_returned(&mut self) -> Option<String> {
        self.returned.take()
    }

    /// Whether that request is the answer on its way.
    pub(super) fn answers(&self, request: RequestId) -> bool {
        self.answering.is_some_and(|answering| answering.request == request)
    }

    /// The turn that a request's answer goes to, if it is the one on its way; counts as changed.
    pub(super) fn answer(&mut self, request: RequestId) -> Option<&mut Turn> {
        let turn_id = self.answering.filter(|answering| answering.request == request)?.turn;
        self.touch(Part::Turn(turn_id));
        self.turns.iter_mut().find(|turn| turn.id == turn_id)
    }

    /// Nothing more comes of the answer. One that failed before its first word never was: the person's text goes
    /// back to the message box.
    pub(super) fn end_answer(&mut self, stage: Stage) {
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

    pub(super) fn count(&mut self, count: impl FnOnce(&mut Tally)) {
        count(self.tally.get_or_insert_default());
        self.touch(Part::Status);
    }

    pub(super) fn push_turn(&mut self, speaker: Speaker, text: String, stage: Stage) -> TurnId {
        let id = self.next_id();
        self.turns.push(Turn { id, speaker, text, stage, usage: None });
        self.touch(Part::Turns);
        id
    }
}
