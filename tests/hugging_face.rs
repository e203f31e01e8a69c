//! Hugging Face folders as checkpoints: keys, names and rows are those of an independent conversion, whole or in pieces,
//! quantized or not, and the same after a GGUF file was written and read again.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "support/memory_source.rs"]
mod memory_source;
#[path = "support/safetensors.rs"]
mod safetensors;
#[path = "support/safetensors_writer.rs"]
mod safetensors_writer;
#[path = "support/written.rs"]
mod written;

use std::path::PathBuf;

use gguf_writer::{Stored, llama_tiny_gguf, llama_tiny_gguf_stored};
use memory_source::MemorySource;
use pagelm::format::block::BlockType;
use pagelm::format::checkpoint::{Checkpoint, Repack, Tensor};
use pagelm::format::decode::decode;
use pagelm::format::hugging_face::ModelConfig;
use pagelm::format::quantize::quantize;
use pagelm::format::value::{Array, Value};
use pagelm::host::load::{describe, describe_files};
use pagelm::host::open::open;
use pagelm::protocol::{LoadOptions, Quantize};
use pagelm::store::files::ModelFiles;
use pollster::block_on;
use safetensors::tensor_bytes;
use safetensors_writer::{renamed, with_tensor};
use written::{rows_by, written};

/// Each with its number of tensors.
const FOLDERS: [(&str, usize); 15] = [
    ("gpt2-tiny", 28),
    ("llama-tiny", 21),
    ("llama3-rope-tiny", 21),
    ("llama-linear-tiny", 21),
    ("llama-yarn-tiny", 21),
    ("llama-bias-tiny", 34),
    ("mistral-tiny", 21),
    ("qwen2-tiny", 26),
    ("qwen2-window-tiny", 38),
    ("qwen3-tiny", 24),
    ("gemma2-tiny", 46),
    ("gemma3-tiny", 41),
    ("gemma3-linear-tiny", 93),
    ("phi3-tiny", 15),
    ("phi3-longrope-tiny", 17),
];

fn path(folder: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(folder)
}

fn bytes(folder: &str, file: &str) -> Vec<u8> {
    std::fs::read(path(folder).join(file)).unwrap()
}

fn sources(folder: &str) -> Vec<MemorySource> {
    let files = std::fs::read_dir(path(folder)).unwrap().map(|entry| entry.unwrap().file_name());
    let names = files.map(|name| name.into_string().unwrap());
    names.map(|name| MemorySource::new(&format!("{folder}/{name}"), bytes(folder, &name))).collect()
}

fn opened(folder: &str) -> ModelFiles<MemorySource> {
    block_on(open(sources(folder))).unwrap_or_else(|error| panic!("{folder}: {error}"))
}

fn reopened(file: Vec<u8>) -> ModelFiles<MemorySource> {
    block_on(open(vec![MemorySource::new("model.gguf", file)])).unwrap()
}

fn rows(files: &ModelFiles<MemorySource>, name: &str) -> Vec<u8> {
    let tensor = files.checkpoint.tensor(name).unwrap_or_else(|| panic!("no {name}"));
    block_on(rows_by(files, tensor, tensor.n_rows()))
}

fn values(files: &ModelFiles<MemorySource>, name: &str) -> Vec<f32> {
    let mut values = Vec::new();
    decode(files.checkpoint.tensor(name).unwrap().block_type, &rows(files, name), &mut values).unwrap();
    values
}

/// The values of a folder's tensor as its file has them.
fn file_values(folder: &str, name: &str, block_type: BlockType) -> Vec<f32> {
    let file = bytes(folder, "model.safetensors");
    let mut values = Vec::new();
    decode(block_type, tensor_bytes(&file, name), &mut values).unwrap();
    values
}

fn assert_same(a: &ModelFiles<MemorySource>, b: &ModelFiles<MemorySource>) {
    let keys = |checkpoint: &Checkpoint| -> Vec<(String, Value)> {
        checkpoint.metadata.iter().map(|(key, value)| (key.into(), value.clone())).collect()
    };
    assert_eq!(keys(&a.checkpoint), keys(&b.checkpoint), "{}", a.name());
    let shapes = |checkpoint: &Checkpoint| -> Vec<(String, Vec<u64>, BlockType)> {
        let tensors = checkpoint.tensors().iter();
        tensors.map(|tensor| (tensor.name.clone(), tensor.shape.clone(), tensor.block_type)).collect()
    };
    assert_eq!(shapes(&a.checkpoint), shapes(&b.checkpoint));
    for tensor in a.checkpoint.tensors() {
        assert!(rows(a, &tensor.name) == rows(b, &tensor.name), "{}: {}", a.name(), tensor.name);
    }
}

