//! Request (tab → engine) and Event (engine → tab): the only thing that crosses between a page and its engine.
//!
//! Ids are chosen by the tab and mean nothing outside its connection. Data lives in the variant. Files never cross as
//! bytes: a transport carries them as attachments beside the encoded message, and a request names one by its index.

use serde::{Deserialize, Serialize};

pub use model_info::{DeviceKind, ModelInfo};

mod model_info;

/// Raised whenever the meaning of a message changes; a tab and an engine of different versions refuse each other.
pub const VERSION: u32 = 3;

/// A tab's name for one of its requests.
pub type RequestId = u64;

/// What a tab may ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The first message of a connection.
    Hello {
        /// The tab's [`VERSION`].
        version: u32,
    },
    /// Make a model the one that answers. Replaces the model that is loaded.
    Load {
        /// Where its bytes are.
        source: ModelSource,
        /// How to run it.
        options: LoadOptions,
    },
    /// Answer a prompt, streaming.
    Generate {
        /// Names the answer's events; unique within the connection.
        request: RequestId,
        /// What to answer.
        prompt: Prompt,
        /// How to choose tokens.
        options: GenerateOptions,
    },
    /// Show what the model reads of a prompt.
    Tokenize {
        /// Names the reply.
        request: RequestId,
        /// What to tokenize.
        prompt: Prompt,
    },
    /// Tell how the engine stands.
    Status {
        /// Names the reply.
        request: RequestId,
    },
    /// Stop an answer; what was generated stays.
    Cancel {
        /// The request to stop.
        request: RequestId,
    },
}

/// Where a model's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelSource {
    /// A URL relative to the page.
    Url {
        /// The URL, as the page would fetch it.
        url: String,
    },
    /// Files that travel beside the message: a `.gguf` file, all parts of one, or those of a Hugging Face folder.
    Attachments {
        /// Their names, in the order of the envelope's attachments; a folder's with its own name before them.
        names: Vec<String>,
    },
}

/// How to run a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct LoadOptions {
    /// The longest conversation in tokens; the model's own limit, or 4096 where that is larger, if absent.
    pub context: Option<u32>,
    /// Number type of the KV cache.
    pub kv: KvType,
    /// Arithmetic of activations.
    pub precision: Precision,
    /// Which device computes.
    pub device: DeviceChoice,
    /// What weights that are plain numbers become while they are loaded.
    pub quantize: Quantize,
}

/// What weights that are plain numbers (F32, F16, BF16) become while they are loaded; blocks stay what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Quantize {
    /// They stay what they are.
    #[default]
    None,
    /// Q8_0: 8.5 bits a weight.
    Q8,
    /// Q4_0: 4.5 bits a weight, and Q8_0 for the matrix that makes the logits.
    Q4,
}

/// Number type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum KvType {
    /// Half precision, packed in pairs.
    #[default]
    F16,
    /// Single precision.
    F32,
}

/// Arithmetic of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Precision {
    /// f32 activations and sums.
    #[default]
    Exact,
    /// Activations in 8 bits a block, integer dot products.
    Fast,
}

/// Which device computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum DeviceChoice {
    /// The engine's own choice.
    #[default]
    Auto,
    /// A WebGPU (or Vulkan, Metal, DX12) adapter.
    Gpu,
    /// The processor.
    Cpu,
}

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
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
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
        }
    }
}

/// What the engine tells a tab.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Answers [`Request::Hello`].
    Welcome {
        /// The engine's [`VERSION`].
        version: u32,
    },
    /// A model is on its way.
    Loading {
        /// What is being done, in words a person reads.
        stage: String,
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in all; 0 while unknown.
        total_bytes: u64,
    },
    /// The model answers from now on.
    Ready {
        /// What was loaded, and where it runs.
        model: ModelInfo,
    },
    /// The model could not be loaded; the one before it, if any, is gone only if `unloaded`.
    LoadFailed {
        /// One sentence: what, where, what would help.
        error: String,
        /// No model is loaded now.
        unloaded: bool,
    },
    /// A request was accepted.
    Started {
        /// Whose.
        request: RequestId,
        /// Tokens of its prompt.
        prompt_tokens: u32,
    },
    /// Log-probabilities of the prompt's tokens, the first of which has none. Sent before the first [`Event::Tokens`].
    PromptLogprobs {
        /// Whose.
        request: RequestId,
        /// One entry a prompt token.
        tokens: Vec<Option<TokenLogprob>>,
    },
    /// The prompt is being read.
    Prefilling {
        /// Whose.
        request: RequestId,
        /// Prompt tokens read so far.
        done_tokens: u32,
        /// Prompt tokens in all.
        total_tokens: u32,
    },
    /// The answer grew.
    Tokens {
        /// Whose.
        request: RequestId,
        /// Text that became certain; empty while a character or a possible stop string is incomplete.
        text: String,
        /// The new tokens.
        ids: Vec<u32>,
        /// One entry a token, if asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// Answers [`Request::Tokenize`].
    Tokenized {
        /// Whose.
        request: RequestId,
        /// The text after the chat template.
        text: String,
        /// Its tokens.
        ids: Vec<u32>,
        /// Each token as the vocabulary spells it.
        pieces: Vec<String>,
    },
    /// Answers [`Request::Status`].
    Status {
        /// Whose.
        request: RequestId,
        /// How the engine stands.
        status: Status,
    },
    /// The answer is complete.
    Finished {
        /// Whose.
        request: RequestId,
        /// Why.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
    },
    /// A request failed.
    Failed {
        /// Whose; the connection's where absent.
        request: Option<RequestId>,
        /// One sentence: what, where, what would help.
        error: String,
    },
}

/// How the engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Status {
    /// Bytes of the engine's wasm memory; absent natively.
    pub memory_bytes: Option<u64>,
    /// Sequences that run.
    pub running: u32,
    /// Sequences that wait for room.
    pub waiting: u32,
    /// Blocks of the KV cache that nobody owns.
    pub free_blocks: u32,
    /// Blocks of the KV cache in all.
    pub n_blocks: u32,
    /// Steps submitted since the model was loaded.
    pub steps: u64,
}

/// A token's log-probability among the likeliest: log-softmax of the raw logits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TokenLogprob {
    /// Token id.
    pub id: u32,
    /// Its text, U+FFFD where it is part of a character.
    pub text: String,
    /// Natural logarithm of its probability.
    pub logprob: f32,
    /// The likeliest tokens at this place, likeliest first; their own `top` is empty.
    pub top: Vec<Self>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FinishReason {
    /// An end-of-generation token, a stop token id or a stop string.
    Stop,
    /// `max_tokens` or the context was reached.
    Length,
    /// The tab cancelled it, or another model took the place of its own.
    Cancelled,
}

impl FinishReason {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Length => "length",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What an answer took.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, Default)]
pub struct Usage {
    /// Tokens of the prompt.
    pub prompt_tokens: u32,
    /// Tokens generated.
    pub generated_tokens: u32,
    /// From acceptance to the first token.
    pub prefill_ms: f64,
    /// From the first token to the last.
    pub decode_ms: f64,
}

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
#[error(
    "not a message of protocol version {VERSION}: {0}; reload the page so that it and its engine are of one build"
)]
pub struct DecodeError(#[from] postcard::Error);

/// A message as bytes.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("every message has a postcard form")
}

/// Bytes as a message; bytes left over are refused too.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (message, rest) = postcard::take_from_bytes(bytes)?;
    if !rest.is_empty() {
        return Err(DecodeError(postcard::Error::DeserializeBadEncoding));
    }
    Ok(message)
}
