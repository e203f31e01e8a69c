//! Models on the processor: no larger than its memory, alone and together.

use pagelm::protocol::{DeviceChoice, Event, IfFull, LoadOptions};

use crate::world::{World, limit_processor};

fn on_processor() -> LoadOptions {
    LoadOptions { device: DeviceChoice::Cpu, ..LoadOptions::default() }
}

#[test]
fn weights_that_do_not_fit_are_refused_by_their_size() {
    let mut world = World::new();
    world.hello(1);
    limit_processor(1000);
    world.load(1, "tiny", on_processor(), IfFull::Ask);
    let error = world.hear(1, "LoadFailed", |event| match event {
        Event::LoadFailed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert!(error.contains("GB") && error.contains("smaller model"), "{error}");
    assert_eq!(world.status(1).n_loads, 0);
}

/// Two tabs with a model on the processor, which has no room for another beside it.
fn full() -> World {
    let mut world = World::new();
    world.hello(1);
    world.hello(2);
    world.load(1, "tiny", on_processor(), IfFull::Ask);
    let weight_bytes = world.ready(2).weight_bytes;
    // Alone it was tried, whatever it takes beside its weights.
    limit_processor(weight_bytes);
    world
}

#[test]
fn models_there_have_one_budget() {
    let mut world = full();
    world.load(2, "other", on_processor(), IfFull::Ask);
    let models = world.hear(2, "InUse", |event| match event {
        Event::InUse { models } => Some(models.clone()),
        _ => None,
    });
    assert_eq!((models.len(), models[0].n_tabs), (1, 2));
    assert!(models[0].n_bytes > 0);
    world.load(2, "other", on_processor(), IfFull::Replace);
    world.hear(1, "Unloaded", |event| matches!(event, Event::Unloaded { .. }).then_some(()));
    assert_eq!(world.ready(2).id, 2);
    assert_eq!(world.status(2).n_models, 1);
}

#[test]
fn what_a_gpu_has_is_not_in_the_way_there() {
    let mut world = full();
    world.load(2, "other", LoadOptions { device: DeviceChoice::Gpu, ..LoadOptions::default() }, IfFull::Ask);
    assert_eq!(world.ready(2).id, 2);
    assert_eq!(world.status(1).n_models, 2);
}
