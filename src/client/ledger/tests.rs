//! Schedules of losses that a browser would need minutes for; attachments are numbers.

use super::*;
use crate::protocol::{AttachedFile, FinishReason, GenerateOptions, ModelInfo, Prompt, Status, Usage};

mod toy;

fn source(name: &str) -> ModelSource {
    ModelSource::Attachments { files: vec![AttachedFile { name: name.into(), len_bytes: 9, modified_ms: 3 }] }
}

fn load(name: &str, if_full: IfFull) -> Request {
    Request::Load { source: source(name), options: LoadOptions::default(), if_full }
}

fn ready(name: &str) -> Event {
    let model = ModelInfo { id: 4, ..ModelInfo::example(name) };
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
    Event::Started { request, prompt_tokens: vec![1], openings: vec![] }
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
    assert_eq!(ledger.hear(first.clone(), vec![]).tell, std::slice::from_ref(&first));
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

fn in_use() -> Event {
    Event::InUse { models: vec![] }
}

fn cancelled(request: RequestId) -> Event {
    finished(request, 0, FinishReason::Cancelled, 0)
}

/// One whose model is on its way to a new engine, which gave the tab another one meanwhile.
fn reloading(requests: &[RequestId]) -> Ledger<u8> {
    let mut ledger = settled();
    for request in requests {
        ledger.ask(generate(*request, 1, vec![]), vec![]);
    }
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Ask), vec![7])]);
    assert_eq!(ledger.hear(ready("b"), vec![8]), Moves::default(), "the page shows the one it waits for");
    ledger
}

#[test]
fn a_model_without_room_leaves_the_tab_to_the_one_that_is_there() {
    let mut ledger = reloading(&[]);
    assert_eq!(ledger.hear(in_use(), vec![]).tell, [in_use(), ready("b")]);
    assert_eq!(sent(&ledger.ask(generate(1, 1, vec![]), vec![])), [generate(1, 1, vec![])]);
    // The person may still want it: its files are known.
    assert_eq!(ledger.ask(load("a", IfFull::Replace), vec![]).send, [(load("a", IfFull::Replace), vec![7])]);
    ledger.hear(ready("a"), vec![7]);
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Ask), vec![7])]);
}

#[test]
fn what_waits_for_a_model_without_room_ends_with_the_persons_no() {
    for is_there in [true, false] {
        let mut ledger = reloading(&[1, 2]);
        if !is_there {
            let unloaded = ledger.hear(Event::Unloaded { reason: String::new() }, vec![]);
            assert_eq!(unloaded.tell, [], "of a model that the page was not told of");
        }
        assert_eq!(ledger.hear(in_use(), vec![]), Moves { send: vec![], tell: vec![in_use()] });
        let of_another = Event::Loading { stage: String::new(), done_bytes: 0, total_bytes: 0 };
        assert_eq!(ledger.hear(of_another, vec![]), Moves::default());
        let late = ledger.ask(generate(3, 1, vec![]), vec![]).tell;
        assert!(matches!(&late[..], [Event::Failed { request: Some(3), .. }]), "{late:?}");
        let moves = ledger.ask(Request::Cancel { request: 1 }, vec![]);
        let [first, Event::Failed { request: Some(2), .. }, last] = &moves.tell[..] else {
            panic!("{moves:?}")
        };
        assert_eq!(*first, cancelled(1));
        assert_eq!((*last == ready("b"), matches!(last, Event::Unloaded { .. })), (is_there, !is_there));
        assert_eq!(sent(&ledger.ask(generate(4, 1, vec![]), vec![])), [generate(4, 1, vec![])]);
    }
}

#[test]
fn a_question_does_not_outlive_its_engine() {
    for is_asked in [false, true] {
        let mut ledger = reloading(&[1]);
        if is_asked {
            ledger.hear(in_use(), vec![]);
        }
        assert_eq!(ledger.lose(), Moves::default());
        assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Ask), vec![7])]);
        assert_eq!(sent(&ledger.hear(ready("a"), vec![])), [generate(1, 1, vec![])]);
    }
}

#[test]
fn a_model_without_room_gives_way_to_the_one_asked_for_meanwhile() {
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.hear(started(1), vec![]);
    ledger.hear(tokens(1, 0, &[5]), vec![]);
    ledger.lose();
    ledger.ask(generate(2, 1, vec![]), vec![]);
    ledger.ask(load("c", IfFull::Ask), vec![9]);
    ledger.hear(welcome(BUILD), vec![]);
    let moves = ledger.hear(in_use(), vec![]);
    assert_eq!(moves.send, [(load("c", IfFull::Ask), vec![9])]);
    assert!(matches!(&moves.tell[..], [Event::Failed { request: Some(1), .. }]), "{moves:?}");
    assert_eq!(sent(&ledger.hear(ready("c"), vec![])), [generate(2, 1, vec![])]);
}

