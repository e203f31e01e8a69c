//! The check of a GPU before a model first runs there: right ones pass, and every kernel that returns noise is noticed.
#![cfg(feature = "native")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/folders.rs"]
mod folders;
#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "support/memory_source.rs"]
mod memory_source;
#[path = "support/random_model.rs"]
mod random_model;
#[path = "support/reference.rs"]
mod reference;
#[path = "support/safetensors.rs"]
mod safetensors;
#[path = "support/shapes.rs"]
mod shapes;

use std::collections::HashSet;
use std::rc::Rc;
use std::time::Instant;

use folders::FOLDERS;
use pagelm::cpu::Processor;
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::{Capacity, Layout};
use pagelm::gpu::lower::lower;
use pagelm::gpu::noise::Noise;
use pagelm::gpu::shader::{ShaderKey, VARIANTS, Variant};
use pagelm::gpu::tuning::CLASSES;
use pagelm::host::check::{MAX_WEIGHTS, Verdict, check, small};
use pagelm::host::load::describe;
use pagelm::host::serve::yield_now;
use pagelm::plan::{KvType, Plan, Precision};
use pagelm::protocol::LoadOptions;
use pollster::block_on;
use random_model::RandomModel;
use shapes::SHAPES;

fn gpu(variant: Variant) -> Gpu {
    block_on(Gpu::open(None)).unwrap().with_variant(variant)
}

fn processor() -> Rc<Processor> {
    Rc::new(Processor::new(2, Rc::new(|| Box::pin(yield_now())), Rc::new(|| 0.0)).unwrap())
}

fn checked(gpu: Gpu, plan: &Plan, context: usize) -> Verdict {
    let plan = small(plan, context, gpu.tuning(), MAX_WEIGHTS);
    block_on(check(&Rc::new(gpu), plan, context, processor())).unwrap()
}

fn right(variant: Variant) -> Verdict {
    Verdict { right: Some(variant), wrong: Vec::new() }
}

#[test]
fn timing() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/www/models/SmolLM2-135M-Instruct.Q4_1.gguf");
    for precision in [Precision::Exact, Precision::Fast] {
        for variant in VARIANTS {
            let sources = pagelm::store::native::model_files(std::path::Path::new(path)).unwrap();
            let described = block_on(describe(sources, &LoadOptions::default())).unwrap();
            let plan = Plan { precision, ..described.plan_on(true) };
            let gpu = gpu(variant);
            let started = Instant::now();
            let verdict = checked(gpu, &plan, 4096);
            println!("{variant:?} {precision:?} {verdict:?} {:?}", started.elapsed());
        }
    }
}
