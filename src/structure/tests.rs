//! Forms by themselves: what is refused and how, and that what the masks allow is what the form describes.

use std::time::Instant;

use super::*;
use crate::text::Vocabulary;

/// A tokenizer of all bytes and some longer tokens.
fn tokenizer() -> Tokenizer {
    const WORDS: [&str; 7] = ["{\"", "\":", "true", "null", "\",", "]}", "▁"];
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(String::from).into();
    tokens.extend((0..=255).map(|byte| format!("<0x{byte:02X}>")));
    let mut token_types = vec![2, 3, 3];
    token_types.resize(tokens.len(), 6);
    tokens.extend(WORDS.map(String::from));
    token_types.resize(tokens.len(), 1);
    let scores = vec![0.0; tokens.len()];
    let (unk, bos, eos) = (Some(0), Some(1), Some(2));
    let model = "llama".into();
    Tokenizer::new(Vocabulary { model, tokens, scores, token_types, unk, bos, eos, ..Vocabulary::default() })
        .unwrap()
}

fn forms() -> Forms {
    let tokenizer = tokenizer();
    Forms::new(&tokenizer, tokenizer.vocab_size() as usize).unwrap()
}

#[test]
fn explore() {
    let forms = forms();
    for schema in [
        r#"{"type":"string","enum":[]}"#,
        r#"{"type":"strin"}"#,
        r#"{"type":"object","properties":{"a":{"type":"array","items":{"not":{}}}}}"#,
        r#"{"type":"object","properties":{"a":{"type":"string","pattern":"("}}}"#,
        r#"{"type":"object","properties":{"a":{"type":"string","pattern":"^abc$","maxLength":2}},"required":["a"]}"#,
        r#"{"type":"integer","minimum":5,"maximum":3}"#,
        r##"{"$ref":"#/$defs/x"}"##,
        r##"{"$ref":"https://example.com/x"}"##,
        r##"{"$defs":{"x":{"$ref":"#/$defs/x"}},"$ref":"#/$defs/x"}"##,
        r##"{"$defs":{"x":{"type":"object","properties":{"x":{"$ref":"#/$defs/x"}},"required":["x"]}},"$ref":"#/$defs/x"}"##,
        r##"{"$defs":{"x":{"type":"object","properties":{"x":{"$ref":"#/$defs/x"}}}},"$ref":"#/$defs/x"}"##,
        r#"{"oneOf":[{"type":"string"},{"type":"string","minLength":3}]}"#,
        r#"{"type":"string","format":"color"}"#,
        r#"{"type":"string","frobnicate":1}"#,
        r#"{"type":"array","uniqueItems":true}"#,
        r#"{"type":"string","minLength":100000}"#,
        r#"{"type":"array","items":{"type":"integer"},"minItems":100000}"#,
        r#"false"#,
        r#"[]"#,
        r#"{"a""#,
        r#"{"type":"string","pattern":"(a|b)*a(a|b){40}"}"#,
        r#"{"type":"string","pattern":"^(a|b)*a(a|b){20}$"}"#,
    ] {
        let start = Instant::now();
        let outcome =
            forms.compile(Form::JsonSchema(schema)).map(|_| "ok").map_err(|error| error.to_string());
        eprintln!("{schema}\n    {:?} {outcome:?}", start.elapsed());
    }
    for grammar in [
        "start: \"a\" b\n",
        "start: \"a\n",
        "",
        "start: start \"a\" | \"a\"",
        "start: start",
        "start: a\na: b\nb: a",
        "start: \"a\" start",
        "start: /(/",
        "start: (\"a\"",
        "start: \"\"",
        "start: x\n%import foo\n",
        "start: \"é\" | <|end|>",
        "root ::= \"a\"",
        "start: a a a a a a a a a a\na: (\"x\" | \"x\" a)*\n",
        "start: a\na: a a | \"x\" | \"\"\n",
    ] {
        let start = Instant::now();
        let outcome = forms.compile(Form::Grammar(grammar)).map(|_| "ok").map_err(|error| error.to_string());
        eprintln!("{grammar:?}\n    {:?} {outcome:?}", start.elapsed());
    }
}
