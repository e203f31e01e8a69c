//! Every kernel against plain loops with f64 sums, over awkward shapes, in every variant; natively and in Chromium.
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
#[path = "support/shapes.rs"]
mod shapes;

use std::rc::Rc;

use pagelm::format::block::BlockType::F32;
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::{Buffer, Capacity};
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::shader::{VARIANTS, Variant};
use pagelm::gpu::tuning::{AdapterClass, Tuning};
use pagelm::plan::batch::{Batch, RowKind};
use pagelm::plan::{Device as _, KvType, Precision};
use random_model::{RandomModel, Shape};
use reference::Activations;
use shapes::{
    ADJACENT, LENGTHS, LONG_SHAPES, NEAR_TIE_BOUND, SHAPES, blocks, bound_of, check, long_blocks, shape,
    sizes, steps,
};

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

const CAPACITY: Capacity = Capacity { decode_rows: 16, prefill_rows: 64, logit_rows: 24, context: 128 };

/// All variants; in a browser, those that its adapter has.
async fn variants() -> Vec<Variant> {
    let has_subgroups = Gpu::open(None).await.unwrap().has_subgroups();
    assert!(has_subgroups || cfg!(target_arch = "wasm32"), "the native adapter of tests has subgroups");
    VARIANTS.into_iter().filter(|variant| has_subgroups || *variant != Variant::Subgroup).collect()
}

/// Those that a case runs with: all natively, and in a browser, whose software adapter takes seconds to compile the kernels of
/// each, the next in turn.
async fn variants_of(case: usize) -> Vec<Variant> {
    let all = variants().await;
    if cfg!(target_arch = "wasm32") { vec![all[case % all.len()]] } else { all }
}

/// The i-th device: work is cut in one of the two ways that there are.
async fn device(variant: Variant, i: usize) -> Gpu {
    let class = if i.is_multiple_of(2) { AdapterClass::Other } else { AdapterClass::Discrete };
    Gpu::open(None).await.unwrap().with_variant(variant).with_tuning(class.tuning())
}

async fn load(gpu: Gpu, random: &RandomModel) -> GpuModel {
    load_with(gpu, random, CAPACITY, 32 * 32).await
}

async fn load_with(gpu: Gpu, random: &RandomModel, capacity: Capacity, kv_tokens: usize) -> GpuModel {
    let variant = gpu.variant();
    let model = GpuModel::new(Rc::new(gpu), random.plan.clone(), capacity, kv_tokens).await.unwrap();
    assert_eq!(model.variant(), variant, "the kernels that were asked for compute");
    random.write(&model, 7);
    model.flush().await.unwrap();
    model
}

async fn compare_with_reference(shape: Shape, precision: Precision, gpu: Gpu, label: &str) {
    let mut random = RandomModel::new(&shape, 7);
    random.plan.precision = precision;
    let mut model = load(gpu, &random).await;
    let mut reference = random.reference();
    let bound = bound_of(shape.kv);
    // Keys and values that were rounded differ by more than a tie is wide.
    let is_near = |expected: &Activations, row: usize| {
        expected.near_tie[row] || (precision == Precision::Fast && shape.kv != KvType::F32)
    };
    let bound_of = |expected: &Activations, row: usize| {
        if is_near(expected, row) { NEAR_TIE_BOUND.max(bound) } else { bound }
    };
    let mut n_close = 0;
    let layout = model.layout().clone();
    let sizes = shape.sizes;
    let attention = sizes.n_heads * sizes.head_dim;
    for (n, batch) in steps(5, sizes.vocab_size).iter().enumerate() {
        let ticket = model.submit(batch);
        let logits = model.read(ticket).await.unwrap().logits;
        let expected = reference.step(batch);
        let [hidden, inputs, outputs] = [
            model.read_activations(Buffer::Hidden).await.unwrap(),
            model.read_activations(Buffer::Inputs).await.unwrap(),
            model.read_activations(Buffer::Outputs).await.unwrap(),
        ];
        let first_prefill = batch.n_decode.next_multiple_of(8);
        for row in 0..batch.n_rows() {
            let bound = bound_of(&expected, row);
            n_close += usize::from(!is_near(&expected, row));
            let at = if row < batch.n_decode { row } else { row - batch.n_decode + first_prefill };
            let region = |values: &'_ [f32], start: u32, width: usize| -> Vec<f32> {
                values[start as usize + at * width..][..width].to_vec()
            };
            let what = |region: &str| format!("{label}, step {n}, row {row}: {region}");
            let attended = if layout.attended.buffer == Buffer::Inputs { &inputs } else { &outputs };
            check(
                &what("attended"),
                &region(attended, layout.attended.start, attention),
                &expected.attended[row],
                bound,
            );
            check(
                &what("mlp"),
                &region(&outputs, layout.mlp.start, sizes.mlp_width),
                &expected.mlp[row],
                bound,
            );
            check(
                &what("hidden"),
                &region(&hidden, layout.hidden.start, sizes.width),
                &expected.hidden[row],
                bound,
            );
        }
        assert_eq!(logits.len(), batch.logit_rows.len() * sizes.vocab_size);
        for (i, row) in logits.chunks(sizes.vocab_size).enumerate() {
            let bound = bound_of(&expected, batch.logit_rows[i] as usize);
            check(&format!("{label}, step {n}: logits {i}"), row, &expected.logits[i], bound);
        }
    }
    assert!(
        n_close > 4 || (precision, shape.kv) == (Precision::Fast, KvType::F16),
        "{label}: {n_close} rows are close"
    );
}

