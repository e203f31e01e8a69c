//! Schedules of losses that a browser would need minutes for; attachments are numbers.

use super::*;
use crate::protocol::{AttachedFile, DeviceKind, GenerateOptions, ModelInfo, Prompt, Status};

fn source(name: &str) -> ModelSource {
    ModelSource::Attachments { files: vec![AttachedFile { name: name.into(), len_bytes: 9, modified_ms: 3 }] }
}

fn load(name: &str, if_full: IfFull) -> Request {
    Request::Load { source: source(name), options: LoadOptions::default(), if_full }
}

fn ready(name: &str) -> Event {
    let model = ModelInfo {
        id: 4,
        name: name.into(),
        architecture: "llama".into(),
        n_parameters: 1,
        file_bytes: 9,
        weight_bytes: 9,
        context: 64,
        kv_tokens: 64,
        kv_bytes: 1,
        kv_note: None,
        device_name: String::new(),
        device_kind: DeviceKind::Software,
        n_layers: 1,
        vocab_size: 8,
        has_chat_template: false,
    };
    Event::Ready { model, source: source(name), options: LoadOptions::default() }
}

fn welcome(build: &str) -> Event {
    Event::Welcome { version: VERSION, build: build.into(), epoch: "e".into() }
}

fn generate(request: RequestId, n: u32, generated: Vec<Vec<u32>>) -> Request {
    let options = GenerateOptions { n, ..GenerateOptions::default() };
    let prompts = vec![Prompt::Text("hi".into())];
    Request::Generate { request, model: None, prompts, options, generated }
}

fn tokens(request: RequestId, output: u32, ids: &[u32]) -> Event {
    Event::Tokens { request, output, text: String::new(), ids: ids.to_vec(), logprobs: Vec::new() }
}

fn finished(request: RequestId, output: u32, reason: FinishReason, n_left: u32) -> Event {
    Event::Finished { request, output, reason, usage: Usage::default(), n_left }
}

fn started(request: RequestId) -> Event {
    Event::Started { request, prompt_tokens: vec![1] }
}

/// A tab whose model, of one file, answers.
fn settled() -> Ledger<u8> {
    let mut ledger = Ledger::default();
    ledger.hear(welcome(BUILD), vec![]);
    assert_eq!(ledger.ask(load("a", IfFull::Replace), vec![7]).send, [(load("a", IfFull::Replace), vec![7])]);
    assert_eq!(ledger.hear(ready("a"), vec![]).tell, [ready("a")]);
    ledger
}

/// What is sent, without what travels beside it.
fn sent(moves: &Moves<u8>) -> Vec<Request> {
    moves.send.iter().map(|(request, _)| request.clone()).collect()
}

#[test]
fn what_is_asked_before_the_welcome_follows_it() {
    let mut ledger = Ledger::default();
    assert_eq!(ledger.ask(load("a", IfFull::Ask), vec![7]), Moves::default());
    assert_eq!(ledger.ask(generate(1, 1, vec![]), vec![]), Moves::default());
    assert_eq!(ledger.ask(Request::Status { request: 2 }, vec![]), Moves::default());
    let moves = ledger.hear(welcome(BUILD), vec![]);
    assert_eq!(moves.send, [(load("a", IfFull::Ask), vec![7]), (Request::Status { request: 2 }, vec![])]);
    assert_eq!(sent(&ledger.hear(ready("a"), vec![])), [generate(1, 1, vec![])]);
}

#[test]
fn an_engine_of_another_build_is_asked_nothing() {
    let mut ledger = Ledger::<u8>::default();
    ledger.ask(Request::Status { request: 1 }, vec![]);
    assert_eq!(ledger.hear(welcome("other"), vec![]), Moves { send: vec![], tell: vec![welcome("other")] });
    ledger.lose();
    assert_eq!(sent(&ledger.hear(welcome(BUILD), vec![])), [Request::Status { request: 1 }]);
}

#[test]
fn an_answer_goes_on_with_its_model_and_its_tokens() {
    let mut ledger = settled();
    assert_eq!(sent(&ledger.ask(generate(1, 2, vec![]), vec![])), [generate(1, 2, vec![])]);
    assert_eq!(ledger.hear(started(1), vec![]).tell, [started(1)]);
    ledger.hear(tokens(1, 1, &[5]), vec![]);
    ledger.hear(tokens(1, 1, &[6]), vec![]);
    assert_eq!(ledger.lose(), Moves::default());
    // What is asked meanwhile waits too.
    assert_eq!(ledger.ask(generate(2, 1, vec![]), vec![]), Moves::default());
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Ask), vec![7])]);
    // Another tab's model is not the one that the answer began with.
    assert_eq!(sent(&ledger.hear(ready("b"), vec![])), []);
    let again = [generate(1, 2, vec![vec![], vec![5, 6]]), generate(2, 1, vec![])];
    assert_eq!(sent(&ledger.hear(ready("a"), vec![])), again);
    assert_eq!(ledger.hear(started(1), vec![]).tell, []);
    assert_eq!(ledger.hear(tokens(1, 1, &[7]), vec![]).tell, [tokens(1, 1, &[7])]);
    ledger.lose();
    ledger.hear(welcome(BUILD), vec![]);
    let again = [generate(1, 2, vec![vec![], vec![5, 6, 7]]), generate(2, 1, vec![])];
    assert_eq!(sent(&ledger.hear(ready("a"), vec![])), again);
}

