//! What a person asks and what becomes of it. A text is never lost: what cannot be asked goes back to the message box, and
//! what took the place of something else makes room for it again.

use std::mem;

use super::{Part, State};
use crate::{
    protocol::{FinishReason, Message, Prompt, Request, RequestId, Usage, thought_opening},
    ui::{
        tally::Tally,
        thinking::{after_opening, ended},
        turn::{Grown, Speaker, Stage, Turn, TurnId},
    },
};

/// What a person wants of the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Intent {
    /// An answer to this text.
    Send(String),
    /// An answer to this text in the place of that turn of the person's.
    Edit(TurnId, String),
    /// Another answer in the place of that one.
    Again(TurnId),
    /// More of that answer, which ended before it was complete.
    GoOn(TurnId),
}

/// The answer on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Answering {
    /// Its request.
    pub(crate) request: RequestId,
    /// It was asked to stop.
    pub(crate) stopping: bool,
    pub(super) turn: TurnId,
    kind: Kind,
    pub(super) step: Step,
    /// Tokens of it that there were before.
    n_before: u32,
    /// Where the model's view begins for it, where that is not where it began before.
    pub(super) view_begins: Option<TurnId>,
}

/// What is taken back where nothing comes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Two new turns.
    Send,
    /// The same in the place of others.
    Edit { replaced: TurnId },
    /// A new answer in the place of another.
    Again { replaced: TurnId },
    /// More of one that was here before, as far as it had come.
    GoOn { before: Stage },
}

