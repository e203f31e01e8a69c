//! A tokenizer as the model file gives it, before anything is checked or built; `Tokenizer::new` checks it.

use super::TextError;
use super::pre_tokenizer::adds_bos_by_default;
use super::sentence_piece::SENTENCE_PIECE;
use crate::format::metadata::{Metadata, MetadataError};
use crate::format::value::{Array, Value};

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
/// | `extra_eog` | `tokenizer.ggml.eom_token_id`, `pagelm.tokenizer.end_token_ids` | empty |
/// | `add_bos`, `add_eos` | `tokenizer.ggml.add_bos_token`, `…add_eos_token` | BOS for `llama`, else as the pre-tokenizer has it (Llama 3 adds it), no EOS |
/// | `add_space_prefix` | `tokenizer.ggml.add_space_prefix` | true for `llama`, else false |
/// | `space_prefix_once` | `pagelm.tokenizer.space_prefix_once` | false |
/// | `nfc`, `ignore_merges` | `pagelm.tokenizer.nfc`, `pagelm.tokenizer.ignore_merges` | `None` |
/// | `lstrip`, `rstrip` | `pagelm.tokenizer.lstrip_token_ids`, `…rstrip_token_ids` | empty; Phi-3's, which llama.cpp knows by name |
/// | `chat_template` | `tokenizer.chat_template` | `None` |
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Vocabulary {
    /// The kind of tokenizer: `gpt2` (byte-level BPE) or `llama` (SentencePiece's BPE); others are refused.
    pub model: String,
    /// How text is cut into words before merging; without meaning for `llama`.
    pub pre: Option<String>,
    /// The tokens; a token's id is its place.
    pub tokens: Vec<String>,
    /// A score a token, or none; byte-level BPE has no use for them, nor has `llama` where there are merges.
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
    /// Text is read as if a space stood before it, and so is the text after each special token.
    pub add_space_prefix: bool,
    /// With `add_space_prefix` of `llama`: only at the beginning, and only where there is no space yet.
    pub space_prefix_once: bool,
    /// Whether text is brought to Unicode's normal form C, where that is not as `pre` implies.
    pub nfc: Option<bool>,
    /// Whether a word that is a token is taken whole, where that is not as `pre` implies.
    pub ignore_merges: Option<bool>,
    /// Special tokens that take the whitespace before them.
    pub lstrip: Vec<u32>,
    /// Special tokens that take the whitespace after them.
    pub rstrip: Vec<u32>,
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
        let own_flag = |name: &str| metadata.opt_bool(&format!("pagelm.tokenizer.{name}"));
        let own_tokens = |name: &str| ids(metadata, &format!("pagelm.tokenizer.{name}_token_ids"));
        let text = |key: &str| metadata.opt_str(key).map(|text| text.map(str::to_owned));
        let pre = text("tokenizer.ggml.pre")?;
        let model = metadata.str("tokenizer.ggml.model")?.to_owned();
        let sentence_piece = model == SENTENCE_PIECE;
        let is_phi3 = sentence_piece && metadata.opt_str("general.architecture")? == Some("phi3");
        let rstrip = own_tokens("rstrip")?;
        let mut vocabulary = Self {
            scores: metadata.opt_f32s("tokenizer.ggml.scores")?.unwrap_or_default(),
            token_types: metadata.opt_i32s("tokenizer.ggml.token_type")?.unwrap_or_default(),
            bos: token("bos")?,
            eos: token("eos")?,
            eot: token("eot")?,
            unk: token("unknown")?,
            pad: token("padding")?,
            add_bos: flag("add_bos_token")?
                .unwrap_or_else(|| sentence_piece || adds_bos_by_default(pre.as_deref())),
            add_eos: flag("add_eos_token")?.unwrap_or(false),
            add_space_prefix: flag("add_space_prefix")?.unwrap_or(sentence_piece),
            space_prefix_once: own_flag("space_prefix_once")?.unwrap_or(false),
            nfc: own_flag("nfc")?,
            ignore_merges: own_flag("ignore_merges")?,
            lstrip: own_tokens("lstrip")?.unwrap_or_default(),
            rstrip: Vec::new(),
            chat_template: text("tokenizer.chat_template")?,
            extra_eog: token("eom")?.into_iter().chain(own_tokens("end")?.unwrap_or_default()).collect(),
            pre,
            model,
            tokens: metadata.take_strings("tokenizer.ggml.tokens")?,
            merges: metadata.opt_take_strings("tokenizer.ggml.merges")?.unwrap_or_default(),
        };
        vocabulary.rstrip = match rstrip {
            Some(rstrip) => rstrip,
            None if is_phi3 => vocabulary.phi3_rstrip(),
            None => Vec::new(),
        };
        Ok(vocabulary)
    }

    /// Phi-3's special tokens take the whitespace after them, all but three. GGUF has no key for that; llama.cpp, too,
    /// goes by the model.
    fn phi3_rstrip(&self) -> Vec<u32> {
        let special = self.tokens.iter().zip(&self.token_types).zip(0..).filter(|((text, kind), _)| {
            (2..=4).contains(*kind) && !["<unk>", "<s>", "<|endoftext|>"].contains(&text.as_str())
        });
        special.map(|(_, id)| id).collect()
    }
}

/// Token ids under a key of this package's own.
fn ids(metadata: &Metadata, key: &str) -> Result<Option<Vec<u32>>, TextError> {
    Ok(match metadata.get(key) {
        None => None,
        Some(Value::Array(Array::U32(ids))) => Some(ids.clone()),
        Some(other) => {
            return Err(TextError::Metadata(MetadataError::WrongType {
                key: key.into(),
                found: other.type_name(),
                wanted: "an array of uint32",
            }));
        }
    })
}
