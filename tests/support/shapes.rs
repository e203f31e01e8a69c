//! Shapes of random models, steps of them, and how far from the reference their numbers may be; for either device.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use pagelm::format::block::BlockType::{
    self, BF16, F16, F32, IQ4_NL, IQ4_XS, MXFP4, Q2_K, Q3_K, Q4_0, Q4_1, Q4_K, Q5_0, Q5_1, Q5_K, Q6_K, Q8_0,
};
use pagelm::plan::batch::{Batch, RowKind};
use pagelm::plan::{KvType, Nonlinearity, NormKind, RotaryPairs, Sizes};

use crate::random_model::{LLAMA, Shape, Style};

pub const fn sizes(
    width: usize,
    heads: [usize; 2],
    head_dim: usize,
    mlp_width: usize,
    vocab_size: usize,
) -> Sizes {
    Sizes { n_layers: 1, width, n_heads: heads[0], n_kv_heads: heads[1], head_dim, mlp_width, vocab_size }
}

pub const fn shape(sizes: Sizes, all: BlockType, pairs: RotaryPairs, kv: KvType) -> Shape {
    let qkv = [all, all, all];
    Shape {
        sizes,
        embedding: all,
        qkv,
        attention_output: all,
        gate_up: [all, all],
        down: all,
        head: None,
        pairs,
        kv,
        style: LLAMA,
    }
}

pub const ADJACENT: RotaryPairs = RotaryPairs::Adjacent;
pub const SPLIT: RotaryPairs = RotaryPairs::SplitHalf;

/// Smallest, odd vocabularies, widths of no round number, one head and many, narrow and wide heads, mixed block types.
pub const SHAPES: [Shape; 19] = [
    shape(sizes(32, [1, 1], 32, 32, 33), F32, ADJACENT, KvType::F32),
    shape(sizes(96, [3, 1], 32, 160, 1), Q4_1, SPLIT, KvType::F16),
    shape(sizes(64, [8, 2], 20, 96, 50), F16, ADJACENT, KvType::F16),
    Shape {
        embedding: Q8_0,
        qkv: [Q4_1, Q4_1, Q8_0],
        head: Some(F16),
        ..shape(sizes(576, [9, 3], 64, 320, 101), Q4_1, ADJACENT, KvType::F16)
    },
    Shape { qkv: [F16, Q8_0, F32], ..shape(sizes(128, [2, 2], 128, 64, 31), Q8_0, SPLIT, KvType::F32) },
    shape(sizes(256, [1, 1], 256, 32, 64), F16, ADJACENT, KvType::F32),
    shape(sizes(160, [32, 8], 4, 1056, 300), Q4_1, SPLIT, KvType::F32),
    Shape {
        embedding: Q6_K,
        qkv: [Q4_K, Q4_K, Q6_K],
        gate_up: [Q3_K, Q3_K],
        head: Some(Q2_K),
        ..shape(sizes(256, [8, 2], 32, 512, 41), Q5_K, ADJACENT, KvType::F16)
    },
    Shape {
        embedding: MXFP4,
        qkv: [Q5_0, IQ4_XS, Q5_1],
        gate_up: [Q2_K, Q5_K],
        down: IQ4_NL,
        head: Some(BF16),
        ..shape(sizes(256, [4, 4], 64, 96, 33), Q3_K, SPLIT, KvType::F32)
    },
    // An odd number of groups a row.
    Shape { qkv: [Q4_0, MXFP4, IQ4_NL], ..shape(sizes(96, [3, 1], 32, 160, 37), Q4_0, SPLIT, KvType::F32) },
    Shape { style: GPT2, ..shape(sizes(64, [4, 4], 16, 256, 50), F32, ADJACENT, KvType::F32) },
    Shape {
        style: QWEN2,
        qkv: [F16, Q8_0, BF16],
        ..shape(sizes(96, [6, 2], 16, 64, 40), F16, SPLIT, KvType::F16)
    },
    Shape {
        style: QWEN3,
        qkv: [F16, Q8_0, BF16],
        ..shape(sizes(64, [4, 2], 32, 96, 40), BF16, SPLIT, KvType::F32)
    },
    Shape { style: GEMMA2, ..shape(sizes(96, [2, 1], 64, 160, 45), F16, SPLIT, KvType::F32) },
    Shape {
        style: GEMMA3,
        gate_up: [Q8_0, F16],
        ..shape(sizes(64, [4, 1], 256, 96, 45), Q8_0, SPLIT, KvType::F16)
    },
    // A cache in 8 bits: heads of no round width, with biases and with norms.
    shape(sizes(64, [8, 2], 20, 96, 50), F32, ADJACENT, KvType::Q8),
    Shape { style: QWEN2, ..shape(sizes(96, [6, 2], 64, 64, 40), F16, SPLIT, KvType::Q8) },
    Shape { style: GEMMA3, ..shape(sizes(64, [4, 1], 128, 96, 45), F32, SPLIT, KvType::Q8) },
    // More heads to a key head than a workgroup attends for at once.
    shape(sizes(64, [40, 1], 4, 96, 33), F32, SPLIT, KvType::F16),
];

