//! `pagelm generate` with many prompts and outputs: each as if it were alone, all in order.

use std::io::{BufRead as _, BufReader};

use serde_json::Value;

use super::{FILES, Ran, file, generated, ids, json_of, keys, pagelm, run};

const GREEDY: [&str; 5] = ["--temperature", "0", "--max-tokens", "10", "--ignore-eos"];

/// Writes prompts to a file, and gives its path.
fn prompts(name: &str, texts: &[&str]) -> String {
    let lines: Vec<String> = texts.iter().map(|text| serde_json::to_string(text).unwrap()).collect();
    FILES.write(name, format!("\n{}\n\n", lines.join("\n\n")).as_bytes());
    file(name)
}

fn token_ids(values: &Value) -> Vec<Vec<u64>> {
    values.as_array().unwrap().iter().map(|value| ids(&value["token_ids"])).collect()
}

#[test]
fn results_are_in_order_and_each_as_if_alone() {
    let texts = ["Every morning I drink", "a", "fn main() {", "one\ntwo \"three\"", "Every morning I eat"];
    let prompts = prompts("order.txt", &texts);
    let found = generated(&[&["--prompts", prompts.as_str()], &GREEDY[..]].concat());
    assert_eq!(found.as_array().unwrap().len(), texts.len());
    for (result, text) in found.as_array().unwrap().iter().zip(texts) {
        let alone = generated(&[&["--prompt", text], &GREEDY[..]].concat());
        for field in ["text", "token_ids", "prompt_token_ids", "finish_reason", "device"] {
            assert_eq!(result[field], alone[field], "{text:?}");
        }
        let fields = [
            "text",
            "token_ids",
            "prompt_token_ids",
            "finish_reason",
            "logprobs",
            "cached_tokens",
            "timings",
            "device",
        ];
        assert_eq!(keys(result), fields);
        let timings = &result["timings"];
        assert_eq!(keys(timings), ["load_ms", "queue_ms", "prefill_ms", "first_token_ms", "decode_ms"]);
        let ms = |name: &str| timings[name].as_f64().unwrap();
        assert!(ms("queue_ms") >= 0.0 && ms("prefill_ms") > 0.0, "{timings}");
        assert!((ms("queue_ms") + ms("prefill_ms") - ms("first_token_ms")).abs() < 0.01, "{timings}");
        assert_eq!(timings["decode_ms"].as_array().unwrap().len(), 9);
    }
    let one = generated(&["--prompts", &self::prompts("one.txt", &["a"]), "--max-tokens", "2"]);
    assert_eq!(one.as_array().unwrap().len(), 1, "an array also of one");
}

#[test]
fn the_ith_output_samples_with_the_seed_and_i() {
    let sampled = |prompt: &[&str], rest: &[&str]| {
        generated(&[prompt, &["--max-tokens", "8", "--ignore-eos", "--logprobs", "1"], rest].concat())
    };
    let prompt = ["--prompt", "Every morning"];
    let found = sampled(&prompt, &["--n", "3", "--seed", "7", "--prompt-logprobs", "0"]);
    assert_eq!(keys(&found), ["prompt_token_ids", "prompt_logprobs", "outputs", "timings", "device"]);
    assert_eq!(keys(&found["timings"]), ["load_ms"]);
    let fields = ["text", "token_ids", "finish_reason", "logprobs", "cached_tokens", "timings"];
    assert_eq!(keys(&found["outputs"][0]), fields);
    let alone = ["7", "8", "9"].map(|seed| ids(&sampled(&prompt, &["--seed", seed])["token_ids"]));
    assert_eq!(token_ids(&found["outputs"]), alone);

    // With a seed each prompt of many is answered as if it were alone; without one no two outputs are alike.
    let prompts = prompts("twice.txt", &["Every morning", "Every morning"]);
    let batch = ["--prompts", prompts.as_str()];
    let seeded = sampled(&batch, &["--n", "2", "--seed", "8"]);
    for result in seeded.as_array().unwrap() {
        assert_eq!(token_ids(&result["outputs"]), alone[1..]);
    }
    let unseeded = token_ids(&sampled(&batch, &[]));
    assert_ne!(unseeded[0], unseeded[1]);
}

