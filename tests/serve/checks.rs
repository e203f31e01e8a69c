//! A GPU that computes wrongly is noticed before it answers, and what was found is kept.

use std::rc::Rc;

use pagelm::gpu::noise::Noise;
use pagelm::gpu::shader::Variant;
use pagelm::protocol::{
    BUILD, DeviceChoice, DeviceKind, Event, Fault, IfFull, KvType, LoadOptions, ModelInfo, Precision, Request,
};

use crate::world::{MemoryRecords, World, greedy};

/// Exact on every device, so that all give the same answer.
fn exact(device: DeviceChoice) -> LoadOptions {
    LoadOptions { device, kv: KvType::F32, precision: Precision::Exact, ..LoadOptions::default() }
}

/// A world with a tab, whose GPU has such noise and whose verdicts are kept there.
fn world(noise: Option<Noise>, records: &Rc<MemoryRecords>) -> World {
    let world = World::new();
    world.desk.noise.set(noise);
    *world.desk.records.borrow_mut() = Some(Rc::clone(records));
    world.hello(1);
    world
}

/// What is loaded where a device is asked for so, and what it answers.
fn answered(mut world: World, device: DeviceChoice) -> (ModelInfo, Vec<u32>) {
    world.load(1, "tiny", exact(device), IfFull::Ask);
    let info = world.ready(1);
    world.ask(1, 1, &["Once"], &greedy(20));
    let ids = world.finish(1, 1)[0].ids.clone();
    (info, ids)
}

fn right_answer() -> Vec<u32> {
    answered(world(None, &Rc::default()), DeviceChoice::Cpu).1
}

/// Every kernel of this family, or of all.
fn noise(variant: Option<Variant>) -> Option<Noise> {
    Some(Noise { kernel: None, variant })
}

#[test]
fn a_right_gpu_is_checked_once_for_a_model_and_has_no_note() {
    let records = Rc::default();
    for n_loads in 1..=2 {
        let (info, ids) = answered(world(None, &records), DeviceChoice::Gpu);
        assert_ne!(info.device_kind, DeviceKind::Cpu, "load {n_loads}");
        assert_eq!((info.device_note, ids), (None, right_answer()));
        assert_eq!(records.n_kept.get(), 1);
    }
    let key = records.texts.borrow().keys().next().unwrap().clone();
    assert!(key.contains(BUILD) && key.contains("llvmpipe") && key.contains("Mesa"), "{key}");
    let text = records.texts.borrow()[&key].clone();
    // Of another build, driver or adapter.
    let other = Rc::new(MemoryRecords::default());
    other.texts.borrow_mut().insert(key.replace("Mesa", "Mesa 99"), text);
    answered(world(None, &other), DeviceChoice::Gpu);
    assert_eq!(other.n_kept.get(), 1, "it was checked again");
    // What nobody can read.
    other.texts.borrow_mut().insert(key, "right 7".into());
    answered(world(None, &other), DeviceChoice::Gpu);
    assert_eq!(other.n_kept.get(), 2, "it was checked again");
}

#[test]
fn other_kernels_take_the_place_of_those_that_compute_wrongly() {
    let records = Rc::default();
    for device in [DeviceChoice::Auto, DeviceChoice::Gpu] {
        let (info, ids) = answered(world(noise(Some(Variant::Serial)), &records), device);
        assert_eq!((info.device_kind, ids), (DeviceKind::Gpu, right_answer()));
        let note = info.device_note.unwrap();
        let begins = format!("{} computes wrongly with its kernels without barriers (", info.device_name);
        assert!(note.starts_with(&begins), "{note}");
        assert!(note.contains("so its kernels of workgroups compute; a newer graphics driver"), "{note}");
        assert_eq!(records.n_kept.get(), 1, "what was found is found again");
    }
}

#[test]
fn the_processor_takes_the_place_of_a_gpu_that_nothing_is_right_on() {
    let records = Rc::default();
    for _ in 0..2 {
        let (info, ids) = answered(world(noise(None), &records), DeviceChoice::Auto);
        assert_eq!((info.device_kind, ids), (DeviceKind::Cpu, right_answer()));
        let note = info.device_note.unwrap();
        assert!(note.contains("without barriers (") && note.contains(", of workgroups ("), "{note}");
        assert!(note.contains("so nothing that it computes can be trusted; a newer"), "{note}");
        assert_eq!(records.n_kept.get(), 1, "what was found is found again");
    }
    // Who asked for the GPU is told.
    let mut world = world(noise(None), &records);
    world.load(1, "tiny", exact(DeviceChoice::Gpu), IfFull::Ask);
    let error = world.hear(1, "LoadFailed", |event| match event {
        Event::LoadFailed { error, .. } => Some(error.clone()),
        _ => None,
    });
    assert!(
        error.contains("computes wrongly") && error.contains("with auto or cpu as the device"),
        "{error}"
    );
}

#[test]
fn noise_that_a_tab_asks_for_is_noticed() {
    let world = world(None, &Rc::default());
    world.send(1, &Request::Break { fault: Fault::Noise });
    let (info, ids) = answered(world, DeviceChoice::Auto);
    assert_eq!((info.device_kind, ids), (DeviceKind::Cpu, right_answer()));
    assert!(info.device_note.unwrap().contains("computes wrongly"));
}

#[test]
fn a_gpu_that_is_lost_during_the_check_is_opened_again() {
    let records = Rc::default();
    let mut world = world(None, &records);
    world.load(1, "tiny", exact(DeviceChoice::Gpu), IfFull::Ask);
    world.until("the check", |_| records.n_asked.get() == 1);
    world.desk.gpu.borrow().as_ref().unwrap().lose("it was pulled out");
    world.ready(1);
    assert_eq!((records.n_asked.get(), records.n_kept.get()), (2, 1));
    assert_eq!(world.status(1).n_losses, 1);
}
