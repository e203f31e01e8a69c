//! A vocabulary of 262,144 whose embedding is larger than one binding, and every architecture, within the limits that WebGPU
//! guarantees, not those of this adapter.
#![cfg(feature = "native")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/folders.rs"]
mod folders;
#[path = "support/memory_source.rs"]
mod memory_source;
#[path = "support/safetensors.rs"]
mod safetensors;

use std::rc::Rc;

use folders::FOLDERS;
use memory_source::MemorySource;
use pagelm::format::block::BlockType;
use pagelm::format::decode::decode;
use pagelm::gpu::Gpu;
use pagelm::gpu::layout::Capacity;
use pagelm::gpu::model::GpuModel;
use pagelm::gpu::shader::VARIANTS;
use pagelm::host::load::describe;
use pagelm::plan::batch::{Batch, RowKind};
use pagelm::plan::{
    Cache, Device as _, KvType, Matrix, MatrixId, MatrixPart, Norm, NormKind, Op, Plan, Precision, Sizes,
    Vector, VectorId, VectorPart,
};
use pagelm::protocol::LoadOptions;
use pagelm::store::Source as _;

const VOCAB_SIZE: usize = 262_144;
const WIDTH: usize = 544;

/// A device with the limits that every WebGPU implementation has.
async fn default_gpu() -> Gpu {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor::new_without_display_handle());
    let adapter = instance.request_adapter(&wgpu::RequestAdapterOptions::default()).await.unwrap();
    let limits = wgpu::Limits::default();
    assert_eq!(limits.max_storage_buffer_binding_size, 128 << 20);
    assert_eq!(limits.max_storage_buffers_per_shader_stage, 8);
    let gpu = Gpu::from_adapter(adapter, Some(limits)).await.unwrap();
    assert_eq!(gpu.max_binding_bytes(), 128 << 20, "the device has the limits that were asked for");
    gpu
}

/// An embedding that is its own head.
fn plan() -> Plan {
    let norm = Norm { kind: NormKind::RootMeanSquare, weight: VectorId(0), bias: None, epsilon: 1e-6 };
    Plan {
        sizes: Sizes {
            n_layers: 1,
            width: WIDTH,
            n_heads: 1,
            n_kv_heads: 1,
            head_dim: 32,
            mlp_width: 32,
            vocab_size: VOCAB_SIZE,
        },
        rotaries: Vec::new(),
        kv: KvType::F32,
        precision: Precision::Exact,
        caches: vec![Cache { window: None }],
        layer_caches: vec![0],
        matrices: vec![Matrix {
            parts: vec![MatrixPart { tensor: "embedding".into(), n_rows: VOCAB_SIZE }],
            n_columns: WIDTH,
            block_type: BlockType::Q8_0,
        }],
        vectors: vec![Vector { parts: vec![VectorPart { tensor: "norm".into(), len: WIDTH }] }],
        ops: vec![
            Op::Embed { table: MatrixId(0), scale: 1.0 },
            Op::Logits { norm, weights: MatrixId(0), softcap: None },
        ],
    }
}

/// A row of the embedding as a file has it; no two are alike.
fn row(index: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(WIDTH / 32 * 34);
    let mut state = index as u64 ^ 0x9e37_79b9_7f4a_7c15;
    for _ in 0..WIDTH / 32 {
        bytes.extend(0x2000u16.to_le_bytes());
        for _ in 0..32 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            bytes.push((state >> 56) as u8);
        }
    }
    bytes
}

fn values(index: usize) -> Vec<f64> {
    let mut values = Vec::new();
    decode(BlockType::Q8_0, &row(index), &mut values).unwrap();
    values.into_iter().map(f64::from).collect()
}

fn expected(token: usize, of: usize) -> f64 {
    let x = values(token);
    let mean = x.iter().map(|v| v * v).sum::<f64>() / WIDTH as f64;
    let inverse = 1.0 / (mean + 1e-6).sqrt();
    x.iter().zip(values(of)).map(|(a, b)| a * inverse * b).sum()
}

