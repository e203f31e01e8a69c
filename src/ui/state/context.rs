//! What of a conversation the model reads where its context does not hold all of it.
//!
//! Invariant: nothing is dropped unless the person chose that, nor before an answer is asked for without it; and what is
//! dropped stays on screen.

use super::{
    Part, State,
    answer::{Answering, Step},
};
use crate::{
    protocol::Request,
    ui::{
        own::WhenFull,
        turn::{Speaker, Turn, TurnId},
        words,
    },
};

/// An answer wants at least this part of the context.
const ROOM_PART: u32 = 8;
/// Tokens that a template writes around a turn, and at the beginning: more than any is known to.
const TURN_TOKENS: usize = 64;
const BEGINNING_TOKENS: usize = 512;

/// A conversation that leaves no room for its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Full {
    /// What it has.
    pub(crate) n_tokens: u32,
    /// What the context holds.
    pub(crate) limit: u32,
}

impl State {
    /// The turn at which the model's view begins, where it does not begin with the conversation.
    pub(crate) fn view_start(&self) -> Option<TurnId> {
        self.turns.iter().rfind(|turn| turn.view_begins).map(|turn| turn.id)
    }

    /// The turns that the model reads: those before the answer on its way.
    pub(super) fn view(&self) -> &[Turn] {
        let answer =
            self.answering.and_then(|Answering { turn, .. }| self.turns.iter().position(|t| t.id == turn));
        let before = &self.turns[..answer.unwrap_or(self.turns.len())];
        let chosen = self.answering.and_then(|answering| answering.view_begins);
        let is_start = |turn: &Turn| chosen.map_or(turn.view_begins, |chosen| turn.id == chosen);
        &before[before.iter().rposition(is_start).unwrap_or(0)..]
    }

    /// The view begins from now on where the answer that is asked for has it begin.
    pub(super) fn settle_view(&mut self) {
        let Some(chosen) = self.answering.and_then(|answering| answering.view_begins) else { return };
        for (place, turn) in self.turns.iter_mut().enumerate() {
            turn.view_begins = place > 0 && turn.id == chosen;
        }
        self.touch(Part::Turns);
    }

    /// Tokens that a conversation and its answer may have.
    fn limit(&self) -> u32 {
        self.model.as_ref().map_or(0, |model| model.info.context.min(model.info.kv_tokens))
    }

    /// Tokens that an answer shall find room for.
    fn room(&self) -> u32 {
        self.options().max_tokens.unwrap_or(u32::MAX).min(self.limit() / ROOM_PART).max(1)
    }

    /// Asks how many tokens the conversation has, where it may be too many; else for the answer. What was dropped once is
    /// read again where it fits, as in a larger context.
    pub(super) fn count_or_generate(&mut self) -> Option<Request> {
        let whole = self.turns.first().map(|turn| turn.id);
        let is_cut = self.view_start().is_some() && !self.only_continues();
        if let Some(answering) = self.answering.as_mut().filter(|_| is_cut) {
            answering.view_begins = whole;
        }
        self.count_view()
    }

    fn count_view(&mut self) -> Option<Request> {
        // No token is less than a byte.
        let most: usize = self.view().iter().map(|turn| turn.text.len() + TURN_TOKENS).sum();
        let most =
            most + self.system_prompt().len() + BEGINNING_TOKENS + self.n_generated() + self.room() as usize;
        if self.only_continues() || most <= self.limit() as usize {
            return self.generate();
        }
        let prompt = self.prompt();
        self.tokenize(Step::Count, prompt)
    }

    /// The conversation before the answer has so many tokens.
    pub(super) fn counted(&mut self, n_prompt: usize) -> Option<Request> {
        let n_tokens = n_prompt + self.n_generated();
        if n_tokens + self.room() as usize <= self.limit() as usize {
            return self.generate();
        }
        let whole = self.turns.first().map(|turn| turn.id);
        let is_cut = self.view_start().is_some();
        if let Some(answering) = self.answering.as_mut()
            && is_cut
            && answering.view_begins == whole
        {
            // It stays where it was.
            answering.view_begins = None;
            return self.count_view();
        }
        let (n_tokens, limit) = (u32::try_from(n_tokens).unwrap_or(u32::MAX), self.limit());
        let when_full = self.own.when_full;
        if when_full == WhenFull::Drop && self.drop_oldest(n_prompt) {
            let prompt = self.prompt();
            return self.tokenize(Step::Count, prompt);
        }
        match when_full {
            WhenFull::Ask => {
                self.full = Some(Full { n_tokens, limit });
                self.touch(Part::Answering);
                None
            }
            WhenFull::Drop if n_tokens < limit => self.generate(),
            WhenFull::Drop | WhenFull::Stop => {
                let (has, holds) = (words::tokens(n_tokens), words::count(limit.into()));
                let help = match when_full {
                    WhenFull::Stop => {
                        "begin a new chat, or let the oldest turns be dropped (Settings, “This chat”)"
                    }
                    WhenFull::Ask | WhenFull::Drop => {
                        "shorten your message, or load the model with a longer context (Settings)"
                    }
                };
                self.decline();
                self.notify(format!(
                    "The model's context is full: what it would read has {has} of the {holds} that it holds with the answer; {help}."
                ));
                None
            }
        }
    }

    /// The person chose that the oldest turns of this chat are dropped, now and from now on.
    pub(crate) fn drop_from_now_on(&mut self) {
        let Some(full) = self.full.take() else { return };
        self.touch(Part::Answering);
        self.edit_own(|own| own.when_full = WhenFull::Drop);
        let n_prompt = (full.n_tokens as usize).saturating_sub(self.n_generated());
        let next = self.counted(n_prompt);
        self.due.extend(next);
    }

    /// Whether something became necessary to ask of the engine.
    pub(crate) fn has_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// What that is.
    pub(crate) fn take_due(&mut self) -> Vec<Request> {
        std::mem::take(&mut self.due)
    }

    /// Tokens of the answer that there are before it goes on.
    fn n_generated(&self) -> usize {
        let answer = self.answering.and_then(|answering| self.turn(answering.turn));
        answer.map_or(0, |turn| turn.grown.ids.len())
    }

    /// Lets the model's view, which has so many tokens, begin at a later turn of the person's; whether there is one. More is
    /// dropped than must be: while the view stays where it begins, the engine need not read it again.
    fn drop_oldest(&mut self, n_prompt: usize) -> bool {
        let limit = self.limit() as usize;
        let wanted = (limit - limit / 4).saturating_sub(self.n_generated() + self.room() as usize);
        let excess = n_prompt.saturating_sub(wanted).max(1);
        let view = self.view();
        let n_bytes: usize = view.iter().map(|turn| turn.text.len() + 1).sum();
        let excess_bytes = (excess as f64 / n_prompt.max(1) as f64 * n_bytes as f64).ceil() as usize;
        let mut dropped_bytes = 0;
        let mut beginning = None;
        for (place, turn) in view.iter().enumerate() {
            if place > 0 && turn.speaker == Speaker::User {
                beginning = Some(turn.id);
                if dropped_bytes >= excess_bytes {
                    break;
                }
            }
            dropped_bytes += turn.text.len() + 1;
        }
        if let Some(answering) = self.answering.as_mut().filter(|_| beginning.is_some()) {
            answering.view_begins = beginning;
        }
        beginning.is_some()
    }
}