#[test]
fn an_output_that_ended_does_not_end_again() {
    let mut ledger = settled();
    ledger.ask(generate(1, 2, vec![]), vec![]);
    ledger.hear(started(1), vec![]);
    ledger.hear(tokens(1, 0, &[5]), vec![]);
    let first = finished(1, 0, FinishReason::Stop, 1);
    assert_eq!(ledger.hear(first.clone(), vec![]).tell, [first.clone()]);
    ledger.lose();
    ledger.hear(welcome(BUILD), vec![]);
    ledger.hear(ready("a"), vec![]);
    // The new engine works on both, and may end them in another order.
    assert_eq!(ledger.hear(tokens(1, 0, &[]), vec![]).tell, []);
    assert_eq!(
        ledger.hear(finished(1, 1, FinishReason::Length, 1), vec![]).tell,
        [finished(1, 1, FinishReason::Length, 0)]
    );
    ledger.lose();
    ledger.hear(welcome(BUILD), vec![]);
    assert_eq!(sent(&ledger.hear(ready("a"), vec![])), [], "nothing is left to ask");
}

#[test]
fn a_cancelled_answer_is_not_asked_again() {
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.ask(generate(2, 1, vec![]), vec![]);
    ledger.hear(started(1), vec![]);
    let cancel = Request::Cancel { request: 1 };
    assert_eq!(sent(&ledger.ask(cancel.clone(), vec![])), [cancel]);
    assert_eq!(ledger.lose().tell, [finished(1, 0, FinishReason::Cancelled, 0)]);
    // Nobody works on this one: it is answered here.
    let moves = ledger.ask(Request::Cancel { request: 2 }, vec![]);
    assert_eq!(moves, Moves { send: vec![], tell: vec![finished(2, 0, FinishReason::Cancelled, 0)] });
    assert_eq!(ledger.ask(Request::Cancel { request: 2 }, vec![]), Moves::default());
}

#[test]
fn a_model_that_cannot_be_loaded_again_ends_its_answers() {
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.lose();
    ledger.ask(Request::Status { request: 2 }, vec![]);
    ledger.hear(welcome(BUILD), vec![]);
    let failed = Event::LoadFailed { error: "the file is gone".into(), unloaded: true };
    let moves = ledger.hear(failed.clone(), vec![]);
    let [told, Event::Failed { request: Some(1), error }] = &moves.tell[..] else { panic!("{moves:?}") };
    assert!(*told == failed && error.contains("the file is gone"), "{error}");
    ledger.hear(Event::Status { request: Some(2), status: Status::default() }, vec![]);
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [], "the model is not asked for for ever");
}

#[test]
fn a_load_that_was_interrupted_comes_after_the_answers() {
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.ask(load("b", IfFull::Wait), vec![8]);
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Ask), vec![7])]);
    let moves = ledger.hear(ready("a"), vec![]);
    assert_eq!(moves.send, [(generate(1, 1, vec![]), vec![]), (load("b", IfFull::Wait), vec![8])]);
    ledger.hear(ready("b"), vec![]);
    ledger.hear(finished(1, 0, FinishReason::Cancelled, 0), vec![]);
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("b", IfFull::Ask), vec![8])]);
}

#[test]
fn a_model_that_another_tab_loaded_is_asked_for_with_its_files() {
    let mut ledger = Ledger::default();
    ledger.hear(welcome(BUILD), vec![]);
    ledger.hear(ready("c"), vec![9]);
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("c", IfFull::Ask), vec![9])]);
    // The room is taken now: the person decides, and the answer waits.
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.hear(Event::InUse { models: vec![] }, vec![]);
    assert_eq!(ledger.ask(load("c", IfFull::Replace), vec![9]).send, [(load("c", IfFull::Replace), vec![9])]);
    assert_eq!(sent(&ledger.hear(ready("c"), vec![])), [generate(1, 1, vec![])]);
}

#[test]
fn an_engine_that_does_not_know_the_tab_is_as_good_as_lost() {
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    assert_eq!(ledger.hear(Event::Unacquainted, vec![]), Moves::default());
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Ask), vec![7])]);
}
