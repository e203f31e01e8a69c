//! Forms by themselves: which tokens stand for text, and that every form, however heavy, comes to an end.

use super::*;
use crate::text::Vocabulary;

/// Tokens before those of single bytes: unknown, begin, end.
const N_SPECIAL: u32 = 3;
/// What a test's own choices begin with.
const SEED: u64 = 7;

/// A tokenizer of all bytes and some longer tokens.
fn tokenizer() -> Tokenizer {
    const WORDS: [&str; 9] = ["{\"", "\":", "true", "null", "\",", "]}", "▁", "<s>tart", "</"];
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
    // A model may have more logits than there are tokens.
    Forms::new(&tokenizer, tokenizer.vocab_size() as usize + 40).unwrap()
}

fn allowed(compiled: &mut Compiled) -> Vec<u32> {
    let mask = compiled.allowed().unwrap();
    (0..32 * mask.len() as u32).filter(|token| mask[*token as usize / 32] >> (token % 32) & 1 == 1).collect()
}

/// What is written where every token that may come is as likely as any other, and why that ended.
fn babble(compiled: &Compiled, n_tokens: usize) -> (Vec<u8>, &'static str) {
    let tokenizer = tokenizer();
    let (mut compiled, mut text, mut state) = (compiled.fork(), Vec::new(), SEED);
    for _ in 0..n_tokens {
        if compiled.allowed().is_err() {
            return (text, "unmet");
        }
        let allowed = allowed(&mut compiled);
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let token = allowed[(state >> 33) as usize % allowed.len()];
        if token != 2 {
            text.extend(tokenizer.token_bytes(token));
        }
        if compiled.push(token).is_err() {
            return (text, "unmet");
        }
        if compiled.is_complete() {
            return (text, "complete");
        }
    }
    (text, "cut")
}

#[test]
fn only_tokens_that_are_text_stand_for_text() {
    let (forms, tokenizer) = (forms(), tokenizer());
    let mut anything = forms.compile(Form::Grammar("start: /(.|\\n)*/\n")).unwrap();
    let begins: Vec<u32> = allowed(&mut anything);
    // Nothing may come, so the end may; no other special token, and no byte that begins no character.
    for token in 0..tokenizer.vocab_size() + 40 {
        let is_text = token >= N_SPECIAL && std::str::from_utf8(&tokenizer.token_bytes(token)).is_ok();
        let is_lead = (N_SPECIAL + 0xC2..N_SPECIAL + 0xF5).contains(&token);
        let is_token = token < tokenizer.vocab_size();
        let expected = token == 2 || is_token && (is_text || is_lead);
        assert_eq!(begins.contains(&token), expected, "{token}: {:?}", tokenizer.token_text(token));
    }
    // The text of a special token is spelled by others.
    let compiled = forms.compile(Form::Grammar("start: \"<s>\"\n")).unwrap();
    assert_eq!(babble(&compiled, 9), (b"<s>".to_vec(), "complete"));
    // A grammar that names the token itself gets that.
    let mut compiled = forms.compile(Form::Grammar("start: <s>\n")).unwrap();
    assert_eq!(allowed(&mut compiled), [1]);
}