/// All of them; in a browser, whose software adapter takes seconds to compile the kernels of each, those that between them
/// have every operation (tests/blocks.rs has every block type).
fn run_here<const N: usize>(all: [usize; N], in_browser: &[usize]) -> Vec<usize> {
    all.into_iter().filter(|i| cfg!(not(target_arch = "wasm32")) || in_browser.contains(i)).collect()
}

gpu_test!(every_kernel_agrees_with_plain_loops, async {
    for (case, i) in
        run_here(std::array::from_fn::<_, { SHAPES.len() }, _>(|i| i), &[0, 3, 10, 11, 13, 14, 16])
            .into_iter()
            .enumerate()
    {
        let shape = SHAPES[i];
        for variant in variants_of(case).await {
            let label = format!("shape {i}, {variant:?}");
            compare_with_reference(shape, Precision::Exact, device(variant, i).await, &label).await;
        }
    }
});

gpu_test!(fast_kernels_agree_with_plain_loops_over_the_same_bytes, async {
    // Blocks of every kind, floats beside them, norms of heads and of what is added, biases.
    for (case, i) in run_here([1, 3, 7, 8, 9, 11, 14], &[3, 14]).into_iter().enumerate() {
        let kv = if i == 3 { KvType::F16 } else { KvType::F32 };
        let shape = Shape { kv, ..SHAPES[i] };
        for variant in variants_of(case).await {
            let label = format!("fast, shape {i}, {variant:?}");
            compare_with_reference(shape, Precision::Fast, device(variant, i).await, &label).await;
        }
    }
});

gpu_test!(matrices_split_over_bindings_agree_with_plain_loops, async {
    for (case, i) in run_here([3, 6, 7, 8, 9, 10, 13], &[3, 10, 13]).into_iter().enumerate() {
        for variant in variants_of(case).await {
            let shape = SHAPES[i];
            // A few rows a binding: every matrix is split, gate and up alike, q, k and v between heads.
            let row_bytes = shape.sizes.mlp_width.max(shape.sizes.width) as u64 * 2;
            let gpu = device(variant, i).await.with_max_matrix_bytes(row_bytes * 66);
            compare_with_reference(shape, Precision::Exact, gpu, &format!("split, {variant:?}")).await;
        }
    }
    for variant in variants_of(1).await {
        let shape = SHAPES[8];
        let gpu = device(variant, 8).await.with_max_matrix_bytes(shape.sizes.width as u64 * 2 * 66);
        compare_with_reference(shape, Precision::Fast, gpu, &format!("split, fast, {variant:?}")).await;
    }
});

gpu_test!(a_row_alone_has_the_bits_it_has_in_a_crowd, async {
    alone_and_in_a_crowd(&run_here([2, 3, 4, 8, 10, 13, 14, 16, 18], &[3, 10, 13]), Precision::Exact).await;
});

gpu_test!(a_row_alone_has_the_bits_it_has_in_a_crowd_in_fast_too, async {
    alone_and_in_a_crowd(&run_here([3, 8, 7, 14], &[3, 8]), Precision::Fast).await;
});

async fn alone_and_in_a_crowd(shapes: &[usize], precision: Precision) {
    for (case, &i) in shapes.iter().enumerate() {
        for variant in variants_of(case).await {
            let shape = SHAPES[i];
            let mut random = RandomModel::new(&shape, 11);
            random.plan.precision = precision;
            let mut model = load(device(variant, i).await, &random).await;
            let vocab_size = shape.sizes.vocab_size;
            let prompts = steps(9, vocab_size).remove(0);
            let ticket = model.submit(&prompts);
            model.read(ticket).await.unwrap();
            let decode = |sequences: std::ops::Range<usize>| {
                let mut batch = Batch::default();
                for sequence in sequences {
                    let at = batch.push_sequence(vec![blocks(sequence)]);
                    let position = if sequence == 0 { 37 } else { 1 + sequence as u32 % 3 };
                    batch.push_row(RowKind::Decode, at, (sequence % vocab_size) as u32, position, true);
                }
                batch
            };
            let mut alone = Vec::new();
            for sequence in 0..9 {
                let ticket = model.submit(&decode(sequence..sequence + 1));
                alone.push(model.read(ticket).await.unwrap().logits);
            }
            for n_rows in 1..=9 {
                let ticket = model.submit(&decode(0..n_rows));
                let logits = model.read(ticket).await.unwrap().logits;
                for (i, row) in logits.chunks(vocab_size).enumerate() {
                    let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(row), bits(&alone[i]), "{variant:?}, {precision:?}: row {i} of {n_rows}");
                }
            }
        }
    }
}