#[test]
fn every_folder_opens_and_is_the_same_after_a_gguf_was_written_of_it() {
    for (folder, n_tensors) in FOLDERS {
        let files = opened(folder);
        assert_eq!(files.checkpoint.tensors().len(), n_tensors, "{folder}");
        assert_eq!(files.name(), folder);
        assert_eq!(files.checkpoint.metadata.str("general.name"), Ok(folder));
        assert_same(&files, &reopened(block_on(written(&files))));
    }
}

#[test]
fn every_folder_is_planned_as_it_is_and_quantized() {
    for (folder, _) in FOLDERS {
        for quantize in [Quantize::None, Quantize::Q8, Quantize::Q4] {
            let options = LoadOptions { quantize, ..LoadOptions::default() };
            let described = block_on(describe(sources(folder), &options));
            assert!(described.is_ok(), "{folder} {quantize:?}: {:?}", described.err().map(|e| e.to_string()));
        }
    }
}

#[test]
fn a_config_of_transformers_4_says_what_one_of_5_says() {
    for (folder, _) in FOLDERS {
        let Ok(old) = std::fs::read(path(folder).join("config-v4.json")) else { continue };
        let keys = |config: &[u8]| {
            let mut files = sources(folder);
            files.retain(|file| !pagelm::store::Source::name(file).ends_with("config.json"));
            files.push(MemorySource::new(&format!("{folder}/config.json"), config.to_vec()));
            let checkpoint = block_on(open(files)).unwrap().checkpoint;
            let computed: Vec<Tensor> = checkpoint
                .tensors()
                .iter()
                .filter(|tensor| tensor.name.starts_with("rope"))
                .cloned()
                .collect();
            (checkpoint.metadata.clone(), computed)
        };
        assert_eq!(keys(&old), keys(&bytes(folder, "config.json")), "{folder}");
    }
}

#[test]
fn keys_are_those_of_llama_cpps_converter() {
    let float = |value: f64| Some(Value::F32(value as f32));
    let number = |value: u32| Some(Value::U32(value));
    let text = |value: &str| Some(Value::String(value.into()));
    let table = [
        ("gpt2-tiny", "general.architecture", text("gpt2")),
        ("gpt2-tiny", "gpt2.context_length", number(512)),
        ("gpt2-tiny", "gpt2.feed_forward_length", number(256)),
        ("gpt2-tiny", "gpt2.attention.layer_norm_epsilon", float(1e-5)),
        ("gpt2-tiny", "gpt2.attention.head_count_kv", None),
        ("gpt2-tiny", "general.file_type", number(0)),
        ("mistral-tiny", "general.architecture", text("llama")),
        ("mistral-tiny", "llama.attention.sliding_window", number(32)),
        ("mistral-tiny", "llama.attention.sliding_window_pattern", None),
        ("llama-linear-tiny", "llama.rope.scaling.type", text("linear")),
        ("llama-linear-tiny", "llama.rope.scaling.factor", float(4.0)),
        ("llama-yarn-tiny", "llama.rope.scaling.type", text("yarn")),
        ("llama-yarn-tiny", "llama.rope.scaling.original_context_length", number(512)),
        ("llama-yarn-tiny", "llama.rope.scaling.attn_factor", None),
        ("llama3-rope-tiny", "llama.rope.freq_base", float(5e5)),
        ("llama3-rope-tiny", "llama.rope.scaling.type", None),
        ("qwen2-tiny", "qwen2.attention.sliding_window", None),
        ("qwen2-tiny", "general.file_type", number(32)),
        ("qwen2-window-tiny", "qwen2.attention.sliding_window", number(32)),
        (
            "qwen2-window-tiny",
            "qwen2.attention.sliding_window_pattern",
            Some(Value::Array(Array::Bool(vec![false, true, true]))),
        ),
        ("qwen3-tiny", "qwen3.attention.key_length", number(32)),
        ("qwen3-tiny", "qwen3.attention.value_length", number(32)),
        ("gemma2-tiny", "gemma2.attn_logit_softcapping", float(5.0)),
        ("gemma2-tiny", "gemma2.final_logit_softcapping", float(4.0)),
        ("gemma2-tiny", "gemma2.attention.scale", float(24f64.powf(-0.5))),
        ("gemma2-tiny", "gemma2.attention.sliding_window_pattern", None),
        ("gemma3-tiny", "gemma3.attention.sliding_window_pattern", number(3)),
        ("gemma3-tiny", "gemma3.rope.freq_base", float(1e6)),
        ("gemma3-tiny", "gemma3.rope.freq_base_swa", float(1e4)),
        ("gemma3-tiny", "gemma3.attention.scale", None),
        ("gemma3-tiny", "gemma3.final_logit_softcapping", None),
        ("gemma3-linear-tiny", "gemma3.attention.sliding_window_pattern", None),
        ("gemma3-linear-tiny", "gemma3.rope.scaling.factor", float(8.0)),
        ("phi3-tiny", "phi3.attention.sliding_window", number(0)),
        ("phi3-longrope-tiny", "phi3.rope.scaling.original_context_length", number(64)),
        ("phi3-longrope-tiny", "phi3.rope.scaling.attn_factor", float(1.5f64.sqrt())),
    ];
    for (folder, key, expected) in table {
        assert_eq!(opened(folder).checkpoint.metadata.get(key), expected.as_ref(), "{folder}: {key}");
    }
}

