//! Who is served: greetings, other builds, nonsense, and tabs that go or freeze.

use pagelm::host::serve::Letter;
use pagelm::protocol::{BUILD, Event, FinishReason, IfFull, Prompt, Request, VERSION, encode};

use crate::world::{World, greedy, on_gpu};

#[test]
fn a_tab_that_did_not_greet_is_asked_to_and_gets_nothing_else() {
    let mut world = World::new();
    world.send(1, &Request::Status { request: 1 });
    world.load(1, "tiny", on_gpu(), IfFull::Ask);
    world.turns(5);
    assert_eq!(world.events, [(1, Event::Unacquainted), (1, Event::Unacquainted)]);
    world.hello(1);
    world.turns(5);
    let welcome = Event::Welcome { version: VERSION, build: BUILD.into(), epoch: "epoch".into() };
    assert_eq!(world.events[2], (1, welcome));
    assert_eq!(*world.desk.watched.borrow(), [(1, "tab 1".to_owned())]);
    assert_eq!(world.desk.n_found.get(), 0, "what was not served is not done later");
}

#[test]
fn what_is_no_message_is_answered_and_disturbs_nobody() {
    let mut world = World::with_tabs([1]);
    world.ask(1, 1, &["Once"], &greedy(12));
    for connection in [1, 2] {
        world.letter(Letter::Garbled { connection });
        assert!(world.failed(connection).1.contains("reload"));
        world.send_bytes(connection, vec![250; 40]);
        assert!(world.failed(connection).1.contains("reload the page"));
        let mut long = encode(&Request::Bye);
        long.push(0);
        world.send_bytes(connection, long);
        assert_eq!(world.failed(connection).0, None);
    }
    assert_eq!(world.finish(1, 1)[0].ids.len(), 12);
}

#[test]
fn other_builds_are_told_apart_and_get_an_engine_of_their_own() {
    let mut world = World::with_tabs([1]);
    world.ask(1, 1, &["Once"], &greedy(20));
    let mut of_another_version =
        encode(&Request::Hello { version: VERSION + 1, build: BUILD.into(), lock: String::new() });
    world.send_bytes(2, of_another_version.clone());
    world.send(3, &Request::Hello { version: VERSION, build: "another".into(), lock: "tab 3".into() });
    // What follows the version is of no form that this version knows.
    of_another_version.truncate(2);
    of_another_version.extend([255; 9]);
    world.send_bytes(4, of_another_version);
    for connection in [2, 3, 4] {
        let welcome = Event::Welcome { version: VERSION, build: BUILD.into(), epoch: "epoch".into() };
        world.until("a welcome", |world| world.heard(connection).any(|event| *event == welcome));
        world.ask(connection, 8, &["Once"], &greedy(2));
        let (request, error) = world.failed(connection);
        assert!(request == Some(8) && error.contains("different builds"), "{error}");
    }
    assert_eq!(world.finish(1, 1)[0].ids.len(), 20, "the tab of this build is served on");
    assert!(!world.desk.is_closed.get());
    world.send(1, &Request::Bye);
    world.until("its end", |world| world.has_ended);
    assert!(world.desk.is_closed.get());
}

#[test]
fn a_foreign_tab_that_goes_does_not_end_an_idle_engine() {
    let mut world = World::with_tabs([1]);
    world.send(3, &Request::Hello { version: VERSION, build: "another".into(), lock: "tab 3".into() });
    world.turns(3);
    world.letter(Letter::Gone { connection: 3 });
    world.send(1, &Request::Bye);
    world.turns(10);
    assert!(!world.desk.is_closed.get() && !world.has_ended);
    world.send(3, &Request::Hello { version: VERSION, build: "another".into(), lock: "tab 3".into() });
    world.until("its end", |world| world.has_ended);
}

#[test]
fn a_tab_that_goes_takes_its_answers_and_frees_their_blocks() {
    let mut world = World::with_tabs([1, 2, 3]);
    world.ask(1, 1, &["Once", "The"], &greedy(100));
    world.ask(2, 1, &["Once"], &greedy(100));
    world.ask(3, 1, &["Once"], &greedy(20));
    world.until("tokens", |world| !world.outputs(1, 1).is_empty() && !world.outputs(2, 1).is_empty());
    world.letter(Letter::Gone { connection: 1 });
    world.send(2, &Request::Bye);
    world.turns(3);
    let n_events = world.heard(1).count() + world.heard(2).count();
    assert_eq!(world.finish(3, 1)[0].ids.len(), 20);
    assert_eq!(world.heard(1).count() + world.heard(2).count(), n_events, "who is gone is told nothing");
    let status = world.status(3);
    assert_eq!((status.n_tabs, status.running, status.free_blocks), (1, 0, status.n_blocks));
    world.send(2, &Request::Status { request: 1 });
    assert!(world.hear(2, "Unacquainted", |event| (*event == Event::Unacquainted).then_some(true)));
}

