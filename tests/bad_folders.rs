//! Folders and parts that make no model: each is refused with a sentence that names the file and the tensor or field, and
//! what would help; none panics, and none is loaded with something left out.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "support/memory_source.rs"]
mod memory_source;
#[path = "support/safetensors_writer.rs"]
mod safetensors_writer;

use std::path::PathBuf;

use gguf_writer::{GgufWriter, Meta, Stored, llama_tiny_writer};
use memory_source::MemorySource;
use pagelm::host::load::describe_files;
use pagelm::host::open::open;
use pagelm::protocol::LoadOptions;
use pagelm::store::files::ModelFiles;
use pollster::block_on;
use safetensors_writer::{edited, with_tensor, with_value, without_tensor};
use serde_json::{Value, json};

/// Files by name.
type Files = Vec<(String, Vec<u8>)>;

fn folder(name: &str) -> Files {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    let entries = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let files = entries
        .map(|path| (path.file_name().unwrap().to_str().unwrap().into(), std::fs::read(path).unwrap()));
    files.filter(|(name, _): &(String, _)| !name.starts_with("expected")).collect()
}

fn edit(files: &mut Files, name: &str, change: impl FnOnce(&[u8]) -> Vec<u8>) {
    let (_, bytes) = files.iter_mut().find(|(file, _)| file == name).unwrap();
    *bytes = change(bytes);
}

/// Opens, describes, and reads all that there is.
fn load(files: Files) -> Result<(), String> {
    let sources = files.into_iter().map(|(name, bytes)| MemorySource::new(&name, bytes)).collect();
    let files = block_on(open(sources)).map_err(|error| error.to_string())?;
    let read = |files: &ModelFiles<MemorySource>| -> Result<(), String> {
        for tensor in files.checkpoint.tensors() {
            block_on(files.read_rows(tensor, 0, tensor.n_rows())).map_err(|error| error.to_string())?;
        }
        Ok(())
    };
    read(&files)?;
    describe_files(files, &LoadOptions::default()).map(|_| ()).map_err(|error| error.to_string())
}

fn check_refused(files: Files, parts: &[&str]) {
    let error = load(files).expect_err(parts[0]);
    for part in parts {
        assert!(error.contains(part), "{error} instead of {part:?}");
    }
}

fn check_config(name: &str, field: &str, value: Value, parts: &[&str]) {
    let mut files = folder(name);
    edit(&mut files, "config.json", |text| {
        let mut config: serde_json::Map<String, Value> = serde_json::from_slice(text).unwrap();
        config.insert(field.into(), value);
        serde_json::to_vec(&config).unwrap()
    });
    check_refused(files, parts);
}

#[test]
fn the_folders_themselves_are_good() {
    for name in ["llama-tiny", "llama3-rope-tiny", "gpt2-tiny"] {
        assert_eq!(load(folder(name)), Ok(()), "{name}");
    }
}

#[test]
fn a_missing_file_is_named() {
    for (name, missing, parts) in [
        ("llama-tiny", "config.json", &["config.json is missing", "the whole folder"][..]),
        ("llama-tiny", "model.safetensors", &["model.safetensors is missing"]),
        (
            "llama3-rope-tiny",
            "model-00003-of-00005.safetensors",
            &["model-00003-of-00005.safetensors", "not there"],
        ),
        ("llama3-rope-tiny", "model.safetensors.index.json", &["model.safetensors.index.json is missing"]),
    ] {
        let mut files = folder(name);
        files.retain(|(file, _)| file != missing);
        check_refused(files, parts);
    }
    let mut files = folder("llama-tiny");
    files.retain(|(file, _)| file != "model.safetensors");
    files.push(("pytorch_model.bin".into(), b"PK\x03\x04".to_vec()));
    check_refused(files, &["pytorch_model.bin", "pickle"]);
    let mut files = folder("llama-tiny");
    files.push(("tiny.gguf".into(), llama_tiny_writer(Stored::F32).write()));
    check_refused(files, &["tiny.gguf", "two models"]);
}

