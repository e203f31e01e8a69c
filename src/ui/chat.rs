//! A chat as it is kept: plain data, as JSON with a version number. What a newer page wrote is told apart from damage.
//!
//! Version 1 had no branches and nothing of a chat's own: every turn followed the one before it, which is what a turn
//! without a `parent` still does. So its records are read as they are, and written as version 2 once they change.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::{
    own::Own,
    turn::{Grown, Speaker, Stage, Turn, TurnId},
};
use crate::protocol::{FinishReason, Usage};

/// Names a chat: random, and safe in a URL.
pub(crate) type ChatId = String;

/// Raised whenever an older page could not read what is kept.
pub(crate) const VERSION: u32 = 2;
/// Titles are cut here.
const MAX_TITLE_CHARS: usize = 60;
/// What the fragment of the page's URL says before the id of the chat.
const FRAGMENT: &str = "#chat=";

/// A chat as it is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Chat {
    /// What lists show of it.
    pub(crate) head: Head,
    /// What was said, in all branches, oldest first.
    pub(crate) turns: Vec<KeptTurn>,
    pub(crate) own: Own,
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
    #[serde(default, skip_serializing_if = "Parent::is_previous")]
    pub(crate) parent: Parent,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) aside: bool,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) view_begins: bool,
    #[serde(default, skip_serializing_if = "Grown::is_empty")]
    pub(crate) grown: Grown,
}

/// Which turn a kept one follows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Parent {
    /// The one kept before it, if there is one.
    #[default]
    Previous,
    /// None: it begins the conversation.
    Start,
    /// The one at this place, an earlier one.
    Turn(usize),
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// It has not: its tab answers, or ended before it could say more.
    Open,
    /// Its tab ended before it was complete.
    Interrupted,
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
    #[serde(default)]
    own: Own,
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
        Self { head: Head { version: VERSION, title, created_ms, updated_ms }, turns, own: Own::default() }
    }

    /// The texts to keep.
    pub(crate) fn to_kept(&self) -> Kept {
        let body = Body { version: VERSION, turns: self.turns.clone(), own: self.own.clone() };
        let json = "plain data has a JSON form";
        Kept { head: self.head.to_json(), body: serde_json::to_string(&body).expect(json) }
    }

    /// The chat in kept texts.
    pub(crate) fn from_kept(kept: &Kept) -> Result<Self, Unreadable> {
        let Body { turns, own, version: _ } = parse(&kept.body)?;
        let mut places = turns.iter().enumerate();
        if places.any(|(place, turn)| matches!(turn.parent, Parent::Turn(parent) if parent >= place)) {
            return Err(Unreadable::Damaged);
        }
        Ok(Self { head: Head { version: VERSION, ..Head::from_json(&kept.head)? }, turns, own })
    }

    /// Whether one of its turns had not ended when it was kept.
    pub(crate) fn is_open(&self) -> bool {
        self.turns.iter().any(|turn| turn.end == End::Open)
    }

    /// The turns that are shown, in order.
    pub(crate) fn shown(&self) -> Vec<&KeptTurn> {
        let mut next: HashMap<Option<usize>, usize> = HashMap::new();
        for (place, turn) in self.turns.iter().enumerate() {
            let chosen = next.entry(turn.parent.place(place)).or_insert(place);
            if !turn.aside || self.turns[*chosen].aside {
                *chosen = place;
            }
        }
        let mut at = None;
        let step = || {
            at = Some(*next.get(&at)?);
            at.map(|place| &self.turns[place])
        };
        std::iter::from_fn(step).collect()
    }
}

impl Head {
    /// The head in a kept text.
    pub(crate) fn from_json(text: &str) -> Result<Self, Unreadable> {
        parse(text)
    }

    /// The same chat under another title.
    pub(crate) fn renamed(&self, title: &str) -> Self {
        Self { title: shortened(title), ..self.clone() }
    }

    /// The text to keep.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("plain data has a JSON form")
    }
}

impl Parent {
    /// The place of the turn that the one at `place` follows.
    pub(crate) fn place(self, place: usize) -> Option<usize> {
        match self {
            Self::Previous => place.checked_sub(1),
            Self::Start => None,
            Self::Turn(parent) => Some(parent),
        }
    }

    fn of(parent: Option<usize>, place: usize) -> Self {
        match parent {
            parent if parent == place.checked_sub(1) => Self::Previous,
            None => Self::Start,
            Some(parent) => Self::Turn(parent),
        }
    }

    fn is_previous(&self) -> bool {
        *self == Self::Previous
    }
}

fn is_false(flag: &bool) -> bool {
    !flag
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
    /// All turns of the screen, in the order of their ids, to be kept.
    pub(crate) fn of_all(turns: &[&Turn]) -> Vec<Self> {
        let places: HashMap<TurnId, usize> =
            turns.iter().enumerate().map(|(place, turn)| (turn.id, place)).collect();
        let kept = |(place, turn): (usize, &&Turn)| {
            let parent = turn.parent.and_then(|parent| places.get(&parent).copied());
            Self { parent: Parent::of(parent, place), ..Self::of(turn) }
        };
        turns.iter().enumerate().map(kept).collect()
    }

    /// A turn of the screen, to be kept, as if it followed the one before it.
    pub(crate) fn of(turn: &Turn) -> Self {
        let end = match turn.stage {
            Stage::Reading { .. } | Stage::Growing | Stage::Recovering => End::Open,
            Stage::Interrupted => End::Interrupted,
            Stage::Done(FinishReason::Stop) => End::Stop,
            Stage::Done(FinishReason::Length) => End::Length,
            Stage::Done(FinishReason::Cancelled) => End::Cancelled,
            Stage::Done(FinishReason::Unmet) => End::Unmet,
            Stage::Broken => End::Broken,
        };
        let is_cut = turn.can_go_on() || end == End::Open;
        Self {
            speaker: turn.speaker,
            text: turn.text.clone(),
            end,
            usage: turn.usage.map(KeptUsage::from),
            parent: Parent::Previous,
            aside: turn.aside,
            view_begins: turn.view_begins,
            // A complete answer never goes on.
            grown: if is_cut { turn.grown.clone() } else { Grown::default() },
        }
    }

    /// How far the turn is; an open one grows where another tab answers.
    pub(crate) fn stage(&self, elsewhere: bool) -> Stage {
        match self.end {
            End::Open if elsewhere => Stage::Growing,
            End::Open | End::Interrupted => Stage::Interrupted,
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
    fragment.strip_prefix(FRAGMENT).filter(|id| is_id(id)).map(str::to_owned)
}

/// Whether a text can name a chat.
pub(crate) fn is_id(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// What a chat is called that begins with this text.
pub(crate) fn title_of(text: &str) -> String {
    let line = text.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("Chat");
    shortened(line)
}

/// A title of the length that a list shows.
pub(crate) fn shortened(title: &str) -> String {
    let words = title.split_whitespace().collect::<Vec<_>>().join(" ");
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
mod tests;
