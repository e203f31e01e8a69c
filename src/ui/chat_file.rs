//! Chats as files: JSON, which this page reads again, and Markdown, which people read.
//!
//! Invariant: a file is taken in whole or refused in a sentence, but for chats of a newer page, of which is told.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    chat::{Chat, ChatId, Head, Kept, Unreadable, VERSION},
    turn::Speaker,
};

/// What the file says of itself.
const KIND: &str = "chats";

#[derive(Serialize, Deserialize)]
struct ChatFile {
    pagelm: String,
    version: u32,
    chats: Vec<Entry>,
}

/// A chat's two records, as they are kept.
#[derive(Serialize, Deserialize)]
struct Entry {
    id: String,
    head: Value,
    body: Value,
}

/// The chats of a file.
#[derive(Debug, PartialEq)]
pub(crate) struct Imported {
    pub(crate) chats: Vec<(ChatId, Chat)>,
    /// Chats that a newer page wrote.
    pub(crate) n_newer: usize,
}

/// Kept chats as a JSON file, and how many it has; those that are no JSON are left out.
pub(crate) fn to_json(chats: &[(ChatId, Kept)]) -> (String, usize) {
    let entry = |(id, kept): &(ChatId, Kept)| {
        let value = |text: &str| serde_json::from_str(text).ok();
        Some(Entry { id: id.clone(), head: value(&kept.head)?, body: value(&kept.body)? })
    };
    let chats: Vec<Entry> = chats.iter().filter_map(entry).collect();
    let n_chats = chats.len();
    let file = ChatFile { pagelm: KIND.to_owned(), version: VERSION, chats };
    (serde_json::to_string_pretty(&file).expect("plain data has a JSON form"), n_chats)
}

/// The chats in a file of that name. The error is a sentence.
pub(crate) fn from_json(name: &str, text: &str) -> Result<Imported, String> {
    let refused = |why: &str| {
        format!("{name} holds no chats that this page exported ({why}); nothing of it was imported.")
    };
    let value: Value =
        serde_json::from_str(text).map_err(|error| refused(&format!("it is not JSON: {error}")))?;
    if value.get("pagelm").and_then(Value::as_str) != Some(KIND) {
        return Err(refused("it does not say that it does"));
    }
    let file: ChatFile = serde_json::from_value(value).map_err(|error| refused(&error.to_string()))?;
    let mut imported = Imported { chats: Vec::new(), n_newer: 0 };
    for (place, Entry { id, head, body }) in file.chats.into_iter().enumerate() {
        match Chat::from_kept(&Kept { head: head.to_string(), body: body.to_string() }) {
            Ok(chat) => imported.chats.push((id, chat)),
            Err(Unreadable::Newer) => imported.n_newer += 1,
            Err(Unreadable::Damaged) => return Err(refused(&format!("chat {} of it is damaged", place + 1))),
        }
    }
    Ok(imported)
}

/// A chat as people read it: what is shown of it.
pub(crate) fn to_markdown(chat: &Chat) -> String {
    let mut text = format!("# {}\n", chat.head.title);
    if let Some(prompt) = chat.own.system_prompt.as_deref().filter(|prompt| !prompt.trim().is_empty()) {
        text += &format!("\n> {}\n", prompt.trim().replace('\n', "\n> "));
    }
    for turn in chat.shown() {
        let who = match turn.speaker {
            Speaker::User => "You",
            Speaker::Assistant => "Answer",
        };
        text += &format!("\n## {who}\n\n{}\n", turn.text.trim());
    }
    text
}

/// A name for a file of that chat.
pub(crate) fn file_name(head: &Head, extension: &str) -> String {
    let plain = |letter: char| if letter.is_alphanumeric() { letter } else { ' ' };
    let title: String = head.title.chars().map(plain).collect();
    let words: Vec<&str> = title.split_whitespace().collect();
    let name = if words.is_empty() { "Chat".to_owned() } else { words.join("-") };
    format!("{name}.{extension}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::FinishReason,
        ui::{
            chat::KeptTurn,
            turn::{Stage, Turn},
        },
    };

    fn chat() -> Chat {
        let stage = Stage::Done(FinishReason::Stop);
        let turn = |id, speaker, text: &str, parent| Turn {
            parent,
            aside: id == 2,
            ..Turn::new(id, speaker, text.to_owned(), stage)
        };
        let turns = [
            turn(1, Speaker::User, "Why is the sky blue?", None),
            turn(2, Speaker::Assistant, "No idea.", Some(1)),
            turn(3, Speaker::Assistant, "Because of *scattering*.\n", Some(1)),
        ];
        let mut chat = Chat::new(None, 1.0, 2.0, KeptTurn::of_all(&turns.iter().collect::<Vec<_>>()));
        chat.own.system_prompt = Some("Be brief.\nBe right.".to_owned());
        chat
    }

    #[test]
    fn what_is_exported_is_imported() {
        let damaged = Kept { head: "{".to_owned(), body: String::new() };
        let newer = Kept { head: r#"{"version": 99}"#.to_owned(), body: r#"{"version": 99}"#.to_owned() };
        let chats = [("a", chat().to_kept()), ("b", chat().to_kept()), ("x", damaged), ("y", newer)];
        let (text, n_chats) = to_json(&chats.map(|(id, kept)| (id.to_owned(), kept)));
        assert_eq!(n_chats, 3, "what is damaged is told");
        let expected =
            Imported { chats: vec![("a".to_owned(), chat()), ("b".to_owned(), chat())], n_newer: 1 };
        assert_eq!(from_json("chats.json", &text), Ok(expected));
    }

    #[test]
    fn another_file_is_refused() {
        let broken = to_json(&[("a".to_owned(), chat().to_kept())]).0.replace("assistant", "cat");
        for (text, part) in [
            ("", "not JSON"),
            ("[1, 2]", "does not say"),
            (r#"{"architectures": ["LlamaForCausalLM"]}"#, "does not say"),
            (r#"{"pagelm": "chats"}"#, "version"),
            (r#"{"pagelm": "chats", "version": 2, "chats": [{"id": 3}]}"#, "invalid type"),
            (&broken, "chat 1 of it is damaged"),
        ] {
            let sentence = from_json("x.json", text).unwrap_err();
            assert!(sentence.starts_with("x.json holds no chats") && sentence.contains(part), "{sentence}");
        }
    }

    #[test]
    fn people_read_markdown() {
        let expected = "# Why is the sky blue?\n\n> Be brief.\n> Be right.\n\n## You\n\nWhy is the sky blue?\n\n\
                        ## Answer\n\nBecause of *scattering*.\n";
        assert_eq!(to_markdown(&chat()), expected);
    }

    #[test]
    fn files_have_plain_names() {
        let named = |title: &str| file_name(&chat().head.renamed(title), "md");
        assert_eq!(named("Why is the sky blue?"), "Why-is-the-sky-blue.md");
        assert_eq!(named("../.. \"ä\""), "ä.md");
        assert_eq!(named("?"), "Chat.md");
    }
}
