//! What is looked for in the list of chats, and in which of them it is found.

use super::{Part, State};
use crate::ui::{
    chat::{Chat, ChatId, Listed},
    search::Index,
};

impl State {
    /// Looks for words in all chats; nothing is looked for without any. Gives the chats that must be read for that.
    pub(crate) fn look_for(&mut self, query: &str) -> Vec<ChatId> {
        query.clone_into(&mut self.query);
        self.find_again();
        self.unread()
    }

    /// The chats that must be read before all is found that is looked for.
    pub(crate) fn unread(&self) -> Vec<ChatId> {
        if self.query.trim().is_empty() {
            return Vec::new();
        }
        let mut stale = self.index.stale(&self.chats);
        if self.answering.is_some() {
            // What grows is written again and again; it is read once, and then when it is complete.
            stale.retain(|id| *id != self.chat.id || !self.index.knows(id));
        }
        stale
    }

    /// The list of chats is closed: what they say is read again where it is looked for again.
    pub(crate) fn forget_texts(&mut self) {
        self.index = Index::default();
    }

    /// What those chats say, as far as they can be read.
    pub(crate) fn learn(&mut self, chats: Vec<(ChatId, Option<Chat>)>) {
        for (id, chat) in chats {
            let listed = self.chats.iter().find(|listed| listed.id == id);
            let updated_ms = listed.and_then(|listed| Some(listed.head.as_ref().ok()?.updated_ms));
            match (chat, updated_ms) {
                (Some(chat), _) => self.index.put(id, &chat),
                (None, Some(updated_ms)) => self.index.put_unreadable(id, updated_ms),
                (None, None) => {}
            }
        }
        self.find_again();
    }

    /// The chats that the list shows.
    pub(crate) fn shown_chats(&self) -> Vec<Listed> {
        match &self.found {
            None => self.chats.clone(),
            Some(found) => self.chats.iter().filter(|listed| found.contains(&listed.id)).cloned().collect(),
        }
    }

    /// The text around what was found in a chat.
    pub(crate) fn excerpt(&self, id: &str) -> Option<String> {
        self.found.as_ref()?;
        self.index.excerpt(id, &self.query)
    }

    pub(super) fn find_again(&mut self) {
        let is_looking = !self.query.trim().is_empty();
        self.found = is_looking.then(|| self.index.find(&self.query, &self.chats));
        self.touch(Part::Chats);
    }
}
