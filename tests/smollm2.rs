//! The default model through the host, natively, against what transformers says of it: tokens, chats, log-probabilities,
//! greedy answers alone and in a crowd, and the likelihood of a text; and how far fast is from exact.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::path::Path;

use pagelm::format::block::BlockType;
use pagelm::format::checkpoint::Repack;
use pagelm::gpu;
use pagelm::host::load::{describe, describe_files};
use pagelm::host::native::surroundings;
use pagelm::host::open::open;
use pagelm::host::{Host, encode};
use pagelm::protocol::{
    DeviceChoice, DeviceKind, Event, FinishReason, GenerateOptions, LoadOptions, Message, ModelInfo,
    Precision, Prompt, Structure, TokenLogprob,
};
use pagelm::store::native::FileSource;
use serde_json::Value;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/www/models/SmolLM2-135M-Instruct.Q4_1.gguf");
/// Of log-probabilities, and how much a token must lead by to be missed.
const LOGPROB_TOLERANCE: f64 = 0.03;
/// Below it two tokens are about equally likely, and either may come first.
const GREEDY_GAP: f64 = 0.05;
const NLL_TOLERANCE: f64 = 0.003;
const MAX_TOKENS: u32 = 32;

fn expected() -> Value {
    serde_json::from_str(include_str!("fixtures/smollm2-135m/expected.json")).unwrap()
}

fn model() -> FileSource {
    let problem = format!("{MODEL} is missing: `cargo xtask test` fetches it, and then runs this test");
    assert!(Path::new(MODEL).is_file(), "{problem}");
    FileSource::open(MODEL).unwrap()
}

fn array(value: &Value) -> &[Value] {
    value.as_array().unwrap()
}

fn ids(value: &Value) -> Vec<u32> {
    array(value).iter().map(|id| id.as_u64().unwrap() as u32).collect()
}

fn numbers(value: &Value) -> Vec<f64> {
    array(value).iter().map(|number| number.as_f64().unwrap()).collect()
}

fn chat(case: &Value) -> Prompt {
    let text = |message: &Value, field: &str| message[field].as_str().unwrap().to_owned();
    let turn = |message| Message::text(text(message, "role"), text(message, "content"));
    let messages = array(&case["messages"]).iter().map(turn).collect();
    Prompt::Chat { messages, tools: Vec::new(), template_arguments: Vec::new() }
}

fn raw(text: &Value) -> Prompt {
    Prompt::Text(text.as_str().unwrap().to_owned())
}

/// Every prompt that the reference answered, raw and rendered, with what it answered.
fn cases(expected: &Value) -> Vec<(Prompt, &Value)> {
    let raw = array(&expected["prompts"]).iter().map(|case| (raw(&case["prompt"]), case));
    raw.chain(array(&expected["chats"]).iter().map(|case| (chat(case), case))).collect()
}

#[test]
fn texts_and_chats_become_the_references_tokens() {
    let expected = expected();
    let described = pollster::block_on(describe(vec![model()], &LoadOptions::default())).unwrap();
    let check = |prompt: &Prompt, text: &Value, expected: &Value| {
        let (rendered, found) = encode(described.tokenizer(), prompt, 0).unwrap();
        assert_eq!(Some(rendered.as_str()), text.as_str());
        assert_eq!(found, ids(expected), "{text}");
    };
    for case in array(&expected["prompts"]) {
        check(&raw(&case["prompt"]), &case["prompt"], &case["ids"]);
    }
    for case in array(&expected["chats"]) {
        check(&chat(case), &case["rendered"], &case["ids"]);
    }
    for case in array(&expected["tokenize"]).iter().chain([&expected["perplexity"]]) {
        check(&raw(&case["text"]), &case["text"], &case["ids"]);
    }
}

/// What came of one request.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    tokens: Vec<u32>,
    logprobs: Vec<TokenLogprob>,
    prompt_logprobs: Vec<Option<TokenLogprob>>,
    reason: Option<FinishReason>,
}

