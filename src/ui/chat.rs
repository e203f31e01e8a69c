//! A chat as it is kept: plain data, as JSON with a version number. What a newer page wrote is told apart from damage.

use serde::{Deserialize, Serialize};

use super::turn::{Speaker, Stage, Turn};
use crate::protocol::{FinishReason, Usage};

/// Names a chat: random, and safe in a URL.
pub(crate) type ChatId = String;

/// Raised whenever an older page could not read what is kept.
const VERSION: u32 = 1;
/// Titles are cut here.
const MAX_TITLE_CHARS: usize = 60;
/// What the fragment of the page's URL says before the id of the chat.
const FRAGMENT: &str = "#chat=";

/// A chat as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chat {
    /// What lists show of it.
    pub(crate) head: Head,
    /// What was said, oldest first.
    pub(crate) turns: Vec<KeptTurn>,
}

/// What lists show of a chat; kept by itself, so that a list reads no conversations.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Head {
    version: u32,
    pub(crate) title: String,
    /// When it began, in milliseconds since 1970.
    pub(crate) created_ms: f64,
    /// When it was last written to.
    pub(crate) updated_ms: f64,
}

/// A chat in the list.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Listed {
    pub(crate) id: ChatId,
    /// Its head, if that can be read.
    pub(crate) head: Result<Head, Unreadable>,
}

/// A chat's kept texts, whatever they say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) head: String,
    pub(crate) body: String,
}

/// Why a kept chat is not shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unreadable {
    /// A newer version of the page wrote it.
    Newer,
    /// It is not what any version writes.
    Damaged,
}

/// A turn as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct KeptTurn {
    pub(crate) speaker: Speaker,
    pub(crate) text: String,
    pub(crate) end: End,
    /// What the answer took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) usage: Option<KeptUsage>,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// It has not: its tab answers, or ended before it could say more.
    Open,
    /// It is complete.
    Stop,
    /// It reached the longest answer or the context.
    Length,
    /// The person stopped it.
    Cancelled,
    /// It failed.
    Broken,
    /// It could not keep its form.
    Unmet,
}

/// What an answer took, under names that stay whatever the protocol does.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct KeptUsage {
    prompt_tokens: u32,
    cached_tokens: u32,
    generated_tokens: u32,
    queue_ms: f64,
    prefill_ms: f64,
    decode_ms: f64,
}

#[derive(Serialize, Deserialize)]
struct Body {
    version: u32,
    turns: Vec<KeptTurn>,
}

#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

impl Chat {
    /// A chat that began at `created_ms`. Without a title of its own it is called what was said first.
    pub(crate) fn new(title: Option<String>, created_ms: f64, updated_ms: f64, turns: Vec<KeptTurn>) -> Self {
        let first = turns.iter().find(|turn| turn.speaker == Speaker::User);
        let title = title.unwrap_or_else(|| title_of(first.map_or("", |turn| &turn.text)));
        Self { head: Head { version: VERSION, title, created_ms, updated_ms }, turns }
    }

    /// The texts to keep.
    pub(crate) fn to_kept(&self) -> Kept {
        let body = Body { version: VERSION, turns: self.turns.clone() };
        let json = "plain data has a JSON form";
        Kept {
            head: serde_json::to_string(&self.head).expect(json),
            body: serde_json::to_string(&body).expect(json),
        }
    }

    /// The chat in kept texts.
    pub(crate) fn from_kept(kept: &Kept) -> Result<Self, Unreadable> {
        let body: Body = parse(&kept.body)?;
        Ok(Self { head: Head::from_json(&kept.head)?, turns: body.turns })
    }

    /// Whether its last turn had not ended when it was kept.
    pub(crate) fn is_open(&self) -> bool {
        self.turns.last().is_some_and(|turn| turn.end == End::Open)
    }
}

impl Head {
    /// The head in a kept text.
    pub(crate) fn from_json(text: &str) -> Result<Self, Unreadable> {
        parse(text)
    }
}

impl Unreadable {
    /// What a person reads of it.
    pub(crate) fn sentence(self) -> &'static str {
        match self {
            Self::Newer => {
                "This chat was written by a newer version of this page and is left as it is; reload the page to read it."
            }
            Self::Damaged => "This chat's record is damaged and cannot be shown; it is left as it is.",
        }
    }
}

impl KeptTurn {
    /// A turn of the screen, to be kept.
    pub(crate) fn of(turn: &Turn) -> Self {
        let end = match turn.stage {
            Stage::Reading { .. } | Stage::Growing | Stage::Recovering | Stage::Interrupted => End::Open,
            Stage::Done(FinishReason::Stop) => End::Stop,
            Stage::Done(FinishReason::Length) => End::Length,
            Stage::Done(FinishReason::Cancelled) => End::Cancelled,
            Stage::Done(FinishReason::Unmet) => End::Unmet,
            Stage::Broken => End::Broken,
        };
        Self { speaker: turn.speaker, text: turn.text.clone(), end, usage: turn.usage.map(KeptUsage::from) }
    }

    /// How far the turn is; an open one grows where another tab answers.
    pub(crate) fn stage(&self, elsewhere: bool) -> Stage {
        match self.end {
            End::Open if elsewhere => Stage::Growing,
            End::Open => Stage::Interrupted,
            End::Stop => Stage::Done(FinishReason::Stop),
            End::Length => Stage::Done(FinishReason::Length),
            End::Cancelled => Stage::Done(FinishReason::Cancelled),
            End::Unmet => Stage::Done(FinishReason::Unmet),
            End::Broken => Stage::Broken,
        }
    }
}

