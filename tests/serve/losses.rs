//! The GPU is lost, during a load, a prompt and an answer, and the answers are those of an undisturbed engine.

use pagelm::protocol::{
    DeviceChoice, DeviceKind, Event, Fault, GenerateOptions, IfFull, KvType, LoadOptions, Precision, Request,
};

use crate::world::{Output, World, greedy, on_gpu, sample_on_device};

const FAULTS: [Fault; 2] = [Fault::DestroyDevice, Fault::LoseDevice];

/// Exact keys and values: what is computed again is the same but for its last bits.
fn exact() -> LoadOptions {
    LoadOptions { kv: KvType::F32, precision: Precision::Exact, ..on_gpu() }
}

fn sampled(max_tokens: u32) -> GenerateOptions {
    GenerateOptions { temperature: 1.0, seed: Some(11), n: 2, ..greedy(max_tokens) }
}

fn with_tabs() -> World {
    let mut world = World::new();
    for connection in [1, 2] {
        world.hello(connection);
        world.load(connection, "tiny", exact(), IfFull::Ask);
        world.ready(connection);
    }
    world
}

fn long_prompt() -> String {
    "Once upon a time there was a king. ".repeat(4)
}

fn ask(world: &World) {
    world.ask(1, 1, &[&long_prompt(), "The"], &greedy(30));
    world.ask(2, 1, &["Once"], &sampled(30));
}

fn finish(world: &mut World) -> Vec<Output> {
    let mut outputs = world.finish(1, 1);
    outputs.extend(world.finish(2, 1));
    // Times differ.
    outputs.iter_mut().for_each(|output| {
        if let Some((_, usage, _)) = &mut output.finish {
            (usage.queue_ms, usage.prefill_ms, usage.decode_ms) = (0.0, 0.0, 0.0);
        }
    });
    outputs
}

/// What the tabs are told while the model is loaded again.
fn told_of_loss(world: &World, connection: u64) -> bool {
    world
        .heard(connection)
        .any(|event| matches!(event, Event::Loading { stage, .. } if stage.contains("The GPU was lost")))
}

#[test]
fn answers_go_on_after_a_loss_as_if_there_had_been_none() {
    let mut world = with_tabs();
    ask(&world);
    let undisturbed = finish(&mut world);
    for (fault, samples) in [(FAULTS[0], false), (FAULTS[1], false), (FAULTS[0], true), (FAULTS[1], true)] {
        // With one step in flight, or with two whose tokens the host has not seen.
        sample_on_device(samples);
        // While a prompt is read, and while tokens are generated.
        for n_tokens in [0, 9] {
            let mut world = with_tabs();
            ask(&world);
            world.until("the moment", |world| {
                let outputs = world.outputs(1, 1);
                let prefills = world.heard(1).any(|event| matches!(event, Event::Prefilling { .. }));
                prefills && (n_tokens == 0 || outputs.iter().any(|output| output.ids.len() >= n_tokens))
            });
            world.send(2, &Request::Break { fault });
            assert_eq!(finish(&mut world), undisturbed, "{fault:?} after {n_tokens} tokens");
            assert!(told_of_loss(&world, 1) && told_of_loss(&world, 2));
            let readies = world.heard(1).filter_map(|event| match event {
                Event::Ready { model, .. } => Some(model.id),
                _ => None,
            });
            let readies: Vec<_> = readies.collect();
            assert!(
                readies.len() >= 2 && readies.iter().all(|id| *id == 1),
                "the same model is ready again: {readies:?}"
            );
            world.turns(5);
            let status = world.status(1);
            assert_eq!((status.n_losses, status.n_loads), (1, 2));
            assert_eq!(status.free_blocks, status.n_blocks);
        }
    }
}

#[test]
fn a_load_whose_device_is_lost_starts_again() {
    for fault in FAULTS {
        let mut world = with_tabs();
        let before = world.status(1);
        world.ask(1, 1, &["Once"], &greedy(40));
        world.desk.gate.set(false);
        world.load(2, "other", exact(), IfFull::Ask);
        world.until("the load", |world| world.desk.n_found.get() == 2);
        world.desk.gate.set(true);
        world.until("its first bytes", |world| {
            world
                .heard(2)
                .any(|event| matches!(event, Event::Loading { stage, .. } if stage.contains("other")))
        });
        world.turns(3);
        world.send(1, &Request::Break { fault });
        world.until("the other model", |world| {
            world.heard(2).any(|event| matches!(event, Event::Ready { model, .. } if model.id == 2))
        });
        assert_eq!(world.finish(1, 1)[0].ids.len(), 40);
        world.ask(2, 1, &["Once"], &greedy(40));
        assert_eq!(world.finish(2, 1)[0].ids, world.outputs(1, 1)[0].ids);
        let status = world.status(1);
        assert_eq!((status.n_models, status.n_losses), (2, 1));
        assert_eq!(world.desk.n_found.get(), 3, "its files were looked for again");
        assert_eq!(status.n_gpu_buffers, 2 * before.n_gpu_buffers, "nothing of the lost load is left");
    }
}

