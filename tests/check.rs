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

use std::collections::{BTreeSet, HashSet};
use std::rc::Rc;

use folders::FOLDERS;
use pagelm::cpu::Processor;
use pagelm::cpu::model::CpuModel;
use pagelm::format::block::BlockType::{F16, F32, Q4_1, Q4_K, Q5_K, Q6_K, Q8_0};
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::{Capacity, Layout};
use pagelm::gpu::lower::{Target, lower};
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::noise::Noise;
use pagelm::gpu::shader::{ShaderKey, TileSize, VARIANTS, Variant};
use pagelm::gpu::tuning::CLASSES;
use pagelm::host::check::{Verdict, Wrong, check, small};
use pagelm::host::load::describe;
use pagelm::host::serve::yield_now;
use pagelm::plan::{KvType, Plan, Precision};
use pagelm::protocol::LoadOptions;
use pollster::block_on;
use random_model::{RandomModel, Shape};
use shapes::{ADJACENT, GEMMA2, GEMMA3, GPT2, SHAPES, SPLIT, shape, sizes};

fn gpu(variant: Variant) -> Gpu {
    block_on(Gpu::open(None)).unwrap().with_variant(variant)
}

fn processor() -> Rc<Processor> {
    Rc::new(Processor::new(2, Rc::new(|| Box::pin(yield_now())), Rc::new(|| 0.0)).unwrap())
}

fn checked(gpu: Gpu, plan: &Plan, context: usize) -> Verdict {
    let plan = small(plan, context, gpu.tuning());
    block_on(check(&Rc::new(gpu), plan, context, processor())).unwrap()
}

fn right(variant: Variant) -> Verdict {
    Verdict { right: Some(variant), wrong: Vec::new() }
}

/// The context that checks are made for.
const N_POSITIONS: usize = 1024;
const KV_TYPES: [KvType; 3] = [KvType::F16, KvType::F32, KvType::Q8];
const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

#[test]
fn right_gpus_pass_with_every_architecture() {
    for (v, variant) in VARIANTS.into_iter().enumerate() {
        let gpu = gpu(variant);
        for (i, folder) in FOLDERS.iter().enumerate() {
            let described = block_on(describe(folder.sources(), &LoadOptions::default())).unwrap();
            for (j, precision) in PRECISIONS.into_iter().enumerate() {
                let kv = KV_TYPES[(i + j + v) % 3];
                let plan = Plan { precision, kv, ..described.plan_on(false) };
                let found = checked(gpu.clone(), &plan, described.context());
                assert_eq!(found, right(variant), "{}, {variant:?}, {precision:?}, {kv:?}", folder.name);
            }
        }
    }
}

#[test]
fn right_gpus_pass_with_every_block_type() {
    let gpus = VARIANTS.map(gpu);
    for (i, shape) in SHAPES.iter().enumerate() {
        for (j, precision) in PRECISIONS.into_iter().enumerate() {
            let plan = Plan { precision, ..RandomModel::plan(shape) };
            let gpu = &gpus[(i + j) % gpus.len()];
            let found = checked(gpu.clone(), &plan, 100);
            assert_eq!(found, right(gpu.variant()), "shape {i}, {precision:?}");
        }
    }
}

/// What models are published with, of one layer: small ones, wide ones, many heads.
const PUBLISHED: [Shape; 8] = [
    shape(sizes(576, [9, 3], 64, 1536, 49152), Q4_1, ADJACENT, KvType::F16),
    shape(sizes(896, [14, 2], 64, 4864, 151_936), Q8_0, SPLIT, KvType::F16),
    Shape {
        style: GEMMA3,
        head: Some(Q8_0),
        ..shape(sizes(640, [4, 1], 256, 2048, 262_144), F16, SPLIT, KvType::F16)
    },
    Shape { style: GPT2, ..shape(sizes(768, [12, 12], 64, 3072, 50257), F32, ADJACENT, KvType::F32) },
    Shape {
        embedding: Q6_K,
        qkv: [Q4_K, Q4_K, Q6_K],
        down: Q6_K,
        ..shape(sizes(4096, [32, 8], 128, 14336, 128_256), Q4_K, ADJACENT, KvType::F16)
    },
    Shape { style: GEMMA2, ..shape(sizes(2304, [8, 4], 256, 9216, 256_000), Q5_K, SPLIT, KvType::Q8) },
    shape(sizes(3072, [32, 32], 96, 8192, 32064), F16, SPLIT, KvType::F16),
    shape(sizes(8192, [64, 8], 128, 28672, 128_256), F32, ADJACENT, KvType::F16),
];

/// The kernels of a plan.
fn kernels(plan: &Plan, target: Target) -> HashSet<ShaderKey> {
    let capacity = Capacity { decode_rows: 8, prefill_rows: 64, logit_rows: 8, context: N_POSITIONS };
    let layout = Layout::new(plan, &capacity, target.variant, 1 << 40).unwrap();
    lower(plan, &layout, target).unwrap().dispatches.into_iter().map(|dispatch| dispatch.shader).collect()
}

