//! A device chooses the tokens that the host would, from the same logits; and goes on with them unseen.
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

use pagelm::format::block::BlockType::{F32, Q8_0};
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::Capacity;
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::shader::Variant;
use pagelm::plan::batch::{Batch, RowKind, SampledAt, Token, Wants};
use pagelm::plan::sample::{Chooser, Sampled, Sampling};
use pagelm::plan::{Device as _, KvType, RotaryPairs, Sizes, StepOutput};
use random_model::{LLAMA, RandomModel, Shape};

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

const CAPACITY: Capacity = Capacity { decode_rows: 16, prefill_rows: 8, logit_rows: 16, context: 64 };
const N_ROWS: usize = 16;

const PLAIN: Sampling =
    Sampling { temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, seed: 0, place: 0, n_logprobs: None };

/// Whose other kernels are used; in a browser, whose software adapter takes seconds to compile them, those of real GPUs.
fn variants() -> impl Iterator<Item = Variant> {
    let runs_here = |variant: &Variant| cfg!(not(target_arch = "wasm32")) || *variant == Variant::Workgroup;
    [Variant::Serial, Variant::Workgroup].into_iter().filter(runs_here)
}

/// A model with so many words, of which every fifth is as likely as the one before.
fn random_model(vocab_size: usize) -> RandomModel {
    let sizes =
        Sizes { n_layers: 1, width: 64, n_heads: 2, n_kv_heads: 1, head_dim: 32, mlp_width: 64, vocab_size };
    let shape = Shape {
        sizes,
        embedding: Q8_0,
        qkv: [Q8_0; 3],
        attention_output: Q8_0,
        gate_up: [Q8_0; 2],
        down: Q8_0,
        head: Some(F32),
        pairs: RotaryPairs::Adjacent,
        kv: KvType::F32,
        style: LLAMA,
    };
    let mut random = RandomModel::new(&shape, 5);
    let head = head(&mut random);
    let row_bytes = head.len() / vocab_size;
    for row in (5..vocab_size).step_by(5) {
        head.copy_within((row - 1) * row_bytes..row * row_bytes, row * row_bytes);
    }
    random
}

fn head(random: &mut RandomModel) -> &mut Vec<u8> {
    let is_head = |matrix: &pagelm::plan::Matrix| matrix.parts[0].tensor == "head";
    let index = random.plan.matrices.iter().position(is_head).unwrap();
    &mut random.files[index]
}

async fn load(random: &RandomModel, variant: Variant) -> GpuModel {
    let gpu = Gpu::open(None).await.unwrap().with_variant(variant).with_sampling(true);
    let model = GpuModel::new(Rc::new(gpu), random.plan.clone(), CAPACITY, 32 * 16).await.unwrap();
    random.write(&model, 7);
    model.flush().await.unwrap();
    assert!(model.samples());
    model
}

/// A decode row for each of some sequences.
fn step(rows: impl IntoIterator<Item = (usize, Token, u32, Wants)>, slot_of_step: u32) -> Batch {
    let mut batch = Batch { slot_of_step, ..Batch::default() };
    for (sequence, token, position, wants) in rows {
        let at = batch.push_sequence(vec![vec![(sequence * 7 % 16) as u32]]);
        batch.push_row(RowKind::Decode, at, token, position, wants);
    }
    batch
}

async fn output(model: &mut GpuModel, batch: &Batch) -> StepOutput {
    let ticket = model.submit(batch);
    model.read(ticket).await.unwrap()
}

