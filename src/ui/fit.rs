//! Whether a model fits this machine, told before a byte of it is fetched: its weights and the KV cache of the context that
//! is set, against what the engine asks of a GPU or of the browser's processor.
//!
//! Invariant: a verdict is said of what is known; what is not known is left out, and stops nobody from trying.

use super::words;
use crate::protocol::{DeviceChoice, KvType, LoadOptions};

/// The engine refuses more bytes of weights than this on a browser's processor.
const MAX_PROCESSOR_BYTES: u64 = 2 << 30;
/// The engine's context where nobody chose.
pub(crate) const DEFAULT_CONTEXT: u32 = 4096;

/// What this machine has to compute with, as the page sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Reach {
    /// The GPU that the browser offers, if it offers one.
    pub(crate) gpu: Option<Adapter>,
}

/// A GPU that the browser offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Adapter {
    /// Bytes of its largest buffer.
    pub(crate) max_buffer_bytes: u64,
    /// The processor imitates it.
    pub(crate) is_software: bool,
}

/// What a model needs, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Need {
    /// Bytes of its weights.
    pub(crate) weight_bytes: u64,
    /// Bytes of a token in a KV cache of half precision.
    pub(crate) kv_bytes_per_token: Option<u64>,
    /// Its longest context in tokens; where that is not known, it is taken to have what is asked for.
    pub(crate) context: Option<u32>,
}

/// What is said of a model before it is fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// One line.
    pub(crate) words: String,
    /// It will be refused, or may be.
    pub(crate) is_warning: bool,
}

impl Reach {
    /// What is to be said of a model that is run so.
    pub(crate) fn verdict(&self, need: Need, options: &LoadOptions) -> Verdict {
        let (kv, kv_bytes) = match need.kv(options) {
            Some((context, n_bytes)) => {
                let words = format!(" and {} for {}", words::bytes(n_bytes), words::tokens(context));
                (words, n_bytes)
            }
            None => (String::new(), 0),
        };
        let needs = format!("{}{kv}", words::bytes(need.weight_bytes));
        let gpu = self.gpu.filter(|gpu| match options.device {
            DeviceChoice::Auto => !gpu.is_software,
            DeviceChoice::Gpu => true,
            DeviceChoice::Cpu => false,
        });
        let Some(gpu) = gpu else {
            let most = words::bytes(MAX_PROCESSOR_BYTES);
            return match need.weight_bytes > MAX_PROCESSOR_BYTES {
                true => warning(format!(
                    "Too large for the processor in a browser: it needs {needs}, and {most} of weights is the most; a smaller quantization may fit"
                )),
                false => fits(format!("Fits the processor: {needs}")),
            };
        };
        // As the engine reckons: two of the largest buffers for all models, and a single one is tried all the same.
        let budget_bytes = gpu.max_buffer_bytes.saturating_mul(2);
        match need.weight_bytes.saturating_add(kv_bytes) > budget_bytes {
            true => warning(format!(
                "May not fit: it needs {needs}, where this GPU allows buffers of {}; a shorter context or a smaller quantization needs less",
                words::bytes(gpu.max_buffer_bytes)
            )),
            false => fits(format!("Fits this GPU: {needs}")),
        }
    }
}

impl Need {
    /// The context in tokens, and bytes of its KV cache.
    fn kv(&self, options: &LoadOptions) -> Option<(u32, u64)> {
        let context = options.context.unwrap_or(DEFAULT_CONTEXT).min(self.context.unwrap_or(u32::MAX));
        let half = self.kv_bytes_per_token? * u64::from(context);
        let n_bytes = match options.kv {
            KvType::F16 => half,
            KvType::F32 => 2 * half,
            // A byte each, and a scale of four for the 64 or more of a head.
            KvType::Q8 => half * 17 / 32,
        };
        Some((context, n_bytes))
    }
}