#[test]
fn what_the_person_decides_while_there_is_no_engine_counts() {
    let undecided = || {
        let mut ledger = reloading(&[1]);
        ledger.hear(in_use(), vec![]);
        ledger.lose();
        ledger
    };
    let mut ledger = undecided();
    ledger.ask(load("a", IfFull::Replace), vec![]);
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("a", IfFull::Replace), vec![7])]);
    assert_eq!(sent(&ledger.hear(ready("a"), vec![])), [generate(1, 1, vec![])]);
    // Another model does not wait until the first finds room.
    let mut ledger = undecided();
    ledger.ask(load("a", IfFull::Wait), vec![]);
    ledger.ask(load("c", IfFull::Ask), vec![9]);
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load("c", IfFull::Ask), vec![9])]);
    assert_eq!(sent(&ledger.hear(ready("c"), vec![])), [generate(1, 1, vec![])]);
}

#[test]
fn an_answer_does_not_go_on_with_another_model() {
    let begin = |ledger: &mut Ledger<u8>| {
        ledger.ask(generate(1, 1, vec![]), vec![]);
        ledger.hear(started(1), vec![]);
        ledger.hear(tokens(1, 0, &[5]), vec![]);
    };
    // It is chosen while the answer's own is on its way.
    let mut ledger = settled();
    begin(&mut ledger);
    ledger.ask(generate(2, 1, vec![]), vec![]);
    ledger.lose();
    ledger.hear(welcome(BUILD), vec![]);
    let moves = ledger.ask(load("c", IfFull::Ask), vec![9]);
    assert_eq!(moves.send, [(load("c", IfFull::Ask), vec![9])]);
    assert!(matches!(&moves.tell[..], [Event::Failed { request: Some(1), .. }]), "{moves:?}");
    assert_eq!(sent(&ledger.hear(ready("c"), vec![])), [generate(2, 1, vec![])]);
    // It came beside the one that answers.
    let mut ledger = settled();
    begin(&mut ledger);
    ledger.ask(load("c", IfFull::Ask), vec![9]);
    ledger.hear(ready("c"), vec![]);
    ledger.lose();
    let moves = ledger.hear(welcome(BUILD), vec![]);
    assert_eq!(moves.send, [(load("c", IfFull::Ask), vec![9])]);
    assert!(matches!(&moves.tell[..], [_, Event::Failed { request: Some(1), .. }]), "{moves:?}");
}

#[test]
fn a_model_on_its_way_is_asked_for_again_where_the_one_before_it_goes() {
    let mut ledger = reloading(&[1]);
    let moves = ledger.hear(Event::Unloaded { reason: String::new() }, vec![]);
    assert_eq!(moves, Moves { send: vec![(load("a", IfFull::Ask), vec![7])], tell: vec![] });
    assert_eq!(sent(&ledger.hear(ready("a"), vec![])), [generate(1, 1, vec![])]);
}

#[test]
fn the_same_files_with_other_options_are_another_model() {
    let with = |context| LoadOptions { context, ..LoadOptions::default() };
    let load = |context| Request::Load { source: source("a"), options: with(context), if_full: IfFull::Ask };
    let ready = |context, keep_unused_secs| {
        let Event::Ready { model, source, .. } = ready("a") else { panic!() };
        let options = LoadOptions { keep_unused_secs, ..with(context) };
        Event::Ready { model, source, options }
    };
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.lose();
    ledger.ask(load(Some(9)), vec![7]);
    ledger.hear(welcome(BUILD), vec![]);
    // Another tab's, too short for the answer.
    assert_eq!(ledger.hear(ready(Some(5), None), vec![]), Moves::default());
    // How long it is kept makes no difference.
    let moves = ledger.hear(ready(None, Some(1)), vec![]);
    assert_eq!(sent(&moves), [generate(1, 1, vec![]), load(Some(9))], "and the new options are asked for");
    ledger.hear(ready(Some(9), None), vec![]);
    ledger.hear(cancelled(1), vec![]);
    ledger.lose();
    assert_eq!(ledger.hear(welcome(BUILD), vec![]).send, [(load(Some(9)), vec![7])]);
}

#[test]
fn text_that_was_held_back_comes_once() {
    let tail = Event::Tokens { request: 1, output: 0, text: "z".into(), ids: vec![], logprobs: vec![] };
    let mut ledger = settled();
    ledger.ask(generate(1, 1, vec![]), vec![]);
    ledger.hear(tokens(1, 0, &[5]), vec![]);
    assert_eq!(ledger.hear(tail.clone(), vec![]).tell, std::slice::from_ref(&tail));
    ledger.lose();
    ledger.hear(welcome(BUILD), vec![]);
    ledger.hear(ready("a"), vec![]);
    assert_eq!(ledger.hear(tail, vec![]).tell, []);
    let end = finished(1, 0, FinishReason::Length, 0);
    assert_eq!(ledger.hear(end.clone(), vec![]).tell, [end]);
}
