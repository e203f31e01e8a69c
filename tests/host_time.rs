//! A benchmark, not a test of speed: what a decode step of 30 layers costs the host, natively on wgpu's noop backend and in
//! Chromium on its WebGPU with every dispatch left empty. It prints the times and holds that the steps are those of a model
//! of that shape. Natively `pagelm bench --host` times the same of a file; here see
//! `cargo test --release --test host_time -- --nocapture` and `cargo xtask test --only wasm host_time`.
#![cfg(feature = "gpu")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[macro_use]
#[path = "support/gpu_test.rs"]
mod gpu_test;
#[path = "support/random_model.rs"]
mod random_model;
#[path = "support/reference.rs"]
mod reference;

use std::rc::Rc;

use pagelm::bench::percentiles::Percentiles;
use pagelm::format::block::BlockType::{Q4_1, Q8_0};
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::Capacity;
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::shader::Variant;
use pagelm::host::host_time;
use pagelm::plan::{KvType, Op, Plan, RotaryPairs, Sizes};
use random_model::{LLAMA, RandomModel, Shape};

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

const N_LAYERS: usize = 30;
const N_STEPS: usize = 300;

/// SmolLM2-135M's plan: one layer's weights for all, and each with a cache of its own, since only the host's work counts.
fn plan() -> Plan {
    let sizes = Sizes {
        n_layers: 1,
        width: 576,
        n_heads: 9,
        n_kv_heads: 3,
        head_dim: 64,
        mlp_width: 1536,
        vocab_size: 49152,
    };
    let shape = Shape {
        sizes,
        embedding: Q8_0,
        qkv: [Q4_1; 3],
        attention_output: Q4_1,
        gate_up: [Q4_1; 2],
        down: Q4_1,
        head: None,
        pairs: RotaryPairs::Adjacent,
        kv: KvType::F16,
        style: LLAMA,
    };
    let mut plan = RandomModel::new(&shape, 1).plan;
    plan.sizes.n_layers = N_LAYERS;
    plan.layer_caches = vec![0; N_LAYERS];
    let is_of_layer = |op: &&Op| !matches!(op, Op::Embed { .. } | Op::Logits { .. });
    // As the recorder stacks them.
    let qkv = plan.ops.iter().find_map(|op| match op {
        Op::ProjectQkv { weights, .. } => Some(weights.clone()),
        _ => None,
    });
    let qkv = qkv.unwrap();
    let parts = qkv.iter().flat_map(|id| plan.matrices[id.0].parts.clone()).collect();
    plan.matrices[qkv[0].0].parts = parts;
    let layer: Vec<Op> = plan.ops.iter().filter(is_of_layer).cloned().collect();
    let of = |layer_idx: usize| {
        layer.iter().cloned().map(move |mut op| {
            match &mut op {
                Op::ProjectQkv { layer, weights, .. } => {
                    *layer = layer_idx;
                    weights.truncate(1);
                }
                Op::Attend { layer, .. } => *layer = layer_idx,
                _ => {}
            }
            op
        })
    };
    let (first, last) = (plan.ops[0].clone(), plan.ops[plan.ops.len() - 1].clone());
    plan.ops = std::iter::once(first).chain((0..N_LAYERS).flat_map(of)).chain([last]).collect();
    plan
}

#[cfg(not(target_arch = "wasm32"))]
async fn gpu() -> Gpu {
    Gpu::noop(Variant::Workgroup).await.unwrap()
}

#[cfg(target_arch = "wasm32")]
async fn gpu() -> Gpu {
    Gpu::open(None).await.unwrap().with_variant(Variant::Workgroup)
}

#[cfg(not(target_arch = "wasm32"))]
fn now_ms() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64() * 1000.0
}

#[cfg(target_arch = "wasm32")]
fn now_ms() -> f64 {
    use wasm_bindgen::JsCast as _;
    let performance = js_sys::Reflect::get(&js_sys::global(), &"performance".into()).unwrap();
    let now = js_sys::Reflect::get(&performance, &"now".into()).unwrap();
    now.unchecked_into::<js_sys::Function>().call0(&performance).unwrap().as_f64().unwrap()
}

fn say(line: &str) {
    #[cfg(target_arch = "wasm32")]
    wasm_bindgen_test::console_log!("{line}");
    #[cfg(not(target_arch = "wasm32"))]
    println!("{line}");
}

gpu_test!(host_time, async {
    let capacity = Capacity { decode_rows: 8, prefill_rows: 32, logit_rows: 8, context: 512 };
    let mut model = GpuModel::new(Rc::new(gpu().await), plan(), capacity, 512).await.unwrap();
    model.hollow_out();
    let before = model.counters();
    let times = host_time::measure(&mut model, N_STEPS, now_ms).await.unwrap();
    let after = model.counters();
    let work: Vec<f64> = times.iter().map(|time| time.begin_ms + time.end_ms).collect();
    let mean = |of: fn(&host_time::HostTime) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
    let n_dispatches = (after.dispatches - before.dispatches) / (after.steps - before.steps);
    say(&format!(
        "host time of a step of {N_LAYERS} layers, {n_dispatches} dispatches: {:?}; {:.3} ms to schedule, record and submit, {:.3} to sample; {:.3} until it is read back",
        Percentiles::of(&work).unwrap(),
        mean(|time| time.begin_ms),
        mean(|time| time.end_ms),
        mean(|time| time.read_ms),
    ));
    assert_eq!(times.len(), N_STEPS);
    assert!(
        n_dispatches as usize >= 5 * N_LAYERS,
        "{n_dispatches} dispatches are not those of {N_LAYERS} layers"
    );
    assert_eq!(after.submits - before.submits, after.steps - before.steps);
    assert_eq!(after.host_writes - before.host_writes, after.steps - before.steps);
    assert_eq!(after.gpu_objects, before.gpu_objects, "a step makes no GPU object");
});