#[test]
fn the_third_loss_within_a_minute_stops_with_a_sentence_and_a_later_load_works() {
    let mut world = with_tabs();
    world.ask(1, 1, &["Once"], &greedy(100));
    for n in 1..=3 {
        let before = world.outputs(1, 1).iter().map(|output| output.ids.len()).sum::<usize>();
        world.until("more tokens", |world| {
            world.outputs(1, 1).iter().map(|output| output.ids.len()).sum::<usize>() > before
        });
        world.send(1, &Request::Break { fault: FAULTS[n % 2] });
        world.turns(2);
    }
    let unloaded = |event: &Event| match event {
        Event::Unloaded { reason } => Some(reason.clone()),
        _ => None,
    };
    for connection in [1, 2] {
        world.until("Unloaded", |world| world.heard(connection).any(|event| unloaded(event).is_some()));
        let reason = world.heard(connection).find_map(unloaded).unwrap();
        assert!(reason.contains("three times") && reason.contains("smaller model"), "{reason}");
    }
    assert!(world.heard(1).any(
        |event| matches!(event, Event::Failed { request: Some(1), error } if error.contains("its model is gone"))
    ));
    let status = world.status(1);
    assert_eq!((status.n_models, status.n_losses, status.n_gpu_buffers), (0, 3, 0));
    world.load(1, "tiny", exact(), IfFull::Ask);
    world.ready(1);
    world.ask(1, 2, &["Once"], &greedy(5));
    assert_eq!(world.finish(1, 2)[0].ids.len(), 5);
}

#[test]
fn losses_that_are_far_apart_do_not_stop_it() {
    let mut world = with_tabs();
    world.ask(1, 1, &["Once"], &greedy(60));
    for _ in 0..4 {
        world.send(1, &Request::Break { fault: Fault::LoseDevice });
        world.turns(2);
        world.pass(31_000.0);
    }
    assert_eq!(world.finish(1, 1)[0].ids.len(), 60);
    assert_eq!(world.status(1).n_losses, 4);
}

#[test]
fn a_loss_while_nothing_runs_is_noticed_by_the_next_request() {
    let mut world = with_tabs();
    world.ask(1, 1, &["Once"], &greedy(10));
    let first = world.finish(1, 1);
    world.send(2, &Request::Break { fault: Fault::DestroyDevice });
    world.ask(1, 2, &["Once"], &greedy(10));
    assert_eq!(world.finish(1, 2)[0].ids, first[0].ids);
}

#[test]
#[should_panic(expected = "a tab asked for this panic")]
fn a_panic_that_was_asked_for_is_one() {
    let mut world = World::new();
    world.hello(1);
    world.send(1, &Request::Break { fault: Fault::Panic });
    world.turns(3);
}

/// A tab whose model the GPU computes, and one whose model the processor does.
fn on_both() -> World {
    let mut world = World::with_tabs([1]);
    // What the processor has takes no room on the GPU.
    world.desk.budget_bytes.set(Some(1));
    world.hello(2);
    let options = LoadOptions { device: DeviceChoice::Cpu, ..exact() };
    world.load(2, "tiny", options, IfFull::Replace);
    world.hear(2, "its own model", |event| match event {
        Event::Ready { model, .. } if model.device_kind == DeviceKind::Cpu => Some(()),
        _ => None,
    });
    assert_eq!(world.status(1).n_models, 2);
    world
}

#[test]
fn the_processor_answers_beside_the_gpu_and_outlives_its_loss() {
    // Two steps in flight on the GPU leave the processor its turn.
    for samples in [false, true] {
        sample_on_device(samples);
        let mut world = on_both();
        world.ask(1, 1, &["Once"], &greedy(60));
        world.ask(2, 1, &["Once"], &greedy(60));
        let has_begun = |world: &World, tab: u64| !world.outputs(tab, 1).is_empty();
        world.until("both answers", |world| has_begun(world, 1) && has_begun(world, 2));
        assert!(!world.is_done(1, 1) && !world.is_done(2, 1), "none waits for the other's end");
        world.send(1, &Request::Break { fault: Fault::LoseDevice });
        let lengths = [1, 2].map(|tab| world.finish(tab, 1)[0].ids.len());
        assert_eq!(lengths, [60, 60]);
        assert!(told_of_loss(&world, 1) && !told_of_loss(&world, 2), "the processor is not lost");
    }
    sample_on_device(false);
}

#[test]
fn another_model_on_the_processor_is_told_of_its_kind() {
    let mut world = on_both();
    let options = LoadOptions { device: DeviceChoice::Cpu, ..exact() };
    world.load(1, "other", options, IfFull::Ask);
    let info = world.hear(1, "its model", |event| match event {
        Event::Ready { model, .. } if model.device_kind == DeviceKind::Cpu => Some(model.clone()),
        _ => None,
    });
    assert_eq!((info.device_backend.as_str(), info.device_note), ("cpu", None));
    world.ask(1, 1, &["Once"], &greedy(5));
    assert_eq!(world.finish(1, 1)[0].ids.len(), 5);
}

#[test]
fn where_nothing_is_asked_for_the_processor_is_taken_before_its_imitation() {
    let mut world = World::new();
    world.hello(1);
    world.load(1, "tiny", LoadOptions::default(), IfFull::Ask);
    let info = world.ready(1);
    let is_software = pollster::block_on(pagelm::gpu::adapters()).iter().all(|adapter| adapter.is_software);
    assert_eq!((info.device_kind == DeviceKind::Cpu, info.device_note.is_some()), (is_software, is_software));
    assert_eq!(world.status(1).n_gpu_buffers > 0, !is_software, "nothing stays on a GPU that is not used");
}
