//! Whole models against the logits of independent libraries, on the GPU in every variant and on the processor; natively and in Chromium.
#![cfg(feature = "gpu")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/device_crowd.rs"]
mod device_crowd;
#[path = "support/folders.rs"]
mod folders;
#[macro_use]
#[path = "support/gpu_test.rs"]
mod gpu_test;
#[path = "support/memory_source.rs"]
mod memory_source;
#[path = "support/safetensors.rs"]
mod safetensors;
#[path = "support/written.rs"]
mod written;

use std::collections::BTreeMap;
use std::rc::Rc;

use device_crowd::{Crowd, Random, check_close};
use folders::{FOLDERS, Folder, Prompt, WITHIN_ORIGINAL_CONTEXT};
use memory_source::MemorySource;
use pagelm::cpu::Processor;
use pagelm::engine::logprobs::Logprob;
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{Budget, Engine, EngineConfig, Progress, SequenceId, SequenceRequest};
use pagelm::gpu::Gpu;
use pagelm::gpu::shader::Variant;
use pagelm::host::load::{Loaded, describe};
use pagelm::host::machine::{Chosen, Machine};
use pagelm::host::open::open;
use pagelm::host::serve::yield_now;
use pagelm::plan::batch::{BLOCK_TOKENS, Batch, RowKind};
use pagelm::protocol::{DeviceKind, KvType, LoadOptions, Precision};

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// What computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum On {
    /// The GPU, with such kernels.
    Gpu(Variant),
    /// The processor.
    Cpu,
}

const SERIAL: On = On::Gpu(Variant::Serial);
/// Subgroups are what not every browser's adapter has; tests/kernels.rs runs them in those that have them.
const DEVICES: &[On] = if cfg!(target_arch = "wasm32") {
    &[SERIAL, On::Gpu(Variant::Workgroup), On::Cpu]
} else {
    &[SERIAL, On::Gpu(Variant::Workgroup), On::Gpu(Variant::Subgroup), On::Cpu]
};
/// DESIGN.md: what a right engine stays within, and what the other kind of rows may differ by.
/// 8 bits have a table of their own in the README; these models of random weights are hit harder than real ones.
const KV_TYPES: [(KvType, f64, f64); 3] =
    [(KvType::F32, 1e-4, 2e-4), (KvType::F16, 3e-3, 6e-3), (KvType::Q8, 6e-2, 6e-2)];

/// The context that models are loaded with: longer than any prompt, and not what they were first trained for.
const CONTEXT: u32 = 512;

async fn load(folder: &Folder, on: On, kv: KvType) -> Loaded {
    load_with(folder, on, kv, CONTEXT).await
}

async fn load_with(folder: &Folder, on: On, kv: KvType, context: u32) -> Loaded {
    load_sources(folder.sources(), on, kv, context).await
}

async fn load_sources(sources: Vec<MemorySource>, on: On, kv: KvType, context: u32) -> Loaded {
    let precision = Precision::Exact;
    let options = LoadOptions { kv, precision, context: Some(context), ..LoadOptions::default() };
    let machine = match on {
        On::Gpu(variant) => Machine::Gpu(Rc::new(Gpu::open(None).await.unwrap().with_variant(variant))),
        // No clock, so that no step is interrupted; tests/cpu.rs interrupts them.
        On::Cpu => Machine::Cpu(Rc::new(
            Processor::new(2, Rc::new(|| Box::pin(yield_now())), Rc::new(|| 0.0)).unwrap(),
        )),
    };
    let kind = machine.kind();
    assert_eq!(kind == DeviceKind::Cpu, on == On::Cpu);
    let described = describe(sources, &options).await.unwrap();
    let loaded = described.load(Chosen { machine, note: None }, |_, _| {}).await.unwrap();
    assert_eq!(loaded.info.device_kind, kind, "the device that was asked for computes");
    loaded
}

/// Logits of all positions by rows of one kind: prompts in chunks of 64, or tokens one by one.
async fn logits_of(loaded: &mut Loaded, ids: &[u32], kind: RowKind, blocks: &[u32]) -> Vec<Vec<f32>> {
    let chunk = match kind {
        RowKind::Prefill => 64,
        RowKind::Decode => 1,
    };
    let mut all = Vec::new();
    for (i, tokens) in ids.chunks(chunk).enumerate() {
        let mut batch = Batch::default();
        let sequence = batch.push_sequence(vec![blocks.to_vec(); loaded.model.cache_blocks().len()]);
        for (j, token) in tokens.iter().enumerate() {
            batch.push_row(kind, sequence, *token, (i * chunk + j) as u32, true);
        }
        let ticket = loaded.model.submit(&batch);
        let logits = loaded.model.read(ticket).await.unwrap().logits;
        all.extend(logits.chunks(loaded.info.vocab_size as usize).map(<[f32]>::to_vec));
    }
    all
}

