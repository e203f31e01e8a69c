//! The processor against plain loops with f64 sums, over awkward shapes; and what changes no bit of what it computes.
#![cfg(feature = "native")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "support/random_model.rs"]
mod random_model;
#[path = "support/reference.rs"]
mod reference;
#[path = "support/shapes.rs"]
mod shapes;

use std::cell::{Cell, RefCell};
use std::ops::Range;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Waker};

use pagelm::cpu::Processor;
use pagelm::cpu::model::CpuModel;
use pagelm::format::block::BlockType;
use pagelm::plan::batch::{Batch, Capacity, RowKind};
use pagelm::plan::{Device as _, KvType, Precision};
use pollster::block_on;
use random_model::{RandomModel, Shape};
use shapes::{LENGTHS, LONG_SHAPES, NEAR_TIE_BOUND, SHAPES, blocks, bound_of, check, long_blocks, steps};

const CAPACITY: Capacity = Capacity { decode_rows: 16, prefill_rows: 64, logit_rows: 80, context: 128 };

/// A clock that stands, and turns that nobody takes.
fn processor(n_threads: usize) -> Rc<Processor> {
    let turn = Rc::new(|| -> futures_util::future::LocalBoxFuture<'static, ()> {
        panic!("no time passes, so that no turn is due")
    });
    Rc::new(Processor::new(n_threads, turn, Rc::new(|| 0.0)).unwrap())
}

fn load(random: &RandomModel, capacity: Capacity, n_threads: usize) -> CpuModel {
    load_on(random, capacity, processor(n_threads))
}

fn load_on(random: &RandomModel, capacity: Capacity, processor: Rc<Processor>) -> CpuModel {
    let model = CpuModel::new(random.plan.clone(), capacity, 64 * 32, processor).unwrap();
    assert!(!model.samples());
    random.write(&model, 7);
    model
}

