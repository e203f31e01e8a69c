//! Every block type against the values that GGML's own package decodes: on the processor, and on the device in every variant;
//! natively and in Chromium.
#![cfg(feature = "gpu")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[macro_use]
#[path = "support/gpu_test.rs"]
mod gpu_test;
#[path = "support/reference.rs"]
mod reference;
#[path = "support/safetensors.rs"]
mod safetensors;

use std::rc::Rc;

use pagelm::format::block::BlockType;
use pagelm::format::decode::{DECODED, decode};
use pagelm::format::quantize::{QuantizeError, TARGETS, quantize};
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::{Buffer, Capacity};
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::packed::{GROUP_WORDS, has_codes};
use pagelm::gpu::shader::{VARIANTS, Variant};
use pagelm::plan::batch::{Batch, RowKind};
use pagelm::plan::{
    Cache, Device as _, KvType, Matrix, MatrixId, MatrixPart, Nonlinearity, Norm, NormKind, Op, Plan,
    Precision, Sizes, Vector, VectorId, VectorPart,
};
use reference::Reference;
use safetensors::{tensor_bytes, tensor_values};

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// `TYPE.blocks` as bytes and `TYPE.values` as f32: 5 rows of 512 values, the last row's scales subnormal f16.
const BLOCKS: &[u8] = include_bytes!("fixtures/gguf-blocks/blocks.safetensors");
/// `values`, and `TYPE` as bytes: what `gguf-py` quantizes them to (`quantize.py` beside it).
const QUANTIZED: &[u8] = include_bytes!("fixtures/quantize/quantized.safetensors");
const CAPACITY: Capacity = Capacity { decode_rows: 8, prefill_rows: 64, logit_rows: 1, context: 64 };
const VOCAB_SIZE: usize = 41;
const MLP_WIDTH: usize = 32;
/// A binding that holds 30 rows of 96 values in 4 bits, so that matrices of all types are split over several.
const NARROW_BYTES: u64 = 30 * 64;
/// As for every kernel that keeps f32: tests/kernels.rs.
const BOUND: f64 = 1e-5;

fn blocks_of(block_type: BlockType) -> (&'static [u8], Vec<f32>) {
    let name = block_type.name();
    (tensor_bytes(BLOCKS, &format!("{name}.blocks")), tensor_values(BLOCKS, &format!("{name}.values")))
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

gpu_test!(blocks_decode_to_the_values_of_ggml, async {
    for block_type in DECODED {
        let (bytes, expected) = blocks_of(block_type);
        let mut values = vec![0.5];
        decode(block_type, bytes, &mut values).unwrap();
        assert_eq!(values.remove(0), 0.5, "values are appended");
        assert_eq!(bits(&values), bits(&expected), "{block_type}");
    }
});

/// A matrix whose rows are other mixtures of the fixture's blocks each: as a file has it, and its values.
fn mixture(block_type: BlockType, n_rows: usize, n_columns: usize) -> (Vec<u8>, Vec<f32>) {
    let (blocks, values) = blocks_of(block_type);
    let chunk_len = block_type.block_len().max(32) as usize;
    let chunk_bytes = block_type.row_bytes(chunk_len as u64).unwrap() as usize;
    let n_chunks = values.len() / chunk_len;
    let (mut mixed_bytes, mut mixed_values) = (Vec::new(), Vec::new());
    for row in 0..n_rows {
        for chunk in 0..n_columns / chunk_len {
            // 7 shares no divisor with the number of chunks, so all are met.
            let from = (row * 7 + chunk) % n_chunks;
            mixed_bytes.extend(&blocks[from * chunk_bytes..][..chunk_bytes]);
            mixed_values.extend(&values[from * chunk_len..][..chunk_len]);
        }
    }
    (mixed_bytes, mixed_values)
}

/// An embedding and a gated MLP, all weights of one type: what an embedding row decodes to can be read, and every kernel
/// that multiplies is in the MLP.
fn plan(block_type: BlockType, n_columns: usize, precision: Precision) -> Plan {
    let matrix = |parts: &[usize]| Matrix {
        parts: parts.iter().map(|n_rows| MatrixPart { tensor: "tensor".into(), n_rows: *n_rows }).collect(),
        n_columns,
        block_type,
    };
    Plan {
        sizes: Sizes {
            n_layers: 1,
            width: n_columns,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 32,
            mlp_width: MLP_WIDTH,
            vocab_size: VOCAB_SIZE,
        },
        rotaries: Vec::new(),
        kv: KvType::F32,
        precision,
        caches: vec![Cache { window: None }],
        layer_caches: vec![0],
        matrices: vec![matrix(&[VOCAB_SIZE]), matrix(&[MLP_WIDTH, MLP_WIDTH])],
        vectors: vec![Vector { parts: vec![VectorPart { tensor: "norm".into(), len: n_columns }] }],
        ops: vec![
            Op::Embed { table: MatrixId(0), scale: 1.0 },
            Op::GatedMlp {
                norm: Norm {
                    kind: NormKind::RootMeanSquare,
                    weight: VectorId(0),
                    bias: None,
                    epsilon: 1e-12,
                },
                weights: vec![MatrixId(1)],
                bias: None,
                nonlinearity: Nonlinearity::Silu,
            },
        ],
    }
}

fn batch(kind: RowKind, tokens: impl Iterator<Item = usize>) -> Batch {
    let mut batch = Batch::default();
    let sequence = batch.push_sequence(vec![vec![0, 1]]);
    for (position, token) in tokens.enumerate() {
        batch.push_row(kind, sequence, token as u32, position as u32, false);
    }
    batch
}

/// max|Δ| / max|reference|; NaN is infinitely wrong.
fn error(got: &[f32], expected: &[f64]) -> f64 {
    let greatest = expected.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let deltas = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).abs());
    deltas.fold(0.0, |m, d| if d.is_nan() { f64::INFINITY } else { f64::max(m, d) }) / greatest
}

