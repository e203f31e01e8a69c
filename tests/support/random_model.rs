//! A one-layer model of any shape with random weights, on the device and as numbers.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use pagelm::cpu::model::CpuModel;
use pagelm::format::block::BlockType;
use pagelm::gpu::model::GpuModel;
use pagelm::plan::{
    Activation, Cache, KvType, Matrix, MatrixId, MatrixPart, Nonlinearity, Norm, NormKind, Op, Plan,
    Precision, Rotary, RotaryPairs, Rotation, Sizes, Vector, VectorId, VectorPart,
};

use crate::gguf_writer::f16_from_f32;
use crate::reference::{Reference, decode};

/// Numbers that look random and are the same everywhere (xorshift64*, Vigna 2016).
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In [−1, 1).
    pub fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// A shape, and how its weights are stored.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub sizes: Sizes,
    pub embedding: BlockType,
    pub qkv: [BlockType; 3],
    pub attention_output: BlockType,
    pub gate_up: [BlockType; 2],
    pub down: BlockType,
    /// The head's type; the embedding is used again where absent.
    pub head: Option<BlockType>,
    pub pairs: RotaryPairs,
    pub kv: KvType,
    pub style: Style,
}

/// What a layer does beside its matmuls; each architecture is some of these.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Style {
    pub norm: NormKind,
    /// Learned positions, and no rotation.
    pub learned_positions: bool,
    pub biases: bool,
    pub head_norms: bool,
    pub post_norms: bool,
    pub is_gated: bool,
    pub nonlinearity: Nonlinearity,
    pub window: Option<usize>,
    /// Of scores and of logits.
    pub softcap: Option<f32>,
    pub embedding_scale: f32,
    pub magnitude: f32,
}

/// Llama's.
pub const LLAMA: Style = Style {
    norm: NormKind::RootMeanSquare,
    learned_positions: false,
    biases: false,
    head_norms: false,
    post_norms: false,
    is_gated: true,
    nonlinearity: Nonlinearity::Silu,
    window: None,
    softcap: None,
    embedding_scale: 1.0,
    magnitude: 1.0,
};

/// Positions that a learned table has.
const N_POSITIONS: usize = 128;

/// A model of either device, as far as weights are brought to it.
pub trait Loads {
    fn write_rows(&self, id: MatrixId, first_row: usize, file: &[u8]);
    fn write_vector(&self, id: VectorId, values: &[f32]);
    fn write_rotary(&self, index: usize, divisors: Option<&[f32]>);
}

macro_rules! loads {
    ($model:ty) => {
        impl Loads for $model {
            fn write_rows(&self, id: MatrixId, first_row: usize, file: &[u8]) {
                self.write_rows(id, first_row, file);
            }

            fn write_vector(&self, id: VectorId, values: &[f32]) {
                self.write_vector(id, values);
            }

            fn write_rotary(&self, index: usize, divisors: Option<&[f32]>) {
                self.write_rotary(index, divisors);
            }
        }
    };
}
loads!(GpuModel);
loads!(CpuModel);

/// A plan and its weights.
pub struct RandomModel {
    pub plan: Plan,
    /// As a file holds them.
    pub files: Vec<Vec<u8>>,
    pub vectors: Vec<Vec<f32>>,
}

