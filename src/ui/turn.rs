//! One turn of the conversation: who speaks, what is said, how far it is, and which turn it follows.
//!
//! Turns are a tree: several may follow the same one, and of those all but one are aside. A turn is made after the one
//! that it follows, so the order of their ids is one in which they can be kept.

use serde::{Deserialize, Serialize};

use crate::protocol::{FinishReason, Usage};

/// Names a turn for as long as the page lives; later turns have higher ones.
pub(crate) type TurnId = u64;

/// Who speaks in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Speaker {
    /// The person.
    User,
    /// The model.
    Assistant,
}

/// How far a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The prompt is being read.
    Reading {
        /// Prompt tokens read.
        done_tokens: u32,
        /// Prompt tokens in all; 0 while unknown.
        total_tokens: u32,
    },
    /// The answer grows.
    Growing,
    /// The engine died and comes back; what was generated stays, and the answer goes on.
    Recovering,
    /// Nothing is to come: always so for the person's own turns.
    Done(FinishReason),
    /// Its tab was closed or reloaded before it was complete.
    Interrupted,
    /// It failed; what was generated stays.
    Broken,
}

/// One turn of the conversation.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Turn {
    pub(crate) id: TurnId,
    pub(crate) speaker: Speaker,
    pub(crate) text: String,
    pub(crate) stage: Stage,
    /// What the answer took, once it is complete.
    pub(crate) usage: Option<Usage>,
    /// The turn that it follows, made before it; none where it begins the conversation.
    pub(crate) parent: Option<TurnId>,
    /// Another one that follows the same turn is shown in its place.
    pub(crate) aside: bool,
    /// The model reads the conversation from here on: what comes before found no room in its context.
    pub(crate) view_begins: bool,
    /// What an answer is made of that may go on.
    pub(crate) grown: Grown,
}

/// The tokens of an answer, from which its model can go on.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Grown {
    /// Which model's tokens they are.
    pub(crate) model: String,
    pub(crate) ids: Vec<u32>,
    /// So many bytes at the text's end were held back until the answer ended, and come again where it goes on.
    pub(crate) tail_bytes: usize,
}

impl Turn {
    /// A turn that begins a conversation, until it is told what it follows.
    pub(crate) fn new(id: TurnId, speaker: Speaker, text: String, stage: Stage) -> Self {
        Self {
            id,
            speaker,
            text,
            stage,
            usage: None,
            parent: None,
            aside: false,
            view_begins: false,
            grown: Grown::default(),
        }
    }

    /// Whether it is an answer that ended before it was complete.
    pub(crate) fn can_go_on(&self) -> bool {
        let is_cut = match self.stage {
            Stage::Done(reason) => reason != FinishReason::Stop,
            Stage::Interrupted | Stage::Broken => true,
            Stage::Reading { .. } | Stage::Growing | Stage::Recovering => false,
        };
        self.speaker == Speaker::Assistant && is_cut
    }
}

impl Grown {
    /// Whether nothing is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}

impl Stage {
    /// Whether more is to come.
    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Reading { .. } | Self::Growing | Self::Recovering)
    }
}
