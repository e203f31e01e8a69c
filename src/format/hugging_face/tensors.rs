//! The tensors of safetensors files under GGUF's names, in GGUF's order of rows, as llama.cpp's converter arranges them.

use std::collections::{HashMap, HashSet};

use super::config::{ModelConfig, Sizes};
use super::family::{Family, OUTER};
use super::{HuggingFaceError, WeightMap};
use crate::format::block::BlockType;
use crate::format::checkpoint::{Origin, Tensor};
use crate::format::gguf::quoted;
use crate::format::safetensors::{Header, TensorInfo};
use crate::format::stored::{Arrangement, Stored};

/// A safetensors file of the folder.
#[derive(Debug, Clone, Copy)]
pub struct Shard<'a> {
    /// Which of the model's files.
    pub file: usize,
    /// What it is called in the folder.
    pub name: &'a str,
    /// What it holds.
    pub header: &'a Header,
}

/// What the names of the text model may begin with; the longest first.
const PREFIXES: [&str; 6] =
    ["language_model.model.", "model.language_model.", "language_model.", "transformer.", "model.", ""];
/// What the names of the parts for pictures begin with.
const PICTURES: [&str; 4] = ["vision_tower.", "vision_model.", "multi_modal_projector.", "embed_vision."];
/// Ends of names of constants that some files carry along.
const CONSTANTS: [&str; 3] = ["rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"];

const MAX_DIMENSIONS: usize = 4;