impl RandomModel {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let mut random = Random::new(seed);
        let plan = Self::plan(shape);
        let files = plan.matrices.iter().map(|matrix| random_blocks(matrix, &mut random)).collect();
        let vectors = plan
            .vectors
            .iter()
            .map(|v| (0..v.len()).map(|_| 1.0 + 0.5 * random.signed()).collect())
            .collect();
        Self { plan, files, vectors }
    }

    /// The plan alone.
    pub fn plan(shape: &Shape) -> Plan {
        let sizes = shape.sizes;
        let attention = sizes.n_heads * sizes.head_dim;
        let kv_width = sizes.n_kv_heads * sizes.head_dim;
        let style = shape.style;
        let mut plan = Plan {
            sizes,
            rotaries: vec![Rotary {
                frequencies: (0..sizes.head_dim / 2)
                    .map(|i| 1.0 / 10000f32.powf((2 * i) as f32 / sizes.head_dim as f32))
                    .collect(),
                divisors: None,
                magnitude: style.magnitude,
            }],
            kv: shape.kv,
            precision: Precision::Exact,
            caches: vec![Cache { window: style.window }],
            layer_caches: vec![0],
            matrices: Vec::new(),
            vectors: Vec::new(),
            ops: Vec::new(),
        };
        let mut push = |name: &str, rows: &[usize], n_columns: usize, block_type: BlockType| {
            let parts =
                rows.iter().map(|n_rows| MatrixPart { tensor: name.into(), n_rows: *n_rows }).collect();
            plan.matrices.push(Matrix { parts, n_columns, block_type });
            MatrixId(plan.matrices.len() - 1)
        };
        let embedding = push("embedding", &[sizes.vocab_size], sizes.width, shape.embedding);
        let mut qkv: Vec<MatrixId> = Vec::new();
        for (rows, block_type) in [attention, kv_width, kv_width].into_iter().zip(shape.qkv) {
            qkv.push(push("qkv", &[rows], sizes.width, block_type));
        }
        let output = push("attention output", &[sizes.width], attention, shape.attention_output);
        let gate_up = match shape.gate_up {
            _ if !style.is_gated => vec![push("up", &[sizes.mlp_width], sizes.width, shape.gate_up[0])],
            [gate, up] if gate == up => {
                vec![push("gate up", &[sizes.mlp_width, sizes.mlp_width], sizes.width, gate)]
            }
            each => each.map(|block_type| push("half", &[sizes.mlp_width], sizes.width, block_type)).to_vec(),
        };
        let down = push("down", &[sizes.width], sizes.mlp_width, shape.down);
        let head = shape.head.map_or(embedding, |head| push("head", &[sizes.vocab_size], sizes.width, head));
        let positions =
            style.learned_positions.then(|| push("positions", &[N_POSITIONS], sizes.width, shape.embedding));
        let mut vector = |parts: &[usize]| {
            let part = |len: &usize| VectorPart { tensor: "vector".into(), len: *len };
            plan.vectors.push(Vector { parts: parts.iter().map(part).collect() });
            VectorId(plan.vectors.len() - 1)
        };
        let mut norm = |width: usize| Norm {
            kind: style.norm,
            weight: vector(&[width]),
            bias: (style.norm == NormKind::Layer).then(|| vector(&[width])),
            epsilon: 1e-5,
        };
        let norms = [norm(sizes.width), norm(sizes.width), norm(sizes.width)];
        let post_norms = [0, 1].map(|_| style.post_norms.then(|| norm(sizes.width)));
        let head_norm = Norm { kind: NormKind::RootMeanSquare, bias: None, ..norms[0] };
        let head_norms =
            style.head_norms.then(|| [0, 1].map(|_| Norm { weight: vector(&[sizes.head_dim]), ..head_norm }));
        let mut bias = |parts: &[usize]| style.biases.then(|| vector(parts));
        let mlp_halves = if style.is_gated { vec![sizes.mlp_width; 2] } else { vec![sizes.mlp_width] };
        let biases = [
            bias(&[attention, kv_width, kv_width]),
            bias(&[sizes.width]),
            bias(&mlp_halves),
            bias(&[sizes.width]),
        ];
        let rotation = (!style.learned_positions).then_some(Rotation { rotary: 0, pairs: shape.pairs });
        plan.ops = vec![Op::Embed { table: embedding, scale: style.embedding_scale }];
        plan.ops.extend(positions.map(|table| Op::AddPosition { table }));
        plan.ops.extend([
            Op::ProjectQkv { layer: 0, norm: norms[0], weights: qkv, bias: biases[0], head_norms, rotation },
            Op::Attend { layer: 0, scale: 1.0 / (sizes.head_dim as f32).sqrt(), softcap: style.softcap },
            Op::ProjectAdd {
                weights: output,
                bias: biases[1],
                input: Activation::Attended,
                post_norm: post_norms[0],
            },
            match style.is_gated {
                true => Op::GatedMlp {
                    norm: norms[1],
                    weights: gate_up,
                    bias: biases[2],
                    nonlinearity: style.nonlinearity,
                },
                false => Op::Mlp {
                    norm: norms[1],
                    weights: gate_up[0],
                    bias: biases[2],
                    nonlinearity: style.nonlinearity,
                },
            },
            Op::ProjectAdd {
                weights: down,
                bias: biases[3],
                input: Activation::Mlp,
                post_norm: post_norms[1],
            },
            Op::Logits { norm: norms[2], weights: head, softcap: style.softcap },
        ]);
        plan
    }

    /// Brings the weights to the device, in pieces of so many rows.
    pub fn write(&self, model: &impl Loads, piece_rows: usize) {
        for (i, (matrix, file)) in self.plan.matrices.iter().zip(&self.files).enumerate() {
            let row_bytes = file.len() / matrix.n_rows();
            for (piece, bytes) in file.chunks(row_bytes * piece_rows).enumerate() {
                model.write_rows(MatrixId(i), piece * piece_rows, bytes);
            }
        }
        for (i, vector) in self.vectors.iter().enumerate() {
            model.write_vector(VectorId(i), vector);
        }
        for i in 0..self.plan.rotaries.len() {
            model.write_rotary(i, None);
        }
    }

    pub fn reference(&self) -> Reference {
        let decoded =
            self.plan.matrices.iter().zip(&self.files).map(|(matrix, file)| decode(matrix.block_type, file));
        Reference::new(&self.plan, decoded.collect(), self.vectors.clone())
    }
}