/// max|Δ| / max|reference|, the largest of all positions; NaN is infinitely wrong.
fn error(got: &[Vec<f32>], expected: &[Vec<f32>]) -> f64 {
    assert_eq!(got.len(), expected.len(), "a row of logits a position");
    let of_row = |(got, expected): (&Vec<f32>, &Vec<f32>)| {
        assert_eq!(got.len(), expected.len());
        let greatest = expected.iter().fold(0f64, |m, v| m.max(f64::from(v.abs())));
        let deltas = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - f64::from(*e)).abs());
        deltas.fold(0.0, |m, d| if d.is_nan() { f64::INFINITY } else { f64::max(m, d) }) / greatest
    };
    got.iter().zip(expected).map(of_row).fold(0.0, f64::max)
}

fn bits(rows: &[Vec<f32>]) -> Vec<Vec<u32>> {
    rows.iter().map(|row| row.iter().map(|v| v.to_bits()).collect()).collect()
}

/// Every block of the pool, in an order that is not theirs.
fn scattered_blocks() -> Vec<u32> {
    (0..16).map(|i| i * 7 % 16).collect()
}

/// All natively; in a browser the two that most models use.
fn kv_types_here() -> &'static [(KvType, f64, f64)] {
    if cfg!(target_arch = "wasm32") { &KV_TYPES[..2] } else { &KV_TYPES }
}

/// Whether a combination runs here: all do natively. In a browser, whose software adapter takes seconds to compile the
/// kernels of a model, each folder runs with one variant and on the processor, and some with the smaller caches too.
fn runs_here(i: usize, on: On, kv: KvType) -> bool {
    let turn = if i.is_multiple_of(2) { Variant::Serial } else { Variant::Workgroup };
    let is_turn = on == On::Gpu(turn) || on == On::Cpu;
    let runs = match kv {
        KvType::F32 => true,
        KvType::F16 => i.is_multiple_of(5),
        KvType::Q8 => i % 5 == 2,
    };
    cfg!(not(target_arch = "wasm32")) || (is_turn && runs)
}

gpu_test!(logits_are_those_of_transformers, async {
    for (n, folder) in FOLDERS.into_iter().enumerate() {
        for &on in DEVICES {
            for (kv, bound, _) in KV_TYPES.into_iter().filter(|(kv, _, _)| runs_here(n, on, *kv)) {
                let mut loaded = load(&folder, on, kv).await;
                let vocab_size = loaded.info.vocab_size as usize;
                for (i, prompt) in folder.prompts().iter().enumerate() {
                    for kind in [RowKind::Prefill, RowKind::Decode] {
                        let got = logits_of(&mut loaded, &prompt.ids, kind, &scattered_blocks()).await;
                        let found = error(&got, &folder.logits(i, vocab_size));
                        assert!(
                            found <= bound,
                            "{}, prompt {i}, {on:?}, {kv:?}, {kind:?}: {found:.2e} is over {bound:.0e}",
                            folder.name
                        );
                    }
                }
            }
        }
    }
});

gpu_test!(logits_after_convert_are_those_of_transformers, async {
    for (_, folder) in FOLDERS.into_iter().enumerate().filter(|(n, _)| runs_here(*n, SERIAL, KvType::F16)) {
        let file = written::written(&open(folder.sources()).await.unwrap()).await;
        let sources = vec![MemorySource::new("converted.gguf", file)];
        let mut loaded = load_sources(sources, SERIAL, KvType::F32, CONTEXT).await;
        let vocab_size = loaded.info.vocab_size as usize;
        let prompts = folder.prompts();
        for (i, prompt) in prompts.iter().enumerate() {
            assert_eq!(loaded.tokenizer.encode_text(&prompt.text).unwrap(), prompt.ids, "{}", folder.name);
            let got = logits_of(&mut loaded, &prompt.ids, RowKind::Prefill, &scattered_blocks()).await;
            let found = error(&got, &folder.logits(i, vocab_size));
            assert!(found <= 1e-4, "{}, prompt {i}: {found:.2e}", folder.name);
        }
    }
});