#[test]
fn llama_tiny_is_what_an_independent_conversion_makes_of_it() {
    let theirs = reopened(llama_tiny_gguf());
    let mut ours = opened("llama-tiny");
    for (key, value) in theirs.checkpoint.metadata.iter() {
        assert_eq!(ours.checkpoint.metadata.get(key), Some(value), "{key}");
    }
    ours.checkpoint.quantize(BlockType::F32, Repack::All);
    assert_eq!(ours.checkpoint.tensors().len(), theirs.checkpoint.tensors().len());
    for tensor in theirs.checkpoint.tensors() {
        let name = &tensor.name;
        assert_eq!(ours.checkpoint.tensor(name).unwrap().shape, tensor.shape, "{name}");
        assert!(rows(&ours, name) == rows(&theirs, name), "{name}");
    }
}

#[test]
fn values_are_arranged_as_the_architecture_wants_them() {
    // GPT-2: (in, out) in the file, rows of `in` values when read.
    let gpt2 = opened("gpt2-tiny");
    let file = file_values("gpt2-tiny", "transformer.h.1.attn.c_attn.weight", BlockType::F32);
    let tensor = gpt2.checkpoint.tensor("blk.1.attn_qkv.weight").unwrap();
    assert_eq!(tensor.shape, [64, 192]);
    let read = values(&gpt2, "blk.1.attn_qkv.weight");
    assert!((0..64 * 192).all(|i| read[i] == file[i % 64 * 192 + i / 64]));
    assert_eq!(
        values(&gpt2, "token_embd.weight"),
        file_values("gpt2-tiny", "transformer.wte.weight", BlockType::F32)
    );

    // Gemma: norms less one in the file.
    let gemma = opened("gemma3-tiny");
    for (ours, theirs) in [
        ("output_norm.weight", "model.norm.weight"),
        ("blk.2.attn_k_norm.weight", "model.layers.2.self_attn.k_norm.weight"),
        ("blk.0.post_ffw_norm.weight", "model.layers.0.post_feedforward_layernorm.weight"),
        ("blk.0.ffn_norm.weight", "model.layers.0.pre_feedforward_layernorm.weight"),
        ("blk.0.post_attention_norm.weight", "model.layers.0.post_attention_layernorm.weight"),
    ] {
        let file: Vec<f32> =
            file_values("gemma3-tiny", theirs, BlockType::BF16).iter().map(|value| value + 1.0).collect();
        assert_eq!(values(&gemma, ours), file, "{ours}");
    }

    // Llama: rows of q and k in pairs, biases too; v as it is.
    let llama = opened("llama-bias-tiny");
    for (part, n_heads) in [("q", 4), ("k", 2), ("v", 0)] {
        let theirs = format!("model.layers.1.self_attn.{part}_proj.bias");
        let mut file = file_values("llama-bias-tiny", &theirs, BlockType::F16);
        if n_heads > 0 {
            file = gguf_writer::permute_rows(&file, n_heads, 1);
        }
        assert_eq!(values(&llama, &format!("blk.1.attn_{part}.bias")), file, "{part}");
    }
}

