//! What was measured, and of what: one form of JSON for the terminal and the page.

use serde::{Deserialize, Serialize};

use super::Bench;
use super::percentiles::Percentiles;
use crate::protocol::{DeviceKind, LoadOptions, ModelInfo, OpTime};

/// A session of measurements.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// The version of pagelm.
    pub pagelm: String,
    /// When, as `2026-11-30`.
    pub date: String,
    /// What computed.
    pub device: Device,
    /// What was asked.
    pub model: Model,
    /// Arithmetic of activations: `exact` or `fast`.
    pub precision: String,
    /// Number type of the KV cache: `f16` or `f32`.
    pub kv: String,
    /// The measurements, in order.
    pub results: Vec<Measured>,
    /// The operations of a decode step, where they were timed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ops: Option<Ops>,
}

/// What the operations of a decode step took. Each dispatch had a pass of its own, so their sum is more than a step takes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Ops {
    /// The place of the token in its sequence.
    pub position: u32,
    /// Those that take longest first.
    pub ops: Vec<OpTime>,
}

/// An adapter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// Its own name.
    pub name: String,
    /// `gpu`, `software` or `cpu`.
    pub kind: String,
    /// The interface it is reached by, such as `vulkan`.
    pub backend: String,
    /// Whether the processor imitates it.
    pub is_software: bool,
}

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Model {
    /// Its name.
    pub name: String,
    /// Architecture as the file calls it.
    pub architecture: String,
    /// Parameters in all.
    pub parameters: u64,
    /// Bytes of its weights on the device.
    pub weight_bytes: u64,
}

/// One measurement. Rates count all sequences together.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Sequences at once.
    pub sequences: u32,
    /// Tokens of each prompt.
    pub prompt_tokens: u32,
    /// Tokens of each answer.
    pub max_tokens: u32,
    /// Runs.
    pub runs: u32,
    /// Without it every token computed all before it again.
    pub kv_cache: bool,
    /// Until every sequence had its first token.
    pub prefill_tokens_per_sec: f64,
    /// While all decoded; nothing where no token came in that time.
    pub decode_tokens_per_sec: Option<f64>,
    /// Decode over that of one sequence with the cache, where that was measured.
    pub speedup: Option<f64>,
    /// Generated tokens over the whole time.
    pub total_tokens_per_sec: f64,
    /// Prompt tokens that were not computed after all.
    pub cached_tokens: u64,
    /// Between a sequence's tokens, while all decoded.
    pub token_ms: Option<Percentiles>,
    /// From the start to each sequence's first token.
    pub first_token_ms: Option<Percentiles>,
    /// Between the first token and the second, the second and the third …: the mean of all sequences and runs.
    pub position_ms: Vec<f64>,
}

impl Report {
    /// A report on a model that was loaded with these options.
    pub fn new(info: &ModelInfo, options: &LoadOptions, date: String, bench: &Bench) -> Self {
        Self {
            pagelm: env!("CARGO_PKG_VERSION").to_owned(),
            date,
            device: Device::of(info),
            model: Model {
                name: info.name.clone(),
                architecture: info.architecture.clone(),
                parameters: info.n_parameters,
                weight_bytes: info.weight_bytes,
            },
            precision: info.precision.name().to_owned(),
            kv: options.kv.name().to_owned(),
            results: bench.results().to_vec(),
            ops: bench.ops().cloned(),
        }
    }

    /// As JSON that a person can read, too.
    pub fn to_json(&self) -> String {
        let mut text =
            serde_json::to_string_pretty(self).expect("a report holds numbers, texts and lists only");
        text.push('\n');
        text
    }
}

impl Ops {
    /// Milliseconds of all together.
    pub fn sum_ms(&self) -> f64 {
        self.ops.iter().map(|op| op.ms).sum()
    }
}

impl Device {
    /// The device of a loaded model.
    pub fn of(info: &ModelInfo) -> Self {
        Self {
            name: info.device_name.clone(),
            kind: info.device_kind.name().to_owned(),
            backend: info.device_backend.clone(),
            is_software: info.device_kind == DeviceKind::Software,
        }
    }
}
