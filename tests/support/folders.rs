//! The model folders of tests/fixtures, file by file, with what independent libraries computed of them.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use serde_json::Value;

use crate::memory_source::MemorySource;
use crate::safetensors::tensor_values;

/// A model folder.
#[derive(Clone, Copy)]
pub struct Folder {
    pub name: &'static str,
    /// Its files but what is expected of it.
    files: &'static [(&'static str, &'static [u8])],
    expected: &'static str,
    /// `logits.I`: (tokens of prompt I, vocabulary), f32.
    logits: &'static [u8],
}

/// What is expected of a prompt.
pub struct Prompt {
    pub text: String,
    pub ids: Vec<u32>,
    /// The likeliest next tokens, and their log-probabilities.
    pub top: Vec<u32>,
    pub top_logprob: Vec<f32>,
    pub greedy: Vec<u32>,
    /// Between the two best logits of each.
    pub greedy_gap: Vec<f32>,
}

macro_rules! folder {
    ($name:literal, $($file:literal),+) => {
        Folder {
            name: $name,
            files: &[$((concat!($name, "/", $file), include_bytes!(concat!("../fixtures/", $name, "/", $file)))),+],
            expected: include_str!(concat!("../fixtures/", $name, "/expected.json")),
            logits: include_bytes!(concat!("../fixtures/", $name, "/expected.safetensors")),
        }
    };
    ($name:literal) => {
        folder!($name, "config.json", "model.safetensors", "tokenizer.json")
    };
}

/// All of them.
pub const FOLDERS: [Folder; 15] = [
    folder!("gpt2-tiny"),
    folder!("llama-tiny"),
    folder!(
        "llama3-rope-tiny",
        "config.json",
        "model.safetensors.index.json",
        "model-00001-of-00005.safetensors",
        "model-00002-of-00005.safetensors",
        "model-00003-of-00005.safetensors",
        "model-00004-of-00005.safetensors",
        "model-00005-of-00005.safetensors",
        "vocab.json",
        "merges.txt"
    ),
    folder!("llama-linear-tiny"),
    folder!("llama-yarn-tiny"),
    folder!("llama-bias-tiny"),
    folder!("mistral-tiny"),
    folder!("qwen2-tiny"),
    folder!("qwen2-window-tiny"),
    folder!("qwen3-tiny"),
    folder!("gemma2-tiny"),
    folder!("gemma3-tiny"),
    folder!("gemma3-linear-tiny"),
    folder!("phi3-tiny"),
    folder!("phi3-longrope-tiny"),
];

/// The last of them within its original context, where other divisors of the rotary frequencies hold.
pub const WITHIN_ORIGINAL_CONTEXT: Folder = Folder {
    expected: include_str!("../fixtures/phi3-longrope-tiny/expected-short.json"),
    logits: include_bytes!("../fixtures/phi3-longrope-tiny/expected-short.safetensors"),
    ..FOLDERS[FOLDERS.len() - 1]
};

impl Folder {
    /// Its files, as a person would choose them.
    pub fn sources(&self) -> Vec<MemorySource> {
        self.files.iter().map(|(name, bytes)| MemorySource::new(name, bytes.to_vec())).collect()
    }

    /// The prompts, in order.
    pub fn prompts(&self) -> Vec<Prompt> {
        let expected: Value = serde_json::from_str(self.expected).unwrap();
        expected["prompts"].as_array().unwrap().iter().map(Prompt::read).collect()
    }

    /// Logits of all positions of a prompt: (positions, vocabulary)
    pub fn logits(&self, prompt: usize, vocab_size: usize) -> Vec<Vec<f32>> {
        let values = tensor_values(self.logits, &format!("logits.{prompt}"));
        values.chunks(vocab_size).map(<[f32]>::to_vec).collect()
    }
}

impl Prompt {
    fn read(prompt: &Value) -> Self {
        let numbers = |key: &str| prompt[key].as_array().unwrap().iter();
        let ids = |key: &str| numbers(key).map(|id| id.as_u64().unwrap() as u32).collect();
        let floats = |key: &str| numbers(key).map(|number| number.as_f64().unwrap() as f32).collect();
        Self {
            text: prompt["prompt"].as_str().unwrap().to_owned(),
            ids: ids("ids"),
            top: ids("top"),
            top_logprob: floats("top_logprob"),
            greedy: ids("greedy"),
            greedy_gap: floats("greedy_gap"),
        }
    }
}
