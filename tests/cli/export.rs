//! Models given by a folder or any file of theirs, and files written by `convert` and `quantize`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{ids, prompts, ran, run};
use crate::gguf_writer::{GgufWriter, Meta, Stored, llama_tiny_writer};

/// A folder of its own for a test, empty.
fn scratch(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("export").join(test);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    path.to_str().unwrap().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn entries(folder: &Path) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<String> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn info(model: &str, arguments: &[&str]) -> Value {
    let ran = run(&[&["info", "--model", model, "--json"], arguments].concat());
    assert_eq!(ran.code, Some(0), "{model}: {}", ran.stderr);
    serde_json::from_str(&ran.stdout).unwrap()
}

/// The greedy tokens of the second prompt are those of the reference.
fn check_greedy(model: &str) {
    let prompt = &prompts()[1];
    let asked = prompt["prompt"].as_str().unwrap();
    let arguments = ["--prompt", asked, "--max-tokens", "8", "--temperature", "0", "--ignore-eos", "--json"];
    let ran = run(&[&["generate", "--model", model], &arguments[..]].concat());
    assert_eq!(ran.code, Some(0), "{model}: {}", ran.stderr);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["prompt_token_ids"], prompt["ids"], "{model}");
    assert_eq!(ids(&found["token_ids"]), ids(&prompt["greedy"])[..8], "{model}");
}

#[test]
fn a_folder_is_found_by_any_of_its_files() {
    for path in [
        "llama-tiny",
        "llama-tiny/",
        "llama-tiny/config.json",
        "llama-tiny/model.safetensors",
        "llama-tiny/tokenizer.json",
        "llama-tiny/merges.txt",
    ] {
        let found = info(&fixture(path), &[]);
        assert_eq!((&found["name"], &found["parameters"]), (&json!("llama-tiny"), &json!(135_488)), "{path}");
    }
    let shards = ["llama3-rope-tiny", "llama3-rope-tiny/model-00003-of-00005.safetensors"];
    for path in shards {
        assert_eq!(info(&fixture(path), &[])["name"], "llama3-rope-tiny", "{path}");
    }
    check_greedy(&fixture("llama-tiny"));
    let here = super::pagelm(&["info", "--model", "config.json", "--json"]);
    let mut here = here;
    here.current_dir(fixture("llama-tiny"));
    let here = ran(here);
    assert!(
        here.code == Some(0) && here.stdout.contains("\"name\":\"llama-tiny\""),
        "a path without a folder"
    );
}

/// The weights that a path names are read, not the usual ones beside them.
#[test]
fn weights_of_another_name_are_those_that_are_read() {
    let folder = scratch("named");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(fixture(&format!("llama-tiny/{file}")), folder.join(file)).unwrap();
    }
    let named = folder.join("model.fp16.safetensors");
    std::fs::copy(fixture("mistral-tiny/model.safetensors"), &named).unwrap();
    let ran = run(&["info", "--model", text(&named)]);
    assert!(ran.code == Some(2) && ran.stderr.contains("model.fp16.safetensors"), "{}", ran.stderr);
    std::fs::copy(fixture("llama-tiny/model.safetensors"), &named).unwrap();
    std::fs::write(folder.join("model.safetensors"), "version https://git-lfs.github.com/spec/v1\n").unwrap();
    assert_eq!(info(text(&named), &[])["name"], "named");
    let ran = run(&["info", "--model", text(&folder)]);
    assert!(ran.code == Some(2) && ran.stderr.contains("Git LFS pointer"), "{}", ran.stderr);
}

#[test]
fn weights_are_quantized_on_load() {
    let bytes = |quantize: &str| {
        let found = info(&fixture("llama-tiny"), &["--quantize", quantize]);
        let types = found["block_types"].as_array().unwrap().clone();
        types
            .iter()
            .map(|entry| (entry["type"].as_str().unwrap().to_owned(), entry["tensors"].as_u64().unwrap()))
            .collect::<Vec<_>>()
    };
    let counts =
        |all: &[(&str, u64)]| all.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Vec<_>>();
    assert_eq!(bytes("none"), counts(&[("F32", 5), ("BF16", 16)]));
    assert_eq!(bytes("q8_0"), counts(&[("F32", 5), ("Q8_0", 16)]));
    assert_eq!(bytes("q4_0"), counts(&[("F32", 5), ("Q4_0", 15), ("Q8_0", 1)]));
}

