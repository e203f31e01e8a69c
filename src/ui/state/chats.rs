//! Which chat is on screen, what of it is kept, and the list of all. Storage that fails takes nothing off the screen.

use super::{Part, State};
use crate::{
    protocol::{FinishReason, Request, Usage},
    ui::{
        chat::{Chat, ChatId, Kept, KeptTurn, Listed, Unreadable, shortened},
        own::Own,
        turn::{Speaker, Stage, Turn, TurnId},
    },
};

/// The chat on screen.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct OpenChat {
    pub(crate) id: ChatId,
    /// What it is called where it is kept.
    pub(crate) title: Option<String>,
    /// Another tab answers in it now.
    pub(crate) elsewhere: bool,
    /// It is being read.
    pub(crate) opening: bool,
    /// When it was first kept, in milliseconds since 1970.
    created_ms: Option<f64>,
}

/// A chat that was deleted and can come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Deleted {
    pub(crate) id: ChatId,
    pub(crate) title: String,
    pub(crate) kept: Kept,
}

/// What is to become of the kept chat.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Save {
    /// It is written.
    Write(ChatId, Box<Chat>),
    /// Nothing was said in it after all.
    Remove(ChatId),
}

impl OpenChat {
    /// Whether there is a record of it.
    pub(crate) fn is_kept(&self) -> bool {
        self.created_ms.is_some()
    }
}

impl State {
    /// Ends the answer on its way, as before another chat comes on screen.
    pub(crate) fn leave_chat(&mut self) -> Option<Request> {
        let request = self.answering.map(|answering| answering.request);
        self.end_answer(Stage::Done(FinishReason::Cancelled));
        request.map(|request| Request::Cancel { request })
    }

    /// Puts an empty chat on screen.
    pub(crate) fn new_chat(&mut self, id: ChatId) {
        self.turns.clear();
        self.aside.clear();
        self.own = Own::default();
        self.full = None;
        self.tally = None;
        self.sending = false;
        self.chat = OpenChat { id, ..OpenChat::default() };
        for part in [Part::Turns, Part::Answering, Part::Status, Part::Chat, Part::Preferences] {
            self.touch(part);
        }
        self.unsaved = false;
        self.write_failed = false;
    }

    /// Puts a chat on screen that is about to be read; [`State::opened`] follows.
    pub(crate) fn open_chat(&mut self, id: ChatId) {
        self.new_chat(id);
        self.chat.opening = true;
    }

    /// A chat that is to be on screen was read, or cannot be. Another tab may be answering in it `elsewhere`. Where it
    /// cannot be read, an empty chat of the id `spare` takes its place, so that its record stays as it is.
    pub(crate) fn opened(
        &mut self,
        id: &str,
        read: Result<Option<Chat>, Unreadable>,
        elsewhere: bool,
        spare: ChatId,
    ) {
        if self.chat.id != id {
            return;
        }
        self.chat.opening = false;
        self.touch(Part::Answering);
        self.touch(Part::Chat);
        match read {
            Ok(Some(chat)) => self.take_in(chat, elsewhere),
            Ok(None) => {
                self.new_chat(spare);
                self.notify(
                    "There is no such chat in this browser; it may have been deleted. This is a new one."
                        .to_owned(),
                );
            }
            Err(unreadable) => {
                self.new_chat(spare);
                self.notify(unreadable.sentence().to_owned());
            }
        }
    }

    /// Shows what is kept of the chat on screen, unless this tab itself is answering in it, or the screen has what could not
    /// be kept. What did not change stays in place.
    pub(crate) fn take_in(&mut self, chat: Chat, elsewhere: bool) {
        if self.answering.is_some() || self.unsaved || self.write_failed {
            return;
        }
        let Chat { head, turns, own } = chat;
        let view_before = self.view_start();
        let mut all = self.take_all();
        let order = |all: &[Turn]| all.iter().map(|turn| (turn.id, turn.aside)).collect::<Vec<_>>();
        let before = order(&all);
        for (place, kept) in turns.iter().enumerate() {
            let parent = kept.parent.place(place).map(|parent| all[parent].id);
            let known = all.get(place).filter(|turn| continues(turn, kept, parent)).map(|turn| turn.id);
            if known.is_none() {
                all.truncate(place);
            }
            let turn = Turn {
                id: known.unwrap_or_else(|| self.next_id()),
                speaker: kept.speaker,
                text: kept.text.clone(),
                stage: kept.stage(elsewhere),
                usage: kept.usage.map(Usage::from),
                parent,
                aside: kept.aside,
                view_begins: kept.view_begins,
                grown: kept.grown.clone(),
            };
            match all.get_mut(place) {
                Some(shown) if *shown != turn => {
                    self.touch(Part::Turn(turn.id));
                    *shown = turn;
                }
                Some(_) => {}
                None => all.push(turn),
            }
        }
        all.truncate(turns.len());
        let after = order(&all);
        self.arrange(all);
        if after != before || self.view_start() != view_before {
            self.touch(Part::Turns);
        }
        if self.own != own {
            self.own = own;
            self.touch(Part::Preferences);
        }
        self.chat.title = Some(head.title);
        self.chat.created_ms = Some(head.created_ms);
        self.chat.elsewhere = elsewhere;
        self.touch(Part::Answering);
        self.touch(Part::Chat);
        self.unsaved = false;
    }

