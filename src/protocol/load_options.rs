//! Which model to load, and how to run it.

use serde::{Deserialize, Serialize};

/// Where a model's bytes are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ModelSource {
    /// A URL relative to the page.
    Url {
        /// The URL, as the page would fetch it.
        url: String,
    },
    /// Files that travel beside the message: a `.gguf` file, all parts of one, or those of a Hugging Face folder.
    Attachments {
        /// What they are, in the order of the envelope's attachments.
        files: Vec<AttachedFile>,
    },
}

/// What tells a file from another, without its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachedFile {
    /// Its name; in a folder, with the folder's name before it.
    pub name: String,
    /// Its length.
    pub len_bytes: u64,
    /// When it was changed, in milliseconds since 1970.
    pub modified_ms: u64,
}

/// What to do with a model that does not fit beside those that other tabs use. One that only the asking tab uses is
/// replaced without a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum IfFull {
    /// Tell who uses the room.
    #[default]
    Ask,
    /// Load it once there is room.
    Wait,
    /// Unload the others; their answers end.
    Replace,
}

/// How to run a model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct LoadOptions {
    /// The longest conversation in tokens; the model's own limit, or 4096 where that is larger, if absent.
    pub context: Option<u32>,
    /// Number type of the KV cache.
    pub kv: KvType,
    /// Arithmetic of activations.
    pub precision: Precision,
    /// Which device computes.
    pub device: DeviceChoice,
    /// What weights that are plain numbers become while they are loaded.
    pub quantize: Quantize,
    /// So long (s) the model stays loaded while no tab uses it; 300 if absent.
    pub keep_unused_secs: Option<u32>,
}

/// What weights that are plain numbers (F32, F16, BF16) become while they are loaded; blocks stay what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Quantize {
    /// They stay what they are.
    #[default]
    None,
    /// Q8_0: 8.5 bits a weight.
    Q8,
    /// Q4_0: 4.5 bits a weight, and Q8_0 for the matrix that makes the logits.
    Q4,
}

/// Number type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum KvType {
    /// Half precision, packed in pairs.
    #[default]
    F16,
    /// Single precision.
    F32,
    /// 8 bits and a scale for each head of a token.
    Q8,
}

impl KvType {
    /// Every type by its name.
    pub const NAMED: [(&str, Self); 3] = [("f16", Self::F16), ("f32", Self::F32), ("q8", Self::Q8)];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::NAMED.iter().find(|(_, kv)| *kv == self).expect("every type has a name").0
    }
}

/// Arithmetic of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum Precision {
    /// Fast where the processor computes, also as a software adapter; exact on GPUs.
    #[default]
    Auto,
    /// f32 activations and sums.
    Exact,
    /// Activations in ten bits with a scale for each 32, integer dot products.
    Fast,
}

impl Precision {
    /// Its name where people choose or read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Exact => "exact",
            Self::Fast => "fast",
        }
    }
}

/// Which device computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
pub enum DeviceChoice {
    /// A GPU where there is one that the processor does not imitate, or else the processor, which is faster than its imitation.
    #[default]
    Auto,
    /// A WebGPU (or Vulkan, Metal, DX12) adapter.
    Gpu,
    /// The processor.
    Cpu,
}

impl DeviceChoice {
    /// Every choice.
    pub const ALL: [Self; 3] = [Self::Auto, Self::Gpu, Self::Cpu];

    /// Its name where people choose or read it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Gpu => "gpu",
            Self::Cpu => "cpu",
        }
    }
}
