//! One turn of the conversation: who speaks, what is said, how far it is.

use crate::protocol::FinishReason;

/// Names a turn for as long as the page lives.
pub(crate) type TurnId = u64;

/// Who speaks in a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    /// Nothing is to come: always so for the person's own turns.
    Done(FinishReason),
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
}