#[test]
fn variants_and_strangers_are_refused_by_field() {
    for (name, field, value, parts) in [
        (
            "llama-tiny",
            "model_type",
            json!("mamba"),
            &["\"mamba\"", "gpt2, llama, mistral, qwen2, qwen3, gemma2, gemma3_text, phi3"][..],
        ),
        ("llama-tiny", "model_type", Value::Null, &["not stated", "gpt2"]),
        ("llama-tiny", "hidden_act", json!("gelu"), &["hidden_act is \"gelu\"", "silu"]),
        ("gpt2-tiny", "activation_function", json!("relu"), &["activation_function", "gelu_new"]),
        (
            "gpt2-tiny",
            "scale_attn_by_inverse_layer_idx",
            json!(true),
            &["scale_attn_by_inverse_layer_idx is true"],
        ),
        (
            "llama-tiny",
            "rope_scaling",
            json!({"factor": 4.0}),
            &["rope_scaling.rope_type", "the kind of scaling"],
        ),
        ("llama-tiny", "num_local_experts", json!(8), &["num_local_experts is 8"]),
        ("llama-tiny", "attention_multiplier", json!(0.01), &["attention_multiplier"]),
        (
            "llama-tiny",
            "quantization_config",
            json!({"quant_method": "gptq"}),
            &["quantization_config", "gptq", "GGUF"],
        ),
        ("llama-tiny", "num_hidden_layers", json!(0), &["num_hidden_layers is 0"]),
        ("llama-tiny", "num_hidden_layers", json!(1e300), &["num_hidden_layers", "whole number"]),
        ("llama-tiny", "hidden_size", json!("wide"), &["hidden_size is \"wide\""]),
        ("llama-tiny", "head_dim", json!(u64::MAX), &["head_dim is 18446744073709551615"]),
        (
            "llama-tiny",
            "rope_parameters",
            json!({"rope_type": "dynamic", "factor": 2}),
            &["\"dynamic\"", "yarn"],
        ),
        (
            "gemma3-tiny",
            "layer_types",
            json!(["full_attention"]),
            &["layer_types is a list of 1", "3 layers"],
        ),
        (
            "gemma3-tiny",
            "layer_types",
            json!(["chunked_attention", "full_attention", "full_attention"]),
            &["chunked_attention"],
        ),
        ("gemma3-tiny", "use_bidirectional_attention", json!(true), &["use_bidirectional_attention"]),
    ] {
        check_config(name, field, value, parts);
    }
    for text in ["", "[]", "{", "nothing"] {
        let mut files = folder("llama-tiny");
        edit(&mut files, "config.json", |_| text.into());
        check_refused(files, &["config.json is damaged"]);
    }
}

#[test]
fn shapes_that_do_not_match_the_config_name_the_tensor_as_the_file_does() {
    check_config(
        "llama-tiny",
        "intermediate_size",
        json!(96),
        &["model.safetensors", "model.layers.0.mlp.gate_proj.weight", "[64, 160]", "[64, 96]"],
    );
    check_config("llama-tiny", "num_attention_heads", json!(3), &["self_attn.q_proj.weight", "no 3 heads"]);
    check_config("llama-tiny", "num_hidden_layers", json!(3), &["model.safetensors", "layers.2."]);
    check_config("llama-tiny", "num_hidden_layers", json!(1), &["blk.1."]);
    check_config("llama-tiny", "vocab_size", json!(512), &["vocab"]);
    check_config(
        "qwen2-tiny",
        "tie_word_embeddings",
        json!(false),
        &["lm_head.weight", "tie_word_embeddings"],
    );
}