// The same file has two tables of divisors: the context that it is loaded with decides.
gpu_test!(longrope_takes_the_short_factors_within_the_original_context, async {
    let folder = WITHIN_ORIGINAL_CONTEXT;
    for &on in DEVICES {
        let mut loaded = load_with(&folder, on, KvType::F32, 64).await;
        let vocab_size = loaded.info.vocab_size as usize;
        for (i, prompt) in folder.prompts().iter().enumerate() {
            let got = logits_of(&mut loaded, &prompt.ids, RowKind::Prefill, &[1, 0]).await;
            let found = error(&got, &folder.logits(i, vocab_size));
            assert!(found <= 1e-4, "prompt {i}, {on:?}: {found:.2e}");
        }
    }
});

fn llama_tiny() -> &'static Folder {
    FOLDERS.iter().find(|folder| folder.name == "llama-tiny").unwrap()
}

gpu_test!(a_long_text_prefilled_agrees_with_itself_token_by_token, async {
    let prompts: Vec<u32> = llama_tiny().prompts().into_iter().flat_map(|prompt| prompt.ids).collect();
    let ids: Vec<u32> = prompts.into_iter().cycle().take(500).collect();
    for &on in DEVICES {
        for &(kv, _, bound) in kv_types_here() {
            let mut loaded = load(llama_tiny(), on, kv).await;
            let prefilled = logits_of(&mut loaded, &ids, RowKind::Prefill, &scattered_blocks()).await;
            let decoded = logits_of(&mut loaded, &ids, RowKind::Decode, &scattered_blocks()).await;
            let found = error(&decoded, &prefilled);
            assert!(found <= bound, "{on:?}, {kv:?}: {found:.2e} is over {bound:.0e}");
        }
    }
});

// Three sequences of different lengths, one of them in the middle of its prefill, in one step.
gpu_test!(sequences_in_one_step_have_the_bits_they_have_alone, async {
    let long = llama_tiny().prompts().pop().unwrap().ids;
    let histories = [&long[..70], &long[100..109], &long[150..190]];
    let tables: [Vec<u32>; 3] = [vec![5, 0, 9], vec![2], vec![7, 11]];
    for &on in DEVICES {
        for &(kv, _, _) in kv_types_here() {
            let mut loaded = load(llama_tiny(), on, kv).await;
            // The first two have been read but for their last token; the third is read up to its 32nd.
            let mut alone = Vec::new();
            for (i, (history, table)) in histories.iter().zip(&tables).enumerate() {
                let read = if i == 2 { BLOCK_TOKENS } else { history.len() - 1 };
                logits_of(&mut loaded, &history[..read], RowKind::Prefill, table).await;
                let mut batch = Batch::default();
                push_rest(&mut batch, i, history, read, table);
                let ticket = loaded.model.submit(&batch);
                alone.push(loaded.model.read(ticket).await.unwrap().logits);
            }
            let mut batch = Batch::default();
            for (i, (history, table)) in histories.iter().zip(&tables).enumerate() {
                let read = if i == 2 { BLOCK_TOKENS } else { history.len() - 1 };
                push_rest(&mut batch, i, history, read, table);
            }
            assert_eq!((batch.n_decode, batch.n_prefill()), (2, 8));
            let ticket = loaded.model.submit(&batch);
            let together = loaded.model.read(ticket).await.unwrap().logits;
            let vocab_size = loaded.info.vocab_size as usize;
            let rows: Vec<Vec<f32>> = together.chunks(vocab_size).map(<[f32]>::to_vec).collect();
            assert_eq!(bits(&rows), bits(&alone), "{on:?}, {kv:?}");
        }
    }
});

/// The largest of all positions.
fn largest(logits: &[Vec<f32>]) -> f32 {
    logits.iter().flatten().fold(0.0, |most, logit| most.max(logit.abs()))
}

/// What is left of a history: a decode row for the first two, prefill rows for the third, logits for the last one.
fn push_rest(batch: &mut Batch, i: usize, history: &[u32], read: usize, table: &[u32]) {
    let kind = if i == 2 { RowKind::Prefill } else { RowKind::Decode };
    let sequence = batch.push_sequence(vec![table.to_vec()]);
    for position in read..history.len() {
        batch.push_row(kind, sequence, history[position], position as u32, position + 1 == history.len());
    }
}

