//! `pagelm generate` and `chat` with a form for the answer: a schema, a grammar, or any JSON object.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::Value;

use super::{FILES, file, pagelm, run};

const SCHEMA: &str = r#"{"type": "object", "properties": {"n": {"type": "integer", "minimum": 1, "maximum": 30}, "color": {"enum": ["red", "blue"]}}, "required": ["n", "color"], "additionalProperties": false}"#;

fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert!((1..=30).contains(&value["n"].as_u64().unwrap()), "{text}");
    assert!(["red", "blue"].contains(&value["color"].as_str().unwrap()), "{text}");
    assert_eq!(value.as_object().unwrap().len(), 2, "{text}");
}

#[test]
fn answers_are_what_the_schema_describes_alone_and_in_a_batch() {
    FILES.write("schema.json", SCHEMA.as_bytes());
    FILES.write("three.txt", b"\"one\"\n\"two\"\n\"three\"\n");
    let (model, schema) = (file("tiny.gguf"), file("schema.json"));
    let shared = ["generate", "--model", &model, "--json-schema", &schema, "--max-tokens", "200"];
    let ran = run(&[&shared[..], &["--prompt", "a", "--seed", "3"]].concat());
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    check(&ran.stdout);
    let ran =
        run(&[&shared[..], &["--prompts", &file("three.txt"), "--n", "3", "--seed", "4", "--json"]].concat());
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let outputs: Vec<&Value> =
        told.as_array().unwrap().iter().flat_map(|one| one["outputs"].as_array().unwrap()).collect();
    assert_eq!(outputs.len(), 9);
    for output in outputs {
        assert_eq!(output["finish_reason"], "stop");
        check(output["text"].as_str().unwrap());
    }
}

#[test]
fn grammars_and_json_objects_are_kept_and_a_chat_keeps_them_too() {
    FILES.write("grammar.lark", b"start: \"yes\" | \"no\"\n");
    let (model, grammar) = (file("chat.gguf"), file("grammar.lark"));
    let shared = ["generate", "--model", &model, "--prompt", "a", "--seed", "3", "--max-tokens", "300"];
    let ran = run(&[&shared[..], &["--grammar", &grammar]].concat());
    assert!(["yes", "no"].contains(&ran.stdout.as_str()), "{:?}", ran.stdout);
    let ran = run(&[&shared[..], &["--json-object", "--json"]].concat());
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let text = told["text"].as_str().unwrap();
    match told["finish_reason"].as_str().unwrap() {
        "stop" => assert!(serde_json::from_str::<Value>(text).unwrap().is_object(), "{text}"),
        reason => assert!(reason == "length" && text.starts_with('{'), "{reason}: {text}"),
    }
    let mut chat =
        pagelm(&["chat", "--model", &model, "--grammar", &grammar]).stdin(Stdio::piped()).spawn().unwrap();
    chat.stdin.take().unwrap().write_all(b"a\nb\n").unwrap();
    let told = String::from_utf8(chat.wait_with_output().unwrap().stdout).unwrap();
    let answers: Vec<&str> = told.lines().collect();
    assert!(answers.len() == 2 && answers.iter().all(|line| ["yes", "no"].contains(line)), "{told:?}");
}

#[test]
fn what_cannot_be_kept_is_said_before_the_model_is_loaded() {
    FILES.write("none.schema", br#"{"type": "string", "enum": []}"#);
    FILES.write("deep.schema", br#"{"type": "object", "properties": {"a": {"not": {}}}}"#);
    FILES.write("broken.schema", b"{\"type\": ");
    FILES.write("broken.lark", b"start: \"a\n");
    FILES.write("loop.lark", b"start: start\n");
    FILES.write("hard.lark", b"start: a{300}\na: a a a | a a | \"a\" | \"b\"\n");
    let model = file("tiny.gguf");
    let generate =
        |options: &[&str]| run(&[&["generate", "--model", &model, "--prompt", "a"], options].concat());
    let (none, schema) = (file("none.schema"), file("deep.schema"));
    for (options, sentence) in [
        (&["--json-schema", none.as_str()][..], "the JSON Schema cannot be met"),
        (
            &["--json-schema", &schema],
            "cannot be kept at #/properties/a: it has keywords that are not supported: \"not\"",
        ),
        (&["--json-schema", &file("broken.schema")], "the JSON Schema is no JSON: EOF while parsing"),
        (&["--json-schema", &file("missing.schema")], "cannot read"),
        (&["--grammar", &file("broken.lark")], "the grammar cannot be kept: line 1"),
        (&["--grammar", &file("loop.lark")], "no token of this model begins"),
        (&["--json-object", "--grammar", &none], "--json-object and --grammar are given together"),
        (&["--json-schema"], "--json-schema has no value: it takes FILE"),
    ] {
        let ran = generate(options);
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(2), ""), "{options:?}: {}", ran.stderr);
        assert!(
            ran.stderr.contains(sentence) && !ran.stderr.contains("loaded"),
            "{options:?}: {}",
            ran.stderr
        );
    }
    // One that proves too complex on the way: what there is of it is told, and that it is not whole.
    let ran = generate(&["--grammar", &file("hard.lark"), "--max-tokens", "400", "--seed", "1", "--json"]);
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((ran.code, told["finish_reason"].as_str()), (Some(1), Some("unmet")), "{told} {}", ran.stderr);
    assert!(ran.stderr.contains("The answer is not whole"), "{}", ran.stderr);
}