#[test]
fn tensors_that_make_no_model_are_named_with_their_file() {
    const NORM: &str = "model.norm.weight";
    type Change = fn(&[u8]) -> Vec<u8>;
    let table: [(&str, Change, &[&str]); 9] = [
        (
            "llama-tiny",
            |file| with_value(file, NORM, 3, &[0xc0, 0x7f]),
            &["model.safetensors", NORM, "value 3", "NaN"],
        ),
        (
            "llama-tiny",
            |file| with_value(file, "lm_head.weight", 100, &[0x80, 0xff]),
            &["lm_head.weight", "value 100"],
        ),
        (
            "gpt2-tiny",
            |file| with_value(file, "transformer.h.1.mlp.c_proj.weight", 5, &[0, 0, 0x80, 0x7f]),
            &["c_proj", "infinite"],
        ),
        (
            "llama-tiny",
            |file| without_tensor(file, "model.layers.1.mlp.up_proj.weight"),
            &["model.safetensors", "layers.1.mlp.up_proj.weight"],
        ),
        (
            "llama-tiny",
            |file| with_tensor(file, "model.layers.0.mlp.router.weight", "F32", &[2, 2], 16),
            &["router.weight", "no place"],
        ),
        (
            "llama-tiny",
            |file| with_tensor(file, "norm.weight", "BF16", &[64], 128),
            &["norm.weight", "same place"],
        ),
        (
            "llama-tiny",
            |file| without_tensor(&with_tensor(file, "norm.weight", "I8", &[64], 64), NORM),
            &["stored as I8", "BF16"],
        ),
        (
            "llama-tiny",
            |file| without_tensor(&with_tensor(file, "norm.weight", "F32", &[0], 0), NORM),
            &["has shape [0]"],
        ),
        ("llama-tiny", |file| file[..file.len() - 1].to_vec(), &["model.safetensors", "truncated"]),
    ];
    for (name, change, parts) in table {
        let mut files = folder(name);
        edit(&mut files, "model.safetensors", change);
        check_refused(files, parts);
    }
    let mut files = folder("llama-tiny");
    edit(&mut files, "model.safetensors", |file| {
        edited(file, |header, _| header[NORM]["data_offsets"] = json!([0, 128]))
    });
    check_refused(files, &["model.safetensors", "overlap"]);
}

#[test]
fn an_index_that_is_wrong_is_told() {
    let change = |edit_map: fn(&mut serde_json::Map<String, Value>)| {
        let mut files = folder("llama3-rope-tiny");
        edit(&mut files, "model.safetensors.index.json", |text| {
            let mut index: Value = serde_json::from_slice(text).unwrap();
            edit_map(index["weight_map"].as_object_mut().unwrap());
            index.to_string().into_bytes()
        });
        files
    };
    let wrong_file = change(|map| {
        map.insert("model.norm.weight".into(), json!("model-00001-of-00005.safetensors"));
    });
    check_refused(wrong_file, &["model-00001-of-00005.safetensors", "model.norm.weight", "index"]);
    let outside = change(|map| {
        map.insert("model.norm.weight".into(), json!("../secret.safetensors"));
    });
    check_refused(outside, &["index.json is damaged", "secret"]);
    let unlisted = change(|map| {
        map.remove("model.norm.weight");
    });
    check_refused(unlisted, &["output_norm.weight"]);
    // A shard more is no matter.
    let mut files = folder("llama3-rope-tiny");
    let extra = files.iter().find(|(name, _)| name.starts_with("model-00001")).unwrap().1.clone();
    files.push(("model-00006-of-00005.safetensors".into(), extra));
    assert_eq!(load(files), Ok(()));
}

/// llama-tiny in so many parts.
fn parts(n_parts: usize) -> Vec<GgufWriter> {
    let whole = llama_tiny_writer(Stored::F32);
    let n_tensors = whole.tensors.len();
    let part = |number: usize| {
        let mut part = if number == 0 { whole.clone() } else { GgufWriter::new(3) };
        let (first, end) = (number * n_tensors / n_parts, (number + 1) * n_tensors / n_parts);
        part.tensors = whole.tensors[first..end].to_vec();
        part.meta("split.no", Meta::U16(number as u16))
            .meta("split.count", Meta::U16(n_parts as u16))
            .meta("split.tensors.count", Meta::I32(n_tensors as i32))
    };
    (0..n_parts).map(part).collect()
}

