//! What a token costs, counted: dispatches by layer, submits, writes, GPU objects, bytes. Counts are tests; speed is not.
#![cfg(feature = "native")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "support/layer_dispatches.rs"]
mod layer_dispatches;
#[path = "support/random_model.rs"]
mod random_model;
#[path = "support/reference.rs"]
mod reference;

use std::rc::Rc;

use pagelm::format::block::BlockType::{self, BF16, F16, F32, Q4_1, Q8_0};
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::{Capacity, Layout};
use pagelm::gpu::lower::{Dispatch, Rows, Target, lower};
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::shader::{ShaderKey, VARIANTS, Variant};
use pagelm::gpu::tuning::AdapterClass;
use pagelm::plan::batch::{Batch, RowKind, SampledAt, Token, Wants};
use pagelm::plan::sample::Sampling;
use pagelm::plan::{Device as _, KvType, MatrixId, NormKind, Op, Plan, Precision, RotaryPairs, Sizes};
use random_model::{LLAMA, RandomModel, Shape, Style};

const CAPACITY: Capacity = Capacity { decode_rows: 8, prefill_rows: 32, logit_rows: 8, context: 64 };

const GREEDY: Sampling =
    Sampling { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, place: 0, n_logprobs: None };

fn shape(qkv: [BlockType; 3]) -> Shape {
    let sizes = Sizes {
        n_layers: 1,
        width: 64,
        n_heads: 4,
        n_kv_heads: 2,
        head_dim: 16,
        mlp_width: 96,
        vocab_size: 40,
    };
    Shape {
        sizes,
        embedding: Q8_0,
        qkv,
        attention_output: Q4_1,
        gate_up: [Q4_1, Q4_1],
        down: Q4_1,
        head: None,
        pairs: RotaryPairs::Adjacent,
        kv: KvType::F16,
        style: LLAMA,
    }
}

/// A one-layer plan; matrices of q, k and v that share a block type are stacked, as the recorder does.
fn plan(shape: &Shape) -> Plan {
    let mut plan = RandomModel::new(shape, 1).plan;
    for op in &mut plan.ops {
        if let Op::ProjectQkv { weights, .. } = op {
            let mut kept: Vec<MatrixId> = Vec::new();
            for id in weights.iter() {
                let matrix = plan.matrices[id.0].clone();
                match kept.last().map(|last| &mut plan.matrices[last.0]) {
                    Some(last) if last.block_type == matrix.block_type => last.parts.extend(matrix.parts),
                    _ => kept.push(*id),
                }
            }
            *weights = kept;
        }
    }
    plan
}

/// As a device with these kernels does it by itself: it samples where its workgroups share work.
fn lowered(plan: &Plan, variant: Variant) -> Vec<Dispatch> {
    lowered_where(plan, variant, variant.shares_work())
}

fn lowered_where(plan: &Plan, variant: Variant, samples: bool) -> Vec<Dispatch> {
    let layout = Layout::new(plan, &CAPACITY, variant, 1 << 27).unwrap();
    let tuning = AdapterClass::Other.tuning();
    let target = Target { variant, tuning, max_matrix_bytes: 1 << 27, samples };
    lower(plan, &layout, target).unwrap().dispatches
}

/// Dispatches of a decode step: in the layer, and outside it.
fn count(plan: &Plan, variant: Variant) -> (usize, usize) {
    let decode: Vec<_> = lowered(plan, variant).into_iter().filter(|d| d.rows != Rows::Prefill).collect();
    let embed = decode.iter().filter(|d| matches!(d.shader, ShaderKey::Embed(..))).count();
    let logits = decode.iter().filter(|d| matches!(d.rows, Rows::Logits | Rows::Sampled)).count();
    (decode.len() - embed - logits, embed + logits)
}

#[test]
fn a_layer_decodes_in_as_many_dispatches_as_stated() {
    // DESIGN.md, truth 2: so many where q, k and v are of one block type, +1 for each further one.
    let table = [([Q4_1, Q4_1, Q4_1], 0), ([Q4_1, Q4_1, Q8_0], 1), ([Q4_1, Q8_0, F16], 2)];
    for variant in VARIANTS {
        for (qkv, more) in table {
            let (layer, outside) = count(&plan(&shape(qkv)), variant);
            assert_eq!(layer, layer_dispatches::of_layer("llama", variant) + more, "{qkv:?}, {variant:?}");
            assert_eq!(outside, layer_dispatches::outside(variant), "outside the layers, {variant:?}");
        }
    }
}

#[test]
fn what_an_architecture_adds_is_counted_too() {
    let gpt2 =
        Style { norm: NormKind::Layer, learned_positions: true, biases: true, is_gated: false, ..LLAMA };
    let (qwen3, gemma2) =
        (Style { head_norms: true, ..LLAMA }, Style { post_norms: true, window: Some(9), ..LLAMA });
    let gemma3 = Style { head_norms: true, ..gemma2 };
    let mixed = [Q4_1, Q8_0];
    let table = [
        ("llama", LLAMA, [Q4_1, Q4_1], 0),
        // Gate and up of two block types.
        ("llama", LLAMA, mixed, 1),
        ("gpt2", gpt2, [Q4_1, Q4_1], 0),
        ("qwen3", qwen3, [Q4_1, Q4_1], 0),
        ("gemma2", gemma2, [Q4_1, Q4_1], 0),
        ("gemma3", gemma3, [Q4_1, Q4_1], 0),
    ];
    for variant in VARIANTS {
        for (what, style, gate_up, more) in table {
            let shape = Shape { style, gate_up, ..shape([Q4_1; 3]) };
            let expected = layer_dispatches::of_layer(what, variant) + more;
            assert_eq!(count(&plan(&shape), variant).0, expected, "{what}, {gate_up:?}, {variant:?}");
            // A cache in 8 bits needs whole heads, as their norms do: one dispatch for both.
            let with_q8 = expected + usize::from(!style.head_norms);
            let found = count(&plan(&Shape { kv: KvType::Q8, ..shape }), variant).0;
            assert_eq!(found, with_q8, "{what}, 8-bit cache, {variant:?}");
        }
    }
}