pub const GPT2: Style = Style {
    norm: NormKind::Layer,
    learned_positions: true,
    biases: true,
    is_gated: false,
    nonlinearity: Nonlinearity::GeluTanh,
    ..LLAMA
};
pub const QWEN2: Style = Style { biases: true, magnitude: 1.2, ..LLAMA };
/// With biases, as no model has them: norms of heads come after.
pub const QWEN3: Style = Style { head_norms: true, biases: true, ..LLAMA };
pub const GEMMA2: Style = Style {
    post_norms: true,
    nonlinearity: Nonlinearity::GeluTanh,
    window: Some(19),
    softcap: Some(1.5),
    embedding_scale: 9.8,
    ..LLAMA
};
pub const GEMMA3: Style = Style { head_norms: true, softcap: None, window: Some(7), ..GEMMA2 };

/// Blocks of a sequence, scattered over the pool.
pub fn blocks(sequence: usize) -> Vec<u32> {
    (0..3).map(|i| ((sequence * 3 + i) * 11 % 32) as u32).collect()
}

/// A prompt of two sequences; then a step with `n_decode` decoding sequences beside the rest of two prompts.
pub fn steps(n_decode: usize, vocab_size: usize) -> Vec<Batch> {
    let token = |sequence: usize, position: usize| ((sequence * 31 + position * 7) % vocab_size) as u32;
    let prompt_len = |sequence: usize| if sequence == 0 { 37 } else { 1 + sequence % 3 };
    let mut first = Batch::default();
    for sequence in 0..n_decode {
        let at = first.push_sequence(vec![blocks(sequence)]);
        for position in 0..prompt_len(sequence) {
            let last = position + 1 == prompt_len(sequence);
            first.push_row(RowKind::Prefill, at, token(sequence, position), position as u32, last);
        }
    }
    let mut second = Batch::default();
    for sequence in 0..n_decode {
        let at = second.push_sequence(vec![blocks(sequence)]);
        let position = prompt_len(sequence);
        second.push_row(RowKind::Decode, at, token(sequence, position), position as u32, true);
    }
    let at = second.push_sequence(vec![blocks(9)]);
    for position in 0..35 {
        second.push_row(RowKind::Prefill, at, token(9, position), position as u32, position % 5 == 0);
    }
    vec![first, second]
}

/// max|Δ| / max|reference| of a row; NaN is infinitely wrong.
pub fn error(got: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let greatest = expected.iter().fold(0f64, |m, v| m.max(v.abs())).max(1e-30);
    let worst = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).abs());
    worst.fold(0.0, |m, d| if d.is_nan() { f64::INFINITY } else { f64::max(m, d) }) / greatest
}

pub fn check(what: &str, got: &[f32], expected: &[f64], bound: f64) {
    let found = error(got, expected);
    assert!(
        found <= bound,
        "{what}: error {found:.2e} is over {bound:.0e}; got {:?}, expected {:?}",
        &got[..got.len().min(8)],
        &expected[..got.len().min(8)]
    );
}

/// How far from the reference, which rounds as the kernels do.
pub fn bound_of(kv: KvType) -> f64 {
    match kv {
        KvType::F32 => 1e-5,
        KvType::F16 => 1e-3,
        // Where rounding falls the other way, a value is off by 1/127 of the head's greatest.
        KvType::Q8 => 1e-2,
    }
}

/// What an activation that became its neighbour may do to a row of a narrow layer: rows with an activation that may be rounded
/// either way. Other rows are as close to their reference as exact ones.
pub const NEAR_TIE_BOUND: f64 = 5e-3;

/// Lengths of sequences over several of the ranges that attention is split into: within, at and behind their ends.
pub const LENGTHS: [usize; 5] = [700, 256, 255, 3, 513];

/// Blocks of the i-th of them, scattered over a pool of 64.
pub fn long_blocks(sequence: usize) -> Vec<u32> {
    let before: usize = LENGTHS[..sequence].iter().map(|len| len / 32 + 1).sum();
    (before..before + LENGTHS[sequence] / 32 + 1).map(|i| (i * 11 % 64) as u32).collect()
}

/// Several heads to a KV head, so many that they do not fit a workgroup; a window and a cap; narrow and wide heads.
pub const LONG_SHAPES: [Shape; 6] = [
    shape(sizes(64, [8, 2], 20, 32, 40), F16, ADJACENT, KvType::F16),
    shape(sizes(64, [10, 2], 32, 32, 40), F16, SPLIT, KvType::F32),
    Shape { style: WIDE_WINDOW, ..shape(sizes(64, [2, 2], 64, 32, 40), F16, SPLIT, KvType::F32) },
    shape(sizes(64, [3, 1], 256, 32, 40), F16, ADJACENT, KvType::F16),
    shape(sizes(64, [24, 8], 4, 32, 40), F16, SPLIT, KvType::F32),
    shape(sizes(64, [4, 1], 32, 32, 40), F32, SPLIT, KvType::Q8),
];
pub const WIDE_WINDOW: Style = Style { window: Some(300), ..GEMMA2 };
