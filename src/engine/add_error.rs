//! Why a request is not taken in: one sentence each, with what would help.

use super::params::ParamError;

/// Why a request was refused.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum AddError {
    /// No prompt token to start from.
    #[error("the prompt has no tokens; give it at least one, such as the model's begin-of-text token")]
    EmptyPrompt,
    /// The prompt leaves no room for an answer.
    #[error(
        "the prompt has {prompt_tokens} tokens, and the context of {context} tokens must also hold at least one of the \
         answer; shorten the prompt or load the model with a larger context"
    )]
    PromptExceedsContext {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens of the context.
        context: usize,
    },
    /// The prompt would not fit even alone.
    #[error(
        "the prompt has {prompt_tokens} tokens and needs {needed} blocks of the KV cache, which has {n_blocks}; shorten \
         the prompt or load the model with a larger KV cache"
    )]
    PromptExceedsPool {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Blocks it needs.
        needed: usize,
        /// Blocks of the pool.
        n_blocks: usize,
    },
    /// A prompt token that the model does not have.
    #[error(
        "prompt token {index} is id {token}, but the model's ids end at {}; use the tokenizer of this model",
        vocab_size - 1
    )]
    TokenOutOfVocabulary {
        /// Place in the prompt, from 0.
        index: usize,
        /// The id found.
        token: u32,
        /// Ids of the model.
        vocab_size: usize,
    },
    /// A request that goes on with an answer for which there is no room.
    #[error(
        "the prompt has {prompt_tokens} tokens and its answer so far {generated_tokens}, more than the {limit} that fit \
         in the context and the KV cache; load the model with a larger context"
    )]
    GeneratedExceedsContext {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens generated before.
        generated_tokens: usize,
        /// Tokens of a sequence, prompt and answer together.
        limit: usize,
    },
    /// A generated token that the model does not have.
    #[error(
        "token {index} of the answer so far is id {token}, but the model's ids end at {}; an answer goes on only with the \
         model that began it",
        vocab_size - 1
    )]
    GeneratedOutOfVocabulary {
        /// Place in the answer, from 0.
        index: usize,
        /// The id found.
        token: u32,
        /// Ids of the model.
        vocab_size: usize,
    },
    /// A generated token that the answer's form does not allow.
    #[error(
        "token {index} of the answer so far does not fit the form that the answer is to have; an answer goes on only in the \
         form that it began in"
    )]
    GeneratedUnmet {
        /// Place in the answer, from 0.
        index: usize,
    },
    /// The client has as many waiting as it may.
    #[error(
        "the engine is busy: {waiting} requests from here wait already, as many as it keeps; ask again when one of them is \
         answered, or stop one"
    )]
    Busy {
        /// Requests of the client that wait.
        waiting: usize,
    },
    /// A sampling parameter out of its range.
    #[error(transparent)]
    Params(#[from] ParamError),
}