#[test]
fn pieces_of_any_size_are_the_whole() {
    for folder in ["llama-tiny", "llama3-rope-tiny", "gpt2-tiny", "gemma2-tiny"] {
        for block_type in [None, Some(BlockType::Q8_0)] {
            let mut files = opened(folder);
            if let Some(block_type) = block_type {
                files.checkpoint.quantize(block_type, Repack::Floats);
            }
            for tensor in files.checkpoint.tensors() {
                let whole = rows(&files, &tensor.name);
                for piece_rows in [1, 3, 16, 24, tensor.piece_rows(5000)] {
                    assert!(
                        block_on(rows_by(&files, tensor, piece_rows)) == whole,
                        "{folder} {} {piece_rows}",
                        tensor.name
                    );
                }
            }
        }
    }
}

#[test]
fn matrices_are_quantized_while_they_are_read() {
    for (target, head) in [(BlockType::Q8_0, BlockType::Q8_0), (BlockType::Q4_0, BlockType::Q8_0)] {
        for (folder, head_name) in [("llama-tiny", "output.weight"), ("qwen2-tiny", "token_embd.weight")] {
            let plain = opened(folder);
            let mut packed = opened(folder);
            packed.checkpoint.quantize(target, Repack::Floats);
            for tensor in packed.checkpoint.tensors() {
                let name = tensor.name.as_str();
                let expected = match tensor.shape.len() {
                    1 => BlockType::F32,
                    _ if name == head_name => head,
                    _ => target,
                };
                assert_eq!(tensor.block_type, expected, "{name}");
                let mut bytes = Vec::new();
                quantize(expected, &values(&plain, name), &mut bytes).unwrap();
                assert!(rows(&packed, name) == bytes, "{folder} {name}");
            }
            let number = if target == BlockType::Q4_0 { 2 } else { 7 };
            assert_eq!(packed.checkpoint.metadata.u32("general.file_type"), Ok(number));
            assert_same(&packed, &reopened(block_on(written(&packed))));
        }
    }
    let mut gpt2 = opened("gpt2-tiny");
    gpt2.checkpoint.quantize(BlockType::Q8_0, Repack::All);
    assert_eq!(gpt2.checkpoint.tensor("position_embd.weight").unwrap().block_type, BlockType::F32);
}

#[test]
fn blocks_are_repacked_only_where_all_are() {
    let mut kept = reopened(llama_tiny_gguf_stored(Stored::Q8_0));
    kept.checkpoint.quantize(BlockType::Q4_0, Repack::Floats);
    let mut all = reopened(llama_tiny_gguf_stored(Stored::Q8_0));
    let plain = reopened(llama_tiny_gguf_stored(Stored::Q8_0));
    all.checkpoint.quantize(BlockType::F16, Repack::All);
    for name in ["blk.0.ffn_up.weight", "token_embd.weight"] {
        assert!(rows(&kept, name) == rows(&plain, name), "{name}");
        let mut bytes = Vec::new();
        quantize(BlockType::F16, &values(&plain, name), &mut bytes).unwrap();
        assert!(rows(&all, name) == bytes, "{name}");
    }
}

#[test]
fn pictures_are_left_out_and_their_models_text_is_read() {
    let text: serde_json::Value = serde_json::from_slice(&bytes("gemma3-tiny", "config.json")).unwrap();
    let config =
        serde_json::json!({"model_type": "gemma3", "text_config": text, "vision_config": {"layers": 3}});
    let file = bytes("gemma3-tiny", "model.safetensors");
    for (prefix, vision) in
        [("language_model.model.", "vision_tower."), ("model.language_model.", "model.vision_tower.")]
    {
        let renamed = renamed(&file, |name| name.replacen("model.", prefix, 1));
        let renamed = with_tensor(&renamed, &format!("{vision}patches.weight"), "BF16", &[4, 3], 24);
        let mut files = sources("gemma3-tiny");
        files.retain(|file| {
            let name = pagelm::store::Source::name(file);
            !name.ends_with("config.json") && !name.ends_with("model.safetensors")
        });
        files.push(MemorySource::new("config.json", config.to_string().into_bytes()));
        files.push(MemorySource::new("model.safetensors", renamed));
        let files = block_on(open(files)).unwrap();
        assert_eq!(files.checkpoint.tensors().len(), 41);
        assert!(rows(&files, "blk.2.attn_q.weight") == rows(&opened("gemma3-tiny"), "blk.2.attn_q.weight"));
        assert!(describe_files(files, &LoadOptions::default()).is_ok());
    }
}