#[test]
fn a_tab_that_greets_again_begins_anew() {
    let mut world = World::with_tabs([1]);
    world.ask(1, 1, &["Once"], &greedy(100));
    world.until("tokens", |world| !world.outputs(1, 1).is_empty());
    world.hello(1);
    let model = world.ready(1);
    assert_eq!(model.id, 1, "it gets the model that is there");
    assert_eq!(world.status(1).own, 0);
    world.ask(1, 1, &["Once"], &greedy(3));
    // Its old number is free.
    world.hear(1, "Started", |event| matches!(event, Event::Started { request: 1, .. }).then_some(()));
}

#[test]
fn no_more_tabs_than_the_bound() {
    let mut world = World::new();
    (0..257).for_each(|connection| world.hello(connection));
    let (_, error) = world.failed(256);
    assert!(error.contains("256 tabs"), "{error}");
    assert_eq!(world.status(0).n_tabs, 256);
    world.letter(Letter::Gone { connection: 7 });
    world.hello(256);
    assert_eq!(world.status(256).n_tabs, 256);
}

#[test]
fn bad_numbers_and_models_are_refused_with_a_sentence() {
    let mut world = World::new();
    world.hello(1);
    world.ask(1, 1, &["Once"], &greedy(3));
    assert_eq!(world.failed(1), (Some(1), "no model is loaded; load one first".into()));
    world.load(1, "tiny", on_gpu(), IfFull::Ask);
    world.ready(1);
    let prompts = vec![Prompt::Text("Once".into())];
    let options = greedy(3);
    let asked = Request::Generate { request: 2, model: Some(77), prompts, options, generated: Vec::new() };
    world.send(1, &asked);
    let (request, error) = world.failed(1);
    assert!(request == Some(2) && error.contains("model 77 is not loaded"), "{error}");
    world.send(1, &Request::Tokenize { request: 3, model: Some(77), prompt: Prompt::Text("Once".into()) });
    assert_eq!(world.failed(1).0, Some(3));
    world.send(1, &Request::Cancel { request: 1234 });

    world.ask(1, 5, &["Once"], &greedy(8));
    world.ask(1, 5, &["Once"], &greedy(8));
    let (request, error) = world.failed(1);
    assert!(request.is_none() && error.contains("request 5 is still running"), "{error}");
    let outputs = world.finish(1, 5);
    assert_eq!((outputs.len(), outputs[0].ids.len()), (1, 8), "the one that runs goes on");
}

#[test]
fn a_tab_that_reads_nothing_stalls_nobody_and_costs_bounded_memory() {
    let mut world = World::with_tabs([1, 2]);
    world.frozen.insert(1);
    for request in 0..4 {
        world.ask(1, request, &["Once"], &greedy(100));
    }
    world.ask(2, 1, &["Once"], &greedy(100));
    assert_eq!(world.finish(2, 1)[0].ids.len(), 100);
    world.until("the end of all", |world| {
        world.events.iter().any(|(_, event)| {
        matches!(event, Event::Status { status, .. } if status.own == 0 && status.running == 0)
    })
    });
    world.turns(400);
    let n_sent = world.heard(1).count();
    assert!(n_sent <= 16 * (n_sent / 16) + 64 && n_sent < 64 + 32, "{n_sent} events were sent");
    // It wakes up: all is there, in order, and once.
    world.frozen.clear();
    world.send(1, &Request::Received { n_events: 64 });
    for request in 0..4 {
        let outputs = world.finish(1, request);
        assert_eq!((outputs[0].ids.len(), outputs[0].reason()), (100, Some(FinishReason::Length)));
        assert_eq!(outputs[0].ids, world.outputs(2, 1)[0].ids);
        assert_eq!(outputs[0].text, world.outputs(2, 1)[0].text);
    }
}

#[test]
fn a_tab_that_asks_on_and_reads_nothing_is_forgotten_until_it_greets_again() {
    let mut world = World::with_tabs([1, 2]);
    world.frozen.insert(1);
    world.ask(1, 1, &["Once"], &greedy(120));
    for _ in 0..4500 {
        world.send(1, &Request::Status { request: 3 });
    }
    world.until("its end", |world| {
        world.heard(2).any(|event| matches!(event, Event::Status { status, .. } if status.n_tabs == 1))
    });
    assert_eq!(world.status(2).running, 0, "its answers ended with it");
    world.send(1, &Request::Status { request: 4 });
    world.hear(1, "Unacquainted", |event| (*event == Event::Unacquainted).then_some(()));
    world.frozen.clear();
    world.hello(1);
    world.ready(1);
}