gpu_test!(large_tiles_of_prompts_have_the_bits_of_small_ones, async {
    // Two prompts together, so that tiles hold rows of both; neither rows nor outputs fill the last tile.
    let capacity = Capacity { prefill_rows: 160, ..CAPACITY };
    let mut batch = Batch::default();
    for sequence in 0..2 {
        let at = batch.push_sequence(vec![blocks(sequence)]);
        for position in 0..70 {
            batch.push_row(
                RowKind::Prefill,
                at,
                (position * 7 + sequence as u32) % 31,
                position,
                position >= 64,
            );
        }
    }
    for i in run_here([0, 3, 4, 6, 7, 8, 9, 10, 11, 13], &[3]) {
        let random = RandomModel::new(&SHAPES[i], 5);
        let mut found = Vec::new();
        for least_large_groups in [u32::MAX, 1] {
            let gpu = device(Variant::Workgroup, i).await;
            let tuning = Tuning { least_large_groups, ..gpu.tuning() };
            let gpu = gpu.with_tuning(tuning);
            let mut model =
                GpuModel::new(Rc::new(gpu), random.plan.clone(), capacity, 32 * 32).await.unwrap();
            random.write(&model, 7);
            let ticket = model.submit(&batch);
            let logits = model.read(ticket).await.unwrap().logits;
            let hidden = model.read_activations(Buffer::Hidden).await.unwrap();
            found.push(logits.iter().chain(&hidden).map(|v| v.to_bits()).collect::<Vec<_>>());
        }
        assert!(found[0].iter().any(|bits| *bits != 0), "something was computed");
        assert!(found[0] == found[1], "shape {i}");
    }
});

gpu_test!(a_step_has_the_same_bits_whichever_pipelines_are_made, async {
    for variant in variants_of(1).await {
        let random = RandomModel::new(&SHAPES[3], 5);
        let gpu = Rc::new(device(variant, 3).await);
        let model = GpuModel::for_first_token(gpu, random.plan.clone(), CAPACITY, 32 * 32).await;
        let mut model = model.unwrap();
        random.write(&model, 7);
        assert!(model.n_pipelines_left() > 0, "{variant:?}: some are left");
        let mut found: Vec<Vec<u32>> = Vec::new();
        loop {
            let mut bits = Vec::new();
            for batch in steps(8, random.plan.sizes.vocab_size) {
                let ticket = model.submit(&batch);
                bits.extend(model.read(ticket).await.unwrap().logits.iter().map(|logit| logit.to_bits()));
            }
            found.push(bits);
            if model.n_pipelines_left() == 0 {
                break;
            }
            model.make_pipeline().await;
        }
        assert!(found[0].iter().any(|bits| *bits != 0), "something was computed");
        assert!(found.iter().all(|bits| *bits == found[0]), "{variant:?}");
    }
});

gpu_test!(a_prompt_has_the_same_bits_however_it_is_cut_into_chunks, async {
    let shapes = run_here([2, 3, 6, 8, 10, 11, 13, 14, 15, 17, 18], &[3, 10, 13]);
    for (case, i) in shapes.into_iter().enumerate() {
        for variant in variants_of(case).await {
            let random = RandomModel::new(&SHAPES[i], 5);
            let mut model = load(device(variant, i).await, &random).await;
            let mut found: Vec<Vec<u32>> = Vec::new();
            // Beside another prompt, whose rows come before.
            for (cuts, n_before) in [(vec![0, 64, 90], 0), (vec![0, 1, 32, 49, 90], 3), (vec![0, 33, 90], 7)]
            {
                let mut logits = Vec::new();
                for cut in cuts.windows(2) {
                    let mut batch = Batch::default();
                    let other = batch.push_sequence(vec![blocks(1)]);
                    for position in 0..n_before {
                        batch.push_row(RowKind::Prefill, other, 3, position, false);
                    }
                    let at = batch.push_sequence(vec![blocks(0)]);
                    for position in cut[0]..cut[1] {
                        batch.push_row(
                            RowKind::Prefill,
                            at,
                            position * 7 % 31,
                            position,
                            position % 16 == 15,
                        );
                    }
                    let ticket = model.submit(&batch);
                    logits.extend(model.read(ticket).await.unwrap().logits);
                }
                found.push(logits.iter().map(|v| v.to_bits()).collect());
            }
            assert!(found[0].iter().any(|bits| *bits != 0), "something was computed");
            assert!(found.iter().all(|bits| *bits == found[0]), "shape {i}, {variant:?}");
        }
    }
});