/// What is to be said where the browser has less room than is missing of a model.
pub(crate) fn room_warning(missing_bytes: u64, free_bytes: Option<u64>) -> Option<Verdict> {
    let free_bytes = free_bytes.filter(|free| *free < missing_bytes)?;
    Some(warning(format!(
        "Not enough space to keep it: {} are missing, and this browser has room for {}; it would be fetched again at each visit",
        words::bytes(missing_bytes),
        words::bytes(free_bytes)
    )))
}

fn fits(words: String) -> Verdict {
    Verdict { words, is_warning: false }
}

fn warning(words: String) -> Verdict {
    Verdict { words, is_warning: true }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GB: u64 = 1_000_000_000;

    fn reach(max_buffer_bytes: u64, is_software: bool) -> Reach {
        Reach { gpu: Some(Adapter { max_buffer_bytes, is_software }) }
    }

    #[test]
    fn weights_and_context_count() {
        let need = Need { weight_bytes: GB, kv_bytes_per_token: Some(100_000), context: Some(8192) };
        let options = LoadOptions::default();
        for (reach, kv, context, device, words, is_warning) in [
            (
                reach(2 * GB, false),
                KvType::F16,
                None,
                DeviceChoice::Auto,
                "Fits this GPU: 1.0 GB and 410 MB for 4\u{202f}096 tokens",
                false,
            ),
            (
                reach(GB / 2, false),
                KvType::F16,
                None,
                DeviceChoice::Auto,
                "May not fit: it needs 1.0 GB and 410 MB",
                true,
            ),
            (reach(GB, false), KvType::F32, Some(8000), DeviceChoice::Auto, "1.6 GB for 8\u{202f}000", true),
            (reach(GB, false), KvType::Q8, Some(8000), DeviceChoice::Auto, "425 MB for 8\u{202f}000", false),
            // No more than the model has.
            (
                reach(GB, false),
                KvType::F16,
                Some(100_000),
                DeviceChoice::Auto,
                "819 MB for 8\u{202f}192",
                false,
            ),
            (reach(GB / 8, true), KvType::F16, None, DeviceChoice::Auto, "Fits the processor", false),
            (reach(GB / 8, true), KvType::F16, None, DeviceChoice::Gpu, "May not fit", true),
            (reach(GB, false), KvType::F16, None, DeviceChoice::Cpu, "Fits the processor", false),
            (Reach::default(), KvType::F16, None, DeviceChoice::Gpu, "Fits the processor", false),
        ] {
            let verdict = reach.verdict(need, &LoadOptions { kv, context, device, ..options.clone() });
            assert!(verdict.words.contains(words), "{} lacks {words}", verdict.words);
            assert_eq!(verdict.is_warning, is_warning, "{}", verdict.words);
        }
    }

    #[test]
    fn what_is_not_known_is_left_out() {
        let need = Need { weight_bytes: 3 * GB, kv_bytes_per_token: None, context: Some(1) };
        let verdict = Reach::default().verdict(need, &LoadOptions::default());
        assert!(verdict.is_warning && verdict.words.contains("it needs 3.0 GB, and"), "{}", verdict.words);
        let unlimited = Need { kv_bytes_per_token: Some(1000), context: None, ..need };
        for (context, words) in
            [(None, "4.1 MB for 4\u{202f}096"), (Some(32_768), "32.8 MB for 32\u{202f}768")]
        {
            let options = LoadOptions { context, ..LoadOptions::default() };
            let verdict = Reach::default().verdict(unlimited, &options);
            assert!(verdict.words.contains(words), "{} lacks {words}", verdict.words);
        }
        let huge = Need { weight_bytes: u64::MAX, ..need };
        assert!(reach(u64::MAX, false).verdict(huge, &LoadOptions::default()).words.starts_with("Fits"));
    }

    #[test]
    fn too_little_room_is_said_where_the_browser_tells() {
        assert_eq!((room_warning(10, None), room_warning(10, Some(10))), (None, None));
        assert!(room_warning(11, Some(10)).is_some_and(|verdict| verdict.words.contains("11 B")));
    }
}
