//! Answers in a form, of a model that babbles: whatever it would rather say, each that ends by itself is what its form
//! describes, alone and in a crowd, and free answers beside it are those of an engine without any.

use pagelm::protocol::{
    Fault, FinishReason, GenerateOptions, IfFull, KvType, LoadOptions, Precision, Request, Structure,
};
use serde_json::Value;

use crate::json_schema::assert_valid;
use crate::world::{Output, World, context, greedy, on_gpu, sample_on_device};

/// Schemas, each of them short enough for answers that mean nothing.
const SCHEMAS: [&str; 10] = [
    r#"{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 0, "maximum": 150}, "is_new": {"type": "boolean"}}, "required": ["name", "age"], "additionalProperties": false}"#,
    r#"{"enum": ["red", "green", 3, null, [1, {"a": 2}]]}"#,
    r#"{"type": "array", "items": {"type": "integer", "minimum": -3, "maximum": 40}, "minItems": 2, "maxItems": 5}"#,
    r#"{"type": "array", "items": {"type": "number", "minimum": -1.5, "maximum": 2.25}, "minItems": 1, "maxItems": 2}"#,
    r#"{"type": "string", "pattern": "^[A-Z]{2}-[0-9]{3}(é|日)?$"}"#,
    r#"{"type": "object", "properties": {"a": {"type": "object", "properties": {"b": {"type": "array", "items": {"type": "object", "properties": {"c": {"enum": [1, 2]}}, "required": ["c"], "additionalProperties": false}, "maxItems": 2}}, "required": ["b"], "additionalProperties": false}}, "required": ["a"], "additionalProperties": false}"#,
    r##"{"$defs": {"tree": {"type": "object", "properties": {"v": {"type": "boolean"}, "children": {"type": "array", "items": {"$ref": "#/$defs/tree"}, "maxItems": 2}}, "required": ["v"], "additionalProperties": false}}, "$ref": "#/$defs/tree"}"##,
    r#"{"anyOf": [{"type": "object", "properties": {"error": {"const": "none"}}, "required": ["error"], "additionalProperties": false}, {"type": "integer", "multipleOf": 5, "minimum": 10, "maximum": 95}, {"type": "null"}]}"#,
    r#"{"oneOf": [{"type": "object", "properties": {"kind": {"const": "cat"}, "lives": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["kind", "lives"], "additionalProperties": false}, {"type": "object", "properties": {"kind": {"const": "dog"}}, "required": ["kind"], "additionalProperties": false}]}"#,
    r#"{"type": "object", "properties": {"ünïcode \"key\"": {"type": "string", "maxLength": 3}}, "required": ["ünïcode \"key\""], "additionalProperties": false}"#,
];

fn schema(index: usize) -> Structure {
    Structure::JsonSchema(SCHEMAS[index].into())
}

fn in_form(structure: Structure, temperature: f32, seed: u64) -> GenerateOptions {
    let structure = Some(structure);
    GenerateOptions {
        temperature,
        seed: Some(seed),
        structure,
        max_tokens: Some(220),
        ..GenerateOptions::default()
    }
}

/// Asserts that an answer that ended by itself is what its schema describes; whether it did.
fn is_whole(schema: &str, output: &Output) -> bool {
    match output.reason() {
        Some(FinishReason::Stop) => {
            let schema: Value = serde_json::from_str(schema).unwrap();
            let value = serde_json::from_str(&output.text)
                .unwrap_or_else(|error| panic!("{:?} is no JSON: {error}", output.text));
            assert_valid(&schema, &schema, &value);
            true
        }
        Some(FinishReason::Length) => false,
        other => panic!("{other:?}: {output:?}"),
    }
}

