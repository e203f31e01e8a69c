//! What the engine tells of the model that answers and of its device; it crosses as part of an event.

use serde::{Deserialize, Serialize};

use super::{ModelId, Precision};

/// What was loaded, and where it runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// The engine's name for it.
    pub id: ModelId,
    /// The model's own name, or its file's.
    pub name: String,
    /// Architecture as the file calls it.
    pub architecture: String,
    /// How most weights are packed, as GGUF calls it.
    pub quantization: String,
    /// The licence that the file names, if it names one.
    pub license: Option<String>,
    /// Parameters in all.
    pub n_parameters: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Why it is not kept for the next visit, where models are and this one is not.
    pub storage_note: Option<String>,
    /// Bytes of weights on the device.
    pub weight_bytes: u64,
    /// Longest conversation in tokens.
    pub context: u32,
    /// Tokens that the KV pool holds, all sequences together.
    pub kv_tokens: u32,
    /// Bytes of the KV pool.
    pub kv_bytes: u64,
    /// The KV pool was made smaller than asked, and why.
    pub kv_note: Option<String>,
    /// The device's own name.
    pub device_name: String,
    /// The interface that the device is reached by, such as `vulkan` or `webgpu`.
    pub device_backend: String,
    /// What kind of device it is.
    pub device_kind: DeviceKind,
    /// Why it is this device, or computes with these kernels, where nobody chose and they are not the first choice.
    pub device_note: Option<String>,
    /// The kernels in use and what the device allows, in words for a report.
    pub device_details: String,
    /// Arithmetic of activations in use, never [`Precision::Auto`].
    pub precision: Precision,
    /// Layers of the model.
    pub n_layers: u32,
    /// Words of the vocabulary.
    pub vocab_size: u32,
    /// It answers [`Prompt::Chat`](super::Prompt::Chat); without a template it only continues text.
    pub has_chat_template: bool,
    /// Arguments that the chat template reads beside those that every conversation has, such as `enable_thinking`; in order.
    pub template_arguments: Vec<String>,
}

/// What kind of device computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeviceKind {
    /// A graphics processor.
    Gpu,
    /// A graphics processor imitated by the processor: correct and slow.
    Software,
    /// The processor itself.
    Cpu,
}

impl DeviceKind {
    /// The name used in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Gpu => "gpu",
            Self::Software => "software",
            Self::Cpu => "cpu",
        }
    }
}

#[cfg(all(test, feature = "web"))]
impl ModelInfo {
    /// A model that tests speak of.
    pub(crate) fn example(name: &str) -> Self {
        Self {
            id: 1,
            name: name.to_owned(),
            architecture: "llama".to_owned(),
            quantization: "Q4_1".to_owned(),
            license: None,
            n_parameters: 135_000_000,
            file_bytes: 98,
            storage_note: None,
            weight_bytes: 98,
            context: 4096,
            kv_tokens: 4096,
            kv_bytes: 1,
            kv_note: None,
            device_name: "Test".to_owned(),
            device_backend: "webgpu".to_owned(),
            device_kind: DeviceKind::Software,
            device_note: None,
            device_details: "kernels of workgroups".to_owned(),
            precision: Precision::Exact,
            n_layers: 30,
            vocab_size: 49152,
            has_chat_template: true,
            template_arguments: Vec::new(),
        }
    }
}