/// Four columns, of which a word is the sum of the third and 2^16 times the first, and the next of the others.
fn columns_of([even, odd]: [u32; 2]) -> [i32; 4] {
    let last = |word: u32| i32::from(word as i16);
    let first = |word: u32| (word as i32).wrapping_sub(last(word)) >> 16;
    [first(even), first(odd), last(even), last(odd)]
}

/// The values of packed activations, which are nearest to those `expected`, with their sums.
fn unpacked(blocks: &[f32], expected: &[f64], variant: Variant, what: &str) -> Vec<f64> {
    let mut values = Vec::new();
    for (block, expected) in blocks.chunks(GROUP_WORDS).zip(expected.chunks(32)) {
        let words: Vec<u32> = block[..16].iter().map(|word| word.to_bits()).collect();
        let codes: Vec<i32> = match variant {
            Variant::Serial => words.as_chunks::<2>().0.iter().flat_map(|pairs| columns_of(*pairs)).collect(),
            _ => {
                let bytes =
                    |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
                let (coarse, fine) = (bytes(&words[..8]), bytes(&words[8..]));
                coarse.iter().zip(fine).map(|(c, f)| 4 * i32::from(*c as i8) + i32::from(f)).collect()
            }
        };
        let d = f64::from(block[16]);
        let largest = expected.iter().fold(0f64, |m, v| m.max(v.abs()));
        assert!(
            (d - largest / 511.0).abs() <= 1e-6 * d,
            "{what}: d is {d:e}, and the largest value {largest:e}"
        );
        for (code, expected) in codes.iter().zip(expected) {
            let value = d * f64::from(*code);
            assert!(
                (value - expected).abs() <= 0.501 * d,
                "{what}: {expected:e} is packed as {value:e}, d {d:e}"
            );
        }
        let sums =
            [&codes[..], &codes[..16], &codes[16..]].map(|part| d * f64::from(part.iter().sum::<i32>()));
        for (sum, found) in sums.iter().zip(&block[17..]) {
            assert!(
                (sum - f64::from(*found)).abs() <= 1e-6 * sum.abs(),
                "{what}: a sum is {found}, not {sum}"
            );
        }
        values.extend(codes.iter().map(|code| d * f64::from(*code)));
    }
    values
}