#[test]
fn every_answer_that_ends_is_what_its_schema_describes_in_batches_of_every_size() {
    for samples in [false, true] {
        sample_on_device(samples);
        let mut world = World::with_tabs([1]);
        let free = GenerateOptions { temperature: 1.0, seed: Some(5), n: 2, ..greedy(40) };
        world.ask(1, 0, &["The"], &free);
        let expected = texts(&world.finish(1, 0));
        let (mut request, mut n_asked, mut n_whole) = (1, 0, 0);
        let mut of_form: Vec<Vec<String>> = vec![Vec::new(); SCHEMAS.len()];
        for batch in 1..=9 {
            let first = request;
            for i in 0..batch {
                let index = (i + batch) as usize % SCHEMAS.len();
                let temperature = [0.0, 1.0, 5.0][i as usize % 3];
                let options =
                    GenerateOptions { n: 1 + i as u32 % 2, ..in_form(schema(index), temperature, 3) };
                world.ask(1, request, &["Once"], &options);
                request += 1;
            }
            world.ask(1, request, &["The"], &free);
            assert_eq!(texts(&world.finish(1, request)), expected, "free answers are as if alone");
            for i in 0..batch {
                let index = (i + batch) as usize % SCHEMAS.len();
                let outputs = world.finish(1, first + i);
                for output in &outputs {
                    n_asked += 1;
                    n_whole += usize::from(is_whole(SCHEMAS[index], output));
                }
                if i % 3 == 1 {
                    of_form[index].push(outputs[0].text.clone());
                }
            }
            request += 1;
        }
        assert!(n_whole * 10 > n_asked * 8, "{n_whole} of {n_asked} ended by themselves");
        for texts in of_form {
            assert!(texts.windows(2).all(|pair| pair[0] == pair[1]), "alone is as in a crowd: {texts:?}");
        }
    }
}

fn texts(outputs: &[Output]) -> Vec<String> {
    outputs.iter().map(|output| output.text.clone()).collect()
}

#[test]
fn json_mode_and_grammars_are_kept() {
    let mut world = World::with_tabs([1]);
    let object = r#"{"type": "object"}"#;
    let mut n_whole = 0;
    for seed in 0..12 {
        world.ask(1, seed, &["Once"], &in_form(Structure::Json, 1.0, seed));
        n_whole += usize::from(is_whole(object, &world.finish(1, seed)[0]));
    }
    assert!(n_whole > 2, "{n_whole} of 12 ended");
    let grammar = "start: greeting \", \" name \"!\"\ngreeting: \"Hello\" | \"Good\" (\" \" (\"morning\" | \"night\"))+\nname: /[A-Z][a-z]{0,5}/\n";
    for seed in 0..12 {
        world.ask(1, 100 + seed, &["Once"], &in_form(Structure::Grammar(grammar.into()), 1.0, seed));
        let output = world.finish(1, 100 + seed).remove(0);
        assert_eq!(output.reason(), Some(FinishReason::Stop));
        let (greeting, name) = output.text.strip_suffix('!').unwrap().rsplit_once(", ").unwrap();
        let words = ["Hello", "Good", " morning", " night"];
        let rest = words.iter().fold(greeting.to_owned(), |rest, word| rest.replace(word, ""));
        assert!(rest.is_empty() && name.starts_with(|c: char| c.is_ascii_uppercase()), "{}", output.text);
    }
}

