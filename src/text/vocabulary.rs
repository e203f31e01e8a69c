//! A tokenizer as the model file gives it, before anything is checked or built; `Tokenizer::new` checks it.

use super::TextError;
use super::pre_tokenizer::adds_bos_by_default;
use crate::format::metadata::Metadata;

/// A tokenizer's parts. Where they come from in a GGUF file:
///
/// | field | key | if absent |
/// | --- | --- | --- |
/// | `model` | `tokenizer.ggml.model` | refused |
/// | `pre` | `tokenizer.ggml.pre` | `None` |
/// | `tokens` | `tokenizer.ggml.tokens` | refused |
/// | `scores` | `tokenizer.ggml.scores` | empty |
/// | `token_types` | `tokenizer.ggml.token_type` | empty |
/// | `merges` | `tokenizer.ggml.merges` | empty |
/// | `bos`, `eos`, `eot` | `tokenizer.ggml.bos_token_id`, `…eos_token_id`, `…eot_token_id` | `None` |
/// | `unk`, `pad` | `tokenizer.ggml.unknown_token_id`, `…padding_token_id` | `None` |
/// | `extra_eog` | `tokenizer.ggml.eom_token_id` | empty |
/// | `add_bos`, `add_eos` | `tokenizer.ggml.add_bos_token`, `…add_eos_token` | BOS as the pre-tokenizer has it (Llama 3 adds it), no EOS |
/// | `add_space_prefix` | `tokenizer.ggml.add_space_prefix` | false |
/// | `chat_template` | `tokenizer.chat_template` | `None` |
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Vocabulary {
    /// The kind of tokenizer: `gpt2` (byte-level BPE); others are refused.
    pub model: String,
    /// How text is cut into words before merging.
    pub pre: Option<String>,
    /// The tokens; a token's id is its place.
    pub tokens: Vec<String>,
    /// A score a token, or none; byte-level BPE has no use for them.
    pub scores: Vec<f32>,
    /// A type a token, or none: 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte.
    pub token_types: Vec<i32>,
    /// Pairs that merge, the first first, each as its two tokens with a space between.
    pub merges: Vec<String>,
    /// The token that begins a text.
    pub bos: Option<u32>,
    /// The token that ends a text.
    pub eos: Option<u32>,
    /// The token that ends a turn.
    pub eot: Option<u32>,
    /// The token of what has no token.
    pub unk: Option<u32>,
    /// The token that fills.
    pub pad: Option<u32>,
    /// Raw text begins with `bos`.
    pub add_bos: bool,
    /// Raw text ends with `eos`.
    pub add_eos: bool,
    /// Text is read as if a space stood before it.
    pub add_space_prefix: bool,
    /// The chat template's source, Jinja as Hugging Face runs it.
    pub chat_template: Option<String>,
    /// Further tokens that end an answer.
    pub extra_eog: Vec<u32>,
}

impl Vocabulary {
    /// The tokenizer of a GGUF file. Tokens and merges, most of the metadata's bytes, are moved out of it.
    ///
    /// # Errors
    /// A key that is missing or of another type.
    pub fn from_gguf(metadata: &mut Metadata) -> Result<Self, TextError> {
        let token = |name: &str| metadata.opt_u32(&format!("tokenizer.ggml.{name}_token_id"));
        let flag = |name: &str| metadata.opt_bool(&format!("tokenizer.ggml.{name}"));
        let text = |key: &str| metadata.opt_str(key).map(|text| text.map(str::to_owned));
        let pre = text("tokenizer.ggml.pre")?;
        Ok(Self {
            model: metadata.str("tokenizer.ggml.model")?.to_owned(),
            scores: metadata.opt_f32s("tokenizer.ggml.scores")?.unwrap_or_default(),
            token_types: metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
            bos: token("bos")?,
            eos: token("eos")?,
            eot: token("eot")?,
            unk: token("unknown")?,
            pad: token("padding")?,
            add_bos: flag("add_bos_token")?.unwrap_or_else(|| adds_bos_by_default(pre.as_deref())),
            add_eos: flag("add_eos_token")?.unwrap_or(false),
            add_space_prefix: flag("add_space_prefix")?.unwrap_or(false),
            chat_template: text("tokenizer.chat_template")?,
            extra_eog: token("eom")?.into_iter().collect(),
            pre,
            tokens: metadata.take_strings("tokenizer.ggml.tokens")?,
            merges: metadata.opt_take_strings("tokenizer.ggml.merges")?.unwrap_or_default(),
        })
    }
}
