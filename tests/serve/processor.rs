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
