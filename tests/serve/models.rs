//! Which models are loaded: shared, beside each other, in turn, and gone when nobody uses them.

use pagelm::host::serve::Letter;
use pagelm::protocol::{
    AttachedFile, Event, FinishReason, IfFull, LoadOptions, ModelSource, Request, encode,
};

use crate::world::{World, context, greedy, on_gpu};

#[test]
fn tabs_that_want_the_same_share_one_load_and_its_buffers() {
    let mut world = World::new();
    world.desk.gate.set(false);
    for connection in 1..=4 {
        world.hello(connection);
        world.load(connection, "tiny", on_gpu(), IfFull::Ask);
    }
    world.turns(10);
    world.desk.gate.set(true);
    let started = world.events.len();
    world.until("four models", |world| {
        world.events.iter().filter(|(_, event)| matches!(event, Event::Ready { .. })).count() == 4
    });
    for connection in 1..=4 {
        let loading = world.events[started..]
            .iter()
            .filter(|(to, event)| *to == connection && matches!(event, Event::Loading { .. }));
        assert!(loading.count() > 0, "each hears how far it is");
    }
    let status = world.status(1);
    assert_eq!((status.n_loads, status.n_models, world.desk.n_found.get()), (1, 1, 1));
    world.hello(5);
    assert_eq!(world.ready(5).id, 1, "a tab that comes later has it at once");
    let later = world.status(5);
    assert_eq!(
        (later.n_loads, later.n_gpu_buffers, later.gpu_bytes),
        (1, status.n_gpu_buffers, status.gpu_bytes)
    );
}

#[test]
fn a_tab_that_comes_during_a_load_gets_its_model() {
    let mut world = World::new();
    world.hello(1);
    world.load(1, "tiny", on_gpu(), IfFull::Ask);
    world.desk.gate.set(false);
    world.turns(5);
    world.hello(2);
    world.hear(2, "Loading", |event| matches!(event, Event::Loading { .. }).then_some(()));
    world.letter(Letter::Gone { connection: 1 });
    world.turns(3);
    world.desk.gate.set(true);
    world.ready(2);
    world.ask(2, 1, &["Once"], &greedy(3));
    assert_eq!(world.finish(2, 1)[0].ids.len(), 3);
}

#[test]
fn a_tab_that_came_before_any_load_gets_the_first_model() {
    let mut world = World::new();
    world.hello(1);
    world.hello(2);
    world.load(2, "tiny", on_gpu(), IfFull::Ask);
    assert_eq!(world.ready(1).id, 1, "it asked for none, and has none");
    world.load(2, "other", on_gpu(), IfFull::Ask);
    world.until("the other model", |world| {
        world.heard(2).any(|event| matches!(event, Event::Ready { model, .. } if model.id == 2))
    });
    let turned = world.heard(1).any(|event| matches!(event, Event::Ready { model, .. } if model.id == 2));
    assert!(!turned, "it keeps the model that it has");
}

#[test]
fn a_load_that_nobody_wants_any_more_is_given_up() {
    let mut world = World::new();
    world.hello(1);
    world.hello(2);
    world.load(1, "tiny", on_gpu(), IfFull::Ask);
    world.desk.gate.set(false);
    world.turns(5);
    world.load(1, "other", on_gpu(), IfFull::Ask);
    world.turns(5);
    world.desk.gate.set(true);
    world.ready(1);
    assert_eq!(world.status(1).n_loads, 1);
}

#[test]
fn answers_and_greetings_go_on_during_a_load() {
    let mut world = World::with_tabs([1, 2]);
    world.ask(1, 1, &["Once"], &greedy(30));
    world.desk.gate.set(false);
    world.load(2, "other", on_gpu(), IfFull::Ask);
    assert_eq!(world.finish(1, 1)[0].ids.len(), 30);
    world.hello(3);
    assert_eq!(world.ready(3).id, 1);
    world.ask(1, 2, &["Once"], &greedy(100));
    world.until("tokens", |world| !world.outputs(1, 2).is_empty());
    world.send(1, &Request::Cancel { request: 2 });
    assert_eq!(world.finish(1, 2)[0].reason(), Some(FinishReason::Cancelled));
    world.desk.gate.set(true);
    assert_eq!(world.ready(2).id, 2);
    assert_eq!(world.status(1).n_models, 2);
    // Each tab by its own model, both at once, and any by any.
    world.ask(1, 3, &["Once"], &greedy(10));
    world.ask(2, 3, &["Once"], &greedy(10));
    assert_eq!(world.finish(1, 3)[0].ids, world.finish(2, 3)[0].ids);
}

