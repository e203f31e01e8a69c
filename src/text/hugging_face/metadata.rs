//! Writes a tokenizer under GGUF's keys, each as llama.cpp's converter does, and under this package's own only what
//! GGUF cannot say and this tokenizer needs.

use std::collections::HashMap;

use super::config::Config;
use super::file::TokenizerFile;
use super::pipeline::{Method, Pipeline};
use super::refuse;
use super::vocabulary::Placed;
use crate::format::value::{Array, Value};
use crate::text::TextError;
use crate::text::assemble::split_merge;
use crate::text::byte_level_bpe::BYTE_LEVEL;
use crate::text::sentence_piece::{SENTENCE_PIECE, SpacePrefix};

/// Ranks are scores too, which count exactly below this.
const MAX_MERGES: usize = 1 << 24;

/// The metadata of a tokenizer.
pub(super) fn write(
    architecture: &str,
    config: &Config,
    tokenizer: TokenizerFile,
    pipeline: Pipeline,
    placed: Placed,
) -> Result<Vec<(String, Value)>, TextError> {
    let merges = tokenizer.model.merges.0;
    if merges.len() > MAX_MERGES {
        let problem = format!("has {} merges, more than {MAX_MERGES}; download it again", merges.len());
        return Err(refuse(&tokenizer.name, problem));
    }
    let mut entries = Entries(Vec::new());
    match &pipeline.method {
        Method::ByteLevel { pre, .. } => {
            entries.ggml("model", Value::String(BYTE_LEVEL.into()));
            entries.ggml("pre", Value::String((*pre).into()));
        }
        Method::SentencePiece(_) => {
            entries.ggml("model", Value::String(SENTENCE_PIECE.into()));
            entries.ggml("pre", Value::String("default".into()));
            entries.ggml("scores", Value::Array(Array::F32(scores(&placed.tokens, &merges))));
        }
    }
    entries.ggml("tokens", Value::Array(Array::String(placed.tokens)));
    entries.ggml("token_type", Value::Array(Array::I32(placed.types)));
    entries.ggml("merges", Value::Array(Array::String(merges)));
    let special = placed.special;
    let named =
        [("bos", special.bos), ("eos", special.eos), ("unknown", special.unk), ("padding", special.pad)];
    for (name, id) in named {
        if let Some(id) = id {
            entries.ggml(&format!("{name}_token_id"), Value::U32(id));
        }
    }
    let add_bos = config.flag("add_bos_token")?.unwrap_or(pipeline.first.is_some());
    let add_eos = config.flag("add_eos_token")?.unwrap_or(pipeline.last.is_some());
    entries.ggml("add_bos_token", Value::Bool(add_bos));
    entries.ggml("add_eos_token", Value::Bool(add_eos));
    entries.method(&pipeline.method);
    entries.own_ids("end", placed.ends);
    entries.own_ids("lstrip", placed.lstrip);
    if placed.rstrip.is_empty() && architecture == "phi3" {
        // Readers know Phi-3's by the model; the empty list tells them that here there is none.
        entries.own("rstrip_token_ids", Value::Array(Array::U32(Vec::new())));
    }
    entries.own_ids("rstrip", placed.rstrip);
    if let Some(template) = &config.chat_template {
        entries.0.push(("tokenizer.chat_template".into(), Value::String(template.clone())));
    }
    Ok(entries.0)
}

/// Metadata as it grows.
struct Entries(Vec<(String, Value)>);

impl Entries {
    /// A key that llama.cpp knows.
    fn ggml(&mut self, name: &str, value: Value) {
        self.0.push((format!("tokenizer.ggml.{name}"), value));
    }

    /// A key of this package.
    fn own(&mut self, name: &str, value: Value) {
        self.0.push((format!("pagelm.tokenizer.{name}"), value));
    }

    /// Token ids under a key of this package, if there are any.
    fn own_ids(&mut self, name: &str, ids: Vec<u32>) {
        if !ids.is_empty() {
            self.own(&format!("{name}_token_ids"), Value::Array(Array::U32(ids)));
        }
    }

    /// How text is prepared for merging, as far as `pre` does not say.
    fn method(&mut self, method: &Method) {
        match method {
            Method::ByteLevel { exceptions, add_space_prefix, .. } => {
                self.ggml("add_space_prefix", Value::Bool(*add_space_prefix));
                let flags = [("nfc", exceptions.nfc), ("ignore_merges", exceptions.ignore_merges)];
                for (name, flag) in flags {
                    if let Some(flag) = flag {
                        self.own(name, Value::Bool(flag));
                    }
                }
            }
            Method::SentencePiece(prefix) => {
                self.ggml("add_space_prefix", Value::Bool(*prefix != SpacePrefix::Nowhere));
                if *prefix == SpacePrefix::Once {
                    self.own("space_prefix_once", Value::Bool(true));
                }
            }
        }
    }
}

/// Scores for readers that know no merges: minus the rank of the first merge that makes a token, so that what merges
/// first has the highest; tokens that no merge makes come last.
fn scores(tokens: &[String], merges: &[String]) -> Vec<f32> {
    let ids: HashMap<&str, usize> = tokens.iter().enumerate().map(|(id, text)| (text.as_str(), id)).collect();
    let mut scores = vec![-(merges.len() as f32); tokens.len()];
    let mut whole = String::new();
    for (rank, merge) in merges.iter().enumerate().rev() {
        let Some((first, second)) = split_merge(merge) else { continue };
        whole.clear();
        whole.push_str(first);
        whole.push_str(second);
        if let Some(id) = ids.get(whole.as_str()) {
            scores[*id] = -(rank as f32);
        }
    }
    scores
}