/// Decodes every row on the device, then multiplies by all: rows of prompts together, decoding ones in every tile.
async fn check(block_type: BlockType, n_columns: usize, precision: Precision, gpu: &Rc<Gpu>) {
    let label = format!("{block_type}, {n_columns} columns, {precision:?}, {:?}", gpu.variant());
    let plan = plan(block_type, n_columns, precision);
    let embedding = mixture(block_type, VOCAB_SIZE, n_columns);
    let gate_up = mixture(block_type, 2 * MLP_WIDTH, n_columns);
    // Keeps what the gate sees near 1, where it is neither open nor shut.
    let greatest = gate_up.1.iter().fold(0f32, |m, v| m.max(v.abs()));
    let norm = vec![2.0 / (greatest * (n_columns as f32).sqrt()); n_columns];
    let mut reference =
        Reference::new(&plan, vec![embedding.1.clone(), gate_up.1.clone()], vec![norm.clone()]);
    let Some(Op::GatedMlp { norm: the_norm, .. }) = plan.ops.last().cloned() else {
        panic!("it was put there")
    };
    let is_packed = precision == Precision::Fast && has_codes(block_type);
    let mut model = GpuModel::new(Rc::clone(gpu), plan, CAPACITY, 64).await.unwrap();
    for (i, (file, _)) in [&embedding, &gate_up].into_iter().enumerate() {
        let row_bytes = block_type.row_bytes(n_columns as u64).unwrap() as usize;
        // Pieces of an odd number of rows, the last one first.
        for (piece, bytes) in file.chunks(row_bytes * 3).enumerate().collect::<Vec<_>>().into_iter().rev() {
            model.write_rows(MatrixId(i), piece * 3, bytes);
        }
    }
    model.write_vector(VectorId(0), &norm);
    model.flush().await.unwrap();

    let mut batches = vec![batch(RowKind::Prefill, 0..VOCAB_SIZE)];
    batches
        .extend([1, 2, 3, 8].map(|n_rows| batch(RowKind::Decode, (0..n_rows).map(|row| row * 4 + n_rows))));
    let layout = model.layout().clone();
    for batch in batches {
        let ticket = model.submit(&batch);
        model.read(ticket).await.unwrap();
        let hidden = model.read_activations(Buffer::Hidden).await.unwrap();
        let inputs = model.read_activations(Buffer::Inputs).await.unwrap();
        let outputs = model.read_activations(Buffer::Outputs).await.unwrap();
        let mut expected = reference.step(&batch);
        for (row, token) in batch.tokens.iter().enumerate() {
            let what = format!("{label}: row {row} of {}", batch.n_rows());
            let values = &hidden[row * n_columns..][..n_columns];
            let wanted = &embedding.1[token.known().unwrap() as usize * n_columns..][..n_columns];
            // The embedding's factor of 1 may drop the sign of a zero, which == does not see.
            if let Some(i) = (0..n_columns).find(|i| values[*i] != wanted[*i]) {
                panic!("{what}: value {i} decodes to {:e} instead of {:e}", values[i], wanted[i]);
            }
            if is_packed {
                let start = layout.packed(layout.normed).start as usize + row * n_columns / 32 * GROUP_WORDS;
                let blocks = &inputs[start..][..n_columns / 32 * GROUP_WORDS];
                let packed =
                    unpacked(blocks, &reference.norm(&the_norm, &expected.hidden[row]), gpu.variant(), &what);
                expected.mlp[row] = reference.gated_of_packed(MatrixId(1), Nonlinearity::Silu, &packed);
            }
            let gated = &outputs[layout.mlp.start as usize + row * MLP_WIDTH..][..MLP_WIDTH];
            let found = error(gated, &expected.mlp[row]);
            assert!(found <= BOUND, "{what}: the product is off by {found:.2e}");
        }
    }
}