#[test]
fn a_converted_folder_answers_as_the_folder_does() {
    let folder = scratch("convert");
    let out = folder.join("tiny.gguf");
    let ran = run(&["convert", &fixture("llama-tiny"), text(&out)]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("21 tensors"), "{}", ran.stderr);
    check_greedy(text(&out));
    assert_eq!(entries(&folder), ["tiny.gguf"]);

    let refused = run(&["convert", &fixture("llama-tiny"), text(&out)]);
    assert!(
        refused.code == Some(2) && refused.stderr.contains("--force writes over it"),
        "{}",
        refused.stderr
    );
    let before = std::fs::read(&out).unwrap();
    assert_eq!(
        run(&["convert", &fixture("llama-tiny"), text(&out), "--force", "--type", "f16"]).code,
        Some(0)
    );
    assert!(std::fs::read(&out).unwrap() != before);
    assert_eq!(info(text(&out), &[])["block_types"][1]["type"], "F16");
}

/// The worked example that this project grew from: a prompt, its ids, the ten likeliest next tokens, the greedy answer.
#[test]
fn gpt2_goes_from_a_prompt_to_the_ten_likeliest_and_on() {
    let expected: Value =
        serde_json::from_slice(&std::fs::read(fixture("gpt2-tiny/expected.json")).unwrap()).unwrap();
    let prompt = &expected["prompts"][1];
    let model = fixture("gpt2-tiny");
    let mut arguments = vec!["generate", "--model", &model, "--prompt", prompt["prompt"].as_str().unwrap()];
    arguments.extend("--logprobs 10 --temperature 0 --max-tokens 5 --ignore-eos --kv f32 --json".split(' '));
    let ran = run(&arguments);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(found["prompt_token_ids"], prompt["ids"]);
    let top = found["logprobs"][0]["top"].as_array().unwrap();
    assert_eq!(top.len(), 10);
    for (i, likely) in top.iter().enumerate() {
        assert_eq!(likely["id"], prompt["top"][i]);
        let delta = likely["logprob"].as_f64().unwrap() - prompt["top_logprob"][i].as_f64().unwrap();
        assert!(delta.abs() <= 1e-3, "{likely}");
    }
    let ids = |ids: &Value| ids.as_array().unwrap()[..5].to_vec();
    assert_eq!(ids(&found["token_ids"]), ids(&prompt["greedy"]));
}

#[test]
fn a_file_is_quantized_piece_by_piece() {
    let folder = scratch("quantize");
    let (whole, small) = (folder.join("whole.gguf"), folder.join("small.gguf"));
    std::fs::write(&whole, llama_tiny_writer(Stored::Q4_1).write()).unwrap();
    for (kind, name) in [("q8_0", "Q8_0"), ("q4_0", "Q4_0"), ("bf16", "BF16"), ("f32", "F32")] {
        let ran = run(&["quantize", text(&whole), text(&small), "--type", kind, "--force"]);
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        let types = info(text(&small), &[])["block_types"].clone();
        assert!(types.as_array().unwrap().iter().any(|entry| entry["type"] == name), "{types}");
        assert!(!types.as_array().unwrap().iter().any(|entry| entry["type"] == "Q4_1"), "{types}");
    }
}