/// All tensors that the model has.
pub(super) fn stored(
    config: &ModelConfig,
    shards: &[Shard<'_>],
    weight_map: Option<&WeightMap>,
) -> Result<Vec<Tensor>, HuggingFaceError> {
    let sizes = config.sizes()?;
    let is_tied = config.is_tied()?;
    let vocabulary = config.vocabulary()?;
    let mut tensors: Vec<Tensor> = Vec::new();
    let mut seen = HashMap::new();
    for (shard, info) in listed(shards, weight_map)? {
        let about = |problem: String| HuggingFaceError::Tensor {
            file: shard.name.into(),
            name: quoted(&info.name),
            problem,
        };
        let Some(place) = gguf_name(config, &info.name) else { continue };
        let name = place.ok_or_else(|| {
            about(format!(
                "has no place in a model of type {}; take the plain model",
                config.family.model_type
            ))
        })?;
        if is_tied && name == "output.weight" {
            continue;
        }
        if let Some(first) = seen.insert(name.clone(), info.name.as_str()) {
            return Err(about(format!("has the same place as {}, {name}", quoted(first))));
        }
        if let Some(stated) = vocabulary
            && name == "token_embd.weight"
            && info.shape.first() != Some(&stated)
        {
            return Err(about(format!("has shape {:?}, but vocab_size is {stated}", info.shape)));
        }
        tensors.push(tensor(config.family, sizes, name, shard, info).map_err(about)?);
    }
    let absent = |name: String, problem: &str| {
        let file = shards.first().map_or_else(String::new, |shard| shard.name.into());
        Err(HuggingFaceError::Tensor { file, name, problem: problem.into() })
    };
    if !is_tied && !seen.contains_key("output.weight") {
        let problem = "is missing, though tie_word_embeddings is false; download all files of the model";
        return absent("lm_head.weight".into(), problem);
    }
    match required(config, sizes.layers.min(tensors.len() as u64 + 1))?
        .into_iter()
        .find(|(ours, _)| !seen.contains_key(ours))
    {
        None => Ok(tensors),
        Some((_, theirs)) => absent(theirs, "is missing; download all files of the model"),
    }
}

/// Tensors of so many layers that a model of the type cannot do without: their names in GGUF, and in the files but for a
/// prefix.
fn required(config: &ModelConfig, n_layers: u64) -> Result<Vec<(String, String)>, HuggingFaceError> {
    let family = config.family;
    let is_gpt2 = family.architecture == "gpt2";
    let norms_heads = ["qwen3", "gemma3"].contains(&family.architecture);
    let is_llama = family.architecture == "llama";
    let attention_bias = is_llama && config.promises("attention_bias")?;
    let mlp_bias = is_llama && config.promises("mlp_bias")?;
    let (embedding, layers) = if is_gpt2 { ("wte.weight", "h") } else { ("embed_tokens.weight", "layers") };
    let mut names = vec![("token_embd.weight".to_owned(), embedding.to_owned())];
    for layer in 0..n_layers {
        for (theirs, ours) in family.parts {
            let of_heads = ["attn_q_norm", "attn_k_norm"].contains(ours);
            if of_heads && !norms_heads {
                continue;
            }
            let has_bias = match *ours {
                "attn_q" | "attn_k" | "attn_v" | "attn_output" => attention_bias,
                "ffn_gate" | "ffn_up" | "ffn_down" => mlp_bias,
                _ => false,
            };
            for kind in ["weight", "bias"].into_iter().take(1 + usize::from(has_bias)) {
                names.push((
                    format!("blk.{layer}.{ours}.{kind}"),
                    format!("{layers}.{layer}.{theirs}.{kind}"),
                ));
            }
        }
    }
    Ok(names)
}

/// The tensors of a weight map in its order, each where it says; or all there are.
fn listed<'a>(
    shards: &[Shard<'a>],
    weight_map: Option<&WeightMap>,
) -> Result<Vec<(Shard<'a>, &'a TensorInfo)>, HuggingFaceError> {
    let all = shards.iter().flat_map(|shard| shard.header.tensors.iter().map(move |info| (*shard, info)));
    let Some(weight_map) = weight_map else {
        let mut seen = HashSet::new();
        let once = |(shard, info): (Shard<'a>, &'a TensorInfo)| {
            if seen.insert(info.name.as_str()) {
                return Ok((shard, info));
            }
            let problem = "is in another file too; choose the files of one model only".into();
            Err(HuggingFaceError::Tensor { file: shard.name.into(), name: quoted(&info.name), problem })
        };
        return all.map(once).collect();
    };
    let by_place: HashMap<(&str, &str), (Shard<'a>, &'a TensorInfo)> =
        all.map(|(shard, info)| ((shard.name, info.name.as_str()), (shard, info))).collect();
    let find = |(tensor, file): (&str, &str)| {
        if let Some(found) = by_place.get(&(file, tensor)) {
            return Ok(*found);
        }
        if !shards.iter().any(|shard| shard.name == file) {
            return Err(HuggingFaceError::MissingShard { file: file.into() });
        }
        let problem = "is not in it, though the index says so; download the file again".into();
        Err(HuggingFaceError::Tensor { file: file.into(), name: quoted(tensor), problem })
    };
    weight_map.entries().map(find).collect()
}

/// The name in GGUF: `None` for what no computation needs, `Some(None)` for what has no name there.
fn gguf_name(config: &ModelConfig, name: &str) -> Option<Option<String>> {
    let is_picture = |name: &str| PICTURES.iter().any(|prefix| name.starts_with(prefix));
    let inner = name.strip_prefix("model.").unwrap_or(name);
    if CONSTANTS.iter().any(|end| name.ends_with(end)) || config.has_pictures() && is_picture(inner) {
        return None;
    }
    let places = PREFIXES.iter().filter_map(|prefix| name.strip_prefix(prefix));
    Some(places.into_iter().find_map(|rest| name_of_part(config.family, rest)))
}

/// The name in GGUF of what is called so within the text model.
fn name_of_part(family: &Family, name: &str) -> Option<String> {
    let (path, end) = name.rsplit_once('.').filter(|(_, end)| matches!(*end, "weight" | "bias"))?;
    let of = |parts: &[(&str, &'static str)], path: &str| {
        parts.iter().find(|(theirs, _)| *theirs == path).map(|(_, ours)| *ours)
    };
    if let Some(ours) = of(OUTER, path) {
        return Some(format!("{ours}.{end}"));
    }
    let in_layer = path.strip_prefix("layers.").or_else(|| path.strip_prefix("h."))?;
    let (layer, part) = in_layer.split_once('.')?;
    let layer: u32 = layer.parse().ok()?;
    Some(format!("blk.{layer}.{}.{end}", of(family.parts, part)?))
}

/// A tensor as it is presented; the error is the rest of a sentence about it.
fn tensor(
    family: &Family,
    sizes: Sizes,
    name: String,
    shard: Shard<'_>,
    info: &TensorInfo,
) -> Result<Tensor, String> {
    let stored_type = info.block_type.ok_or_else(|| {
        format!(
            "is stored as {}, but F32, F16 and BF16 are read; take the model in one of these",
            info.type_name
        )
    })?;
    if info.shape.is_empty() || info.shape.len() > MAX_DIMENSIONS || info.shape.contains(&0) {
        return Err(format!(
            "has shape {:?}, but 1 to {MAX_DIMENSIONS} sizes above 0 are possible",
            info.shape
        ));
    }
    let mut shape: Vec<u64> = info.shape.iter().rev().copied().collect();
    let arrangement = arrangement(family, sizes, &name, info)?;
    if arrangement == Arrangement::Transposed {
        shape.reverse();
    }
    // As the converter does: what is added, multiplied or looked up stays exact.
    let block_type =
        if shape.len() == 1 || name == "position_embd.weight" { BlockType::F32 } else { stored_type };
    let row_bytes = block_type.row_bytes(shape[0]).ok_or("has rows that overflow 64 bits")?;
    // All values in the type presented, so that sums of offsets do not overflow either.
    let n_values: Option<u64> = shape.iter().try_fold(1u64, |product, size| product.checked_mul(*size));
    n_values.and_then(|n| n.checked_mul(4)).ok_or("has a shape that overflows 64 bits")?;
    let stored = Stored {
        file: shard.file,
        name: info.name.clone(),
        offset_bytes: info.offset_bytes,
        block_type: stored_type,
        arrangement,
    };
    Ok(Tensor { name, shape, block_type, row_bytes, origin: Origin::Stored(stored) })
}

fn arrangement(family: &Family, sizes: Sizes, name: &str, info: &TensorInfo) -> Result<Arrangement, String> {
    let is_norm = name.ends_with("_norm.weight");
    if family.norms_less_one && is_norm {
        return Ok(Arrangement::PlusOne);
    }
    let is_layer_matrix = name.starts_with("blk.") && info.shape.len() == 2;
    if family.architecture == "gpt2" && is_layer_matrix {
        return Ok(Arrangement::Transposed);
    }
    let n_heads = match name.rsplit('.').nth(1) {
        Some("attn_q") if family.paired_rows => sizes.heads,
        Some("attn_k") if family.paired_rows => sizes.kv_heads,
        _ => return Ok(Arrangement::AsIs),
    };
    let n_rows = info.shape[0];
    let head_rows = n_rows / n_heads;
    if !n_rows.is_multiple_of(n_heads) || !head_rows.is_multiple_of(2) || head_rows == 0 {
        return Err(format!(
            "has shape {:?}, whose rows are no {n_heads} heads of an even width; {} is of another model",
            info.shape,
            super::CONFIG_FILE
        ));
    }
    Ok(Arrangement::HeadRows { head_rows })
}
