//! Why text could not be turned into tokens: one sentence each, naming what was found and what would help.

/// Why a vocabulary, a chat template, a conversation or a stop string was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    /// The vocabulary is of a kind this package cannot read.
    #[error(
        "the model's tokenizer is of kind {found:?} (tokenizer.ggml.model), but only {known} is supported; use a model with one of these"
    )]
    UnknownModel {
        /// The kind in the file.
        found: String,
        /// The kinds that work.
        known: String,
    },
    /// The way text is cut before merging is not known; guessing would give wrong tokens.
    #[error(
        "the model's pre-tokenizer is {found} (tokenizer.ggml.pre), but only {known} are supported; use a model with one of these"
    )]
    UnknownPreTokenizer {
        /// The name in the file, quoted, or that there is none.
        found: String,
        /// The names that work.
        known: String,
    },
    /// The vocabulary has no tokens.
    #[error(
        "the model's vocabulary is empty (tokenizer.ggml.tokens); the file is damaged or not a language model"
    )]
    EmptyVocabulary,
    /// The vocabulary has more tokens than ids.
    #[error(
        "the model's vocabulary has {found} tokens (tokenizer.ggml.tokens, or rows of its embedding), more than any tokenizer has; the file is damaged"
    )]
    TooManyTokens {
        /// Tokens in the file.
        found: usize,
    },
    /// An array that goes with the tokens has another length.
    #[error(
        "the model's vocabulary has {n_tokens} tokens but {found} {what}; the file is damaged, download or convert it again"
    )]
    CountMismatch {
        /// What the array holds, with its key.
        what: &'static str,
        /// Its length.
        found: usize,
        /// Tokens in the file.
        n_tokens: usize,
    },
    /// A token type outside the format.
    #[error(
        "token {id} of the model's vocabulary has type {found} (tokenizer.ggml.token_type), but types go from 0 to 6; the file is damaged"
    )]
    BadTokenType {
        /// The token.
        id: u32,
        /// Its type in the file.
        found: i32,
    },
    /// Two ids spell the same token, so text would have two encodings.
    #[error(
        "tokens {first} and {second} of the model's vocabulary are both {text:?}; the file is damaged or badly converted"
    )]
    DuplicateToken {
        /// What both spell.
        text: String,
        /// The lower id.
        first: u32,
        /// The higher id.
        second: u32,
    },
    /// A token that the file names is not in the vocabulary.
    #[error(
        "the model file names {id} as its {what}, but its vocabulary has only {n_tokens} tokens; the file is damaged or badly converted"
    )]
    IdOutOfRange {
        /// What the id is for, with its key.
        what: &'static str,
        /// The id in the file.
        id: u32,
        /// Tokens in the file.
        n_tokens: usize,
    },
    /// A merge does not fit the vocabulary.
    #[error(
        "merge {index} of the model's tokenizer, {merge:?} (tokenizer.ggml.merges), {problem}; the file is damaged or badly converted"
    )]
    BadMerge {
        /// Its rank, from 0.
        index: usize,
        /// The merge in the file.
        merge: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Words, and no way to them.
    #[error(
        "the tokenizer has no merges (tokenizer.ggml.merges, merges.txt), but tokens made by them, such as {token:?} (id {id}); take another file of the model"
    )]
    NoMerges {
        /// A token of several characters.
        id: u32,
        /// Its text.
        token: String,
    },
    /// A file of a model folder that tells of its tokenizer cannot be used.
    #[error("{file} {problem}")]
    TokenizerFile {
        /// The file.
        file: String,
        /// What was found in it, what was expected, and what would help.
        problem: String,
    },
    /// A metadata key of the file has no usable value.
    #[error(transparent)]
    Metadata(#[from] crate::format::metadata::MetadataError),
    /// The tokenizer itself failed on a text.
    #[error("the text could not be cut into tokens: {detail}")]
    Encode {
        /// What the tokenizer says.
        detail: String,
    },
    /// The model has no chat template, and a wrong one would silently make it worse.
    #[error(
        "the model has no chat template (tokenizer.chat_template); take an instruction-tuned model, or give it a text to continue, in the terminal with `pagelm generate --prompt`"
    )]
    NoTemplate,
    /// The template is not valid Jinja.
    #[error(
        "the model's chat template (tokenizer.chat_template) cannot be read: {detail}; take another file of the model, or give it a text to continue, in the terminal with `pagelm generate --prompt`"
    )]
    TemplateSyntax {
        /// Where and why.
        detail: String,
    },
    /// The template itself refused the conversation with `raise_exception`.
    #[error("the model's chat template refuses this conversation: {message}")]
    TemplateRaised {
        /// The template's own words.
        message: String,
    },
    /// The template used up its budget of work or memory.
    #[error(
        "the model's chat template (tokenizer.chat_template) was stopped: it runs forever or makes more text than any prompt needs; shorten the conversation, or take another file of the model, or, in the terminal, give the prompt with --prompt, which needs no template"
    )]
    TemplateExhausted,
    /// The template failed on this conversation.
    #[error(
        "the model's chat template (tokenizer.chat_template) failed on this conversation: {detail}; take another file of the model, or, in the terminal, give the prompt with --prompt, which needs no template"
    )]
    TemplateFailed {
        /// Where and why.
        detail: String,
    },
    /// A conversation without a message.
    #[error("the conversation has no messages; send at least one")]
    NoMessages,
    /// A field that must hold JSON does not.
    #[error("{field} must be {wanted}: {problem}")]
    BadJson {
        /// The field, such as `tools[0]`.
        field: String,
        /// What it should hold.
        wanted: &'static str,
        /// What is wrong.
        problem: String,
    },
    /// A template argument would hide what every template is given.
    #[error("template argument {name:?} is set by the conversation itself; use another name")]
    ReservedArgument {
        /// The name.
        name: String,
    },
    /// The conversation uses every character that could mark its content.
    #[error(
        "the conversation holds every character that could set its content apart from the template; remove unassigned characters from it"
    )]
    NoMarker,
    /// A stop string that would stop at once.
    #[error("stop string {index} is empty; give it at least one character or leave it out")]
    EmptyStopString {
        /// Its place in the list, from 0.
        index: usize,
    },
}
