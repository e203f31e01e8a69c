//! Turns `fixtures/llama-tiny` (safetensors) into the GGUF file that llama.cpp's converter would make of it.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

use std::collections::HashMap;

use serde_json::Value;

use super::{GgufWriter, Meta, Stored};

const MODEL: &[u8] = include_bytes!("../fixtures/llama-tiny/model.safetensors");
const CONFIG: &str = include_str!("../fixtures/llama-tiny/config.json");
const TOKENIZER: &str = include_str!("../fixtures/llama-tiny/tokenizer.json");

/// The model in F32, which holds its bf16 weights exactly.
pub fn llama_tiny_gguf() -> Vec<u8> {
    llama_tiny_gguf_stored(Stored::F32)
}

/// The model with its matrices stored as asked; norms stay F32.
pub fn llama_tiny_gguf_stored(matrices: Stored) -> Vec<u8> {
    llama_tiny_writer(matrices).write()
}

/// The same, for a test that adds something to it.
pub fn llama_tiny_writer(matrices: Stored) -> GgufWriter {
    let config: Value = serde_json::from_str(CONFIG).unwrap();
    let mut writer = tokenizer_metadata(model_metadata(GgufWriter::new(3), &config));
    let tensors = read_safetensors(MODEL);
    for (name, shape) in tensor_names(&config) {
        let tensor = &tensors[&name];
        assert_eq!(tensor.shape.len(), shape, "{name}");
        let mut values = tensor.values.clone();
        if name.contains("q_proj") {
            values = permute_rows(&values, count(&config, "num_attention_heads"), tensor.shape[1]);
        } else if name.contains("k_proj") {
            values = permute_rows(&values, count(&config, "num_key_value_heads"), tensor.shape[1]);
        }
        let stored = if shape == 1 { Stored::F32 } else { matrices };
        let innermost_first: Vec<u64> = tensor.shape.iter().rev().map(|size| *size as u64).collect();
        writer = writer.tensor(&gguf_name(&name), &innermost_first, stored, &values);
    }
    writer
}

fn count(config: &Value, key: &str) -> usize {
    config[key].as_u64().unwrap() as usize
}

fn model_metadata(writer: GgufWriter, config: &Value) -> GgufWriter {
    let number = |key: &str| Meta::U32(count(config, key) as u32);
    writer
        .text("general.architecture", "llama")
        .text("general.type", "model")
        .text("general.name", "llama-tiny")
        .meta("llama.block_count", number("num_hidden_layers"))
        .meta("llama.context_length", number("max_position_embeddings"))
        .meta("llama.embedding_length", number("hidden_size"))
        .meta("llama.feed_forward_length", number("intermediate_size"))
        .meta("llama.attention.head_count", number("num_attention_heads"))
        .meta("llama.attention.head_count_kv", number("num_key_value_heads"))
        .meta(
            "llama.rope.freq_base",
            Meta::F32(config["rope_parameters"]["rope_theta"].as_f64().unwrap() as f32),
        )
        .meta(
            "llama.attention.layer_norm_rms_epsilon",
            Meta::F32(config["rms_norm_eps"].as_f64().unwrap() as f32),
        )
        .meta("llama.vocab_size", number("vocab_size"))
        .meta("llama.rope.dimension_count", number("head_dim"))
}

fn tokenizer_metadata(writer: GgufWriter) -> GgufWriter {
    let tokenizer: Value = serde_json::from_str(TOKENIZER).unwrap();
    assert_eq!(tokenizer["pre_tokenizer"]["type"], "ByteLevel", "the pre-tokenizer that GGUF calls gpt-2");
    let vocab = tokenizer["model"]["vocab"].as_object().unwrap();
    let mut tokens = vec![String::new(); vocab.len()];
    for (token, id) in vocab {
        tokens[id.as_u64().unwrap() as usize] = token.clone();
    }
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    let mut types = vec![NORMAL; tokens.len()];
    for added in tokenizer["added_tokens"].as_array().unwrap() {
        let id = added["id"].as_u64().unwrap() as usize;
        assert_eq!(tokens[id], added["content"].as_str().unwrap());
        types[id] = CONTROL;
    }
    let merges = tokenizer["model"]["merges"].as_array().unwrap();
    let merge = |pair: &Value| format!("{} {}", pair[0].as_str().unwrap(), pair[1].as_str().unwrap());
    writer
        .text("tokenizer.ggml.model", "gpt2")
        .text("tokenizer.ggml.pre", "gpt-2")
        .meta("tokenizer.ggml.tokens", Meta::Strs(tokens))
        .meta("tokenizer.ggml.token_type", Meta::I32s(types))
        .meta("tokenizer.ggml.merges", Meta::Strs(merges.iter().map(merge).collect()))
        .meta("tokenizer.ggml.bos_token_id", Meta::U32(0))
        .meta("tokenizer.ggml.eos_token_id", Meta::U32(0))
        .meta("tokenizer.ggml.add_bos_token", Meta::Bool(false))
}