/// Answers all prompts at once.
fn answers(host: &mut Host, prompts: &[&Prompt], options: &GenerateOptions) -> Vec<Answer> {
    for (request, prompt) in (0..).zip(prompts) {
        host.generate(0, request, prompt, options);
    }
    let mut answers: Vec<Answer> = prompts.iter().map(|_| Answer::default()).collect();
    loop {
        for (_, event) in host.take_events() {
            match event {
                Event::Tokens { request, text, ids, logprobs, .. } => {
                    let answer = &mut answers[request as usize];
                    answer.text.push_str(&text);
                    answer.tokens.extend(ids);
                    answer.logprobs.extend(logprobs);
                }
                Event::PromptLogprobs { request, tokens, .. } => {
                    answers[request as usize].prompt_logprobs = tokens;
                }
                Event::Finished { request, reason, .. } => answers[request as usize].reason = Some(reason),
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        if !host.has_work() {
            return answers;
        }
        pollster::block_on(host.step());
    }
}

/// The likeliest first tokens are the reference's, as likely as there.
fn check_likeliest(found: &TokenLogprob, case: &Value) {
    let (tokens, logprobs) = (ids(&case["top"]), numbers(&case["top_logprob"]));
    for (rank, (token, expected)) in tokens.iter().zip(&logprobs).enumerate() {
        let place = found.top.iter().position(|top| top.id == *token);
        let place = place
            .unwrap_or_else(|| panic!("token {token}, the reference's {rank}, is not among {:?}", found.top));
        let difference = (f64::from(found.top[place].logprob) - expected).abs();
        assert!(
            difference <= LOGPROB_TOLERANCE,
            "token {token}: {} instead of {expected}",
            found.top[place].logprob
        );
        let leads = rank < 10 && *expected > logprobs[10] + LOGPROB_TOLERANCE;
        assert!(!leads || place < 10, "token {token}, the reference's {rank}, is only at {place}");
    }
}

/// Tokens are the reference's until two are about equally likely.
fn check_greedy(found: &Answer, case: &Value) {
    let gaps = numbers(&case["greedy_gap"]);
    let certain = gaps.iter().position(|gap| *gap < GREEDY_GAP).unwrap_or(gaps.len());
    assert_eq!(found.tokens.len(), MAX_TOKENS as usize);
    assert_eq!(found.tokens[..certain], ids(&case["greedy"])[..certain], "{case}");
    if certain == gaps.len() {
        assert_eq!(
            Some(found.text.trim_end_matches('\u{FFFD}')),
            case["decoded"].as_str().map(|t| t.trim_end_matches('\u{FFFD}'))
        );
    }
    assert_eq!(found.reason, Some(FinishReason::Length));
}

fn check_likelihood(host: &mut Host, expected: &Value) {
    let options =
        GenerateOptions { max_tokens: Some(1), prompt_logprobs: Some(0), ..GenerateOptions::default() };
    let found = answers(host, &[&raw(&expected["text"])], &options).remove(0);
    let known: Vec<f64> =
        found.prompt_logprobs.iter().flatten().map(|token| f64::from(token.logprob)).collect();
    assert_eq!(known.len(), ids(&expected["ids"]).len() - 1, "every token but the first is predicted");
    let mean_nll = -known.iter().sum::<f64>() / known.len() as f64;
    let difference = (mean_nll - expected["mean_nll"].as_f64().unwrap()).abs();
    assert!(difference <= NLL_TOLERANCE, "mean NLL {mean_nll} instead of {}", expected["mean_nll"]);
}

/// Where nothing is asked for, it is the GPU, unless the processor imitates it.
#[test]
fn the_device_is_chosen_for_speed() {
    let mut host = Host::new(surroundings(), None);
    let info = pollster::block_on(host.load(vec![model()], &LoadOptions::default(), |_, _| {})).unwrap();
    let adapters = pollster::block_on(gpu::adapters());
    if adapters.iter().any(|adapter| !adapter.is_software) {
        assert_eq!((info.device_kind, info.device_note), (DeviceKind::Gpu, None));
    } else {
        assert_eq!((info.device_kind, info.precision), (DeviceKind::Cpu, Precision::Fast));
        let note = info.device_note.unwrap();
        assert!(adapters.iter().any(|adapter| note.contains(&adapter.name)), "the reason is told: {note}");
    }
}

#[test]
fn answers_of_the_gpu_are_the_references() {
    let info = check_answers(DeviceChoice::Gpu);
    let adapters = pollster::block_on(gpu::adapters());
    let adapter = adapters.iter().find(|adapter| adapter.name == info.device_name).unwrap();
    let kind = if adapter.is_software { DeviceKind::Software } else { DeviceKind::Gpu };
    assert_eq!(info.device_kind, kind, "what is told of the device is true");
}

#[test]
fn answers_of_the_processor_are_the_references() {
    assert_eq!(check_answers(DeviceChoice::Cpu).device_kind, DeviceKind::Cpu);
}

fn check_answers(device: DeviceChoice) -> ModelInfo {
    let expected = expected();
    let mut host = Host::new(surroundings(), None);
    let (context, precision) = (Some(2048), Precision::Exact);
    let options = LoadOptions { context, precision, device, ..LoadOptions::default() };
    let info = pollster::block_on(host.load(vec![model()], &options, |_, _| {})).unwrap();

    let cases = cases(&expected);
    let prompts: Vec<&Prompt> = cases.iter().map(|(prompt, _)| prompt).collect();
    let greedy = GenerateOptions {
        temperature: 0.0,
        max_tokens: Some(MAX_TOKENS),
        ignore_eos: true,
        logprobs: Some(20),
        skip_special_tokens: false,
        ..GenerateOptions::default()
    };
    let together = answers(&mut host, &prompts, &greedy);
    for (answer, (_, case)) in together.iter().zip(&cases) {
        check_likeliest(&answer.logprobs[0], case);
        check_greedy(answer, case);
    }
    let alone = answers(&mut host, &prompts[1..2], &greedy).remove(0);
    check_greedy(&alone, cases[1].1);
    assert_eq!(
        (&alone.tokens, &alone.logprobs),
        (&together[1].tokens, &together[1].logprobs),
        "alone = in a crowd"
    );
    check_likelihood(&mut host, &expected["perplexity"]);
    info
}

/// How far `fast` may be from `exact` on any device, a third more than was measured on llvmpipe: of the log-probabilities of a text's
/// tokens the greatest and the mean difference; and the difference of their mean, twice the greatest measured. `cargo test
/// --test smollm2 fast -- --nocapture` prints the table that the README shows.
const FIDELITY: [(Option<BlockType>, [f64; 3]); 3] = [
    (None, [0.27, 0.025, 0.0066]),
    (Some(BlockType::Q8_0), [0.21, 0.024, 0.0066]),
    (Some(BlockType::Q4_0), [0.14, 0.025, 0.0066]),
];
/// How far a log-probability of the ten likeliest tokens after a prompt may move.
const MOST_OF_TEN: f64 = 0.4;
const FAST_TOKENS: u32 = 16;

/// Log-probabilities of the fixture's text and of the answers that are surest, in one precision.
fn measured(
    device: DeviceChoice,
    block_type: Option<BlockType>,
    precision: Precision,
    expected: &Value,
) -> (Vec<f64>, Vec<Answer>) {
    let mut files = pollster::block_on(open(vec![model()])).unwrap();
    if let Some(block_type) = block_type {
        files.checkpoint.quantize(block_type, Repack::All);
    }
    let options = LoadOptions { context: Some(1024), precision, device, ..LoadOptions::default() };
    let mut host = Host::new(surroundings(), None);
    let described = describe_files(files, &options).unwrap();
    let info = pollster::block_on(host.load_described(described, |_, _| {})).unwrap();
    assert_eq!(info.precision, precision, "what was asked for computes");
    let scored =
        GenerateOptions { max_tokens: Some(1), prompt_logprobs: Some(0), ..GenerateOptions::default() };
    let text = answers(&mut host, &[&raw(&expected["perplexity"]["text"])], &scored).remove(0);
    let logprobs = text.prompt_logprobs.iter().flatten().map(|token| f64::from(token.logprob)).collect();
    let cases = cases(expected);
    let prompts: Vec<&Prompt> = cases.iter().map(|(prompt, _)| prompt).collect();
    let greedy = GenerateOptions {
        temperature: 0.0,
        max_tokens: Some(FAST_TOKENS),
        ignore_eos: true,
        logprobs: Some(20),
        ..GenerateOptions::default()
    };
    (logprobs, answers(&mut host, &prompts, &greedy))
}

#[test]
fn fast_is_as_near_to_exact_as_published() {
    check_fidelity(DeviceChoice::Gpu);
}

#[test]
fn fast_on_the_processor_is_as_near_to_exact_as_published() {
    check_fidelity(DeviceChoice::Cpu);
}

/// The greatest difference of the log-probabilities of the ten likeliest first tokens.
fn likeliest_delta(exact: &Answer, fast: &Answer) -> f64 {
    let fast = &fast.logprobs[0].top;
    let deltas = exact.logprobs[0].top[..10].iter().map(|likely| {
        let same = fast.iter().find(|found| found.id == likely.id);
        same.map_or(f64::INFINITY, |found| f64::from(found.logprob - likely.logprob).abs())
    });
    deltas.fold(0.0, f64::max)
}

fn check_fidelity(device: DeviceChoice) {
    let expected = expected();
    let mut faults = Vec::new();
    println!(
        "| weights | max |Δ logprob| | mean |Δ logprob| | Δ mean NLL | max |Δ| of the ten likeliest | greedy tokens before the first other one |"
    );
    println!("| --- | --- | --- | --- | --- | --- |");
    for (block_type, bounds) in FIDELITY {
        let (exact, exact_answers) = measured(device, block_type, Precision::Exact, &expected);
        let (fast, fast_answers) = measured(device, block_type, Precision::Fast, &expected);
        assert!(exact.len() > 100 && exact.len() == fast.len());
        let deltas: Vec<f64> = exact.iter().zip(&fast).map(|(e, f)| f - e).collect();
        let greatest = deltas.iter().fold(0f64, |m, d| m.max(d.abs()));
        let mean = deltas.iter().map(|d| d.abs()).sum::<f64>() / deltas.len() as f64;
        let nll = -deltas.iter().sum::<f64>() / deltas.len() as f64;
        let same = |(exact, fast): (&Answer, &Answer)| {
            exact.tokens.iter().zip(&fast.tokens).take_while(|(e, f)| e == f).count()
        };
        let n_same: usize = exact_answers.iter().zip(&fast_answers).map(same).sum();
        let n_tokens = exact_answers.len() * FAST_TOKENS as usize;
        let pairs = exact_answers.iter().zip(&fast_answers);
        let likeliest = pairs.map(|(exact, fast)| likeliest_delta(exact, fast)).fold(0.0, f64::max);
        let name = block_type.map_or("Q4_1", BlockType::name);
        println!(
            "| {name} | {greatest:.3} | {mean:.3} | {nll:+.4} | {likeliest:.3} | {n_same} of {n_tokens} |"
        );
        assert!(greatest > 1e-4, "{name}: fast rounds");
        for (what, found, most) in [
            ("greatest", greatest, bounds[0]),
            ("mean", mean, bounds[1]),
            ("mean NLL", nll.abs(), bounds[2]),
            ("greatest of the ten likeliest", likeliest, MOST_OF_TEN),
        ] {
            if found.is_nan() || found > most {
                faults.push(format!("{name}: the {what} difference is {found}, over {most}"));
            }
        }
        // Where exact is sure, fast says the same: both of two log-probabilities may have moved.
        for (exact, fast) in exact_answers.iter().zip(&fast_answers) {
            if let Some(token) = exact.logprobs.get(same((exact, fast))) {
                let gap = f64::from(token.top[0].logprob - token.top[1].logprob);
                if gap > 2.0 * bounds[0] {
                    faults.push(format!("{name}: a token that led by {gap} did not come"));
                }
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// A real model keeps a realistic schema, and writes sense into it, and free answers stay as they were.
#[test]
fn an_answer_in_a_form_is_what_the_schema_describes() {
    const SCHEMA: &str = r#"{
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 30},
            "country": {"type": "string", "maxLength": 30},
            "is_capital": {"type": "boolean"},
            "landmarks": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"name": {"type": "string", "maxLength": 40}, "kind": {"enum": ["tower", "museum", "church", "other"]}},
                    "required": ["name", "kind"],
                    "additionalProperties": false
                },
                "minItems": 1,
                "maxItems": 3
            }
        },
        "required": ["city", "country", "is_capital", "landmarks"],
        "additionalProperties": false
    }"#;
    let mut host = Host::new(surroundings(), None);
    let options = LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() };
    pollster::block_on(host.load(vec![model()], &options, |_, _| {})).unwrap();
    let question =
        Message::text("user", "Describe Paris, the capital of France, with its landmarks, as JSON.");
    let prompt = Prompt::Chat { messages: vec![question], tools: Vec::new(), template_arguments: Vec::new() };
    let free = GenerateOptions { temperature: 0.0, max_tokens: Some(24), ..GenerateOptions::default() };
    let structure = Some(Structure::JsonSchema(SCHEMA.into()));
    let in_form = GenerateOptions { structure, max_tokens: Some(200), ..free.clone() };
    let alone = answers(&mut host, &[&prompt], &free).remove(0);

    let found = answers(&mut host, &[&prompt], &in_form).remove(0);
    assert_eq!(found.reason, Some(FinishReason::Stop), "{}", found.text);
    let value: Value = serde_json::from_str(&found.text).unwrap();
    // The schema says nothing of capitals, and the model likes them.
    let country = value["country"].as_str().unwrap();
    assert!(value["city"] == "Paris" && country.eq_ignore_ascii_case("France"), "{value}");
    assert!(value["is_capital"].is_boolean() && value.as_object().unwrap().len() == 4, "{value}");
    let landmarks = array(&value["landmarks"]);
    assert!((1..=3).contains(&landmarks.len()), "{value}");
    for landmark in landmarks {
        assert!(landmark["name"].as_str().is_some_and(|name| name.chars().count() <= 40), "{value}");
        assert!(
            ["tower", "museum", "church", "other"].contains(&landmark["kind"].as_str().unwrap()),
            "{value}"
        );
    }
    assert_eq!(answers(&mut host, &[&prompt], &free).remove(0).tokens, alone.tokens);
}