impl From<Usage> for KeptUsage {
    fn from(usage: Usage) -> Self {
        let Usage { prompt_tokens, cached_tokens, generated_tokens, queue_ms, prefill_ms, decode_ms } = usage;
        Self { prompt_tokens, cached_tokens, generated_tokens, queue_ms, prefill_ms, decode_ms }
    }
}

impl From<KeptUsage> for Usage {
    fn from(usage: KeptUsage) -> Self {
        let KeptUsage { prompt_tokens, cached_tokens, generated_tokens, queue_ms, prefill_ms, decode_ms } =
            usage;
        Self { prompt_tokens, cached_tokens, generated_tokens, queue_ms, prefill_ms, decode_ms }
    }
}

/// The fragment that names a chat in the page's URL.
pub(crate) fn fragment(chat_id: &str) -> String {
    format!("{FRAGMENT}{chat_id}")
}

/// The chat that a fragment names.
pub(crate) fn id_in_fragment(fragment: &str) -> Option<ChatId> {
    let id = fragment.strip_prefix(FRAGMENT)?;
    let is_plain = !id.is_empty() && id.len() <= 64 && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_plain.then(|| id.to_owned())
}

/// What a chat is called that begins with this text.
pub(crate) fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Chat");
    let words = line.split_whitespace().collect::<Vec<_>>().join(" ");
    match words.char_indices().nth(MAX_TITLE_CHARS) {
        Some((end, _)) => format!("{}…", words[..end].trim_end()),
        None => words,
    }
}

fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Result<T, Unreadable> {
    let versioned: Versioned = serde_json::from_str(text).map_err(|_error| Unreadable::Damaged)?;
    if versioned.version > VERSION {
        return Err(Unreadable::Newer);
    }
    serde_json::from_str(text).map_err(|_error| Unreadable::Damaged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(speaker: Speaker, text: &str, stage: Stage) -> Turn {
        Turn { id: 0, speaker, text: text.to_owned(), stage, usage: None }
    }

    #[test]
    fn what_is_kept_is_read_again() {
        let usage = Usage { prompt_tokens: 12, cached_tokens: 3, queue_ms: 1.5, ..Usage::default() };
        let done = [
            Stage::Done(FinishReason::Stop),
            Stage::Done(FinishReason::Length),
            Stage::Done(FinishReason::Cancelled),
            Stage::Done(FinishReason::Unmet),
            Stage::Broken,
        ];
        let mut turns = vec![turn(Speaker::User, "  Why is\tthe sky\nblue?", done[0])];
        turns.extend(done.map(|stage| Turn { usage: Some(usage), ..turn(Speaker::Assistant, "So.", stage) }));
        let chat = Chat::new(None, 1.0, 2.0, turns.iter().map(KeptTurn::of).collect());
        assert_eq!((chat.head.title.as_str(), chat.is_open()), ("Why is the sky", false));
        let read = Chat::from_kept(&chat.to_kept()).unwrap();
        assert_eq!(read, chat);
        for (kept, turn) in read.turns.iter().zip(&turns) {
            assert_eq!((kept.stage(true), kept.usage.map(Usage::from)), (turn.stage, turn.usage));
        }
    }

    #[test]
    fn an_open_turn_grows_only_where_its_tab_lives() {
        for stage in [Stage::Growing, Stage::Reading { done_tokens: 1, total_tokens: 2 }, Stage::Recovering] {
            let kept = KeptTurn::of(&turn(Speaker::Assistant, "", stage));
            assert_eq!((kept.stage(true), kept.stage(false)), (Stage::Growing, Stage::Interrupted));
            assert!(Chat::new(None, 0.0, 0.0, vec![kept]).is_open());
        }
    }

    #[test]
    fn newer_and_damaged_records_are_told_apart() {
        let kept = Chat::new(None, 0.0, 0.0, vec![]).to_kept();
        let with_body = |body: &str| Chat::from_kept(&Kept { body: body.to_owned(), ..kept.clone() });
        assert_eq!(with_body(r#"{"version": 2, "anything": 1}"#), Err(Unreadable::Newer));
        for body in ["", "[]", "{}", r#"{"version": 1}"#, r#"{"version": 1, "turns": [{"speaker": "cat"}]}"#]
        {
            assert_eq!(with_body(body), Err(Unreadable::Damaged), "{body}");
        }
        assert_eq!(Head::from_json(r#"{"version": 9}"#), Err(Unreadable::Newer));
        // Kept before there were counts, and by a page that counts more.
        let turns = r#"{"version": 1, "turns": [{"speaker": "assistant", "text": "a", "end": "stop"},
            {"speaker": "assistant", "text": "b", "end": "open", "usage": {"drafted_tokens": 4}}]}"#;
        assert_eq!(with_body(turns).unwrap().turns[1].usage, Some(KeptUsage::default()));
    }

    #[test]
    fn titles_are_short() {
        assert_eq!(title_of(" \n"), "Chat");
        assert_eq!(title_of("\nHi there\nsecond line"), "Hi there");
        assert_eq!(title_of(&"ä".repeat(60)), "ä".repeat(60));
        assert_eq!(
            title_of(&format!("{} {}", "ä".repeat(59), "b".repeat(9))),
            format!("{}…", "ä".repeat(59))
        );
    }

    #[test]
    fn fragments_name_chats() {
        assert_eq!(id_in_fragment(&fragment("a1")).as_deref(), Some("a1"));
        for text in ["", "#", "#chat=", "#chat=a/b", "#other=1", "chat=a1"] {
            assert_eq!(id_in_fragment(text), None, "{text}");
        }
    }
}