/// Every parameter alone and with the others.
fn samplings() -> Vec<Sampling> {
    let mut all = Vec::new();
    for temperature in [0.0, 0.2, 0.7, 1.0, 3.0] {
        for (top_k, top_p, min_p) in [
            (0, 1.0, 0.0),
            (1, 1.0, 0.0),
            (2, 1.0, 0.0),
            (7, 1.0, 0.0),
            (1 << 30, 1.0, 0.0),
            (0, 1e-9, 0.0),
            (0, 0.3, 0.0),
            (0, 0.9, 0.0),
            (0, 0.999, 0.0),
            (0, 1.0, 0.05),
            (0, 1.0, 1.0),
            (20, 0.8, 0.0),
            (20, 1.0, 0.1),
            (0, 0.8, 0.1),
            (9, 0.9, 0.1),
            (100, 0.95, 0.01),
        ] {
            let i = all.len() as u64;
            let n_logprobs = [None, Some(0), Some(1), Some(20)][all.len() % 4];
            let (seed, place) = ((i << 33) | (i * 77), i as u32 * 3);
            all.push(Sampling { temperature, top_k, top_p, min_p, seed, place, n_logprobs });
        }
    }
    all
}

/// The same token, and log-probabilities to the last digits but one.
///
/// Logarithms and sums of a device end in other digits, so a draw could differ where two tokens tie, or where the mass of
/// `top_p` ends, to six digits: about one in 10⁵ draws. The seeds are fixed, so these are decided alike always or never.
fn check(found: &Sampled, expected: &Sampled, label: &str) {
    assert_eq!((found.token, found.has_nan), (expected.token, expected.has_nan), "{label}");
    assert_eq!(found.logprobs.is_some(), expected.logprobs.is_some(), "{label}");
    let (Some(found), Some(expected)) = (&found.logprobs, &expected.logprobs) else { return };
    assert_eq!(found.top.len(), expected.top.len(), "{label}");
    let pairs = found.top.iter().zip(&expected.top).chain([(&found.chosen, &expected.chosen)]);
    for (found, expected) in pairs {
        let is_close = (found.logprob - expected.logprob).abs() <= 1e-5 * expected.logprob.abs().max(1.0);
        assert!(found.token == expected.token && is_close, "{label}: {found:?}, expected {expected:?}");
    }
}

gpu_test!(a_device_chooses_what_the_host_does, async {
    // Rows of the second begin anywhere in a vector of four; of the third each invocation has several groups of tokens.
    for vocab_size in [40, 1003, 4099] {
        let random = random_model(vocab_size);
        for variant in variants() {
            let mut model = load(&random, variant).await;
            let row = |i: usize, wants| (i, Token::Known((i * 37 % vocab_size) as u32), 0, wants);
            let logits =
                output(&mut model, &step((0..N_ROWS).map(|i| row(i, Wants::Logits)), 0)).await.logits;
            let mut chooser = Chooser::default();
            for (n, samplings) in samplings().chunks(N_ROWS).enumerate() {
                // Some rows' logits go to the host all the same.
                let wants = |i: usize| match (n + i) % 5 {
                    0 => Wants::Logits,
                    _ => Wants::Token(samplings[i]),
                };
                let mixed =
                    output(&mut model, &step((0..N_ROWS).map(|i| row(i, wants(i))), n as u32 % 2)).await;
                let (mut host, mut device) = (mixed.logits.chunks(vocab_size), mixed.sampled.iter());
                for (i, logits) in logits.chunks(vocab_size).enumerate() {
                    let label = format!("{vocab_size} words, {variant:?}, {:?}", wants(i));
                    match wants(i) {
                        Wants::Token(sampling) => {
                            let found = device.next().unwrap();
                            check(found, &chooser.sample(logits, &sampling), &label);
                            if i % 4 == 1 {
                                // The same to the last bit when it is alone.
                                let alone = step([row(i, wants(i))], 1);
                                assert_eq!(&output(&mut model, &alone).await.sampled[0], found, "{label}");
                            }
                        }
                        _ => assert_eq!(host.next().unwrap(), logits, "{label}"),
                    }
                }
                assert!(host.next().is_none() && device.next().is_none());
            }
        }
    }
});

