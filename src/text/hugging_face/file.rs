//! Reads tokenizer.json, or vocab.json with merges.txt. Vocabulary and merges, tens of megabytes, are read straight into
//! lists; nothing is allocated by a number in the file, and nesting costs no stack.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeOwned, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::Value as Json;

use super::config::Config;
use super::{NamedFile, refuse};
use crate::text::TextError;
use crate::text::assemble::split_merge;

/// A tokenizer as its files have it.
pub(super) struct TokenizerFile {
    /// The file that errors name.
    pub(super) name: String,
    pub(super) added_tokens: Vec<AddedToken>,
    pub(super) normalizer: Option<Json>,
    pub(super) pre_tokenizer: Option<Json>,
    pub(super) post_processor: Option<Json>,
    pub(super) decoder: Option<Json>,
    pub(super) model: Model,
}

/// tokenizer.json.
#[derive(Deserialize)]
struct TokenizerJson {
    #[serde(default)]
    added_tokens: Vec<AddedToken>,
    normalizer: Option<Json>,
    pre_tokenizer: Option<Json>,
    post_processor: Option<Json>,
    decoder: Option<Json>,
    model: Model,
}

/// A token that is found in text before anything else happens to it. Its `normalized` is not heeded: as in llama.cpp it
/// is found as it is spelled, which is what published files ask for wherever their normalizer would change it.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct AddedToken {
    pub(super) id: u64,
    pub(super) content: String,
    #[serde(default)]
    pub(super) single_word: bool,
    #[serde(default)]
    pub(super) lstrip: bool,
    #[serde(default)]
    pub(super) rstrip: bool,
    #[serde(default)]
    pub(super) special: bool,
}

/// The part that merges.
#[derive(Deserialize)]
pub(super) struct Model {
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) vocab: Vocab,
    #[serde(default)]
    pub(super) merges: Merges,
    pub(super) unk_token: Option<String>,
    pub(super) dropout: Option<f64>,
    pub(super) continuing_subword_prefix: Option<String>,
    pub(super) end_of_word_suffix: Option<String>,
    #[serde(default)]
    pub(super) byte_fallback: bool,
    #[serde(default)]
    pub(super) ignore_merges: bool,
}

/// Tokens with their ids, in the file's order; none where the file lists them in another form.
#[derive(Default)]
pub(super) struct Vocab(pub(super) Option<Vec<(String, u64)>>);

impl<'de> Deserialize<'de> for Vocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct VocabVisitor;
        impl<'de> Visitor<'de> for VocabVisitor {
            type Value = Vocab;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object of tokens with their ids")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vocab, A::Error> {
                let mut tokens = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    tokens.push(entry);
                }
                Ok(Vocab(Some(tokens)))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vocab, A::Error> {
                while list.next_element::<IgnoredAny>()?.is_some() {}
                Ok(Vocab(None))
            }
        }
        deserializer.deserialize_any(VocabVisitor)
    }
}

/// Merges in their order, each as GGUF spells it: two tokens with a space between.
#[derive(Default)]
pub(super) struct Merges(pub(super) Vec<String>);

impl<'de> Deserialize<'de> for Merges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let merges: Vec<Merge> = Deserialize::deserialize(deserializer)?;
        // The same bytes under another name: nothing is copied.
        Ok(Self(merges.into_iter().map(|Merge(merge)| merge).collect()))
    }
}

/// One merge, as `"a b"` or `["a", "b"]`.
struct Merge(String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct MergeVisitor;
        impl<'de> Visitor<'de> for MergeVisitor {
            type Value = Merge;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("a merge: two tokens that are not empty and hold no space")
            }

            fn visit_str<E: serde::de::Error>(self, merge: &str) -> Result<Merge, E> {
                split_merge(merge)
                    .map(|_| Merge(merge.to_owned()))
                    .ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(merge), &self))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut pair: A) -> Result<Merge, A::Error> {
                let first: String = pair.next_element()?.ok_or_else(|| A::Error::invalid_length(0, &self))?;
                let second: String =
                    pair.next_element()?.ok_or_else(|| A::Error::invalid_length(1, &self))?;
                if pair.next_element::<IgnoredAny>()?.is_some() {
                    return Err(A::Error::invalid_length(3, &self));
                }
                self.visit_str(&format!("{first} {second}"))
            }
        }
        deserializer.deserialize_any(MergeVisitor)
    }
}

/// A file as JSON of a form; the error names the file and the line.
pub(super) fn read_json<T: DeserializeOwned>(file: NamedFile<'_>) -> Result<T, TextError> {
    serde_json::from_slice(file.bytes)
        .map_err(|error| refuse(file.name, format!("cannot be read: {error}; download it again")))
}

/// tokenizer.json.
pub(super) fn read_tokenizer_json(file: NamedFile<'_>) -> Result<TokenizerFile, TextError> {
    let json: TokenizerJson = read_json(file)?;
    Ok(TokenizerFile {
        name: file.name.into(),
        added_tokens: json.added_tokens,
        normalizer: json.normalizer,
        pre_tokenizer: json.pre_tokenizer,
        post_processor: json.post_processor,
        decoder: json.decoder,
        model: json.model,
    })
}

/// vocab.json with merges.txt: GPT-2's tokenizer, unless tokenizer_config.json names another that has the same two files.
pub(super) fn read_vocab_and_merges(
    vocab: NamedFile<'_>,
    merges: NamedFile<'_>,
    config: &Config,
) -> Result<TokenizerFile, TextError> {
    let mut model = Model {
        kind: Some("BPE".into()),
        vocab: read_json(vocab)?,
        merges: Merges::default(),
        unk_token: None,
        dropout: None,
        continuing_subword_prefix: None,
        end_of_word_suffix: None,
        byte_fallback: false,
        ignore_merges: false,
    };
    let text = std::str::from_utf8(merges.bytes)
        .map_err(|error| refuse(merges.name, format!("is not UTF-8: {error}; download it again")))?;
    for (number, line) in (1..).zip(text.lines()) {
        if line.is_empty() || (number == 1 && line.starts_with("#version")) {
            continue;
        }
        if split_merge(line).is_none() {
            let problem =
                format!("line {number} is {line:?}, not two tokens with a space between; download it again");
            return Err(refuse(merges.name, problem));
        }
        model.merges.0.push(line.to_owned());
    }
    let (normalizer, pre_tokenizer) = config.steps_by_class()?;
    Ok(TokenizerFile {
        name: vocab.name.into(),
        added_tokens: config.added_tokens()?,
        normalizer,
        pre_tokenizer: Some(pre_tokenizer),
        post_processor: None,
        decoder: None,
        model,
    })
}