// All prompts of a folder run together: their likeliest and greedy tokens are those computed alone by transformers.
gpu_test!(answers_are_those_of_transformers, async {
    for (_, folder) in FOLDERS.into_iter().enumerate().filter(|(n, _)| runs_here(*n, SERIAL, KvType::F16)) {
        let mut loaded = load(&folder, SERIAL, KvType::F32).await;
        let prompts = folder.prompts();
        let mut answers: BTreeMap<SequenceId, Answer> = BTreeMap::new();
        for (i, prompt) in prompts.iter().enumerate() {
            let params = SamplingParams {
                temperature: 0.0,
                max_tokens: Some(prompt.greedy.len()),
                logprobs: Some(prompt.top.len()),
                ..SamplingParams::default()
            };
            let request =
                SequenceRequest { client: 0, prompt: prompt.ids.clone(), generated: Vec::new(), params };
            answers.insert(loaded.engine.add(request).unwrap(), Answer { prompt: i, tokens: Vec::new() });
        }
        while let Some(step) = loaded.engine.next_step(Budget { prefill_rows: 64 }) {
            let ticket = loaded.model.submit(&step.batch);
            let output = loaded.model.read(ticket).await.unwrap();
            for progress in loaded.engine.retire(step.id, &output) {
                if let Progress::Token { sequence, token, logprobs } = progress {
                    answers.get_mut(&sequence).unwrap().tokens.push((token, logprobs.unwrap().top));
                }
            }
        }
        for answer in answers.values() {
            answer.check(folder.name, &prompts[answer.prompt]);
        }
    }
});

/// What a prompt was answered with: each token and the likeliest in its place.
struct Answer {
    prompt: usize,
    tokens: Vec<(u32, Vec<Logprob>)>,
}

impl Answer {
    fn check(&self, name: &str, expected: &Prompt) {
        let label = format!("{name}, prompt {}", self.prompt);
        for (found, (token, logprob)) in
            self.tokens[0].1.iter().zip(expected.top.iter().zip(&expected.top_logprob))
        {
            assert!((found.logprob - logprob).abs() <= 1e-3, "{label}: {found:?}, expected {logprob}");
            // Two as likely as each other may change places.
            let near = expected.top_logprob.iter().filter(|other| (*other - logprob).abs() <= 1e-3).count();
            assert!(found.token == *token || near > 1, "{label}: {found:?}, expected {token}");
        }
        let is_sure = |gap: &&f32| **gap >= 0.01;
        let n_sure = expected.greedy_gap.iter().take_while(is_sure).count();
        let tokens: Vec<u32> = self.tokens.iter().map(|(token, _)| *token).collect();
        assert_eq!(tokens.len(), expected.greedy.len(), "{label}");
        assert_eq!(tokens[..n_sure], expected.greedy[..n_sure], "{label}");
    }
}

/// One model without a window and one with; in a browser each with one variant and on the processor.
fn crowd_models() -> impl Iterator<Item = (Folder, On, KvType, f64)> {
    let folders = FOLDERS.into_iter().filter(|folder| ["llama-tiny", "gemma3-tiny"].contains(&folder.name));
    let of_device = |(i, folder)| DEVICES.iter().map(move |on| (i, folder, *on));
    let of_kv = |(i, folder, on)| KV_TYPES.into_iter().map(move |kv| (i, folder, on, kv));
    folders.enumerate().flat_map(of_device).flat_map(of_kv).filter_map(|(i, folder, on, (kv, _, bound))| {
        let is_native = cfg!(not(target_arch = "wasm32"));
        let is_turn = (on == DEVICES[i] || on == On::Cpu) && kv == KvType::F32;
        (is_native || is_turn).then_some((folder, on, kv, bound))
    })
}

fn greedy(client: u64, prompt: Vec<u32>, max_tokens: usize) -> SequenceRequest {
    let params = SamplingParams {
        temperature: 0.0,
        max_tokens: Some(max_tokens),
        logprobs: Some(2),
        ..SamplingParams::default()
    };
    SequenceRequest { client, prompt, generated: Vec::new(), params }
}