#[test]
fn conversations_have_several_outputs_too() {
    let messages = file("messages.json");
    let found = json_of("generate", "chat.gguf", &["--messages", &messages, "--n", "2", "--max-tokens", "3"]);
    assert_eq!(found["outputs"].as_array().unwrap().len(), 2);
}

#[test]
fn common_beginnings_are_found_in_the_cache() {
    let beginning = "The quick brown fox jumps over the lazy dog. ".repeat(4);
    let texts: Vec<String> = (0..3).map(|i| format!("{beginning}{i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let found = generated(&[&["--prompts", prompts("common.txt", &texts).as_str()], &GREEDY[..]].concat());
    let cached: Vec<u64> =
        found.as_array().unwrap().iter().map(|result| result["cached_tokens"].as_u64().unwrap()).collect();
    assert_eq!(cached[0], 0);
    let n_common = ids(&found[0]["prompt_token_ids"]).len() as u64 - 1;
    assert!(cached[1..].iter().all(|&n| n >= n_common / 32 * 32 && n % 32 == 0 && n > 0), "{cached:?}");
}

#[test]
fn texts_stand_below_their_headings() {
    let model = file("tiny.gguf");
    let prompts_file = prompts("text.txt", &["Every morning", "a"]);
    let texts = |arguments: &[&str]| -> Ran {
        let ran = run(&[&["generate", "--model", &model], arguments, &GREEDY[..]].concat());
        assert_eq!(ran.code, Some(0), "{}", ran.stderr);
        ran
    };
    let text = |prompt: &str| {
        let text = generated(&[&["--prompt", prompt], &GREEDY[..]].concat())["text"].take();
        text.as_str().unwrap().to_owned()
    };
    let section = |name: &str, text: &str| {
        format!("== {name} ==\n{text}{}\n", if text.ends_with('\n') { "" } else { "\n" })
    };
    let (first, second) = (text("Every morning"), text("a"));
    let ran = texts(&["--prompts", &prompts_file]);
    assert_eq!(ran.stdout, section("prompt 1", &first) + &section("prompt 2", &second));
    assert!(ran.stderr.contains("\nprompt 2: ") && ran.stderr.contains("\n2 outputs, 20 tokens in "));
    let ran = texts(&["--prompts", &prompts_file, "--n", "2"]);
    let expected = section("prompt 1, output 1", &first) + &section("prompt 1, output 2", &first);
    assert!(ran.stdout.starts_with(&expected), "{}", ran.stdout);
    assert!(ran.stderr.contains("\n4 outputs, 40 tokens in "), "{}", ran.stderr);
    let ran = texts(&["--prompt", "a", "--n", "2"]);
    assert_eq!(ran.stdout, section("output 1", &second) + &section("output 2", &second));
    let ran = texts(&["--prompts", &prompts("lone.txt", &["a"])]);
    assert_eq!(ran.stdout, second, "a lone answer streams");
}

/// More than an engine takes of a client, and than a request may have.
#[test]
fn thousands_of_prompts_are_answered() {
    let texts: Vec<String> = (0..2000).map(|i| format!("{i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let prompts = prompts("thousands.txt", &texts);
    let found =
        generated(&["--prompts", &prompts, "--max-tokens", "1", "--ignore-eos", "--temperature", "0"]);
    assert_eq!(found.as_array().unwrap().len(), 2000);
    let digits = |i: usize| json_of("tokenize", "tiny.gguf", &[&i.to_string()])["ids"].take();
    for i in [0, 999, 1999] {
        assert_eq!(found[i]["prompt_token_ids"], digits(i));
    }
    let most = generated(&["--prompt", "a", "--n", "64", "--max-tokens", "2"]);
    assert_eq!(most["outputs"].as_array().unwrap().len(), 64);
}

#[test]
fn a_reader_that_goes_away_ends_a_batch() {
    let model = file("tiny.gguf");
    let texts: Vec<String> = (0..400).map(|i| format!("{i}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let prompts = prompts("gone.txt", &texts);
    let mut child =
        pagelm(&["generate", "--model", &model, "--prompts", &prompts, "--ignore-eos"]).spawn().unwrap();
    let mut first = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert_eq!(first, "== prompt 1 ==\n");
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(!stderr.contains("pagelm:") && !stderr.contains("400 outputs"), "{stderr}");
}
