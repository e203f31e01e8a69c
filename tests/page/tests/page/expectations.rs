//! The default model in Chromium says what an independent implementation says (tests/fixtures/smollm2-135m).

use page_tests::{Gpu, Page, in_page};
use pagelm::protocol::{
    DeviceChoice, Event, GenerateOptions, IfFull, LoadOptions, Message, ModelSource, Precision, Prompt,
    Request, TokenLogprob,
};
use serde_json::Value;
use std::time::Duration;

/// Some 300 prompt tokens and nine answers of 32 tokens as one batch, in software on two busy cores.
const BATCH: Duration = Duration::from_secs(1800);
/// Log-probabilities may differ by this.
const LOGPROB: f64 = 0.03;
/// Where the two best logits lie closer, either may be chosen.
const NEAR_TIE: f64 = 0.05;
/// The mean negative log-likelihood may differ by this.
const MEAN_NLL: f64 = 0.003;
/// The engine worker's wasm memory stays under this, model and tokenizer included.
const MEMORY_BYTES: u64 = 64 << 20;

#[test]
fn the_default_model_agrees_with_its_reference() {
    in_page("reference", Gpu::Software, |page| {
        let expected = expected()?;
        load_exact(page)?;
        let mut wrong = Vec::new();
        check_tokens(page, &expected, &mut wrong)?;
        check_answers(page, &expected, &mut wrong)?;
        if wrong.is_empty() {
            Ok(())
        } else {
            Err(format!("{} differences:\n{}", wrong.len(), wrong.join("\n")))
        }
    });
}

#[test]
fn the_engine_keeps_the_weights_out_of_its_memory() {
    in_page("memory", Gpu::Software, |page| {
        page.choose_setting("device", "gpu")?;
        page.load_default_model()?;
        let n_bytes =
            page.engine_status()?.memory_bytes.ok_or("the engine did not say how much memory it has")?;
        println!("the engine worker has {:.1} MiB of wasm memory", n_bytes as f64 / f64::from(1 << 20));
        assert!(n_bytes < MEMORY_BYTES, "the engine worker has {n_bytes} bytes of wasm memory");
        assert!(n_bytes > 1 << 20, "{n_bytes} bytes cannot hold the tokenizer: is this the engine's memory?");
        Ok(())
    });
}

/// What the reference computes is f32 throughout; alone, a software device would choose 8-bit activations.
fn load_exact(page: &Page) -> Result<(), String> {
    let (precision, device) = (Precision::Exact, DeviceChoice::Gpu);
    let options = LoadOptions { precision, device, ..LoadOptions::default() };
    let source = ModelSource::Url { url: "models/SmolLM2-135M-Instruct.Q4_1.gguf".into() };
    let answers = page.request(&[Request::Load { source, options, if_full: IfFull::Ask }], BATCH)?;
    match answers[0].last() {
        Some(Event::Ready { model, .. }) if model.precision == Precision::Exact => Ok(()),
        other => Err(format!("the default model was not loaded in exact precision: {other:?}")),
    }
}

pub(crate) fn expected() -> Result<Value, String> {
    let text = include_str!("../../../fixtures/smollm2-135m/expected.json");
    serde_json::from_str(text).map_err(|error| format!("expected.json: {error}"))
}

pub(crate) fn list<'a>(value: &'a Value, field: &str) -> &'a [Value] {
    value[field].as_array().map_or(&[], Vec::as_slice)
}

pub(crate) fn ids(value: &Value, field: &str) -> Vec<u32> {
    list(value, field).iter().filter_map(Value::as_u64).filter_map(|id| u32::try_from(id).ok()).collect()
}

fn chat(value: &Value) -> Prompt {
    let text = |message: &Value, field: &str| message[field].as_str().unwrap_or_default().to_string();
    let turn = |message: &Value| Message::text(text(message, "role"), text(message, "content"));
    let messages = list(value, "messages").iter().map(turn).collect();
    Prompt::Chat { messages, tools: Vec::new(), template_arguments: Vec::new() }
}

fn raw(value: &Value, field: &str) -> Prompt {
    Prompt::Text(value[field].as_str().unwrap_or_default().into())
}