#[test]
fn a_large_vocabulary_is_split_by_rows() {
    let file: Vec<u8> = (0..VOCAB_SIZE).flat_map(row).collect();
    for variant in VARIANTS {
        let gpu = Rc::new(pollster::block_on(default_gpu()).with_variant(variant));
        let first_of_second = (128 << 20) / WIDTH / 2 * 2;
        assert!(first_of_second < VOCAB_SIZE, "the embedding is larger than a binding");
        let capacity = Capacity { decode_rows: 8, prefill_rows: 8, logit_rows: 8, context: 32 };
        let mut model = pollster::block_on(GpuModel::new(gpu, plan(), capacity, 32)).unwrap();
        let piece_rows = 4099;
        for (piece, bytes) in file.chunks(piece_rows * (WIDTH / 32 * 34)).enumerate() {
            model.write_rows(MatrixId(0), piece * piece_rows, bytes);
        }
        model.write_vector(VectorId(0), &[1.0; WIDTH]);
        pollster::block_on(model.flush()).unwrap();
        let tokens = [0, first_of_second - 1, first_of_second, VOCAB_SIZE - 1];
        let mut batch = Batch::default();
        let sequence = batch.push_sequence(vec![vec![0]]);
        for (position, token) in tokens.iter().enumerate() {
            batch.push_row(RowKind::Prefill, sequence, *token as u32, position as u32, true);
        }
        let ticket = model.submit(&batch);
        let logits = pollster::block_on(model.read(ticket)).unwrap().logits;
        for (token, logits) in tokens.iter().zip(logits.chunks(VOCAB_SIZE)) {
            let greatest = logits.iter().fold(0f32, |m, v| m.max(v.abs()));
            let stride = 997;
            let around = [first_of_second - 2, first_of_second - 1, first_of_second, first_of_second + 1];
            for of in (0..VOCAB_SIZE).step_by(stride).chain(around).chain(tokens) {
                let delta = (f64::from(logits[of]) - expected(*token, of)).abs();
                assert!(
                    delta <= 1e-5 * f64::from(greatest),
                    "{variant:?}, token {token}, logit {of}: {delta}"
                );
            }
        }
    }
}

#[test]
fn every_architecture_runs_within_them() {
    for folder in FOLDERS {
        for variant in VARIANTS {
            let gpu = Rc::new(pollster::block_on(default_gpu()).with_variant(variant));
            let options = LoadOptions { context: Some(512), ..LoadOptions::default() };
            let described = pollster::block_on(describe(folder.sources(), &options)).unwrap();
            let mut loaded = pollster::block_on(described.load(gpu.into(), |_, _| {})).unwrap();
            let prompt = &folder.prompts()[1];
            let mut batch = Batch::default();
            let n_caches = loaded.model.cache_blocks().len();
            let sequence = batch.push_sequence(vec![vec![0]; n_caches]);
            for (position, token) in prompt.ids.iter().enumerate() {
                let is_last = position + 1 == prompt.ids.len();
                batch.push_row(RowKind::Prefill, sequence, *token, position as u32, is_last);
            }
            let ticket = loaded.model.submit(&batch);
            let logits = pollster::block_on(loaded.model.read(ticket)).unwrap().logits;
            let likeliest = (0..logits.len()).max_by(|a, b| logits[*a].total_cmp(&logits[*b])).unwrap();
            assert_eq!(likeliest as u32, prompt.greedy[0], "{}, {variant:?}", folder.name);
        }
    }
}

/// Where every layer has a window a sequence is as long as the context, however few blocks there are.
#[test]
fn a_window_in_every_layer_does_not_bound_the_context() {
    const CONTEXT: u32 = 65_536;
    let folder = FOLDERS.iter().find(|folder| folder.name == "mistral-tiny").unwrap();
    let mut sources = folder.sources();
    sources.retain(|source| !source.name().ends_with("config.json"));
    let mut config: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/mistral-tiny/config.json")).unwrap();
    config["max_position_embeddings"] = CONTEXT.into();
    sources.push(MemorySource::new("config.json", config.to_string().into_bytes()));
    let options = LoadOptions { context: Some(CONTEXT), ..LoadOptions::default() };
    let described = pollster::block_on(describe(sources, &options)).unwrap();
    let loaded =
        pollster::block_on(described.load(Rc::new(pollster::block_on(default_gpu())).into(), |_, _| {}))
            .unwrap();
    assert!(loaded.info.kv_tokens < CONTEXT, "the ring is shorter than the context");
    assert_eq!((loaded.info.context, loaded.info.kv_note), (CONTEXT, None));
}
