//! What a token of real models costs, counted by running them on a device that computes nothing.
#![cfg(feature = "native")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/folders.rs"]
mod folders;
#[path = "support/layer_dispatches.rs"]
mod layer_dispatches;
#[path = "support/memory_source.rs"]
mod memory_source;
#[path = "support/safetensors.rs"]
mod safetensors;

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;

use folders::FOLDERS;
use pagelm::gpu::Gpu;
use pagelm::gpu::costs::Costs;
use pagelm::gpu::shader::Variant;
use pagelm::host::host_time;
use pagelm::host::load::{Described, describe};
use pagelm::model::ARCHITECTURES;
use pagelm::protocol::{LoadOptions, Precision};
use pagelm::store::Source;
use pagelm::store::native::FileSource;

const MODEL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/www/models/SmolLM2-135M-Instruct.Q4_1.gguf");
const VARIANTS: [Variant; 2] = [Variant::Serial, Variant::Workgroup];
/// Within the context of every model, behind the windows of those that have one.
const POSITION: usize = 100;

fn described<S: Source>(sources: Vec<S>) -> Described<S> {
    // What `fast` adds is counted in tests/costs.rs.
    let options = LoadOptions { precision: Precision::Exact, ..LoadOptions::default() };
    pollster::block_on(describe(sources, &options)).unwrap()
}

fn costs<S: Source>(described: &Described<S>, variant: Variant) -> Costs {
    pollster::block_on(async {
        let gpu = Rc::new(Gpu::noop(variant).await.unwrap());
        let mut model = described.without_weights(gpu).await.unwrap();
        Costs::of_token(&mut model, POSITION).await.unwrap()
    })
}

/// A step is one write and one submit, makes nothing, and reads the packed weights and the cache in use, and no more.
fn check<S: Source>(name: &str, described: &Described<S>) {
    let config = described.config();
    let tensors = described.checkpoint().tensors();
    let file_bytes: u64 = tensors.iter().map(|tensor| tensor.n_bytes()).sum();
    // Of a table one row is read, unless it makes the logits too.
    let is_table = |name: &str| name.starts_with("token_embd") || name.starts_with("position_embd");
    let least: u64 =
        tensors.iter().filter(|tensor| !is_table(&tensor.name)).map(|tensor| tensor.n_bytes()).sum();
    let kv_in_use = ((POSITION + 1) * 2 * config.n_kv_heads * config.head_dim * 2 * config.n_layers) as u64;
    for variant in VARIANTS {
        let costs = costs(described, variant);
        let place =
            format!("{name}, {variant:?}: {costs:?}, {file_bytes} in the file, {kv_in_use} of the cache");
        assert_eq!((costs.submits, costs.host_writes, costs.gpu_objects_created), (1, 1, 0), "{place}");
        assert_eq!(costs.layers, config.n_layers as u64, "{place}");
        let read = costs.weight_bytes + costs.kv_bytes;
        assert!(read as f64 <= 1.05 * (file_bytes + kv_in_use) as f64, "{place}");
        assert!(costs.weight_bytes >= least && costs.kv_bytes > 0 && costs.kv_bytes <= kv_in_use, "{place}");
        let in_layers = config.n_layers * layer_dispatches::of_layer(&config.architecture, variant);
        let most = in_layers + layer_dispatches::OUTSIDE;
        assert!((1..=most as u64).contains(&costs.dispatches), "at most {most}: {place}");
    }
}

#[test]
fn a_token_of_the_default_model_costs_what_it_must() {
    let problem = format!("{MODEL} is missing: `cargo xtask test` fetches it, and then runs this test");
    assert!(Path::new(MODEL).is_file(), "{problem}");
    check("SmolLM2", &described(vec![FileSource::open(MODEL).unwrap()]));
}

#[test]
fn a_token_of_every_architecture_costs_what_it_must() {
    let mut architectures = BTreeSet::new();
    for folder in &FOLDERS {
        let described = described(folder.sources());
        check(folder.name, &described);
        architectures.insert(described.config().architecture.clone());
    }
    assert_eq!(architectures, ARCHITECTURES.map(str::to_owned).into());
}

/// Behind a window keys and values are not read.
#[test]
fn a_window_bounds_what_is_read_of_the_cache() {
    let bytes = |name: &str| {
        let folder = FOLDERS.iter().find(|folder| folder.name == name).unwrap();
        let described = described(folder.sources());
        let config = described.config();
        let all = (POSITION + 1) * 2 * config.n_kv_heads * config.head_dim * 2 * config.n_layers;
        (costs(&described, Variant::Workgroup).kv_bytes, all as u64)
    };
    let (read, all) = bytes("llama-tiny");
    assert_eq!(read, all);
    let (read, all) = bytes("gemma2-tiny");
    assert!(read < all, "{read} of {all}");
}

/// What `pagelm bench --host` times is what it says: decode steps of one sequence, each of one submit.
#[test]
fn host_time_is_that_of_decode_steps() {
    pollster::block_on(async {
        let described = described(FOLDERS[1].sources());
        let mut model =
            described.without_weights(Rc::new(Gpu::noop(Variant::Workgroup).await.unwrap())).await.unwrap();
        let n_asked = std::cell::Cell::new(0.0);
        let clock = || n_asked.replace(n_asked.get() + 1.0);
        let times = host_time::measure(&mut model, 30, clock).await.unwrap();
        let counters = model.counters();
        assert_eq!((times.len(), counters.steps, counters.submits), (30, 50, 50));
        assert!(times.iter().all(|time| (time.begin_ms, time.read_ms, time.end_ms) == (1.0, 1.0, 1.0)));
    });
}

/// GPU objects are made where they are counted, and where operations or an adapter are measured; a step can make none.
#[test]
fn gpu_objects_are_made_where_they_are_counted() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/gpu");
    let makes =
        ["buffer", "bind_group", "bind_group_layout", "pipeline_layout", "shader_module", "compute_pipeline"];
    let mut found = BTreeSet::new();
    for entry in std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
        let text = std::fs::read_to_string(&entry).unwrap_or_default();
        let name = entry.file_name().unwrap().to_string_lossy().into_owned();
        for make in makes {
            let n_calls = text.matches(&format!("create_{make}(")).count();
            if n_calls > 0 && !["maker.rs", "pipelines.rs", "timings.rs", "floor.rs"].contains(&name.as_str())
            {
                found.insert(format!("{n_calls} × create_{make} in {name}"));
            }
        }
    }
    // `GpuModel::read_activations`, which tests use.
    assert_eq!(found, BTreeSet::from(["1 × create_buffer in model.rs".to_owned()]));
}