/// Token ids of every text, and rendered chats.
fn check_tokens(page: &Page, expected: &Value, wrong: &mut Vec<String>) -> Result<(), String> {
    let texts = list(expected, "tokenize").iter().map(|case| (raw(case, "text"), case));
    let prompts = list(expected, "prompts").iter().map(|case| (raw(case, "prompt"), case));
    let chats = list(expected, "chats").iter().map(|case| (chat(case), case));
    let cases: Vec<(Prompt, &Value)> = texts.chain(prompts).chain(chats).collect();
    let requests: Vec<Request> = cases
        .iter()
        .map(|(prompt, _)| Request::Tokenize { request: 0, model: None, prompt: prompt.clone() })
        .collect();
    let answers = page.request(&requests, Duration::from_secs(120))?;
    for ((prompt, case), events) in cases.iter().zip(&answers) {
        let Some(Event::Tokenized { text, ids: found, .. }) = events.last() else {
            return Err(format!("{prompt:?} was answered by {events:?}"));
        };
        if *found != ids(case, "ids") {
            wrong.push(format!("{prompt:?}: ids {found:?}, expected {:?}", ids(case, "ids")));
        }
        if let Some(rendered) = case["rendered"].as_str()
            && rendered != text
        {
            wrong.push(format!("{prompt:?}: rendered {text:?}, expected {rendered:?}"));
        }
    }
    Ok(())
}

/// Likeliest tokens, greedy tokens and the mean log-likelihood, all in one batch.
fn check_answers(page: &Page, expected: &Value, wrong: &mut Vec<String>) -> Result<(), String> {
    let prompts = list(expected, "prompts").iter().map(|case| (raw(case, "prompt"), case));
    let chats = list(expected, "chats").iter().map(|case| (chat(case), case));
    let cases: Vec<(Prompt, &Value)> = prompts.chain(chats).collect();
    let greedy = |n_tokens: usize| GenerateOptions {
        temperature: 0.0,
        max_tokens: u32::try_from(n_tokens).ok(),
        ignore_eos: true,
        skip_special_tokens: false,
        logprobs: Some(20),
        ..GenerateOptions::default()
    };
    let mut requests: Vec<Request> = cases
        .iter()
        .map(|(prompt, case)| Request::Generate {
            request: 0,
            model: None,
            prompts: vec![prompt.clone()],
            options: greedy(ids(case, "greedy").len()),
            generated: Vec::new(),
        })
        .collect();
    requests.push(Request::Generate {
        request: 0,
        model: None,
        prompts: vec![raw(&expected["perplexity"], "text")],
        options: GenerateOptions { prompt_logprobs: Some(1), ..greedy(1) },
        generated: Vec::new(),
    });
    let answers = page.request(&requests, BATCH)?;
    for ((prompt, case), events) in cases.iter().zip(&answers) {
        let (found, logprobs) = tokens(events)?;
        check_greedy(&found, case).unwrap_or_else(|sentence| wrong.push(format!("{prompt:?}: {sentence}")));
        let first = logprobs.first().ok_or_else(|| format!("{prompt:?}: no log-probabilities came"))?;
        check_top(&first.top, case, |sentence| wrong.push(format!("{prompt:?}: {sentence}")));
    }
    let scored = answers.last().ok_or("the scored text was not answered")?;
    check_score(scored, &expected["perplexity"]).unwrap_or_else(|sentence| wrong.push(sentence));
    Ok(())
}

/// The tokens of an answer that ended well.
fn tokens(events: &[Event]) -> Result<(Vec<u32>, Vec<TokenLogprob>), String> {
    let (mut all_ids, mut all_logprobs) = (Vec::new(), Vec::new());
    for event in events {
        match event {
            Event::Tokens { ids, logprobs, .. } => {
                all_ids.extend(ids);
                all_logprobs.extend(logprobs.iter().cloned());
            }
            Event::Failed { error, .. } => return Err(error.clone()),
            _ => (),
        }
    }
    match events.last() {
        Some(Event::Finished { .. }) => Ok((all_ids, all_logprobs)),
        last => Err(format!("an answer ended with {last:?}")),
    }
}

/// Equal up to the first near tie.
fn check_greedy(found: &[u32], case: &Value) -> Result<(), String> {
    let wanted = ids(case, "greedy");
    let sure = list(case, "greedy_gap")
        .iter()
        .take_while(|gap| gap.as_f64().is_some_and(|gap| gap >= NEAR_TIE))
        .count();
    if found.len() != wanted.len() {
        return Err(format!("{} greedy tokens, expected {}", found.len(), wanted.len()));
    }
    if found[..sure] == wanted[..sure] {
        Ok(())
    } else {
        Err(format!("greedy {:?}, expected {:?}", &found[..sure], &wanted[..sure]))
    }
}