#[test]
fn files_travel_with_ready_so_that_any_tab_can_have_them_loaded_again() {
    let mut world = World::new();
    world.hello(1);
    let file = AttachedFile { name: "tiny".into(), len_bytes: 1, modified_ms: 2 };
    let source = ModelSource::Attachments { files: vec![file] };
    let load = Request::Load { source: source.clone(), options: context(64), if_full: IfFull::Ask };
    world.letter(Letter::Message { connection: 1, bytes: encode(&load), attachments: vec![42] });
    world.ready(1);
    world.hello(2);
    world.ready(2);
    assert_eq!(world.attachments[&2], [42]);
    let told = world.heard(2).any(|event| matches!(event, Event::Ready { source: theirs, options, .. } if *theirs == source && *options == context(64)));
    assert!(told);
}

#[test]
fn bad_files_disturb_no_answer() {
    let mut world = World::with_tabs([1]);
    world.ask(1, 1, &["Once"], &greedy(6));
    for (name, words) in [("photo", "photo"), ("nothing", "there is no file")] {
        world.load(1, name, on_gpu(), IfFull::Replace);
        let (error, unloaded) = world.hear(1, "LoadFailed", |event| match event {
            Event::LoadFailed { error, unloaded } => Some((error.clone(), *unloaded)),
            _ => None,
        });
        assert!(error.contains(words) && !unloaded, "{error}");
    }
    assert_eq!(world.finish(1, 1)[0].reason(), Some(FinishReason::Length));
}

/// Two tabs, of which the first uses a model that leaves no room for another.
fn full() -> World {
    let mut world = World::with_tabs([1, 2]);
    let gpu_bytes = world.status(1).gpu_bytes;
    world.desk.budget_bytes.set(Some(gpu_bytes * 3 / 2));
    world
}

#[test]
fn without_room_the_asker_is_told_who_has_it_and_nothing_changes() {
    let mut world = full();
    world.ask(1, 1, &["Once"], &greedy(40));
    world.load(2, "other", on_gpu(), IfFull::Ask);
    let models = world.hear(2, "InUse", |event| match event {
        Event::InUse { models } => Some(models.clone()),
        _ => None,
    });
    assert_eq!((models.len(), models[0].n_tabs, models[0].n_sequences), (1, 2, 1));
    assert!(models[0].gpu_bytes > 0);
    assert_eq!(world.finish(1, 1)[0].ids.len(), 40);
    world.ask(2, 1, &["Once"], &greedy(3));
    assert_eq!(world.finish(2, 1)[0].ids.len(), 3, "its own model is still there");
}

#[test]
fn who_waits_gets_room_once_the_others_go() {
    let mut world = full();
    world.load(2, "other", on_gpu(), IfFull::Wait);
    let stage = world.hear(2, "that it waits", |event| match event {
        Event::Loading { stage, .. } if stage.contains("room") => Some(stage.clone()),
        _ => None,
    });
    assert!(stage.contains("2 tabs use"), "{stage}");
    // A smaller wish is not held up by one that waits.
    world.ask(1, 1, &["Once"], &greedy(40));
    assert_eq!(world.finish(1, 1)[0].ids.len(), 40);
    world.send(1, &Request::Bye);
    assert_eq!(world.ready(2).id, 2);
    let status = world.status(2);
    assert_eq!((status.n_models, status.n_tabs), (1, 1));
}