#[test]
fn the_form_goes_before_what_contradicts_it() {
    let mut world = World::with_tabs([1]);
    let mut request = 0;
    let mut text_of = |structure: &str, change: &dyn Fn(&mut GenerateOptions)| {
        request += 1;
        let mut options = in_form(Structure::JsonSchema(structure.into()), 1.0, 1);
        change(&mut options);
        world.ask(1, request, &["Once"], &options);
        let output = world.finish(1, request).remove(0);
        (output.text.clone(), output.reason().unwrap(), output)
    };
    let only = r#"{"const": "red"}"#;
    let wanted = (r#""red""#.to_owned(), FinishReason::Stop);
    let keep = |(text, reason, _): (String, FinishReason, Output)| (text, reason);
    assert_eq!(keep(text_of(only, &|_| {})), wanted);
    assert_eq!(keep(text_of(only, &|o| o.min_tokens = 40)), wanted);
    assert_eq!(keep(text_of(only, &|o| o.ignore_eos = true)), wanted);
    assert_eq!(
        keep(text_of(only, &|o| o.bad_words = vec!["red".into(), "r".into(), "e".into(), "d".into()])),
        wanted
    );
    assert_eq!(keep(text_of(only, &|o| o.logit_bias = (0..384).map(|id| (id, -100.0)).collect())), wanted);
    assert_eq!(keep(text_of(only, &|o| (o.top_k, o.top_p, o.repetition_penalty) = (1, 0.01, 3.0))), wanted);
    // What cuts it short does, and says so.
    assert_eq!(keep(text_of(only, &|o| o.stop = vec!["ed".into()])), (r#""r"#.into(), FinishReason::Stop));
    let (text, reason, _) = text_of(only, &|o| o.max_tokens = Some(2));
    assert!(reason == FinishReason::Length && wanted.0.starts_with(&text), "{text}");
    // Log-probabilities are those of the model, which would have said something else.
    let (.., output) = text_of(only, &|o| o.logprobs = Some(3));
    assert_eq!(output.logprobs.len(), output.ids.len());
    assert!(output.logprobs[0].logprob < output.logprobs[0].top[0].logprob, "{:?}", output.logprobs[0]);
    // A number may end at every digit: an end-of-generation token ends it.
    let (text, reason, output) =
        text_of(r#"{"type": "integer", "minimum": 0, "maximum": 123456789}"#, &|_| {});
    assert_eq!((text.parse::<u32>().is_ok(), reason), (true, FinishReason::Stop), "{output:?}");
}

#[test]
fn what_cannot_be_kept_is_refused_with_a_sentence() {
    let mut world = World::with_tabs([1]);
    let deep = format!("{}{{}}{}", r#"{"items": "#.repeat(200), "}".repeat(200));
    let long = format!(r#"{{"enum": [{}]}}"#, vec![r#""x""#; 20_000].join(","));
    let schemas = [
        (r#"{"type": "string", "enum": []}"#, "cannot be met"),
        (r#"{"type": "integer", "minimum": 5, "maximum": 3}"#, "cannot be met: minimum (5) is greater"),
        (
            r#"{"type": "object", "properties": {"a": {"type": "string", "pattern": "^abc$", "maxLength": 2}}, "required": ["a"]}"#,
            "required property 'a'",
        ),
        (r#"{"type": "strin"}"#, "cannot be kept: Invalid type: strin"),
        (
            r#"{"type": "object", "properties": {"a/b": {"items": {"anyOf": [{"type": "null"}, {"not": {}}]}}}}"#,
            "cannot be kept at #/properties/a~1b/items/anyOf/1: it has keywords that are not supported: \"not\"",
        ),
        (
            r#"{"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}"#,
            "at #/properties/a: regex parse error",
        ),
        (r##"{"$ref": "#/$defs/x"}"##, "not found"),
        (r#"{"$ref": "https://example.com/x"}"#, "must begin with #/"),
        (
            r##"{"$defs": {"x": {"$ref": "#/$defs/x"}}, "$ref": "#/$defs/x"}"##,
            "no token of this model begins",
        ),
        (r#"{"oneOf": [{"type": "string"}, {"type": "string"}]}"#, "write `anyOf`"),
        ("false", "found false"),
        ("[]", "found an array"),
        ("{\"type\": \"object\",\n \"a\" 1}", "is no JSON: expected `:` at line 2 column 6"),
        (&deep, "nests 201 levels deep"),
        (&long, "bytes, but 65536 are allowed"),
    ];
    let grammars = [
        ("", "no start rule"),
        ("start: \"a\" b\n", "line 1, column 8: unknown name: \"b\""),
        ("start: (\"a\"\n", "line 1, column 12"),
        ("start: /(/\n", "invalid regex"),
        ("start: start\n", "no token of this model begins"),
        ("root ::= \"a\"\n", "line 1, column 7"),
    ];
    let schemas = schemas.map(|(text, sentence)| (Structure::JsonSchema(text.into()), sentence));
    let grammars = grammars.map(|(text, sentence)| (Structure::Grammar(text.into()), sentence));
    for (request, (structure, sentence)) in (0..).zip(schemas.into_iter().chain(grammars)) {
        world.ask(1, request, &["Once"], &in_form(structure, 1.0, 1));
        let (of, error) = world.failed(1);
        assert!(of == Some(request) && error.contains(sentence), "{error:?} says nothing of {sentence:?}");
        assert!(!error.contains('\n') && error.len() < 600, "{error:?} is one sentence");
    }
    assert_eq!(world.status(1).own, 0);
    // What is no keyword of JSON Schema means nothing, and a rule may begin with itself.
    world.ask(
        1,
        90,
        &["Once"],
        &in_form(Structure::JsonSchema(r#"{"const": 1, "color": "red"}"#.into()), 1.0, 1),
    );
    assert_eq!(world.finish(1, 90)[0].text, "1");
    let left = Structure::Grammar("start: start \"a\" | \"a\"\n".into());
    world.ask(1, 91, &["Once"], &GenerateOptions { max_tokens: Some(9), ..in_form(left, 1.0, 1) });
    assert!(world.finish(1, 91)[0].text.chars().all(|letter| letter == 'a'));
}

#[test]
fn answers_in_a_form_go_on_after_every_loss() {
    let exact = LoadOptions { kv: KvType::F32, precision: Precision::Exact, ..on_gpu() };
    let ask = |world: &World| {
        for (request, index) in [(0, 0), (1, 6), (2, 8)] {
            let options = GenerateOptions { n: 2, ..in_form(schema(index), 1.0, 2) };
            world.ask(1, request, &["Once upon a time"], &options);
        }
    };
    let finish = |world: &mut World| (0..3).flat_map(|request| texts(&world.finish(1, request))).collect();
    let begin = || {
        let mut world = World::new();
        world.hello(1);
        world.load(1, "tiny", exact.clone(), IfFull::Ask);
        world.ready(1);
        world
    };
    let mut world = begin();
    ask(&world);
    let undisturbed: Vec<String> = finish(&mut world);
    let mut world = begin();
    ask(&world);
    world.until("tokens", |world| world.outputs(1, 0).first().is_some_and(|output| output.ids.len() > 5));
    world.send(1, &Request::Break { fault: Fault::LoseDevice });
    assert_eq!(finish(&mut world), undisturbed, "the GPU was lost");
    // Another engine is given what the lost one had said.
    let options = GenerateOptions { n: 2, ..in_form(schema(0), 1.0, 2) };
    let whole = world.outputs(1, 0);
    for n_had in [1, 7] {
        let generated = whole.iter().map(|output| output.ids[..n_had].to_vec()).collect();
        let mut world = begin();
        world.ask_again(1, 0, &["Once upon a time"], &options, generated);
        let outputs = world.finish(1, 0);
        for (output, whole) in outputs.iter().zip(&whole) {
            assert_eq!(output.ids[..], whole.ids[n_had..]);
            assert!(whole.text.ends_with(&output.text));
        }
    }
    // What does not fit the form was said by somebody else.
    world.ask_again(1, 7, &["Once"], &GenerateOptions { n: 1, ..options }, vec![vec![40, 41]]);
    let (_, error) = world.failed(1);
    assert!(error.contains("token 0 of the answer so far does not fit"), "{error}");
}

#[test]
fn an_answer_in_a_form_survives_its_blocks_going_to_another() {
    let mut world = World::new();
    world.hello(1);
    world.load(1, "tiny", context(128), IfFull::Ask);
    world.ready(1);
    let options = GenerateOptions { max_tokens: Some(90), ..in_form(schema(6), 1.0, 2) };
    for request in 0..12 {
        world.ask(1, request, &["Once upon a time there was"], &options);
    }
    let outputs: Vec<Output> = (0..12).map(|request| world.finish(1, request).remove(0)).collect();
    assert!(outputs.iter().all(|output| output.text == outputs[0].text));
    is_whole(SCHEMAS[6], &outputs[0]);
    assert!(world.status(1).preemptions > 0);
}

#[test]
fn an_answer_that_proves_too_complex_ends_alone_and_says_so() {
    let mut world = World::with_tabs([1]);
    let free = greedy(60);
    world.ask(1, 0, &["Once"], &free);
    let expected = texts(&world.finish(1, 0));
    let hard = "start: a{300}\na: a a a | a a | \"a\" | \"b\"\n";
    let options = GenerateOptions { n: 2, ..in_form(Structure::Grammar(hard.into()), 1.0, 1) };
    world.ask(1, 1, &["Once"], &options);
    world.ask(1, 2, &["Once"], &free);
    let outputs = world.finish(1, 1);
    assert!(outputs.iter().all(|output| output.reason() == Some(FinishReason::Unmet)), "{outputs:?}");
    assert!(outputs.iter().all(|output| output.text.chars().all(|letter| ['a', 'b'].contains(&letter))));
    assert_eq!(texts(&world.finish(1, 2)), expected);
    world.turns(5);
    let status = world.status(1);
    assert_eq!((status.own, status.free_blocks), (0, status.n_blocks));
}