#[test]
fn a_failure_leaves_no_file() {
    let folder = scratch("failure");
    let (bad, out) = (folder.join("bad.gguf"), folder.join("out.gguf"));
    let mut writer = llama_tiny_writer(Stored::F32);
    let last = writer.tensors.last_mut().unwrap();
    last.bytes[400..404].copy_from_slice(&f32::NAN.to_le_bytes());
    let name = last.name.clone();
    std::fs::write(&bad, writer.write()).unwrap();
    let ran = run(&["quantize", text(&bad), text(&out), "--type", "q8_0"]);
    assert_eq!(ran.code, Some(2));
    for part in ["bad.gguf", &name, "value 100"] {
        assert!(ran.stderr.contains(part), "{} instead of {part:?}", ran.stderr);
    }
    assert_eq!(entries(&folder), ["bad.gguf"]);
    let nowhere = folder.join("no/such/folder/out.gguf");
    let ran = run(&["quantize", text(&bad), text(&nowhere), "--type", "f16"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("cannot write"), "{}", ran.stderr);
}

/// What is no file, or is read, is never written over.
#[test]
fn nothing_but_another_file_is_written_over() {
    let folder = scratch("over");
    let model = folder.join("model");
    std::fs::create_dir(&model).unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        std::fs::copy(fixture(&format!("llama-tiny/{file}")), model.join(file)).unwrap();
    }
    let check = |out: &Path, says: &str| {
        let ran = run(&["convert", text(&model), text(out), "--force"]);
        assert!(ran.code == Some(2) && ran.stderr.contains(says), "{}: {}", out.display(), ran.stderr);
    };
    check(&folder, "is no file");
    check(&model.join("model.safetensors"), "is read");
    check(&folder.join("model/../model/config.json"), "is read");
    #[cfg(unix)]
    {
        let link = folder.join("link.gguf");
        std::os::unix::fs::symlink(folder.join("nowhere.gguf"), &link).unwrap();
        check(&link, "is no file");
        check(Path::new("/dev/null"), "is no file");
    }
    assert_eq!(entries(&model), ["config.json", "model.safetensors", "tokenizer.json"]);
}

#[test]
fn any_part_finds_the_others_and_a_missing_one_is_named() {
    let folder = scratch("split");
    let whole = llama_tiny_writer(Stored::F32);
    let path = |number: usize| folder.join(format!("tiny-{number:05}-of-00003.gguf"));
    for number in 0..3 {
        let mut part = if number == 0 { whole.clone() } else { GgufWriter::new(3) };
        part.tensors = whole.tensors[number * 7..(number + 1) * 7].to_vec();
        let part = part.meta("split.no", Meta::U16(number as u16)).meta("split.count", Meta::U16(3));
        std::fs::write(path(number + 1), part.write()).unwrap();
    }
    for number in 1..=3 {
        assert_eq!(info(text(&path(number)), &[])["parameters"], 135_488);
    }
    assert_eq!(info(text(&folder), &[])["name"], "llama-tiny");
    check_greedy(text(&path(2)));
    std::fs::remove_file(path(3)).unwrap();
    let ran = run(&["info", "--model", text(&path(1))]);
    assert!(ran.code == Some(2) && ran.stderr.contains("tiny-00003-of-00003.gguf"), "{}", ran.stderr);
}

#[test]
fn bad_command_lines_are_refused() {
    let folder = scratch("usage");
    let (model, out) = (fixture("llama-tiny"), text(&folder.join("out.gguf")).to_owned());
    std::fs::write(folder.join("a.gguf"), b"").unwrap();
    std::fs::write(folder.join("b.gguf"), b"").unwrap();
    let empty = scratch("empty");
    let gguf = folder.join("a.gguf");
    let table: [(&[&str], &str); 9] = [
        (&["convert"], "the model to read is missing"),
        (&["convert", &model], "the file to write is missing"),
        (&["convert", &model, &out, "more"], "\"more\" is a third"),
        (&["quantize", &model, &out], "--type is missing"),
        (&["quantize", &model, &out, "--type", "q4_k"], "--type must be one of q8_0, q4_0, f16, bf16, f32"),
        (&["convert", text(&gguf), &out], "a GGUF file already"),
        (&["info", "--model", &model, "--quantize", "q5_0"], "--quantize must be one of none, q8_0, q4_0"),
        (&["info", "--model", text(&folder)], "several models"),
        (&["info", "--model", text(&empty)], "neither config.json nor a .gguf file"),
    ];
    for (arguments, expected) in table {
        let ran = run(arguments);
        assert_eq!(ran.code, Some(2), "{arguments:?}: {}{}", ran.stdout, ran.stderr);
        assert!(ran.stderr.contains(expected), "{arguments:?}: {} instead of {expected:?}", ran.stderr);
    }
}