fn part_files(parts: &[GgufWriter]) -> Files {
    let name = |i: usize| format!("tiny-{:05}-of-{:05}.gguf", i + 1, parts.len());
    parts.iter().enumerate().map(|(i, part)| (name(i), part.write())).collect()
}

#[test]
fn parts_in_any_order_are_the_whole() {
    let whole =
        block_on(open(vec![MemorySource::new("w.gguf", llama_tiny_writer(Stored::F32).write())])).unwrap();
    for order in [[0, 1, 2], [2, 0, 1], [1, 2, 0]] {
        let files = part_files(&parts(3));
        let sources = order.map(|i| MemorySource::new(&files[i].0, files[i].1.clone()));
        let split = block_on(open(sources.into())).unwrap();
        assert_eq!(split.checkpoint.metadata, whole.checkpoint.metadata);
        assert_eq!(split.checkpoint.tensors().len(), 21);
        for tensor in whole.checkpoint.tensors() {
            let rows = |files: &ModelFiles<MemorySource>| {
                let tensor = files.checkpoint.tensor(&tensor.name).unwrap();
                block_on(files.read_rows(tensor, 0, tensor.n_rows())).unwrap()
            };
            assert!(rows(&whole) == rows(&split), "{}", tensor.name);
        }
    }
}

#[test]
fn parts_that_make_no_model_are_told() {
    for missing in 0..3 {
        let mut files = part_files(&parts(3));
        files.remove(missing);
        let name = format!("part {} is missing (tiny-{:05}-of-00003.gguf)", missing + 1, missing + 1);
        check_refused(files, &[&name]);
    }
    let mut files = part_files(&parts(3));
    files.push(("again.gguf".into(), files[1].1.clone()));
    check_refused(files, &["part 2 of 3", "again.gguf"]);
    let mut files = part_files(&parts(3));
    files.push(("other.gguf".into(), llama_tiny_writer(Stored::F32).write()));
    check_refused(files, &["other.gguf is a model of its own"]);
    let mut files = part_files(&parts(3));
    files[2] = ("two.gguf".into(), parts(2)[1].write());
    check_refused(files, &["a part of 3", "of 2"]);
    let mut fewer = parts(3);
    fewer[2].tensors.pop();
    check_refused(part_files(&fewer), &["hold 20 tensors", "21"]);
    let mut twice = parts(3);
    twice[2].tensors[0] = twice[0].tensors[0].clone();
    check_refused(
        part_files(&twice),
        &["token_embd.weight", "tiny-00001-of-00003.gguf", "tiny-00003-of-00003.gguf"],
    );
    let wrong_type: Vec<GgufWriter> =
        parts(1).into_iter().map(|part| part.meta("split.x", Meta::U8(1))).collect();
    assert_eq!(load(part_files(&wrong_type)), Ok(()), "one part is a whole model");
}

/// What the config promises has to be there, in every layer.
#[test]
fn promised_biases_that_are_missing_are_named() {
    for missing in ["model.layers.0.self_attn.o_proj.bias", "model.layers.1.mlp.up_proj.bias"] {
        let mut files = folder("llama-bias-tiny");
        edit(&mut files, "model.safetensors", |file| without_tensor(file, missing));
        check_refused(files, &["model.safetensors", &missing["model.".len()..], "is missing"]);
    }
    for (field, missing) in
        [("attention_bias", "layers.0.self_attn.q_proj.bias"), ("mlp_bias", "gate_proj.bias")]
    {
        check_config("llama-tiny", field, json!(true), &[missing, "is missing"]);
    }
}
