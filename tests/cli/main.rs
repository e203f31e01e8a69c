//! The binary `pagelm` as a person or a script meets it: what it writes where, its exit codes, and its answer to bad input.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

mod bad_input;
mod batch;
mod bench;
mod checks;
mod export;
mod floor;
mod structure;
#[path = "../support/gguf_writer.rs"]
mod gguf_writer;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use gguf_writer::llama_tiny_gguf;
use serde_json::{Value, json};

/// Files that the tests hand in.
struct Files {
    folder: PathBuf,
}

/// Written once.
static FILES: LazyLock<Files> = LazyLock::new(|| {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cli");
    std::fs::create_dir_all(&folder).unwrap();
    let files = Files { folder };
    let model = llama_tiny_gguf();
    let messages = r#"[{"role": "user", "content": "a b"}]"#;
    let parts =
        r#"[{"role": "user", "content": [{"type": "text", "text": "a "}, {"type": "text", "text": "b"}]}]"#;
    files.write("tiny.gguf", &model);
    files.write("chat.gguf", &with_template(&model));
    files.write("bos.gguf", &with_bos(&model));
    files.write("empty.gguf", b"");
    files.write("text.gguf", b"This is not a model at all, it only says so.");
    for len in [3, 100, 20_000, model.len() - 1] {
        files.write(&format!("cut{len}.gguf"), &model[..len]);
    }
    files.write("messages.json", messages.as_bytes());
    files.write("parts.json", parts.as_bytes());
    files.write("broken.json", b"[{\"role\": ");
    files.write("object.json", b"{}");
    files.write("none.json", b"[]");
    files.write("image.json", br#"[{"role": "user", "content": [{"type": "image", "text": "x"}]}]"#);
    files.write("latin1.txt", b"caf\xe9");
    files.write("short.txt", b"a");
    files.write("long.txt", "word ".repeat(2000).as_bytes());
    files.write("score.txt", prompts()[0]["prompt"].as_str().unwrap().as_bytes());
    files
});

impl Files {
    fn write(&self, name: &str, bytes: &[u8]) {
        std::fs::write(self.folder.join(name), bytes).unwrap();
    }
}

fn file(name: &str) -> String {
    FILES.folder.join(name).to_str().unwrap().to_owned()
}

/// The model with a chat template: a key more at the front of its metadata, of a length that moves tensors by a whole
/// number of alignments.
fn with_template(model: &[u8]) -> Vec<u8> {
    let key = "tokenizer.chat_template";
    let template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>";
    let unpadded = 8 + key.len() + 4 + 8 + template.len() + "{##}".len();
    let template = format!("{{#{}#}}{template}", " ".repeat(unpadded.next_multiple_of(32) - unpadded));
    let mut out = model[..16].to_vec();
    out.extend((u64::from_le_bytes(model[16..24].try_into().unwrap()) + 1).to_le_bytes());
    out.extend((key.len() as u64).to_le_bytes());
    out.extend(key.as_bytes());
    out.extend(8u32.to_le_bytes());
    out.extend((template.len() as u64).to_le_bytes());
    out.extend(template.as_bytes());
    out.extend(&model[24..]);
    out
}

/// The model with a begin token before every raw text: the flag is the byte after its key and type.
fn with_bos(model: &[u8]) -> Vec<u8> {
    let key = b"tokenizer.ggml.add_bos_token";
    let at = model.windows(key.len()).position(|window| window == key).unwrap() + key.len() + 4;
    let mut out = model.to_vec();
    assert_eq!(std::mem::replace(&mut out[at], 1), 0);
    out
}

fn prompts() -> Vec<Value> {
    let expected: Value = serde_json::from_str(include_str!("../fixtures/llama-tiny/expected.json")).unwrap();
    expected["prompts"].as_array().unwrap().clone()
}

/// What a run left.
struct Ran {
    code: Option<i32>,
    stdout: String,
    stderr: String,
}

fn pagelm(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_pagelm"));
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // What is found of adapters is kept among these tests.
    command.env("PAGELM_CACHE_DIR", env!("CARGO_TARGET_TMPDIR"));
    command
}

fn ran(mut command: Command) -> Ran {
    let output = command.output().unwrap();
    Ran {
        code: output.status.code(),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}

fn run(arguments: &[&str]) -> Ran {
    ran(pagelm(arguments))
}

/// Runs a command with a model that must succeed, and gives its one JSON object.
fn json_of(command: &str, model: &str, arguments: &[&str]) -> Value {
    let model = file(model);
    let ran = run(&[&[command, "--model", &model, "--json"], arguments].concat());
    assert_eq!(ran.code, Some(0), "{arguments:?}: {}", ran.stderr);
    assert_eq!(ran.stdout.trim_end_matches('\n').lines().count(), 1, "{}", ran.stdout);
    serde_json::from_str(&ran.stdout).unwrap()
}

fn generated(arguments: &[&str]) -> Value {
    json_of("generate", "tiny.gguf", arguments)
}

fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

fn ids(value: &Value) -> Vec<u64> {
    value.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

#[test]
fn greedy_tokens_are_those_of_the_reference() {
    let devices = ["gpu", "cpu"];
    for (prompt, device) in
        prompts().into_iter().flat_map(|prompt| devices.map(|device| (prompt.clone(), device)))
    {
        let text = prompt["prompt"].as_str().unwrap();
        let mut arguments =
            vec!["--prompt", text, "--temperature", "0", "--max-tokens", "20", "--ignore-eos"];
        arguments.extend(["--device", device, "--precision", "exact", "--kv", "f32"]);
        let found = generated(&arguments);
        assert_eq!(found["device"]["kind"] == "cpu", device == "cpu", "{}", found["device"]);
        assert_eq!(found["prompt_token_ids"], prompt["ids"], "{text:?}");
        let gaps = prompt["greedy_gap"].as_array().unwrap();
        let certain = gaps.iter().position(|gap| gap.as_f64().unwrap() < 0.01).unwrap_or(gaps.len());
        assert_eq!(ids(&found["token_ids"])[..certain], ids(&prompt["greedy"])[..certain], "{text:?}");
        assert_eq!(ids(&found["token_ids"]).len(), 20);
        assert_eq!(found["finish_reason"], "length");
    }
}

#[test]
fn generate_tells_all_in_one_object() {
    let options = [
        "--prompt",
        "Every morning",
        "--max-tokens",
        "5",
        "--ignore-eos",
        "--logprobs",
        "3",
        "--prompt-logprobs",
        "2",
    ];
    let found = generated(&options);
    let expected = [
        "text",
        "token_ids",
        "prompt_token_ids",
        "finish_reason",
        "logprobs",
        "prompt_logprobs",
        "timings",
        "device",
    ];
    assert_eq!(keys(&found), expected);
    assert_eq!(keys(&found["timings"]), ["load_ms", "prefill_ms", "decode_ms"]);
    assert!(
        found["timings"]["load_ms"].as_f64().unwrap() > 0.0
            && found["timings"]["prefill_ms"].as_f64().unwrap() > 0.0
    );
    assert_eq!(
        found["timings"]["decode_ms"].as_array().unwrap().len(),
        4,
        "a time for each token after the first"
    );
    assert!(["gpu", "cpu"].contains(&found["device"]["kind"].as_str().unwrap()));
    let logprobs = found["logprobs"].as_array().unwrap();
    for (token, id) in logprobs.iter().zip(ids(&found["token_ids"])) {
        assert_eq!(keys(token), ["id", "text", "logprob", "top"]);
        assert_eq!((token["id"].as_u64(), token["top"].as_array().unwrap().len()), (Some(id), 3));
        let top: Vec<f64> =
            token["top"].as_array().unwrap().iter().map(|top| top["logprob"].as_f64().unwrap()).collect();
        assert!(top.is_sorted_by(|a, b| a >= b) && token["logprob"].as_f64().unwrap() <= top[0]);
        assert_eq!(keys(&token["top"][0]), ["id", "text", "logprob"]);
    }
    let prompt_logprobs = found["prompt_logprobs"].as_array().unwrap();
    assert_eq!(prompt_logprobs.len(), ids(&found["prompt_token_ids"]).len());
    assert_eq!(
        (&prompt_logprobs[0], &prompt_logprobs[1]["id"]),
        (&Value::Null, &found["prompt_token_ids"][1])
    );

    let without = generated(&["--prompt", "Every morning", "--max-tokens", "1"]);
    assert_eq!((without.get("prompt_logprobs"), &without["logprobs"]), (None, &Value::Null));
}

#[test]
fn a_seed_repeats() {
    let texts = ["7", "7", "8"].map(|seed| {
        generated(&["--prompt", "fn main() {", "--seed", seed, "--max-tokens", "12", "--ignore-eos"])["token_ids"].take()
    });
    assert_eq!(texts[0], texts[1]);
    assert_ne!(texts[0], texts[2]);
}

#[test]
fn text_goes_to_stdout_and_the_rest_to_stderr() {
    let model = file("tiny.gguf");
    let options =
        ["--prompt", "Every morning I drink", "--temperature", "0", "--max-tokens", "12", "--ignore-eos"];
    let ran = run(&[&["generate", "--model", &model], &options[..]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(Some(ran.stdout.as_str()), generated(&options)["text"].as_str());
    assert!(ran.stderr.contains("tokens/s") && ran.stderr.contains("llama-tiny"), "{}", ran.stderr);
}

#[test]
fn a_stop_string_ends_the_text() {
    let options = ["--prompt", "a", "--temperature", "0", "--max-tokens", "16", "--ignore-eos"];
    let text = generated(&options)["text"].as_str().unwrap().to_owned();
    let whole: Vec<char> = text.chars().collect();
    let at =
        (1..whole.len() - 3).find(|at| whole[*at..at + 3].iter().all(char::is_ascii_alphanumeric)).unwrap();
    let stop: String = whole[at..at + 3].iter().collect();
    let before = text.split(&stop).next().unwrap();
    let with_stop = [&options[..], &["--stop", "never said", "--stop", &stop]].concat();
    let found = generated(&with_stop);
    assert_eq!((found["text"].as_str(), &found["finish_reason"]), (Some(before), &json!("stop")));
    let found = generated(&[&with_stop[..], &["--include-stop-str-in-output"]].concat());
    assert_eq!(found["text"].as_str(), Some(format!("{before}{stop}").as_str()));
}

#[test]
fn messages_go_through_the_template() {
    let expected = json_of("tokenize", "chat.gguf", &["<user>a b<assistant>"]);
    for messages in ["messages.json", "parts.json"] {
        let found = json_of("generate", "chat.gguf", &["--messages", &file(messages), "--max-tokens", "1"]);
        assert_eq!(found["prompt_token_ids"], expected["ids"]);
    }
}

#[test]
fn tokens_of_a_text() {
    for prompt in prompts() {
        let found = json_of("tokenize", "tiny.gguf", &["--", prompt["prompt"].as_str().unwrap()]);
        assert_eq!(keys(&found), ["ids", "pieces"]);
        assert_eq!(found["ids"], prompt["ids"]);
        assert_eq!(found["pieces"].as_array().unwrap().len(), ids(&found["ids"]).len());
    }
    assert_eq!(
        json_of("tokenize", "tiny.gguf", &["<|im_end|>"]),
        json!({"ids": [2], "pieces": ["<|im_end|>"]})
    );
    assert_eq!(json_of("tokenize", "tiny.gguf", &[""]), json!({"ids": [], "pieces": []}));
}

#[test]
fn a_bad_word_is_not_said_also_where_texts_begin_with_a_token() {
    let options = [
        "--prompt",
        "Every morning",
        "--temperature",
        "0",
        "--max-tokens",
        "20",
        "--ignore-eos",
        "--logprobs",
        "0",
    ];
    let answer = json_of("generate", "bos.gguf", &options);
    assert_eq!(answer["prompt_token_ids"][0], 0);
    let said = answer["logprobs"].as_array().unwrap().iter().find_map(|token| {
        let text = token["text"].as_str().filter(|text| text.chars().all(|c| c.is_ascii_alphanumeric()))?;
        let alone = json_of("tokenize", "bos.gguf", &[text])["ids"] == json!([0, token["id"]]);
        alone.then(|| (text.to_owned(), token["id"].as_u64().unwrap()))
    });
    let (text, id) = said.unwrap();
    let without = json_of("generate", "bos.gguf", &[&options[..], &["--bad-words", &text]].concat());
    assert!(
        ids(&answer["token_ids"]).contains(&id) && !ids(&without["token_ids"]).contains(&id),
        "{text:?} {without}"
    );
}

#[test]
fn a_score_is_the_mean_of_the_prompts_logprobs() {
    let found = json_of("score", "tiny.gguf", &["--text", &file("score.txt")]);
    assert_eq!(keys(&found), ["tokens", "mean_nll", "perplexity"]);
    let prompt = prompts()[0].clone();
    let options =
        ["--prompt", prompt["prompt"].as_str().unwrap(), "--prompt-logprobs", "0", "--max-tokens", "1"];
    let logprobs = generated(&options)["prompt_logprobs"].take();
    let logprobs: Vec<f64> =
        logprobs.as_array().unwrap()[1..].iter().map(|token| token["logprob"].as_f64().unwrap()).collect();
    let mean_nll = -logprobs.iter().sum::<f64>() / logprobs.len() as f64;
    assert_eq!(found["tokens"], ids(&prompt["ids"]).len());
    assert!((found["mean_nll"].as_f64().unwrap() - mean_nll).abs() < 1e-6, "{found} {mean_nll}");
    assert!((found["perplexity"].as_f64().unwrap().ln() - mean_nll).abs() < 1e-6);
}

#[test]
fn info_tells_what_the_file_holds() {
    let found = json_of("info", "tiny.gguf", &["--context", "100"]);
    assert_eq!((&found["name"], &found["architecture"]), (&json!("llama-tiny"), &json!("llama")));
    assert_eq!((&found["model_context"], &found["context"]), (&json!(512), &json!(100)));
    assert_eq!(
        found["block_types"],
        json!([{"type": "F32", "tensors": 21, "bytes": found["parameters"].as_u64().unwrap() * 4}])
    );
    // 2 layers of 2 KV heads of 16, keys and values, 2 bytes each; whole blocks of 32 tokens.
    assert_eq!(
        found["kv"],
        json!({"type": "f16", "bytes_per_token": 256, "pool_tokens": 128, "pool_bytes": 32768})
    );
    assert_eq!(found["tokenizer"], json!({"model": "gpt2", "pre": "gpt-2", "end_of_generation": [0, 2]}));
    assert_eq!(found["chat_template"], false);
    assert!(found["device"]["name"].is_string() && !found["devices"].as_array().unwrap().is_empty());
    assert_eq!(json_of("info", "chat.gguf", &[])["chat_template"], true);
    let text = run(&["info", "--model", &file("tiny.gguf")]);
    assert!(text.code == Some(0) && text.stdout.contains("21 F32"), "{}", text.stdout);
}

#[test]
fn devices_are_listed_and_chosen_by_name() {
    let ran = run(&["devices", "--json"]);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    let name = found["devices"][0]["name"].as_str().unwrap();
    assert!(run(&["devices"]).stdout.contains(name));
    let part = name.chars().take(6).collect::<String>().to_uppercase();
    let found = generated(&["--prompt", "a", "--max-tokens", "1", "--adapter-name", &part]);
    assert!(found["device"]["name"].as_str().unwrap().to_uppercase().contains(&part));
}

/// Without a driver there is no adapter.
#[cfg(target_os = "linux")]
#[test]
fn without_a_gpu_the_processor_answers_and_says_why() {
    let without_gpu = |arguments: &[&str]| {
        let mut command = pagelm(arguments);
        command.env("VK_DRIVER_FILES", "/nowhere.json").env("VK_ICD_FILENAMES", "/nowhere.json");
        ran(command)
    };
    let model = file("tiny.gguf");
    let info = without_gpu(&["info", "--json", "--model", &model]);
    assert_eq!(info.code, Some(0), "{}", info.stderr);
    let found: Value = serde_json::from_str(&info.stdout).unwrap();
    assert_eq!((&found["device"]["kind"], &found["devices"]), (&json!("cpu"), &json!([])));
    assert!(found["device_problem"].as_str().unwrap().contains("no GPU adapter was found"));
    let asked = ["generate", "--model", &model, "--prompt", "a", "--device"];
    let generate = without_gpu(&[&asked[..], &["gpu"]].concat());
    assert_eq!((generate.code, generate.stdout.as_str()), (Some(1), ""));
    assert!(generate.stderr.contains("no GPU adapter was found"), "{}", generate.stderr);
    let generate = without_gpu(&[&asked[..], &["auto", "--ignore-eos"]].concat());
    assert_eq!(generate.code, Some(0), "{}", generate.stderr);
    assert!(!generate.stdout.is_empty());
    assert!(
        generate.stderr.contains("the processor computes: no GPU adapter was found"),
        "{}",
        generate.stderr
    );
    assert_eq!(without_gpu(&["tokenize", "--model", &model, "a"]).code, Some(0));
}

#[test]
fn a_conversation_through_a_pipe() {
    let model = file("chat.gguf");
    let mut command =
        pagelm(&["chat", "--model", &model, "--temperature", "0", "--max-tokens", "6", "--ignore-eos"]);
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    let long = "word ".repeat(1000);
    let lines = format!("a b\n\n/new\na b\n{long}\n/what\n/system x\na b\n/exit\nnever read\n");
    child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    let answer = json_of(
        "generate",
        "chat.gguf",
        &["--messages", &file("messages.json"), "--temperature", "0", "--max-tokens", "6", "--ignore-eos"],
    );
    let answer = format!("{}\n", answer["text"].as_str().unwrap());
    assert!(stdout.starts_with(&answer.repeat(2)), "{stdout:?} {answer:?}");
    assert_eq!(stderr.matches("tokens/s").count() / 2, 3, "{stderr}");
    assert!(stderr.contains("the context of 512 tokens") && stderr.contains("there is no /what"), "{stderr}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let model = file("tiny.gguf");
    let mut child =
        pagelm(&["generate", "--model", &model, "--prompt", "a", "--max-tokens", "60", "--ignore-eos"])
            .spawn()
            .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(!String::from_utf8_lossy(&output.stderr).contains("pagelm:"));
}

#[test]
fn help_and_version() {
    for arguments in [&["help"][..], &["--help"], &["-h"]] {
        let ran = run(arguments);
        assert!(ran.code == Some(0) && ran.stdout.contains("pagelm generate --model PATH"), "{arguments:?}");
    }
    for command in
        ["generate", "chat", "info", "tokenize", "score", "bench", "quantize", "convert", "devices"]
    {
        let (asked, helped) = (run(&[command, "--help"]), run(&["help", command]));
        assert_eq!((asked.code, &asked.stdout), (Some(0), &helped.stdout));
        assert!(asked.stdout.contains(&format!("usage: pagelm {command}")), "{}", asked.stdout);
    }
    assert_eq!(run(&["--version"]).stdout, format!("pagelm {}\n", env!("CARGO_PKG_VERSION")));
}