#[test]
fn learned_positions_are_embedded_with_the_tokens() {
    let gpt2 =
        Style { norm: NormKind::Layer, learned_positions: true, biases: true, is_gated: false, ..LLAMA };
    for variant in VARIANTS {
        for (embedding, more) in [(F32, 0), (F16, 0), (BF16, 0), (Q8_0, 1)] {
            let shape = Shape { style: gpt2, embedding, ..shape([Q4_1; 3]) };
            let expected = layer_dispatches::outside(variant) + more;
            let (_, outside) = count(&plan(&shape), variant);
            assert_eq!(outside, expected, "positions of {embedding}, {variant:?}");
        }
    }
}

/// What attention and the MLP made is packed by a dispatch of its own, what norms made by the norm, which is then no part of a
/// projection anywhere.
#[test]
fn fast_adds_two_dispatches_a_layer_and_norms_where_they_were_none() {
    let gemma3 = Style { head_norms: true, post_norms: true, window: Some(9), ..LLAMA };
    for (variant, more, more_outside) in
        [(Variant::Serial, 2, 0), (Variant::Workgroup, 4, 1), (Variant::Subgroup, 4, 1)]
    {
        for (style, qkv) in [(LLAMA, [Q4_1; 3]), (LLAMA, [Q4_1, Q8_0, F16]), (gemma3, [Q4_1; 3])] {
            let exact = plan(&Shape { style, ..shape(qkv) });
            let fast = Plan { precision: Precision::Fast, ..exact.clone() };
            let (layer, outside) = count(&exact, variant);
            let expected = (layer + more, outside + more_outside);
            assert_eq!(count(&fast, variant), expected, "{style:?}, {qkv:?}, {variant:?}");
        }
    }
}

#[test]
fn weights_are_read_once_for_each_kind_and_tile_of_rows() {
    for variant in VARIANTS {
        for precision in [Precision::Exact, Precision::Fast] {
            let plan = Plan { precision, ..plan(&shape([Q4_1, Q4_1, Q4_1])) };
            let mut reads = vec![0; plan.matrices.len()];
            for dispatch in lowered(&plan, variant).iter().filter(|d| d.rows == Rows::Decode) {
                if let Some((id, _)) = dispatch.matrix {
                    reads[id.0] += 1;
                }
            }
            assert!(reads.iter().all(|n| *n <= 1), "{variant:?}, {precision:?}: {reads:?}");
        }
    }
}

/// The steady state: nothing is made, and a decode step is one write and one submit.
#[test]
fn a_decode_step_is_one_write_and_one_submit_and_makes_nothing() {
    let random = RandomModel::new(&shape([Q4_1, Q4_1, Q4_1]), 3);
    for samples in [false, true] {
        let gpu = pollster::block_on(Gpu::open(None)).unwrap().with_sampling(samples);
        let mut model =
            pollster::block_on(GpuModel::new(Rc::new(gpu), random.plan.clone(), CAPACITY, 256)).unwrap();
        random.write(&model, 8);
        let is_recorded = |d: &&Dispatch| d.rows != Rows::Prefill && (samples || d.rows != Rows::Sampled);
        let expected_dispatches =
            lowered_where(&random.plan, model.variant(), samples).iter().filter(is_recorded).count();
        let mut before = model.counters();
        for step in 0..5u32 {
            let slot_of_step = step % 2;
            let mut batch = Batch { slot_of_step, ..Batch::default() };
            let sequence = batch.push_sequence(vec![vec![3]]);
            let is_fed = samples && step > 0;
            let fed = Token::Sampled(SampledAt { slot_of_step: 1 - slot_of_step, logit_row: 0 });
            let token = if is_fed { fed } else { Token::Known(step) };
            let wants = if samples { Wants::Token(GREEDY) } else { Wants::Logits };
            batch.push_row(RowKind::Decode, sequence, token, step, wants);
            let ticket = model.submit(&batch);
            pollster::block_on(model.read(ticket)).unwrap();
            let after = model.counters();
            assert_eq!(after.submits - before.submits, 1);
            assert_eq!(after.host_writes - before.host_writes, 1);
            assert_eq!(after.gpu_objects, before.gpu_objects, "a step makes no GPU object");
            assert_eq!(after.dispatches - before.dispatches, expected_dispatches as u64);
            before = after;
        }
    }
}

/// Weights take at most 1.1 times their bytes in the file.
#[test]
fn weights_stay_packed_on_the_device() {
    let random = RandomModel::new(&shape([Q4_1, Q8_0, F16]), 3);
    let gpu = pollster::block_on(Gpu::open(None)).unwrap();
    let model = pollster::block_on(GpuModel::new(Rc::new(gpu), random.plan.clone(), CAPACITY, 256)).unwrap();
    let file_bytes: usize = random.files.iter().map(Vec::len).sum();
    assert!(
        model.weight_bytes() as f64 <= 1.1 * file_bytes as f64,
        "{} of {file_bytes}",
        model.weight_bytes()
    );
}