    /// Another tab deleted a chat. Where it is on screen, an empty one of the id `spare` takes its place.
    pub(crate) fn deleted_elsewhere(&mut self, id: &str, spare: ChatId) {
        if self.chat.id == id && self.answering.is_none() {
            self.new_chat(spare);
            self.notify(
                "This chat was deleted in another tab, which can still undo it; this is a new one."
                    .to_owned(),
            );
        }
    }

    /// Whether the turns differ from what is kept.
    pub(crate) fn is_unsaved(&self) -> bool {
        self.unsaved
    }

    /// What is to be kept of the chat on screen at `now_ms` since 1970, if it changed or could not be kept before;
    /// [`State::wrote`] follows.
    pub(crate) fn take_unsaved(&mut self, now_ms: f64) -> Option<Save> {
        if !self.unsaved && !self.write_failed {
            return None;
        }
        self.unsaved = false;
        self.write_failed = false;
        let id = self.chat.id.clone();
        if self.turns.is_empty() {
            let was_kept = self.chat.created_ms.take().is_some();
            return was_kept.then_some(Save::Remove(id));
        }
        let created_ms = *self.chat.created_ms.get_or_insert(now_ms);
        let turns = KeptTurn::of_all(&self.all_turns());
        let own = self.own.clone();
        let chat = Chat { own, ..Chat::new(self.chat.title.clone(), created_ms, now_ms, turns) };
        if self.chat.title.is_none() {
            self.chat.title = Some(chat.head.title.clone());
            self.touch(Part::Chat);
        }
        Some(Save::Write(id, Box::new(chat)))
    }

    /// Whether what was to be kept of a chat is. Where not, it is tried again with the next change, and not at once.
    pub(crate) fn wrote(&mut self, id: &str, result: Result<(), String>) {
        if self.chat.id == id {
            self.write_failed = result.is_err();
        }
        self.stored(result);
    }

    /// Whether chats are kept; a failure is said once, and again only after it went away.
    pub(crate) fn stored(&mut self, result: Result<(), String>) {
        let failed = result.is_err();
        if let Err(sentence) = result
            && !self.storage_failed
        {
            self.notify_lastingly(sentence);
        }
        self.storage_failed = failed;
    }

    /// The chats that are kept; the newest comes first, unreadable ones last.
    pub(crate) fn list_chats(&mut self, mut chats: Vec<Listed>) {
        let updated_ms = |listed: &Listed| listed.head.as_ref().map_or(0.0, |head| head.updated_ms);
        chats.sort_by(|a, b| updated_ms(b).total_cmp(&updated_ms(a)));
        if self.chats != chats {
            self.chats = chats;
            self.index.keep_only(&self.chats);
            self.find_again();
        }
    }

    /// The chat on screen is called so from now on.
    pub(crate) fn rename_chat(&mut self, id: &str, title: &str) {
        if self.chat.id == id {
            self.chat.title = Some(shortened(title));
            self.touch(Part::Chat);
        }
    }

    /// So many chats were taken in from files.
    pub(crate) fn imported(&mut self, n_chats: u32) {
        if n_chats > 0 {
            self.imports = (self.imports.0 + 1, n_chats);
            self.touch(Part::Chats);
        }
    }

    /// A chat was deleted, or the last one that was came back.
    pub(crate) fn remember_deleted(&mut self, deleted: Option<Deleted>) {
        self.deleted = deleted;
        self.touch(Part::Chats);
    }
}

/// Whether what is kept is that turn, maybe further on. A person's turn never changes.
fn continues(turn: &Turn, kept: &KeptTurn, parent: Option<TurnId>) -> bool {
    let is_same = turn.speaker == Speaker::Assistant || turn.text == kept.text;
    is_same && turn.speaker == kept.speaker && turn.parent == parent
}
