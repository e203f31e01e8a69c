//! One turn of the conversation: who speaks, what is said, how far it is.

use serde::{Deserialize, Serialize};

use crate::protocol::{FinishReason, Usage};

/// Names a turn for as long as the page lives.
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
}

impl Stage {
    /// Whether more is to come.
    pub(crate) fn is_busy(self) -> bool {
        matches!(self, Self::Reading { .. } | Self::Growing | Self::Recovering)
    }
}