#[test]
fn a_fork_goes_its_own_way() {
    let compiled = forms().compile(Form::JsonSchema(r#"{"enum": ["ab", "cd"]}"#)).unwrap();
    let (mut one, mut other) = (compiled.fork(), compiled.fork());
    let byte = |byte: u8| N_SPECIAL + u32::from(byte);
    for token in [b'"', b'a', b'b', b'"'] {
        one.push(byte(token)).unwrap();
    }
    assert!(one.is_complete() && !other.is_complete());
    assert_eq!(allowed(&mut other), [byte(b'"')]);
    assert_eq!(other.push(byte(b'x')), Err(Unmet));
    assert_eq!(other.allowed(), Err(Unmet), "it stays so");
    assert_eq!(babble(&compiled, 9).1, "complete");
}

/// Objects with so many properties of which none need be there.
fn wide(n: usize, closed: bool) -> String {
    let property =
        |i| format!(r#""p{i}": {{"type": "object", "properties": {{"q": {{"type": "integer"}}}}}}"#);
    let properties: Vec<String> = (0..n).map(property).collect();
    let closed = if closed { r#", "additionalProperties": false"# } else { "" };
    format!(r#"{{"type": "object", "properties": {{{}}}{closed}}}"#, properties.join(","))
}

#[test]
fn whatever_is_asked_for_comes_to_an_end() {
    let forms = forms();
    let many: Vec<String> = (0..2900).map(|i| format!("\"value number {i}\"")).collect();
    let option = |i| {
        format!(
            r#"{{"anyOf": [{{"type": "string", "maxLength": {i}}}, {{"type": "integer", "minimum": {i}}}]}}"#
        )
    };
    let all: Vec<String> = (0..700).map(option).collect();
    let half = MAX_DEPTH / 2 - 1;
    let deep = r#"{"type": "object", "required": ["a"], "properties": {"a": "#.repeat(half);
    let within = "{\"allOf\": [".repeat(half) + r#"{"type": "null"}"# + &"]}".repeat(half);
    let few_parentheses = "(".repeat(20) + "\"a\"" + &")*".repeat(20);
    let parentheses = "(".repeat(MAX_DEPTH) + "\"a\"" + &")*".repeat(MAX_DEPTH);
    let rules: String = (0..4000).map(|i| format!("a{i}: a{}\n", i + 1)).collect();
    let links: Vec<String> =
        (0..1500).map(|i| format!("\"d{i}\": {{\"$ref\": \"#/$defs/d{}\"}}", i + 1)).collect();
    let schemas: [(&str, &[&str]); 12] = [
        (
            &format!("{{\"$ref\": \"#/$defs/d0\", \"$defs\": {{{}, \"d1500\": {{}}}}}}", links.join(",")),
            &["refused"],
        ),
        (&wide(300, false), &["cut", "complete"]),
        (&wide(300, true), &["cut", "complete"]),
        (&wide(1000, true), &["refused"]),
        (&format!(r#"{{"enum": [{}]}}"#, many.join(",")), &["complete"]),
        (&format!(r#"{{"allOf": [{}]}}"#, all.join(",")), &["cut", "complete"]),
        (&format!("{deep}{{}}{}", "}}".repeat(half)), &["cut"]),
        (&within, &["complete"]),
        (r#"{"type": "string", "minLength": 1000000}"#, &["cut"]),
        (r#"{"type": "array", "items": {"type": "integer"}, "minItems": 1000000}"#, &["cut"]),
        (r#"{"type": "string", "pattern": "^(a|b)*a(a|b){400}$"}"#, &["cut"]),
        (r#"{"type": "string", "pattern": "(.*a.{30}|.*b.{31}|.*c.{29})*$"}"#, &["unmet", "cut", "complete"]),
    ];
    let grammars: [(&str, &[&str]); 7] = [
        (&format!("start: a0\n{rules}a4000: \"x\"\n"), &["refused"]),
        ("start: a\na: a a | \"x\" | \"\"\n", &["complete", "cut"]),
        ("start: a\na: a a a | a a | \"a\" | \"b\" | \"e\" | b\nb: b b | a\n", &["complete", "unmet"]),
        ("start: (((\"a\"{1,1000}){1,1000}){1,1000}){1,1000}\n", &["complete", "cut"]),
        // The parser's own bound.
        (&format!("start: {parentheses}\n"), &["refused"]),
        (&format!("start: {few_parentheses}\n"), &["complete", "cut"]),
        (
            &format!("start: /{}/\n", "(a|".repeat(40) + "b" + &")*".repeat(40)),
            &["complete", "cut", "refused"],
        ),
    ];
    let forms_of = schemas.iter().map(|(text, ends)| (Form::JsonSchema(text), ends));
    for (form, ends) in forms_of.chain(grammars.iter().map(|(text, ends)| (Form::Grammar(text), ends))) {
        let end = match forms.compile(form) {
            Ok(compiled) => babble(&compiled, 60).1.to_owned(),
            Err(error) => {
                assert!(error.to_string().lines().count() == 1, "{error}");
                "refused".to_owned()
            }
        };
        assert!(ends.contains(&end.as_str()), "{end}: {:.100}", format!("{form:?}"));
    }
}

#[test]
fn what_is_too_deep_is_told_by_its_brackets() {
    for (text, depth) in [("", 0), ("{}", 1), ("[{}, ([])]", 3), ("))((", 2)] {
        assert_eq!(locate::depth(text), depth, "{text}");
    }
    let error = forms().compile(Form::Grammar(&"(".repeat(100_000 / 2))).unwrap_err();
    assert!(matches!(error, StructureError::TooDeep { depth: 50_000, .. }), "{error}");
}