#[test]
fn small_plans_have_the_kernels_of_whole_ones() {
    for (i, shape) in PUBLISHED.into_iter().chain(SHAPES).enumerate() {
        for precision in PRECISIONS {
            let whole = Plan { precision, ..RandomModel::plan(&shape) };
            for class in CLASSES {
                let tuning = class.tuning();
                let small = small(&whole, N_POSITIONS, tuning);
                let capacity =
                    Capacity { decode_rows: 8, prefill_rows: 40, logit_rows: 8, context: N_POSITIONS };
                let model = CpuModel::new(small.clone(), capacity, 11 * 32, processor()).unwrap();
                let (weights, all) = (model.weight_bytes(), model.total_bytes());
                assert!(
                    weights <= 16 << 20 && all <= 19 << 20,
                    "shape {i}, {class:?}: {weights}, {all} bytes"
                );
                for variant in VARIANTS {
                    let target = Target { variant, tuning, max_matrix_bytes: 1 << 40, samples: true };
                    let what = format!("shape {i}, {precision:?}, {class:?}, {variant:?}");
                    assert_eq!(kernels(&small, target), kernels(&whole, target), "{what}");
                }
            }
        }
    }
}

#[test]
fn a_small_plan_has_a_layer_of_each_kind() {
    // Layers that see all, and others that see a window.
    let folder = FOLDERS.iter().find(|folder| folder.name == "gemma2-tiny").unwrap();
    let described = block_on(describe(folder.sources(), &LoadOptions::default())).unwrap();
    let whole = described.plan_on(false);
    let small = small(&whole, N_POSITIONS, CLASSES[0].tuning());
    assert!(whole.sizes.n_layers > 2, "{}", whole.sizes.n_layers);
    let of_layers: HashSet<usize> = small.layer_caches.iter().copied().collect();
    assert_eq!((small.sizes.n_layers, of_layers), (2, HashSet::from([0, 1])));
}

/// All names of kernels that run for a plan: of matmuls that prompts are computed with, in tiles of either size.
fn names(plan: &Plan, gpu: &Gpu) -> BTreeSet<&'static str> {
    let names = kernels(plan, gpu.target()).into_iter().flat_map(|key| {
        let large = match key {
            ShaderKey::MatmulTiled(block, emit, _) => {
                Some(ShaderKey::MatmulTiled(block, emit, TileSize::Large))
            }
            _ => None,
        };
        [Some(key), large].into_iter().flatten().map(ShaderKey::entry_point)
    });
    names.collect()
}

#[test]
fn every_kernel_that_returns_noise_is_noticed_and_others_take_its_place() {
    let mut seen = BTreeSet::new();
    for variant in VARIANTS {
        let whole = gpu(variant);
        for precision in PRECISIONS {
            // With norms of heads and of what is added, and without.
            for i in [3, 14] {
                let plan = Plan { precision, ..RandomModel::plan(&SHAPES[i]) };
                for name in names(&plan, &whole) {
                    let noise = Noise { kernel: Some(name), variant: Some(variant) };
                    let found = checked(whole.clone().with_noise(noise), &plan, N_POSITIONS);
                    let what = format!("{name}, {variant:?}, {precision:?}, shape {i}: {found:?}");
                    assert!(found.right.is_some_and(|right| right != variant), "{what}");
                    assert!(
                        matches!(found.wrong[..], [Wrong { variant: wrong, error }] if wrong == variant && error > 0.1),
                        "{what}"
                    );
                    seen.insert(name);
                }
            }
        }
    }
    let all: BTreeSet<&str> = ShaderKey::all(64).into_iter().map(ShaderKey::entry_point).collect();
    // Prompts are attended to in tiles, but where more heads share a KV head than a tile has queries.
    assert_eq!(all.difference(&seen).collect::<Vec<_>>(), [&"attend_reduce"]);
    let plan = RandomModel::plan(&SHAPES[18]);
    let noise = Noise { kernel: Some("attend_reduce"), variant: None };
    let found = checked(gpu(Variant::Workgroup).with_noise(noise), &plan, N_POSITIONS);
    assert_eq!((found.right, found.wrong.len()), (Some(Variant::Serial), 1), "{found:?}");
}

#[test]
fn where_all_kernels_return_noise_none_is_right() {
    let plan = RandomModel::plan(&SHAPES[3]);
    let found = checked(gpu(Variant::Subgroup).with_noise(Noise::default()), &plan, N_POSITIONS);
    assert_eq!((found.right, found.wrong.len()), (None, 3));
    assert_eq!(Verdict::from_text(&found.to_text()), Some(found));
}

#[test]
fn pipelines_that_a_check_made_are_those_of_the_model() {
    let capacity = Capacity { decode_rows: 8, prefill_rows: 64, logit_rows: 8, context: N_POSITIONS };
    let plan = RandomModel::plan(&SHAPES[3]);
    for variant in VARIANTS {
        // Of no kernel: it but takes the adapter for a real one, where all pipelines are checked.
        let gpu = self::gpu(variant).with_noise(Noise { kernel: Some("none"), variant: None });
        let load = || GpuModel::for_first_token(Rc::new(gpu.clone()), plan.clone(), capacity, 32 * 32);
        let lacked = |model: &GpuModel| (model.n_pipelines_left() > 0, model.counters().gpu_objects);
        assert_eq!(checked(gpu.clone(), &plan, N_POSITIONS), right(variant));
        let after = lacked(&block_on(load()).unwrap());
        let fresh = self::gpu(variant);
        let model = GpuModel::for_first_token(Rc::new(fresh), plan.clone(), capacity, 32 * 32);
        let alone = lacked(&block_on(model).unwrap());
        assert!(!after.0 && alone.0 && after.1 + 5 < alone.1, "{variant:?}: {after:?}, alone {alone:?}");
    }
}