fn logits_of(model: &mut CpuModel, batch: &Batch) -> Vec<f32> {
    let ticket = model.submit(batch);
    let output = block_on(model.read(ticket)).unwrap();
    assert!(output.sampled.is_empty());
    output.logits
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The same batch with logits of every row.
fn with_all_logits(batch: &Batch) -> Batch {
    let mut all = batch.clone();
    all.logit_rows = (0..batch.n_rows() as u32).collect();
    all.samplings = vec![None; batch.n_rows()];
    all
}

fn compare_with_reference(shape: Shape, precision: Precision, label: &str) {
    let mut random = RandomModel::new(&shape, 7);
    random.plan.precision = precision;
    let mut model = load(&random, CAPACITY, 2);
    let mut reference = random.reference();
    let bound = bound_of(shape.kv);
    // Keys and values that were rounded differ by more than a tie is wide.
    let is_rounded = precision == Precision::Fast && shape.kv != KvType::F32;
    let mut n_close = 0;
    for (n, batch) in steps(5, shape.sizes.vocab_size).iter().map(with_all_logits).enumerate() {
        let logits = logits_of(&mut model, &batch);
        let expected = reference.step(&batch);
        assert_eq!(logits.len(), batch.n_rows() * shape.sizes.vocab_size);
        for (row, logits) in logits.chunks(shape.sizes.vocab_size).enumerate() {
            let is_near = is_rounded || expected.near_tie[row];
            n_close += usize::from(!is_near);
            let bound = if is_near { NEAR_TIE_BOUND } else { bound };
            check(&format!("{label}, step {n}: logits {row}"), logits, &expected.logits[row], bound);
        }
    }
    assert!(is_rounded || n_close > 4, "{label}: {n_close} rows are close");
}

#[test]
fn every_operation_agrees_with_plain_loops() {
    for (i, shape) in SHAPES.into_iter().enumerate() {
        compare_with_reference(shape, Precision::Exact, &format!("shape {i}"));
    }
}

#[test]
fn fast_agrees_with_plain_loops_over_the_same_bytes() {
    // Blocks of every kind, floats beside them, norms of heads and of what is added, biases.
    for i in [1, 3, 7, 8, 9, 11, 14] {
        let kv = if i == 3 { KvType::F16 } else { KvType::F32 };
        compare_with_reference(Shape { kv, ..SHAPES[i] }, Precision::Fast, &format!("fast, shape {i}"));
    }
}

/// One token of each sequence, after the prompts of `steps`.
fn decode(sequences: Range<usize>, kind: RowKind, vocab_size: usize) -> Batch {
    let mut batch = Batch::default();
    for sequence in sequences {
        let at = batch.push_sequence(vec![blocks(sequence)]);
        let position = if sequence == 0 { 37 } else { 1 + sequence as u32 % 3 };
        batch.push_row(kind, at, (sequence % vocab_size) as u32, position, true);
    }
    batch
}

#[test]
fn a_row_alone_has_the_bits_it_has_in_a_crowd_of_either_kind() {
    for precision in [Precision::Exact, Precision::Fast] {
        for (i, shape) in SHAPES.into_iter().enumerate() {
            let mut random = RandomModel::new(&shape, 11);
            random.plan.precision = precision;
            let mut model = load(&random, CAPACITY, 1 + i % 3);
            let vocab_size = shape.sizes.vocab_size;
            logits_of(&mut model, &steps(9, vocab_size)[0]);
            let mut of = |sequences, kind| logits_of(&mut model, &decode(sequences, kind, vocab_size));
            let alone: Vec<f32> =
                (0..9).flat_map(|sequence| of(sequence..sequence + 1, RowKind::Decode)).collect();
            assert!(alone.iter().any(|logit| *logit != 0.0), "something was computed");
            for n_rows in 1..=9 {
                for kind in [RowKind::Decode, RowKind::Prefill] {
                    let together = of(0..n_rows, kind);
                    let label = format!("shape {i}, {precision:?}, {kind:?}: {n_rows} rows");
                    assert_eq!(bits(&together), bits(&alone[..n_rows * vocab_size]), "{label}");
                }
            }
        }
    }
}

/// Logits of every 16th position of a prompt of 90, cut into chunks beside another prompt, whose rows come before.
fn logits_of_chunks(model: &mut CpuModel, cuts: &[u32], n_before: u32, kind: RowKind) -> Vec<f32> {
    let mut logits = Vec::new();
    for cut in cuts.windows(2) {
        let mut batch = Batch::default();
        let other = batch.push_sequence(vec![blocks(1)]);
        for position in 0..n_before {
            batch.push_row(kind, other, 3, position, false);
        }
        let at = batch.push_sequence(vec![blocks(0)]);
        for position in cut[0]..cut[1] {
            batch.push_row(kind, at, position * 7 % 31, position, position % 16 == 15);
        }
        logits.extend(logits_of(model, &batch));
    }
    logits
}

#[test]
fn a_prompt_has_the_same_bits_however_it_is_cut_and_whoever_computes_it() {
    let one_by_one: Vec<u32> = (0..=90).collect();
    for (i, shape) in SHAPES.into_iter().enumerate().filter(|(_, shape)| shape.sizes.vocab_size >= 31) {
        let random = RandomModel::new(&shape, 5);
        let mut found: Vec<Vec<u32>> = Vec::new();
        for n_threads in [1, 2, 3] {
            let mut model = load(&random, CAPACITY, n_threads);
            let mut of = |cuts: &[u32], n_before, kind| {
                found.push(bits(&logits_of_chunks(&mut model, cuts, n_before, kind)));
            };
            of(&[0, 64, 90], 0, RowKind::Prefill);
            of(&[0, 1, 32, 49, 90], 3, RowKind::Prefill);
            of(&[0, 33, 90], 7, RowKind::Prefill);
            of(&one_by_one, 0, RowKind::Decode);
        }
        assert!(found[0].iter().any(|bits| *bits != 0), "something was computed");
        assert!(found.iter().all(|bits| *bits == found[0]), "shape {i}");
    }
}

#[test]
fn long_contexts_agree_with_plain_loops_alone_and_in_a_crowd() {
    let capacity = Capacity { decode_rows: 32, context: 1024, ..CAPACITY };
    for (i, shape) in LONG_SHAPES.into_iter().enumerate() {
        let random = RandomModel::new(&shape, 5);
        let mut model = load(&random, capacity, 2);
        let mut reference = random.reference();
        let token = |sequence: usize, position: usize| ((sequence * 31 + position * 7) % 40) as u32;
        for (sequence, len) in LENGTHS.into_iter().enumerate() {
            let positions: Vec<usize> = (0..len).collect();
            for chunk in positions.chunks(64) {
                let mut batch = Batch::default();
                let at = batch.push_sequence(vec![long_blocks(sequence)]);
                for position in chunk {
                    let token = token(sequence, *position);
                    batch.push_row(RowKind::Prefill, at, token, *position as u32, false);
                }
                assert!(logits_of(&mut model, &batch).is_empty());
                reference.step(&batch);
            }
        }
        let decode = |sequences: Range<usize>| {
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
        let logits = logits_of(&mut model, &together);
        for (row, own) in logits.chunks(40).enumerate() {
            let what = format!("shape {i}, position {}", LENGTHS[row]);
            check(&what, own, &expected.logits[row], bound_of(shape.kv));
            let alone = logits_of(&mut model, &decode(row..row + 1));
            assert_eq!(bits(&alone), bits(own), "{what}");
        }
    }
}

/// A processor by whose clock a piece takes `piece_ms`, and the times at which the host had turns.
fn slow_processor(piece_ms: f64) -> (Rc<Processor>, Rc<RefCell<Vec<f64>>>) {
    let now = Rc::new(Cell::new(0.0));
    let turns = Rc::new(RefCell::new(Vec::new()));
    let (clock, noted, at) = (Rc::clone(&now), Rc::clone(&turns), now);
    let turn = move || -> futures_util::future::LocalBoxFuture<'static, ()> {
        noted.borrow_mut().push(at.get());
        let mut was_pending = false;
        Box::pin(std::future::poll_fn(move |context| {
            if std::mem::replace(&mut was_pending, true) {
                return std::task::Poll::Ready(());
            }
            context.waker().wake_by_ref();
            std::task::Poll::Pending
        }))
    };
    let now_ms = move || {
        clock.set(clock.get() + piece_ms);
        clock.get()
    };
    (Rc::new(Processor::new(2, Rc::new(turn), Rc::new(now_ms)).unwrap()), turns)
}

#[test]
fn a_long_prefill_gives_the_host_turns() {
    let shape = SHAPES[3];
    let random = RandomModel::new(&shape, 3);
    let batch = with_all_logits(&steps(9, shape.sizes.vocab_size)[1]);
    let expected = logits_of(&mut load(&random, CAPACITY, 1), &batch);
    let (processor, turns) = slow_processor(15.0);
    let mut model = load_on(&random, CAPACITY, processor);
    assert_eq!(bits(&logits_of(&mut model, &batch)), bits(&expected), "interrupted or not");
    let turns = turns.borrow();
    let n_products: usize =
        random.plan.matrices.iter().map(|matrix| matrix.n_rows() * matrix.n_columns).sum();
    // Pieces that take so long become as small as they may: 2^18 products.
    let n_pieces = (n_products * batch.n_rows()) >> 18;
    assert!(n_pieces > 100 && turns.len() >= n_pieces / 2, "{} turns in {n_pieces} pieces", turns.len());
    assert!(turns.windows(2).all(|two| two[1] - two[0] <= 50.0), "{turns:?}");
}

#[test]
fn a_step_that_is_dropped_leaves_the_model_usable() {
    let shape = SHAPES[3];
    let random = RandomModel::new(&shape, 3);
    let steps = steps(5, shape.sizes.vocab_size);
    let mut whole = load(&random, CAPACITY, 1);
    let expected: Vec<Vec<f32>> = steps.iter().map(|batch| logits_of(&mut whole, batch)).collect();
    let (processor, turns) = slow_processor(15.0);
    let mut model = load_on(&random, CAPACITY, processor);
    for n_polls in [0, 1, 7, 30] {
        for (batch, expected) in steps.iter().zip(&expected) {
            let ticket = model.submit(batch);
            {
                let mut reading = pin!(model.read(ticket));
                let n_turns = turns.borrow().len();
                for _ in 0..n_polls {
                    assert!(reading.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
                }
                assert_eq!(turns.borrow().len(), n_turns + n_polls, "it was computing");
            }
            assert_eq!(bits(&logits_of(&mut model, batch)), bits(expected), "after {n_polls} polls");
        }
    }
    model.submit(&steps[0]);
    assert_eq!(bits(&logits_of(&mut model, &steps[0])), bits(&expected[0]), "after one that nobody read");
}

#[test]
fn what_a_model_takes_is_told() {
    let random = RandomModel::new(&SHAPES[0], 3);
    let model = load(&random, CAPACITY, 1);
    assert_eq!((model.kv_tokens(), model.cache_blocks()), (64 * 32, &[64][..]));
    assert_eq!(model.kv_bytes(), 64 * 32 * 2 * 32 * 4);
    assert!(model.total_bytes() > model.kv_bytes() + model.weight_bytes());
    assert!(model.processor().name().contains("1 thread"), "{}", model.processor().name());

    let mut plan = random.plan.clone();
    plan.matrices[0].parts[0].n_rows = 1 << 52;
    let error = CpuModel::new(plan, CAPACITY, 64, processor(1)).unwrap_err().to_string();
    let begins = "the memory has no room for the weights (576460752";
    assert!(error.starts_with(begins) && error.contains(" bytes); close other tabs"), "{error}");

    let refused = |change: fn(&mut pagelm::plan::Matrix)| {
        let mut plan = random.plan.clone();
        change(&mut plan.matrices[1]);
        CpuModel::new(plan, CAPACITY, 64, processor(1)).unwrap_err().to_string()
    };
    let error = refused(|matrix| matrix.block_type = BlockType::IQ1_S);
    assert!(
        error.starts_with("tensor qkv is stored as IQ1_S, which pagelm does not decode yet; F32, "),
        "{error}"
    );
    let error = refused(|matrix| matrix.n_columns = 33);
    assert!(error.starts_with("tensor qkv has rows of 33 values, but the processor's loops need"), "{error}");
}