#[test]
fn a_gpt2_without_a_prefix_and_with_masks_is_the_same() {
    let file = bytes("gpt2-tiny", "model.safetensors");
    let bare = renamed(&file, |name| name.replacen("transformer.", "", 1));
    let bare = with_tensor(&bare, "h.0.attn.bias", "BOOL", &[1, 1, 512, 512], 512 * 512);
    let bare = with_tensor(&bare, "h.1.attn.masked_bias", "F32", &[], 4);
    let mut files = sources("gpt2-tiny");
    files.retain(|file| !pagelm::store::Source::name(file).ends_with("model.safetensors"));
    files.push(MemorySource::new("gpt2-tiny/model.safetensors", bare));
    assert_same(&block_on(open(files)).unwrap(), &opened("gpt2-tiny"));
}

#[test]
fn what_a_config_leaves_out_is_what_transformers_assumes() {
    let check = |json: &str, key: &str, expected: Option<Value>| {
        let config = ModelConfig::parse(json.as_bytes()).unwrap();
        let keys = pagelm::format::hugging_face::keys(&config, None).unwrap();
        let found = keys.into_iter().find(|(name, _)| name == key).map(|(_, value)| value);
        assert_eq!(found, expected, "{json}: {key}");
    };
    check(r#"{"model_type": "mistral"}"#, "llama.attention.sliding_window", Some(Value::U32(4096)));
    check(r#"{"model_type": "mistral", "sliding_window": null}"#, "llama.attention.sliding_window", None);
    check(r#"{"model_type": "mistral"}"#, "llama.attention.head_count_kv", Some(Value::U32(8)));
    check(r#"{"model_type": "llama"}"#, "llama.attention.layer_norm_rms_epsilon", Some(Value::F32(1e-6)));
    check(
        r#"{"model_type": "llama", "num_attention_heads": 8}"#,
        "llama.attention.head_count_kv",
        Some(Value::U32(8)),
    );
    check(r#"{"model_type": "qwen3"}"#, "qwen3.attention.key_length", Some(Value::U32(128)));
    check(r#"{"model_type": "qwen2"}"#, "qwen2.attention.sliding_window", None);
    check(r#"{"model_type": "gemma2"}"#, "gemma2.attn_logit_softcapping", Some(Value::F32(50.0)));
    check(
        r#"{"model_type": "gemma2", "attn_logit_softcapping": null}"#,
        "gemma2.attn_logit_softcapping",
        None,
    );
    check(r#"{"model_type": "gemma2"}"#, "gemma2.attention.scale", None);
    check(
        r#"{"model_type": "gemma2", "num_hidden_layers": 46, "head_dim": 128, "query_pre_attn_scalar": 128}"#,
        "gemma2.attention.scale",
        Some(Value::F32(128f32.sqrt().recip())),
    );
    check(
        r#"{"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34, "sliding_window": 1024}}"#,
        "gemma3.attention.head_count_kv",
        Some(Value::U32(4)),
    );
    check(
        r#"{"model_type": "gemma3_text", "sliding_window_pattern": 1}"#,
        "gemma3.attention.sliding_window",
        None,
    );
    check(
        r#"{"model_type": "phi3", "sliding_window": 2047}"#,
        "phi3.attention.sliding_window",
        Some(Value::U32(2047)),
    );
    check(
        r#"{"model_type": "phi3", "max_position_embeddings": 16384}"#,
        "phi3.rope.scaling.attn_factor",
        Some(Value::F32(1.0)),
    );
    check(r#"{"model_type": "gpt2", "n_embd": 48}"#, "gpt2.feed_forward_length", Some(Value::U32(192)));
}