gpu_test!(long_contexts_agree_with_plain_loops_alone_and_in_a_crowd, async {
    let capacity = Capacity { decode_rows: 32, context: 1024, ..CAPACITY };
    for (case, i) in run_here([0, 1, 2, 3, 4, 5], &[0, 2]).into_iter().enumerate() {
        // In a browser those that split it.
        for variant in variants_of(case + 1).await {
            let shape = LONG_SHAPES[i];
            let random = RandomModel::new(&shape, 5);
            let mut gpu = device(variant, i).await;
            if i == 0 && variant != Variant::Serial {
                // Little room for what becomes of ranges, so that a workgroup takes several.
                gpu = gpu.with_max_binding_bytes(1 << 19);
            }
            let mut model = load_with(gpu, &random, capacity, 64 * 32).await;
            let takes_several = i == 0 && variant != Variant::Serial;
            assert_eq!(model.layout().span_ranges, if takes_several { 2 } else { 1 });
            let mut reference = random.reference();
            let token = |sequence: usize, position: usize| ((sequence * 31 + position * 7) % 40) as u32;
            for (sequence, len) in LENGTHS.into_iter().enumerate() {
                let positions: Vec<usize> = (0..len).collect();
                for chunk in positions.chunks(64) {
                    let mut batch = Batch::default();
                    let at = batch.push_sequence(vec![long_blocks(sequence)]);
                    for position in chunk {
                        let row = token(sequence, *position);
                        batch.push_row(RowKind::Prefill, at, row, *position as u32, false);
                    }
                    let ticket = model.submit(&batch);
                    model.read(ticket).await.unwrap();
                    reference.step(&batch);
                }
            }
            let decode = |sequences: std::ops::Range<usize>| {
                let mut batch = Batch::default();
                for sequence in sequences {
                    let at = batch.push_sequence(vec![long_blocks(sequence)]);
                    let len = LENGTHS[sequence];
                    batch.push_row(RowKind::Decode, at, token(sequence, len), len as u32, true);
                }
                batch
            };
            let together = decode(0..LENGTHS.len());
            let expected = reference.step(&together);
            let ticket = model.submit(&together);
            let logits = model.read(ticket).await.unwrap().logits;
            let layout = model.layout().clone();
            let attended = model.read_activations(layout.attended.buffer).await.unwrap();
            let width = shape.sizes.n_heads * shape.sizes.head_dim;
            let bound = bound_of(shape.kv);
            for (row, logits) in logits.chunks(40).enumerate() {
                let what = format!("shape {i}, {variant:?}, position {}", LENGTHS[row]);
                let of_row = &attended[layout.attended.start as usize + row * width..][..width];
                check(&what, of_row, &expected.attended[row], bound);
                check(&what, logits, &expected.logits[row], bound);
            }
            for sequence in 0..LENGTHS.len() {
                let ticket = model.submit(&decode(sequence..sequence + 1));
                let alone = model.read(ticket).await.unwrap().logits;
                let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
                let in_crowd = &logits[sequence * 40..][..40];
                assert_eq!(bits(&alone), bits(in_crowd), "shape {i}, {variant:?}: sequence {sequence}");
            }
        }
    }
});

gpu_test!(no_loop_ends_early_in_a_long_context, async {
    // llvmpipe ends the loops of a shader after 65,535 turns in all, without a word.
    let shape = shape(sizes(32, [1, 1], 256, 32, 33), F32, ADJACENT, KvType::F16);
    let n_positions = 2200;
    let capacity = Capacity { context: 2304, prefill_rows: 256, ..CAPACITY };
    for variant in variants_of(0).await {
        let random = RandomModel::new(&shape, 3);
        let mut model = load_with(device(variant, 0).await, &random, capacity, 2304).await;
        let mut reference = random.reference();
        let blocks: Vec<u32> = (0..72).collect();
        let positions: Vec<u32> = (0..n_positions).collect();
        for chunk in positions.chunks(256) {
            let mut batch = Batch::default();
            let at = batch.push_sequence(vec![blocks.clone()]);
            for position in chunk {
                let is_last = position + 1 == n_positions;
                batch.push_row(RowKind::Prefill, at, position * 7 % 33, *position, is_last);
            }
            let ticket = model.submit(&batch);
            let logits = model.read(ticket).await.unwrap().logits;
            let expected = reference.step(&batch).logits;
            if let Some(expected) = expected.first() {
                check(&format!("{variant:?}"), &logits, expected, 1e-3);
            }
        }
    }
});