// Prompts that begin alike arrive one after the other, some are cancelled, and nobody is preempted: what a sequence shares
// was written by prefill rows, as it would have written it.
gpu_test!(answers_in_a_crowd_have_the_bits_they_have_alone, async {
    for (folder, on, kv, _) in crowd_models() {
        let mut loaded = load(&folder, on, kv).await;
        let mut random = Random(7);
        let vocab_size = loaded.info.vocab_size;
        let beginnings = [40, 75].map(|len| random.tokens(len, vocab_size));
        let config = EngineConfig { max_sequences: 9, ..loaded.engine.config().clone() };
        let mut crowd = Crowd::new(&mut loaded.model, Engine::new(config.clone()));
        let (mut requests, mut cancelled) = (Vec::new(), Vec::new());
        for i in 0..12 {
            let own = random.tokens(1 + i * 5 % 23, vocab_size);
            let request = greedy(i as u64 % 3, [&beginnings[i % 2][..], &own].concat(), 4 + i);
            requests.push((crowd.add(request.clone()), request));
            if i % 4 == 3 {
                crowd.engine.cancel(requests[i - 1].0);
                cancelled.push(requests[i - 1].0);
            }
            for _ in 0..random.below(4) {
                crowd.step(Budget { prefill_rows: [20, 40, 64][random.below(3)] }, random.below(2)).await;
            }
        }
        while crowd.step(Budget { prefill_rows: 64 }, 1).await {}
        assert_eq!(crowd.engine.stats().preemptions, 0);
        assert_eq!(crowd.engine.stats().free_blocks, crowd.engine.stats().n_blocks);
        let answers = std::mem::take(&mut crowd.answers);
        let n_shared = answers.values().filter(|answer| answer.cached >= BLOCK_TOKENS).count();
        assert!(n_shared >= 6, "{n_shared} shared a beginning");
        for (id, request) in requests {
            let alone = Crowd::alone(&mut loaded.model, &config, request).await;
            let found = &answers[&id];
            assert!(found.is_finished || cancelled.contains(&id));
            assert_eq!(found.bits(), alone.bits()[..found.tokens.len()], "{}, {on:?}, {kv:?}", folder.name);
        }
    }
});

// Pools too small for all, and prompts that go on with answers: what decode rows wrote is prefilled anew or shared.
gpu_test!(preempted_and_continued_answers_are_those_alone_up_to_near_ties, async {
    for (folder, on, kv, bound) in crowd_models() {
        let mut loaded = load(&folder, on, kv).await;
        let mut random = Random(11);
        let vocab_size = loaded.info.vocab_size;
        let roomy = loaded.engine.config().clone();
        let some = Random(5).tokens(64, vocab_size);
        let scale = largest(&logits_of(&mut loaded, &some, RowKind::Prefill, &scattered_blocks()).await);
        let mut config = EngineConfig { max_sequences: 7, ..roomy.clone() };
        config.caches.iter_mut().for_each(|cache| cache.n_blocks = 9.min(cache.n_blocks));
        let mut crowd = Crowd::new(&mut loaded.model, Engine::new(config));
        let mut requests: Vec<(SequenceId, SequenceRequest)> = Vec::new();
        let mut n_continued = 0;
        for i in 0..10 {
            let ended = requests.iter().rev().find(|(id, _)| crowd.answers[id].is_finished);
            let history = ended
                .filter(|_| i >= 4)
                .map(|(id, request)| [&request.prompt[..], &crowd.answers[id].ids()].concat());
            n_continued += usize::from(history.is_some());
            let own = random.tokens(10 + i * 7 % 30, vocab_size);
            let mut prompt = [history.unwrap_or_default(), own].concat();
            prompt.truncate(180);
            let request = greedy(i as u64 % 2, prompt, if i < 4 { 20 } else { 60 });
            requests.push((crowd.add(request.clone()), request));
            for _ in 0..(if i < 4 { 10 } else { random.below(8) }) {
                crowd.step(Budget { prefill_rows: 64 }, random.below(2)).await;
            }
        }
        while crowd.step(Budget { prefill_rows: 64 }, 0).await {}
        assert!(crowd.engine.stats().preemptions > 0 && n_continued > 2, "{n_continued} go on");
        let answers = std::mem::take(&mut crowd.answers);
        assert!(answers.values().any(|answer| answer.cached >= BLOCK_TOKENS));
        for (id, request) in requests {
            let alone = Crowd::alone(&mut loaded.model, &roomy, request).await;
            let label = format!("{}, {on:?}, {kv:?}, {id:?}", folder.name);
            check_close(&answers[&id], &alone, 2.0 * bound * f64::from(scale), &label);
        }
    }
});