gpu_test!(every_type_decodes_and_multiplies_on_the_device, async {
    let has_subgroups = Gpu::open(None).await.unwrap().has_subgroups();
    let is_native = cfg!(not(target_arch = "wasm32"));
    // In a browser, whose software adapter takes seconds to compile kernels, those of real GPUs take turns.
    let runs_here = |i: usize, variant: Variant| {
        let turn = if has_subgroups && i % 2 == 1 { Variant::Subgroup } else { Variant::Workgroup };
        is_native || variant == Variant::Serial || variant == turn
    };
    for variant in VARIANTS.into_iter().filter(|variant| has_subgroups || *variant != Variant::Subgroup) {
        let open = || async { Gpu::open(None).await.unwrap().with_variant(variant) };
        let gpu = Rc::new(open().await);
        let narrow = Rc::new(open().await.with_max_matrix_bytes(NARROW_BYTES).without_dot4());
        for (i, block_type) in DECODED.into_iter().enumerate().filter(|(i, _)| runs_here(*i, variant)) {
            check(block_type, 512, Precision::Exact, &gpu).await;
            check(block_type, 512, Precision::Fast, &gpu).await;
            if block_type.block_len() <= 32 {
                for precision in [Precision::Exact, Precision::Fast] {
                    if is_native || (precision == Precision::Fast) == (i % 4 < 2) {
                        check(block_type, 96, precision, &narrow).await;
                    }
                }
            }
        }
    }
});

gpu_test!(other_types_are_refused_with_a_list_of_what_works, async {
    let gpu = Rc::new(Gpu::open(None).await.unwrap());
    for block_type in BlockType::all().filter(|block_type| !DECODED.contains(block_type)) {
        let refused =
            GpuModel::new(Rc::clone(&gpu), plan(block_type, 512, Precision::Exact), CAPACITY, 64).await;
        let text = refused.unwrap_err().to_string();
        assert!(text.contains(&format!("tensor tensor is stored as {block_type},")), "{text}");
        assert!(DECODED.iter().all(|works| text.contains(works.name())), "{text}");
    }
});

gpu_test!(values_quantize_to_the_bytes_of_ggml, async {
    let values = tensor_values(QUANTIZED, "values");
    for block_type in TARGETS {
        let mut bytes = vec![7];
        quantize(block_type, &values, &mut bytes).unwrap();
        assert_eq!(bytes.remove(0), 7, "blocks are appended");
        let expected = tensor_bytes(QUANTIZED, block_type.name());
        let block_bytes = block_type.block_bytes() as usize;
        for (i, (block, wanted)) in bytes.chunks(block_bytes).zip(expected.chunks(block_bytes)).enumerate() {
            assert_eq!(block, wanted, "{block_type}: block {i}");
        }
        assert_eq!(bytes.len(), expected.len());
    }
});

gpu_test!(what_cannot_be_stored_is_refused_and_named, async {
    let mut bytes = Vec::new();
    for block_type in TARGETS {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let mut values = [0.25; 64];
            values[41] = bad;
            let error = quantize(block_type, &values, &mut bytes).unwrap_err();
            assert!(matches!(error, QuantizeError::NotFinite { index: 41, .. }), "{block_type}: {error}");
        }
        let largest = match block_type {
            BlockType::F32 => continue,
            BlockType::BF16 => f32::from_bits(0x7f7f_7fff),
            BlockType::F16 => 65519.996,
            BlockType::Q8_0 => 8_321_039.5,
            BlockType::Q4_0 => 524_159.97,
            other => panic!("{other} is not tested"),
        };
        let mut values = [0.0; 32];
        values[3] = -largest;
        let mut stored = Vec::new();
        let mut decoded = Vec::new();
        quantize(block_type, &values, &mut stored).unwrap();
        decode(block_type, &stored, &mut decoded).unwrap();
        assert!(decoded[3].is_finite() && decoded[3] < -0.99 * largest, "{block_type}: {}", decoded[3]);
        values[3] = -largest.next_up();
        let error = quantize(block_type, &values, &mut bytes).unwrap_err();
        assert_eq!(error, QuantizeError::TooLarge { index: 3, value: values[3], block_type });
    }
    for block_type in [BlockType::Q8_0, BlockType::Q4_0] {
        let error = quantize(block_type, &[1.0; 33], &mut bytes).unwrap_err();
        assert_eq!(error, QuantizeError::Length { block_type, n_values: 33 });
    }
    let error = quantize(BlockType::Q4_K, &[1.0; 256], &mut bytes).unwrap_err();
    assert_eq!(error, QuantizeError::BlockType { block_type: BlockType::Q4_K });
    assert!(bytes.is_empty(), "what was refused left nothing behind");
});
