//! The conversation's branches: of the turns that follow the same one, one is shown and the others are aside.
//!
//! Invariant: `turns` are those on screen, each the parent of the next, and `aside` all others; no turn is in both.

use std::{collections::HashMap, mem};

use super::{Part, State};
use crate::ui::turn::{Speaker, Stage, Turn, TurnId};

impl State {
    /// All turns of the chat, on screen or not, oldest first.
    pub(crate) fn all_turns(&self) -> Vec<&Turn> {
        let mut all: Vec<&Turn> = self.turns.iter().chain(&self.aside).collect();
        all.sort_by_key(|turn| turn.id);
        all
    }

    /// Which of the turns that follow the same one this is, from 1, and how many there are.
    pub(crate) fn place(&self, turn_id: TurnId) -> (usize, usize) {
        let siblings = self.siblings(turn_id);
        let place = siblings.iter().position(|sibling| *sibling == turn_id);
        (place.map_or(1, |place| place + 1), siblings.len().max(1))
    }

    /// The turns that follow the same one as that turn on screen, itself among them, oldest first.
    fn siblings(&self, turn_id: TurnId) -> Vec<TurnId> {
        let Some(turn) = self.turn(turn_id) else { return Vec::new() };
        let aside = self.aside.iter().filter(|other| other.parent == turn.parent).map(|other| other.id);
        let mut siblings: Vec<TurnId> = aside.chain([turn_id]).collect();
        siblings.sort_unstable();
        siblings
    }

    /// Shows the turn before (`step` −1) or after (1) that one among those that follow the same turn.
    pub(crate) fn show_sibling(&mut self, turn_id: TurnId, step: isize) {
        let siblings = self.siblings(turn_id);
        let place = siblings.iter().position(|sibling| *sibling == turn_id);
        let next = place.and_then(|place| place.checked_add_signed(step));
        if let Some(&next) = next.and_then(|next| siblings.get(next)) {
            self.show_instead(turn_id, next);
        }
    }

    /// Shows `next`, which is aside, and what follows it in the place of a turn on screen.
    pub(super) fn show_instead(&mut self, turn_id: TurnId, next: TurnId) {
        let mut all = self.take_all();
        for turn in &mut all {
            if turn.id == turn_id || turn.id == next {
                turn.aside = turn.id == turn_id;
            }
        }
        self.arrange(all);
        self.touch(Part::Turns);
    }

    /// Puts that turn on screen and all that follow it aside, so that another one takes its place.
    pub(super) fn put_aside(&mut self, turn_id: TurnId) {
        let Some(place) = self.turns.iter().position(|turn| turn.id == turn_id) else { return };
        let mut rest = self.turns.split_off(place);
        rest[0].aside = true;
        self.aside.extend(rest);
        self.touch(Part::Turns);
    }

    /// Takes the last turn on screen away for good.
    pub(super) fn pop_turn(&mut self) -> Option<Turn> {
        self.touch(Part::Turns);
        self.turns.pop()
    }

    /// Shows a turn that was put aside for another one, which is gone.
    pub(super) fn bring_back(&mut self, turn_id: TurnId) {
        let mut all = self.take_all();
        all.iter_mut().filter(|turn| turn.id == turn_id).for_each(|turn| turn.aside = false);
        self.arrange(all);
        self.touch(Part::Turns);
    }

    /// Adds a turn after those on screen.
    pub(super) fn push_turn(&mut self, speaker: Speaker, text: String, stage: Stage) -> TurnId {
        let id = self.next_id();
        let parent = self.turns.last().map(|turn| turn.id);
        self.turns.push(Turn { parent, ..Turn::new(id, speaker, text, stage) });
        self.touch(Part::Turns);
        id
    }

    /// Takes all turns out, oldest first, for [`State::arrange`].
    pub(super) fn take_all(&mut self) -> Vec<Turn> {
        let mut all = mem::take(&mut self.turns);
        all.append(&mut self.aside);
        all.sort_by_key(|turn| turn.id);
        all
    }

    /// Puts turns, oldest first, on screen or aside. Of several that would be shown it is the newest.
    pub(super) fn arrange(&mut self, all: Vec<Turn>) {
        let mut next: HashMap<Option<TurnId>, (TurnId, bool)> = HashMap::new();
        for turn in &all {
            let chosen = next.entry(turn.parent).or_insert((turn.id, turn.aside));
            if !turn.aside || chosen.1 {
                *chosen = (turn.id, turn.aside);
            }
        }
        let mut last = None;
        for mut turn in all {
            // A turn is made after the one that it follows, so what is shown comes in this order.
            if turn.parent == last && next.get(&last).is_some_and(|(chosen, _)| *chosen == turn.id) {
                last = Some(turn.id);
                turn.aside = false;
                self.turns.push(turn);
            } else {
                self.aside.push(turn);
            }
        }
    }
}