gpu_test!(draws_of_a_device_are_those_of_the_host_at_many_places, async {
    let random = random_model(300);
    for variant in variants() {
        let mut model = load(&random, variant).await;
        let row = |i: usize, wants| (i, Token::Known(i as u32), 0, wants);
        let logits = output(&mut model, &step((0..N_ROWS).map(|i| row(i, Wants::Logits)), 0)).await.logits;
        let mut chooser = Chooser::default();
        let mut n_likeliest = 0;
        for place in 0..30 {
            let sampling = |i: usize| Sampling { seed: u64::MAX - i as u64, place: place * 1000, ..PLAIN };
            let batch = step((0..N_ROWS).map(|i| row(i, Wants::Token(sampling(i)))), place % 2);
            let found = output(&mut model, &batch).await.sampled;
            for (i, logits) in logits.chunks(300).enumerate() {
                let expected = chooser.sample(logits, &sampling(i));
                check(&found[i], &expected, &format!("{variant:?}, place {place}, row {i}"));
                n_likeliest += usize::from(expected.token == pagelm::plan::sample::argmax(logits).0);
            }
        }
        assert!(n_likeliest < 100, "of 480 draws {n_likeliest} are the likeliest of 300 tokens");
    }
});

gpu_test!(the_next_step_goes_on_with_what_the_device_chose, async {
    let vocab_size = 1003;
    let random = random_model(vocab_size);
    for variant in variants() {
        let mut model = load(&random, variant).await;
        let sampling = |i: usize, place| Sampling { seed: i as u64, place, ..PLAIN };
        let first = step((0..5).map(|i| (i, Token::Known(i as u32 * 9), 0, Wants::Token(sampling(i, 0)))), 0);
        // Each row goes on with another row's token, from a slot to the other and back.
        let fed = |i: usize, slot_of_step| {
            Token::Sampled(SampledAt { slot_of_step, logit_row: (i as u32 + 2) % 5 })
        };
        let second = step((0..5).map(|i| (i, fed(i, 0), 1, Wants::Token(sampling(i, 1)))), 1);
        let third = step((0..5).map(|i| (i, fed(i, 1), 2, Wants::Logits)), 0);
        let tickets = [model.submit(&first), model.submit(&second)];
        let tokens = model.read(tickets[0]).await.unwrap().sampled;
        let last = model.submit(&third);
        let more = model.read(tickets[1]).await.unwrap().sampled;
        let unseen = model.read(last).await.unwrap().logits;

        let known = |tokens: &[Sampled], i: usize| Token::Known(tokens[(i + 2) % 5].token);
        let second = step((0..5).map(|i| (i, known(&tokens, i), 1, Wants::Token(sampling(i, 1)))), 1);
        assert_eq!(output(&mut model, &second).await.sampled, more, "{variant:?}");
        let third = step((0..5).map(|i| (i, known(&more, i), 2, Wants::Logits)), 0);
        assert_eq!(output(&mut model, &third).await.logits, unseen, "{variant:?}");
    }
});

gpu_test!(a_logit_that_is_no_number_is_told, async {
    let vocab_size = 1003;
    let mut random = random_model(vocab_size);
    let row_bytes = head(&mut random).len() / vocab_size;
    // The last token's, in the last and incomplete group of four.
    let last = head(&mut random).len() - row_bytes;
    head(&mut random)[last..last + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    for variant in variants() {
        let mut model = load(&random, variant).await;
        for temperature in [0.0, 1.0] {
            let sampling = Sampling { temperature, ..PLAIN };
            let rows =
                [(0, Token::Known(1), 0, Wants::Token(sampling)), (1, Token::Known(2), 0, Wants::Logits)];
            let output = output(&mut model, &step(rows, 0)).await;
            assert!(output.sampled[0].has_nan && output.has_nan(), "{variant:?}");
            assert!(output.logits[vocab_size - 1].is_nan() && !output.logits[0].is_nan());
        }
    }
});
