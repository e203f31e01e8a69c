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
    let mut entries = Vec::new();
    let mut put = |key: &str, value: Value| entries.push((key.to_owned(), value));
    let strips_by_model = architecture == "phi3" && matches!(pipeline.method, Method::SentencePiece(_));
    match &pipeline.method {
        Method::ByteLevel { pre, .. } => {
            put("tokenizer.ggml.model", Value::String(BYTE_LEVEL.into()));
            put("tokenizer.ggml.pre", Value::String((*pre).into()));
        }
        Method::SentencePiece(_) => {
            put("tokenizer.ggml.model", Value::String(SENTENCE_PIECE.into()));
            put("tokenizer.ggml.pre", Value::String("default".into()));
            put("tokenizer.ggml.scores", Value::Array(Array::F32(scores(&placed.tokens, &merges))));
        }
    }
    put("tokenizer.ggml.tokens", Value::Array(Array::String(placed.tokens)));
    put("tokenizer.ggml.token_type", Value::Array(Array::I32(placed.types)));
    put("tokenizer.ggml.merges", Value::Array(Array::String(merges)));
    let special = placed.special;
    for (name, id) in
        [("bos", special.bos), ("eos", special.eos), ("unknown", special.unk), ("padding", special.pad)]
    {
        if let Some(id) = id {
            put(&format!("tokenizer.ggml.{name}_token_id"), Value::U32(id));
        }
    }
    let add_bos = config.flag("add_bos_token")?.unwrap_or(pipeline.first.is_some());
    let add_eos = config.flag("add_eos_token")?.unwrap_or(pipeline.last.is_some());
    put("tokenizer.ggml.add_bos_token", Value::Bool(add_bos));
    put("tokenizer.ggml.add_eos_token", Value::Bool(add_eos));
    match pipeline.method {
        Method::ByteLevel { exceptions, add_space_prefix, .. } => {
            put("tokenizer.ggml.add_space_prefix", Value::Bool(add_space_prefix));
            let flags = [("nfc", exceptions.nfc), ("ignore_merges", exceptions.ignore_merges)];
            for (name, flag) in flags {
                if let Some(flag) = flag {
                    put(&format!("pagelm.tokenizer.{name}"), Value::Bool(flag));
                }
            }
        }
        Method::SentencePiece(prefix) => {
            put("tokenizer.ggml.add_space_prefix", Value::Bool(prefix != SpacePrefix::Nowhere));
            if prefix == SpacePrefix::Once {
                put("pagelm.tokenizer.space_prefix_once", Value::Bool(true));
            }
        }
    }
    // Readers know Phi-3's `rstrip` by the model; an empty list tells them that here there is none.
    let lists = [
        ("end", placed.ends, false),
        ("lstrip", placed.lstrip, false),
        ("rstrip", placed.rstrip, strips_by_model),
    ];
    for (name, ids, even_empty) in lists {
        if even_empty || !ids.is_empty() {
            put(&format!("pagelm.tokenizer.{name}_token_ids"), Value::Array(Array::U32(ids)));
        }
    }
    if let Some(template) = &config.chat_template {
        put("tokenizer.chat_template", Value::String(template.clone()));
    }
    Ok(entries)
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
