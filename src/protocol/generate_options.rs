//! What to answer, and how to choose its tokens.

use serde::{Deserialize, Serialize};

/// What to answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Prompt {
    /// Raw text: no template, special tokens parsed, BOS only where the model file asks for it.
    Text(String),
    /// A conversation, rendered with the model's chat template; special tokens in its content are plain text.
    Chat {
        /// The turns so far.
        messages: Vec<Message>,
        /// Tools offered to the template, each a JSON object as text.
        tools: Vec<String>,
        /// Further template arguments, such as `enable_thinking`, each value JSON as text.
        template_arguments: Vec<(String, String)>,
    },
    /// Tokens as they are; ids outside of the vocabulary are refused.
    Tokens(Vec<u32>),
}

/// One turn of a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks: `system`, `user`, `assistant`, `tool`, or what the template knows.
    pub role: String,
    /// What is said, in order.
    pub content: Vec<ContentPart>,
    /// Tools the assistant called in this turn.
    pub tool_calls: Vec<ToolCall>,
}

/// A piece of a message's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContentPart {
    /// Text.
    Text(String),
}

/// A tool call made by the assistant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's name within the conversation.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments, JSON as text.
    pub arguments: String,
}

impl Message {
    /// A turn of plain text.
    pub fn text(role: impl Into<String>, content: impl Into<String>) -> Self {
        Self { role: role.into(), content: vec![ContentPart::Text(content.into())], tool_calls: Vec::new() }
    }

    /// The turn's text parts, joined.
    pub fn joined_text(&self) -> String {
        self.content.iter().map(|ContentPart::Text(text)| text.as_str()).collect()
    }
}

/// How to choose tokens, with vLLM's names, meanings and defaults. Out-of-range values are refused by the engine's host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GenerateOptions {
    /// Outputs for each prompt, 1–64; the i-th samples with `seed` + i.
    pub n: u32,
    /// Divides the logits; 0 is greedy. Range 0–2 … any finite value ≥ 0.
    pub temperature: f32,
    /// Keep the k likeliest tokens; 0 or −1 keeps all.
    pub top_k: i32,
    /// Keep the likeliest tokens whose probabilities sum to p, in (0, 1].
    pub top_p: f32,
    /// Drop tokens less likely than this times the likeliest, in [0, 1].
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output, > 0.
    pub repetition_penalty: f32,
    /// Subtracted once from tokens in the output, in [−2, 2].
    pub presence_penalty: f32,
    /// Subtracted for each occurrence in the output, in [−2, 2].
    pub frequency_penalty: f32,
    /// Makes sampling repeatable on the same device and build.
    pub seed: Option<u64>,
    /// Most tokens to generate, ≥ 1; what the context leaves if absent.
    pub max_tokens: Option<u32>,
    /// End-of-generation tokens, stop ids and stop strings are held back until so many tokens are out.
    pub min_tokens: u32,
    /// Strings that end the answer.
    pub stop: Vec<String>,
    /// Token ids that end the answer.
    pub stop_token_ids: Vec<u32>,
    /// Keep the stop string in the text.
    pub include_stop_str_in_output: bool,
    /// Go on past end-of-generation tokens.
    pub ignore_eos: bool,
    /// Texts that must not be generated.
    pub bad_words: Vec<String>,
    /// Added to the logits of token ids, each in [−100, 100].
    pub logit_bias: Vec<(u32, f32)>,
    /// Report the log-probability of each token, and of so many likeliest ones, ≤ 20.
    pub logprobs: Option<u32>,
    /// The same for the prompt's tokens, ≤ 20.
    pub prompt_logprobs: Option<u32>,
    /// Leave special tokens out of the text.
    pub skip_special_tokens: bool,
    /// Use what the cache holds of the prompt's beginning; without it the whole prompt is computed.
    pub reuse_prefix: bool,
    /// Time a decode step by operation, where the adapter has a clock and the sequence runs alone, and tell of it by
    /// [`Event::OpTimes`](super::Event::OpTimes).
    pub time_ops: bool,
    /// What form the answer has. Tokens that do not fit are never chosen, whatever else is set: where `bad_words`,
    /// `min_tokens` or `ignore_eos` leave none that does, the form goes first. Only `max_tokens`, the context and `stop` may
    /// cut it short.
    pub structure: Option<Structure>,
}

/// What form an answer has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Structure {
    /// A JSON object.
    Json,
    /// JSON that a JSON Schema describes, given as text.
    JsonSchema(String),
    /// What a grammar describes, in llguidance's variant of Lark.
    Grammar(String),
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            n: 1,
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: None,
            max_tokens: Some(16),
            min_tokens: 0,
            stop: Vec::new(),
            stop_token_ids: Vec::new(),
            include_stop_str_in_output: false,
            ignore_eos: false,
            bad_words: Vec::new(),
            logit_bias: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            skip_special_tokens: true,
            reuse_prefix: true,
            time_ops: false,
            structure: None,
        }
    }
}