/// The listed tokens agree, and none is missing from the ten likeliest that clearly belongs there.
pub(crate) fn check_top(found: &[TokenLogprob], case: &Value, mut wrong: impl FnMut(String)) {
    let wanted: Vec<(u32, f64)> = ids(case, "top")
        .into_iter()
        .zip(list(case, "top_logprob").iter().filter_map(Value::as_f64))
        .collect();
    if wanted.len() < 11 || found.len() < 10 {
        return wrong(format!("{} likeliest tokens, expected 10 of {}", found.len(), wanted.len()));
    }
    for (rank, &(id, logprob)) in wanted.iter().enumerate() {
        match found.iter().position(|token| token.id == id) {
            Some(place) => {
                let error = f64::from(found[place].logprob) - logprob;
                if error.is_nan() || error.abs() > LOGPROB {
                    wrong(format!("token {id}: log-probability off by {error:.4}"));
                }
                if place >= 10 && rank < 10 && logprob - wanted[10].1 > LOGPROB {
                    wrong(format!("token {id} is only number {} among the likeliest", place + 1));
                }
            }
            None if rank < 10 && logprob - wanted[10].1 > LOGPROB => {
                wrong(format!("token {id} is missing from the likeliest"));
            }
            None => (),
        }
    }
}

fn check_score(events: &[Event], case: &Value) -> Result<(), String> {
    let scored = events.iter().find_map(|event| match event {
        Event::PromptLogprobs { tokens, .. } => Some(tokens),
        _ => None,
    });
    let scored = scored.ok_or("the scored text has no log-probabilities")?;
    let wanted_ids = ids(case, "ids");
    if scored.len() != wanted_ids.len() || scored.first().is_some_and(Option::is_some) {
        return Err(format!(
            "{} scored tokens, expected {}, the first without a value",
            scored.len(),
            wanted_ids.len()
        ));
    }
    let mut sum = 0.0;
    for (token, wanted) in scored.iter().zip(&wanted_ids).skip(1) {
        let token = token.as_ref().ok_or("a scored token has no value")?;
        if token.id != *wanted {
            return Err(format!("scored token {}, expected {wanted}", token.id));
        }
        sum -= f64::from(token.logprob);
    }
    let mean = sum / (wanted_ids.len() - 1) as f64;
    let wanted = case["mean_nll"].as_f64().ok_or("expected.json has no mean_nll")?;
    if (mean - wanted).abs() <= MEAN_NLL {
        Ok(())
    } else {
        Err(format!("mean NLL {mean:.5}, expected {wanted:.5}"))
    }
}

#[test]
fn differences_are_seen() {
    let case = serde_json::json!({
        "greedy": [5, 6, 7], "greedy_gap": [1.0, 0.04, 1.0],
        "top": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
        "top_logprob": [-1.0, -1.1, -1.2, -1.3, -1.4, -1.5, -1.6, -1.7, -1.8, -2.0, -2.02, -2.5],
    });
    assert_eq!(check_greedy(&[5, 9, 9], &case), Ok(()), "after a near tie anything may come");
    assert!(check_greedy(&[4, 6, 7], &case).is_err() && check_greedy(&[5, 6], &case).is_err());
    let likeliest = |change: &dyn Fn(u32) -> (u32, f32)| -> Vec<TokenLogprob> {
        let token = |(id, logprob)| TokenLogprob { id, text: String::new(), logprob, top: Vec::new() };
        (1..=12).map(|rank| token(change(rank))).collect()
    };
    let wanted = |id: u32| case["top_logprob"][id as usize - 1].as_f64().expect("a number") as f32;
    let faults = |found: &[TokenLogprob]| {
        let mut n_faults = 0;
        check_top(found, &case, |_| n_faults += 1);
        n_faults
    };
    assert_eq!(faults(&likeliest(&|id| (id, wanted(id) + 0.02))), 0);
    assert_eq!(faults(&likeliest(&|id| (id, wanted(id) + if id == 3 { 0.04 } else { 0.0 }))), 1);
    assert_eq!(faults(&likeliest(&|id| (id, if id == 1 { f32::NAN } else { wanted(id) }))), 1);
    assert_eq!(
        faults(&likeliest(&|id| (if id == 4 { 99 } else { id }, wanted(id)))),
        1,
        "a clear one is missing"
    );
    assert_eq!(
        faults(&likeliest(&|id| (if id == 10 { 99 } else { id }, wanted(id)))),
        0,
        "a near one may be"
    );
}
