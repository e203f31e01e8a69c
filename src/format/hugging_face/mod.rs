//! A Hugging Face folder as the checkpoint that llama.cpp's converter would make of it: its keys, its names, its order of
//! rows. What the folder says and cannot be said so, or would be computed wrong, is refused.
//!
//! Keys that llama.cpp's converter does not write, or not in these cases:
//! - `{arch}.vocab_size` is written for every architecture, and `{arch}.rope.freq_base` for Gemma 2 too.
//! - `llama.attention.sliding_window`, for a Mistral with a window: all layers see the last so many positions only.
//! - `{arch}.attention.sliding_window_pattern` says which layers have the window, where that is not what the architecture has
//!   without the key (llama, phi3: all layers; gemma2: all but every 2nd; gemma3: all but every 6th; qwen2, qwen3: the key
//!   always stands beside a window): a u32 `n` for "layer `i` has it if `i % n < n - 1`", as llama.cpp reads it, or else an
//!   array of a bool a layer.
//! - `{arch}.attention.scale`, for a Gemma whose `query_pre_attn_scalar` is not the width of its heads, or that has the 46 or 62
//!   layers of one that is known for it: its inverse root.
//! - `gemma3.rope.freq_base_swa`, always: the base of the layers with a window.
//! - `{arch}.rope.scaling.attn_factor`, for YaRN with an attention factor of its own (`attention_factor`, or `mscale` and
//!   `mscale_all_dim`): what sine and cosine are multiplied by beyond YaRN's own 0.1 · ln(factor) + 1. For Phi-3 it is what they
//!   are multiplied by in all.
//!
//! Tensors that are computed: `rope_freqs.weight`, by which the frequencies are divided (Llama 3's scaling), and
//! `rope_factors_short.weight` and `rope_factors_long.weight` (Phi-3's), beside `phi3.rope.scaling.attn_factor`.

mod config;
mod family;
mod fields;
mod index;
mod rope;
mod tensors;

pub use config::ModelConfig;
pub use index::WeightMap;
pub use tensors::Shard;

use super::block::BlockType;
use super::checkpoint::{Checkpoint, Origin, Tensor};
use super::metadata::Metadata;
use super::value::Value;

/// The file with the sizes.
pub const CONFIG_FILE: &str = "config.json";
/// The weights, where they are one file.
pub const WEIGHTS_FILE: &str = "model.safetensors";
/// Which tensor is in which file, where they are several.
pub const INDEX_FILE: &str = "model.safetensors.index.json";
/// What the files with weights end with.
pub const WEIGHTS_SUFFIX: &str = ".safetensors";

/// The files of the tokenizer, each of which may be absent.
pub const TOKENIZER_FILES: [&str; 7] = [
    "tokenizer.json",
    "vocab.json",
    "merges.txt",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
];

/// The number in a name such as `model-00002-of-00005.safetensors`.
pub fn number_of_shard(name: &str) -> Option<u32> {
    let (rest, _) = name.strip_suffix(WEIGHTS_SUFFIX)?.rsplit_once("-of-")?;
    rest.rsplit_once('-')?.1.parse().ok()
}

/// Why a folder makes no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HuggingFaceError {
    /// A file that is not what its name says.
    #[error("{file} is damaged: {problem}; download it again")]
    Json {
        /// The file.
        file: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// A field of the configuration.
    #[error("{CONFIG_FILE}: {field} is {found}, but {wanted} was expected")]
    Field {
        /// The field.
        field: String,
        /// What it holds.
        found: String,
        /// What it should hold.
        wanted: String,
    },
    /// A model type that is not read.
    #[error("{CONFIG_FILE}: the model's type is {found}, which pagelm does not run yet; these work: {known}")]
    ModelType {
        /// As the file names it.
        found: String,
        /// What works.
        known: String,
    },
    /// A variant that would be computed wrong.
    #[error("{CONFIG_FILE}: {field} is {found}, which pagelm does not run; {works}")]
    Unsupported {
        /// The field.
        field: String,
        /// What it holds.
        found: String,
        /// What it may hold.
        works: String,
    },
    /// A tensor.
    #[error("{file}: tensor {name} {problem}")]
    Tensor {
        /// The file it is in, or should be in.
        file: String,
        /// The tensor.
        name: String,
        /// What is wrong with it, as the rest of a sentence.
        problem: String,
    },
    /// A file that the index names.
    #[error("{INDEX_FILE} names {file}, which is not there; put it with the others")]
    MissingShard {
        /// The file.
        file: String,
    },
}

/// The keys of a configuration, under GGUF's names; `name` is what the model is called.
///
/// # Errors
/// If a field holds what it cannot, or what would be computed wrong.
pub fn keys(config: &ModelConfig, name: Option<&str>) -> Result<Vec<(String, Value)>, HuggingFaceError> {
    config.keys(name).map(|(keys, _)| keys)
}

/// The checkpoint of a folder but for its tokenizer's keys; `name` is what the folder is called. With a weight map the tensors
/// are those it names, else all of the shards.
///
/// # Errors
/// If a tensor is missing, in a place where no tensor belongs, or of no number type or shape that weights have.
pub fn checkpoint(
    config: &ModelConfig,
    name: Option<&str>,
    shards: &[Shard<'_>],
    weight_map: Option<&WeightMap>,
) -> Result<Checkpoint, HuggingFaceError> {
    let (keys, computed) = config.keys(name)?;
    let mut tensors = tensors::stored(config, shards, weight_map)?;
    tensors.extend(computed.into_iter().map(|(name, values)| Tensor {
        name: name.into(),
        shape: vec![values.len() as u64],
        block_type: BlockType::F32,
        row_bytes: 4 * values.len() as u64,
        origin: Origin::Computed(values),
    }));
    let mut checkpoint = Checkpoint::new(Metadata::new(keys), tensors);
    checkpoint.name_file_type();
    Ok(checkpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_numbered_in_their_names() {
        assert_eq!(number_of_shard("model-00002-of-00005.safetensors"), Some(2));
        for other in ["model.safetensors", "model.fp16.safetensors", "model-00002-of-00005.gguf"] {
            assert_eq!(number_of_shard(other), None, "{other}");
        }
    }
}