/// Names as the safetensors file has them, each with its number of dimensions.
fn tensor_names(config: &Value) -> Vec<(String, usize)> {
    const LAYER: [(&str, usize); 9] = [
        ("input_layernorm", 1),
        ("self_attn.q_proj", 2),
        ("self_attn.k_proj", 2),
        ("self_attn.v_proj", 2),
        ("self_attn.o_proj", 2),
        ("post_attention_layernorm", 1),
        ("mlp.gate_proj", 2),
        ("mlp.up_proj", 2),
        ("mlp.down_proj", 2),
    ];
    let mut names = vec![("model.embed_tokens.weight".to_owned(), 2)];
    for layer_idx in 0..count(config, "num_hidden_layers") {
        names.extend(LAYER.map(|(part, n)| (format!("model.layers.{layer_idx}.{part}.weight"), n)));
    }
    names.extend([("model.norm.weight".to_owned(), 1), ("lm_head.weight".to_owned(), 2)]);
    names
}

fn gguf_name(name: &str) -> String {
    const PARTS: [(&str, &str); 13] = [
        ("model.embed_tokens", "token_embd"),
        ("model.layers", "blk"),
        ("model.norm", "output_norm"),
        ("lm_head", "output"),
        ("input_layernorm", "attn_norm"),
        ("self_attn.q_proj", "attn_q"),
        ("self_attn.k_proj", "attn_k"),
        ("self_attn.v_proj", "attn_v"),
        ("self_attn.o_proj", "attn_output"),
        ("post_attention_layernorm", "ffn_norm"),
        ("mlp.gate_proj", "ffn_gate"),
        ("mlp.up_proj", "ffn_up"),
        ("mlp.down_proj", "ffn_down"),
    ];
    PARTS.iter().fold(name.to_owned(), |name, (theirs, ours)| name.replace(theirs, ours))
}

/// Reorders each head's rows from halves to pairs, as the architecture `llama` wants them: row `i` of half `j` becomes
/// row `2i + j`.
pub fn permute_rows(values: &[f32], n_heads: usize, row_len: usize) -> Vec<f32> {
    let head_dim = values.len() / row_len / n_heads;
    let half = head_dim / 2;
    let mut permuted = vec![0.0; values.len()];
    for (row_idx, row) in values.chunks_exact(row_len).enumerate() {
        let (head, within) = (row_idx / head_dim, row_idx % head_dim);
        let (j, i) = (within / half, within % half);
        let to = (head * head_dim + 2 * i + j) * row_len;
        permuted[to..to + row_len].copy_from_slice(row);
    }
    permuted
}

struct Tensor {
    /// Outermost first.
    shape: Vec<usize>,
    values: Vec<f32>,
}

/// Reads a safetensors file of bf16 tensors.
fn read_safetensors(file: &[u8]) -> HashMap<String, Tensor> {
    let (header_len, rest) = file.split_first_chunk().unwrap();
    let (header, data) = rest.split_at(u64::from_le_bytes(*header_len) as usize);
    let header: serde_json::Map<String, Value> = serde_json::from_slice(header).unwrap();
    let size = |value: &Value| value.as_u64().unwrap() as usize;
    let tensors = header.into_iter().filter(|(name, _)| name != "__metadata__");
    tensors
        .map(|(name, info)| {
            assert_eq!(info["dtype"], "BF16", "{name}");
            let bytes = &data[size(&info["data_offsets"][0])..size(&info["data_offsets"][1])];
            let value = |b: &[u8]| f32::from_bits(u32::from(u16::from_le_bytes([b[0], b[1]])) << 16);
            let shape = info["shape"].as_array().unwrap().iter().map(size).collect();
            (name, Tensor { shape, values: bytes.chunks_exact(2).map(value).collect() })
        })
        .collect()
}