/// What the engine was asked last for the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// What the prompt ends with: the text that is to go on may begin with it.
    Prompt,
    /// Which tokens the text is that is to go on.
    Spell,
    /// Which tokens every text begins with, those among them.
    Opening,
    /// How many tokens the conversation has.
    Count,
    /// The answer itself.
    Answer,
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

    /// Takes a text of the person's.
    #[cfg(test)]
    pub(crate) fn begin(&mut self, text: &str) -> bool {
        self.begin_intent(&Intent::Send(text.to_owned()))
    }

    /// Takes what is wanted, which [`State::ask_for`] or [`State::give_back_intent`] follows once it is known whether another
    /// tab answers in this chat. Nothing happens where there is an obstacle or it makes no sense.
    pub(crate) fn begin_intent(&mut self, intent: &Intent) -> bool {
        if self.obstacle().is_some() || !self.makes_sense(intent) {
            return false;
        }
        self.sending = true;
        // Now, and not once it is sent: what goes wrong meanwhile is news.
        self.forget_notices();
        self.touch(Part::Answering);
        true
    }

    /// Sends the person's text as the next turn. Nothing happens where there is an obstacle or only blanks.
    #[cfg(test)]
    pub(crate) fn submit(&mut self, text: &str, request: RequestId) -> Option<Request> {
        self.ask_for(&Intent::Send(text.to_owned()), request)
    }

    /// Whether that can be done, but for obstacles that go.
    pub(crate) fn makes_sense(&self, intent: &Intent) -> bool {
        let said_by =
            |turn_id: &TurnId, speaker| self.turn(*turn_id).is_some_and(|turn| turn.speaker == speaker);
        match intent {
            Intent::Send(text) => !text.trim().is_empty(),
            Intent::Edit(turn_id, text) => !text.trim().is_empty() && said_by(turn_id, Speaker::User),
            Intent::Again(turn_id) => {
                let answered = self.turn(*turn_id).and_then(|turn| self.turn(turn.parent?));
                said_by(turn_id, Speaker::Assistant)
                    && answered.is_some_and(|turn| turn.speaker == Speaker::User)
            }
            Intent::GoOn(turn_id) => {
                let last = self.turns.last().filter(|turn| turn.id == *turn_id);
                last.is_some_and(|turn| turn.can_go_on() && turn.parent.is_some())
            }
        }
    }

    /// Begins an answer: gives what the engine is to be asked first. Nothing happens where there is an obstacle or it makes
    /// no sense.
    pub(crate) fn ask_for(&mut self, intent: &Intent, request: RequestId) -> Option<Request> {
        self.sending = false;
        if self.obstacle().is_some() || !self.makes_sense(intent) {
            return None;
        }
        self.settle_own();
        let said = Stage::Done(FinishReason::Stop);
        let reading = Stage::Reading { done_tokens: 0, total_tokens: 0 };
        let kind = match intent {
            Intent::Send(text) => {
                self.push_turn(Speaker::User, text.clone(), said);
                Kind::Send
            }
            Intent::Edit(replaced, text) => {
                self.put_aside(*replaced);
                self.push_turn(Speaker::User, text.clone(), said);
                Kind::Edit { replaced: *replaced }
            }
            Intent::Again(replaced) => {
                self.put_aside(*replaced);
                Kind::Again { replaced: *replaced }
            }
            Intent::GoOn(turn_id) => Kind::GoOn { before: self.turn(*turn_id)?.stage },
        };
        let turn = match intent {
            Intent::GoOn(turn_id) => *turn_id,
            Intent::Send(_) | Intent::Edit(..) | Intent::Again(_) => {
                self.push_turn(Speaker::Assistant, String::new(), reading)
            }
        };
        let step = Step::Answer;
        self.answering =
            Some(Answering { request, stopping: false, turn, kind, step, n_before: 0, view_begins: None });
        self.tally = Some(Tally::default());
        self.touch(Part::Answering);
        self.touch(Part::Status);
        let model = self.model_key();
        let answer = self.answer(request)?;
        answer.stage = reading;
        if answer.grown.model != model && !answer.text.is_empty() {
            if self.only_continues() {
                return self.spell("");
            }
            let prompt = self.prompt();
            return self.tokenize(Step::Prompt, prompt);
        }
        self.count_or_generate()
    }

    /// Asks which tokens the answer's text is, but for the `opening` that its prompt ends with.
    fn spell(&mut self, opening: &str) -> Option<Request> {
        let answer = self.turn(self.answering?.turn)?;
        let prompt = Prompt::Text(after_opening(&answer.text, opening).to_owned());
        self.tokenize(Step::Spell, prompt)
    }

    /// Asks for tokens, for that step of the answer on its way.
    pub(super) fn tokenize(&mut self, step: Step, prompt: Prompt) -> Option<Request> {
        let answering = self.answering.as_mut()?;
        answering.step = step;
        Some(Request::Tokenize { request: answering.request, model: None, prompt })
    }

    /// The tokens that were asked for, and the text that they are.
    pub(super) fn tokenized(&mut self, request: RequestId, text: &str, ids: Vec<u32>) {
        let Some(answering) = self.answering.filter(|answering| answering.request == request) else { return };
        if answering.stopping {
            return self.end_answer(Stage::Done(FinishReason::Cancelled));
        }
        let model = self.model_key();
        let next = match answering.step {
            Step::Prompt => self.spell(thought_opening(text)),
            Step::Spell => {
                if let Some(answer) = self.answer(request) {
                    answer.grown = Grown { model, ids, tail_bytes: 0 };
                }
                self.tokenize(Step::Opening, Prompt::Text(String::new()))
            }
            Step::Opening => {
                if let Some(grown) = self.answer(request).map(|answer| &mut answer.grown)
                    && grown.ids.starts_with(&ids)
                {
                    grown.ids.drain(..ids.len());
                }
                self.count_or_generate()
            }
            Step::Count => self.counted(ids.len()),
            Step::Answer => None,
        };
        self.due.extend(next);
    }

    /// Asks for the answer itself.
    pub(super) fn generate(&mut self) -> Option<Request> {
        let mut options = self.options();
        let prompt = self.prompt();
        let model = self.model_key();
        let request = self.answering?.request;
        let answer = self.answer(request)?;
        if answer.grown.model != model {
            answer.grown = Grown { model, ..Grown::default() };
        }
        let ids = answer.grown.ids.clone();
        self.settle_view();
        let answering = self.answering.as_mut()?;
        answering.step = Step::Answer;
        answering.n_before = u32::try_from(ids.len()).unwrap_or(u32::MAX);
        // The engine counts them as generated.
        options.max_tokens = options.max_tokens.map(|most| most.saturating_add(answering.n_before));
        let generated = if ids.is_empty() { Vec::new() } else { vec![ids] };
        Some(Request::Generate { request, model: None, prompts: vec![prompt], options, generated })
    }

    /// What tokens mean: to another model they mean something else.
    fn model_key(&self) -> String {
        let info = self.model.as_ref().map(|model| &model.info);
        info.map_or_else(String::new, |info| {
            format!("{} {} {}", info.name, info.architecture, info.vocab_size)
        })
    }

    /// The text that was begun cannot be sent after all.
    pub(crate) fn give_back(&mut self, text: String) {
        self.sending = false;
        self.returned = Some(text);
        self.touch(Part::Answering);
        self.touch(Part::Returned);
    }

    /// Why the chat cannot be changed now, apart from asking.
    pub(crate) fn obstacle_to_change(&self) -> Option<&'static str> {
        let is_busy = self.answering.is_some() || self.sending || self.chat.elsewhere || self.chat.opening;
        self.obstacle().filter(|_| is_busy)
    }

    /// What was begun cannot be done after all; a text is not lost by that.
    pub(crate) fn give_back_intent(&mut self, intent: Intent) {
        match intent {
            Intent::Send(text) | Intent::Edit(_, text) => self.give_back(text),
            Intent::Again(_) | Intent::GoOn(_) => {
                self.sending = false;
                self.touch(Part::Answering);
            }
        }
    }

    /// Whether the model only continues text, for want of a chat template.
    pub(crate) fn only_continues(&self) -> bool {
        self.model.as_ref().is_some_and(|model| !model.info.has_chat_template)
    }

    /// What the model is asked: the conversation before the answer on its way, or, where it knows none, the last text alone.
    pub(super) fn prompt(&self) -> Prompt {
        let view = self.view();
        if self.only_continues() {
            return Prompt::Text(view.last().map_or_else(String::new, |turn| turn.text.clone()));
        }
        let system = Some(self.system_prompt()).filter(|prompt| !prompt.trim().is_empty());
        let turns = view.iter().map(|turn| match turn.speaker {
            Speaker::User => Message::text("user", &turn.text),
            Speaker::Assistant => Message::text("assistant", ended(&turn.text)),
        });
        let arguments = self.own.arguments.iter().map(|(name, value)| (name.clone(), value.to_string()));
        Prompt::Chat {
            messages: system.map(|prompt| Message::text("system", prompt)).into_iter().chain(turns).collect(),
            tools: Vec::new(),
            template_arguments: arguments.collect(),
        }
    }

    /// Stops the answer on its way, at `now_ms`; what there is of it stays.
    pub(crate) fn stop(&mut self, now_ms: f64) -> Option<Request> {
        if self.full.is_some() {
            // Nothing runs: the person was asked.
            self.decline();
            return None;
        }
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

    /// The answer grew by a text, made of those tokens; whether it is the one on its way. What its prompt ends with and
    /// belongs to it, its `opening`, stands before all else; where some of it is there already, that is as well.
    pub(super) fn grow(&mut self, request: RequestId, opening: String, text: &str, ids: Vec<u32>) -> bool {
        let Some(answer) = self.answer(request) else { return false };
        if answer.text.is_empty() {
            answer.text = opening;
        }
        // What was held back when it ended before comes again.
        let n_bytes = answer.text.len().saturating_sub(mem::take(&mut answer.grown.tail_bytes));
        if answer.text.is_char_boundary(n_bytes) {
            answer.text.truncate(n_bytes);
        }
        if ids.is_empty() {
            answer.grown.tail_bytes = text.len();
        }
        answer.grown.ids.extend(ids);
        answer.text.push_str(text);
        answer.stage = Stage::Growing;
        true
    }

    /// Notes what the answer took, if it is the one on its way: with what it took before it went on.
    pub(super) fn settle_usage(&mut self, request: RequestId, usage: Usage) -> Option<Usage> {
        let n_before = self.answering?.n_before;
        let answer = self.answer(request)?;
        let earlier = answer.usage.unwrap_or_default();
        let usage = Usage {
            generated_tokens: earlier.generated_tokens + usage.generated_tokens.saturating_sub(n_before),
            queue_ms: earlier.queue_ms + usage.queue_ms,
            prefill_ms: earlier.prefill_ms + usage.prefill_ms,
            decode_ms: earlier.decode_ms + usage.decode_ms,
            ..usage
        };
        answer.usage = Some(usage);
        Some(usage)
    }

    /// Nothing more comes of the answer. One that failed before its first word never was.
    pub(super) fn end_answer(&mut self, stage: Stage) {
        let Some(answering) = self.answering.take() else { return };
        self.full = None;
        self.touch(Part::Answering);
        self.touch(Part::Turn(answering.turn));
        let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == answering.turn) else { return };
        turn.stage = stage;
        if stage == Stage::Broken && turn.text.is_empty() {
            self.take_back(answering);
        }
    }

    /// The answer on its way, of which nothing came yet, is not wanted after all.
    pub(super) fn decline(&mut self) {
        let Some(answering) = self.answering.take() else { return };
        self.full = None;
        self.touch(Part::Answering);
        self.touch(Part::Turn(answering.turn));
        self.take_back(answering);
    }

    /// Makes the turns what they were before: a text of the person's goes back to the message box.
    fn take_back(&mut self, answering: Answering) {
        match answering.kind {
            Kind::Send | Kind::Edit { .. } => {
                self.pop_turn();
                self.returned = self.pop_turn().map(|turn| turn.text);
                self.touch(Part::Returned);
            }
            Kind::Again { .. } => _ = self.pop_turn(),
            Kind::GoOn { before } => {
                if let Some(turn) = self.turns.iter_mut().find(|turn| turn.id == answering.turn) {
                    turn.stage = before;
                }
            }
        }
        if let Kind::Edit { replaced } | Kind::Again { replaced } = answering.kind {
            self.bring_back(replaced);
        }
        self.tally = None;
        self.touch(Part::Status);
    }

    pub(super) fn count(&mut self, count: impl FnOnce(&mut Tally)) {
        count(self.tally.get_or_insert_default());
        self.touch(Part::Status);
    }
}
