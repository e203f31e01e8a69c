//! What is said in all chats, so that words are found in them as fast as they are typed.
//!
//! Invariant: what is known of a chat is what it said when it was written at the time that stands beside it.

use std::collections::{HashMap, HashSet};

use super::chat::{Chat, ChatId, Listed};

/// How much of a text is shown around what was found, in characters before and after.
const BEFORE_CHARS: usize = 12;
const AFTER_CHARS: usize = 60;

/// The texts of the chats that were looked at.
#[derive(Debug, Default)]
pub(crate) struct Index {
    chats: HashMap<ChatId, Entry>,
}

#[derive(Debug)]
struct Entry {
    updated_ms: f64,
    text: String,
    /// The same in small letters.
    folded: String,
}

impl Index {
    /// The chats of which it is not known what they say now.
    pub(crate) fn stale(&self, listed: &[Listed]) -> Vec<ChatId> {
        let is_stale = |listed: &&Listed| {
            let head = listed.head.as_ref().ok();
            let known = self.chats.get(&listed.id).map(|entry| entry.updated_ms);
            head.is_some_and(|head| known != Some(head.updated_ms))
        };
        listed.iter().filter(is_stale).map(|listed| listed.id.clone()).collect()
    }

    /// Whether the chat was ever looked at.
    pub(crate) fn knows(&self, id: &str) -> bool {
        self.chats.contains_key(id)
    }

    /// Forgets the chats that are not listed.
    pub(crate) fn keep_only(&mut self, listed: &[Listed]) {
        let ids: HashSet<&str> = listed.iter().map(|listed| listed.id.as_str()).collect();
        self.chats.retain(|id, _| ids.contains(id.as_str()));
    }

    /// Notes what a chat says.
    pub(crate) fn put(&mut self, id: ChatId, chat: &Chat) {
        let text = chat.turns.iter().map(|turn| turn.text.as_str()).collect::<Vec<_>>().join("\n");
        let folded = text.to_lowercase();
        self.chats.insert(id, Entry { updated_ms: chat.head.updated_ms, text, folded });
    }

    /// Notes that a chat which was written then cannot be read.
    pub(crate) fn put_unreadable(&mut self, id: ChatId, updated_ms: f64) {
        self.chats.insert(id, Entry { updated_ms, text: String::new(), folded: String::new() });
    }

    /// The chats in whose title or texts all words of the query are, in the order of the list.
    pub(crate) fn find(&self, query: &str, listed: &[Listed]) -> Vec<ChatId> {
        let words = words(query);
        let is_found = |listed: &&Listed| {
            let Ok(head) = &listed.head else { return false };
            let title = head.title.to_lowercase();
            let text = self.chats.get(&listed.id).map_or("", |entry| &entry.folded);
            words.iter().all(|word| title.contains(word) || text.contains(word))
        };
        listed.iter().filter(is_found).map(|listed| listed.id.clone()).collect()
    }

    /// The text around the longest word of the query that is in a chat's texts, on one line.
    pub(crate) fn excerpt(&self, id: &str, query: &str) -> Option<String> {
        let Entry { text, folded, .. } = self.chats.get(id)?;
        let places = words(query).into_iter().filter_map(|word| Some((folded.find(&word)?, word)));
        let (at, _) = places.max_by_key(|(_, word)| word.chars().count())?;
        // A letter may be several in small, but hardly any is: the place is near enough.
        let n_before = folded[..at].chars().count();
        let first = n_before.saturating_sub(BEFORE_CHARS);
        let shown: String = text.chars().skip(first).take(n_before - first + AFTER_CHARS).collect();
        let shown = shown.split_whitespace().collect::<Vec<_>>().join(" ");
        Some(if first > 0 { format!("…{shown}") } else { shown })
    }
}

fn words(query: &str) -> Vec<String> {
    query.to_lowercase().split_whitespace().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FinishReason;
    use crate::ui::{
        chat::{KeptTurn, Unreadable},
        turn::{Speaker, Stage, Turn},
    };

    fn chat(updated_ms: f64, text: &str) -> Chat {
        let turn = Turn::new(0, Speaker::User, text.to_owned(), Stage::Done(FinishReason::Stop));
        Chat::new(Some("A Title".to_owned()), 0.0, updated_ms, vec![KeptTurn::of(&turn)])
    }

    fn listed(id: &str, chat: &Chat) -> Listed {
        Listed { id: id.to_owned(), head: Ok(chat.head.clone()) }
    }

    #[test]
    fn all_words_are_found_in_title_or_text() {
        let (a, b) = (chat(1.0, "Why is the SKY blue?\nBecause."), chat(2.0, "The sea"));
        let damaged = Listed { id: "x".to_owned(), head: Err(Unreadable::Damaged) };
        let list = [listed("a", &a), listed("b", &b), damaged];
        let mut index = Index::default();
        assert_eq!(index.stale(&list), ["a", "b"]);
        index.put("a".to_owned(), &a);
        index.put("b".to_owned(), &b);
        assert_eq!(index.stale(&list), [""; 0]);
        for (query, found) in [
            ("sky", &["a"][..]),
            ("Sky title", &["a"]),
            ("THE", &["a", "b"]),
            ("title", &["a", "b"]),
            ("sky sea", &[]),
            ("ü", &[]),
        ] {
            assert_eq!(index.find(query, &list), found, "{query}");
        }
        assert_eq!(index.excerpt("a", "is Because").as_deref(), Some("…e SKY blue? Because."));
        assert_eq!(index.excerpt("a", "title"), None);

        let again = chat(3.0, "Other");
        let list = [listed("a", &again), listed("b", &b)];
        assert_eq!(index.stale(&list), ["a"]);
        index.put("a".to_owned(), &again);
        assert_eq!(index.find("sky", &list), [""; 0]);

        index.keep_only(&list[1..]);
        assert_eq!((index.excerpt("a", "Other"), index.chats.len()), (None, 1));
    }

    #[test]
    fn an_excerpt_is_short() {
        let text = format!("{} İ needle {}", "ä ".repeat(200), "b ".repeat(200));
        let mut index = Index::default();
        index.put("a".to_owned(), &chat(0.0, &text));
        let excerpt = index.excerpt("a", "Needle").unwrap();
        assert!(excerpt.starts_with('…') && excerpt.contains("needle"), "{excerpt}");
        assert!(excerpt.chars().count() <= 1 + BEFORE_CHARS + AFTER_CHARS, "{excerpt}");
    }
}