/// Blocks of any bits whose values are about as large as 1 / sqrt(columns); every 13th scale is a subnormal f16, or the
/// least power of two that MXFP4 has in use.
fn random_blocks(matrix: &Matrix, random: &mut Random) -> Vec<u8> {
    let n_values = matrix.n_rows() * matrix.n_columns;
    let size = 1.7 / (matrix.n_columns as f32).sqrt();
    let mut block_idx = 0;
    let mut half = |random: &mut Random, size: f32| {
        block_idx += 1;
        let bits =
            if block_idx % 13 == 0 { 0x0155 } else { f16_from_f32(size * (1.0 + 0.3 * random.signed())) };
        bits.to_le_bytes()
    };
    let mut bytes = Vec::new();
    match matrix.block_type {
        BlockType::F32 => (0..n_values).for_each(|_| bytes.extend((size * random.signed()).to_le_bytes())),
        BlockType::F16 => {
            (0..n_values).for_each(|_| bytes.extend(f16_from_f32(size * random.signed()).to_le_bytes()));
        }
        BlockType::Q8_0 => (0..n_values / 32).for_each(|_| {
            bytes.extend(half(random, size / 127.0));
            (0..32).for_each(|_| bytes.push(random.next() as u8));
        }),
        BlockType::Q4_1 => (0..n_values / 32).for_each(|_| {
            bytes.extend(half(random, size / 7.5));
            bytes.extend(f16_from_f32(-size * (1.0 + 0.1 * random.signed())).to_le_bytes());
            (0..16).for_each(|_| bytes.push((random.next() >> 20) as u8));
        }),
        BlockType::BF16 => (0..n_values).for_each(|_| {
            bytes.extend(&(size * random.signed()).to_le_bytes()[2..]);
        }),
        BlockType::MXFP4 => (0..n_values / 32).for_each(|i| {
            // 6 · 2^(e − 127) is the largest value.
            let exponent = 127 + (size / 6.0).log2().round() as i32;
            bytes.push(if i % 13 == 12 { 2 } else { exponent as u8 + (random.next() >> 40) as u8 % 2 });
            (0..16).for_each(|_| bytes.push((random.next() >> 20) as u8));
        }),
        quantized => {
            let (scale_at, min_at, largest) = scales_of(quantized);
            let block_bytes = quantized.block_bytes() as usize;
            (0..n_values / quantized.block_len() as usize).for_each(|_| {
                let start = bytes.len();
                (0..block_bytes).for_each(|_| bytes.push((random.next() >> 20) as u8));
                bytes[start + scale_at..][..2].copy_from_slice(&half(random, size / largest));
                if let Some((min_at, largest)) = min_at {
                    let min = f16_from_f32(size / largest * (1.0 + 0.1 * random.signed()));
                    bytes[start + min_at..][..2].copy_from_slice(&min.to_le_bytes());
                }
            });
        }
    }
    bytes
}

/// Where a block has its f16 scale; where its f16 minimum, if it has one, and by how much that is multiplied at most; and by
/// how much the scale is.
fn scales_of(block_type: BlockType) -> (usize, Option<(usize, f32)>, f32) {
    match block_type {
        BlockType::Q4_0 => (0, None, 8.0),
        BlockType::Q5_0 => (0, None, 16.0),
        BlockType::Q5_1 => (0, Some((2, -1.0)), 15.5),
        BlockType::Q2_K => (80, Some((82, 15.0)), 3.0 * 15.0),
        BlockType::Q3_K => (108, None, 4.0 * 32.0),
        BlockType::Q4_K => (0, Some((2, 63.0)), 15.0 * 63.0),
        BlockType::Q5_K => (0, Some((2, 63.0)), 31.0 * 63.0),
        BlockType::Q6_K => (208, None, 32.0 * 128.0),
        BlockType::IQ4_NL => (0, None, 127.0),
        BlockType::IQ4_XS => (0, None, 127.0 * 32.0),
        other => panic!("no random blocks of {}", other.name()),
    }
}