#[test]
fn who_asks_for_what_another_waits_for_is_asked_too() {
    let mut world = full();
    world.load(2, "other", on_gpu(), IfFull::Wait);
    world.hear(2, "that it waits", |event| match event {
        Event::Loading { stage, .. } if stage.contains("room") => Some(()),
        _ => None,
    });
    world.hello(3);
    world.ready(3);
    world.load(3, "other", on_gpu(), IfFull::Ask);
    let n_models = world.hear(3, "InUse", |event| match event {
        Event::InUse { models } => Some(models.len()),
        _ => None,
    });
    assert_eq!(n_models, 1);
    world.load(3, "other", on_gpu(), IfFull::Replace);
    assert_eq!(world.ready(3).id, 2);
    let waited = world.heard(2).any(|event| matches!(event, Event::Ready { model, .. } if model.id == 2));
    assert!(waited, "who waited for it has it too");
}

#[test]
fn who_replaces_ends_the_answers_of_others_and_they_are_told() {
    let mut world = full();
    world.ask(1, 1, &["Once"], &greedy(100));
    world.until("tokens", |world| !world.outputs(1, 1).is_empty());
    world.load(2, "other", on_gpu(), IfFull::Replace);
    let reason = world.hear(1, "Unloaded", |event| match event {
        Event::Unloaded { reason } => Some(reason.clone()),
        _ => None,
    });
    assert!(reason.contains("another tab"), "{reason}");
    assert_eq!(world.outputs(1, 1)[0].reason(), Some(FinishReason::Cancelled));
    world.ready(2);
    assert!(!world.heard(2).any(|event| matches!(event, Event::Unloaded { .. })), "who asked is not told");
    world.ask(1, 2, &["Once"], &greedy(3));
    assert!(world.failed(1).1.contains("no model is loaded"));
    let (status, before) = (world.status(2), world.desk.budget_bytes.get().unwrap() * 2 / 3);
    assert_eq!((status.n_models, status.gpu_bytes), (1, before), "the first model's buffers are gone");
}

#[test]
fn a_model_of_ones_own_makes_room_without_a_word() {
    let mut world = World::with_tabs([1]);
    world.desk.budget_bytes.set(Some(1));
    world.load(1, "other", on_gpu(), IfFull::Ask);
    assert_eq!(world.ready(1).id, 2);
    assert_eq!(world.status(1).n_models, 1);
    assert!(!world.heard(1).any(|event| matches!(event, Event::Unloaded { .. } | Event::InUse { .. })));
}

#[test]
fn an_unused_model_goes_after_its_time_and_a_used_one_stays() {
    let mut world = World::with_tabs([1]);
    world.load(1, "other", LoadOptions { keep_unused_secs: Some(10), ..context(64) }, IfFull::Ask);
    world.ready(1);
    assert_eq!(world.status(1).n_models, 2, "the model before is kept for a while");
    world.pass(299_000.0);
    assert_eq!(world.status(1).n_models, 2);
    world.pass(2_000.0);
    assert_eq!(world.status(1).n_models, 1);
    world.pass(1_000_000.0);
    assert_eq!(world.status(1).n_models, 1);
    world.hello(2);
    world.turns(3);
    world.send(1, &Request::Bye);
    world.send(2, &Request::Bye);
    world.pass(5_000.0);
    world.hello(3);
    assert_eq!(world.ready(3).context, 64, "who comes in time has it");
    world.send(3, &Request::Bye);
    world.turns(3);
    world.pass(11_000.0);
    world.hello(4);
    let status = world.status(4);
    assert_eq!((status.n_models, status.n_gpu_buffers, status.gpu_bytes), (0, 0, 0));
}

#[test]
fn the_gpu_is_waited_for_while_another_engine_has_it() {
    let mut world = World::new();
    world.desk.is_owned.set(false);
    world.hello(1);
    world.load(1, "tiny", on_gpu(), IfFull::Ask);
    let stage = |world: &mut World, words: &'static str| {
        world.hear(1, words, |event| match event {
            Event::Loading { stage, .. } if stage.contains(words) => Some(()),
            _ => None,
        });
    };
    stage(&mut world, "another engine");
    world.turns(50);
    assert!(!world.heard(1).any(|event| matches!(event, Event::Ready { .. })));
    world.desk.is_owned.set(true);
    stage(&mut world, "Loading tiny");
    world.ready(1);
}
