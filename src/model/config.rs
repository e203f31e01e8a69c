//! The sizes and constants of a model as its files state them, checked.

use super::ARCHITECTURES;
use super::error::ModelError;
use super::rotary::{self, Scaling};
use crate::format::checkpoint::Checkpoint;
use crate::format::metadata::Metadata;
use crate::format::value::{Array, Value};

/// Sizes and constants of a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// As GGUF names it.
    pub architecture: String,
    /// Layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the MLP.
    pub mlp_width: usize,
    /// Words of the vocabulary.
    pub vocab_size: usize,
    /// Positions the model was trained for.
    pub context: usize,
    /// Base of the rotary frequencies.
    pub rotary_base: f32,
    /// The same for layers with a window, where it is another (Gemma 3).
    pub window_rotary_base: Option<f32>,
    /// How rotary frequencies are stretched to a longer context.
    pub scaling: Scaling,
    /// Epsilon of the norms.
    pub norm_epsilon: f32,
    /// Scores are q · k times this.
    pub attention_scale: f32,
    /// How many positions a layer sees, itself the last; all where absent: (layers)
    pub windows: Vec<Option<usize>>,
    /// Cap of attention scores.
    pub attention_softcap: Option<f32>,
    /// Cap of logits.
    pub logit_softcap: Option<f32>,
}

/// No model of today has more of anything; a header that says so is damaged.
const MOST: u64 = 1 << 24;

/// What an architecture may state beside its sizes; whatever else changes the computation is refused.
struct Traits {
    architecture: &'static str,
    norm_epsilon: &'static str,
    rotates: bool,
    /// Which layers have the window that the file states, where it does not say.
    windows: Windows,
    softcaps: bool,
}

/// Which layers have a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Windows {
    /// Only those that the file lists.
    Listed,
    /// All.
    All,
    /// All but every n-th.
    AllButEvery(usize),
}

const RMS_EPSILON: &str = "attention.layer_norm_rms_epsilon";
const LAYER_EPSILON: &str = "attention.layer_norm_epsilon";

const fn traits(architecture: &'static str, windows: Windows) -> Traits {
    Traits { architecture, norm_epsilon: RMS_EPSILON, rotates: true, windows, softcaps: false }
}

/// One entry an architecture of [`ARCHITECTURES`], in its order.
const TRAITS: [Traits; ARCHITECTURES.len()] = [
    Traits { norm_epsilon: LAYER_EPSILON, rotates: false, ..traits("gpt2", Windows::Listed) },
    traits("llama", Windows::All),
    traits("qwen2", Windows::Listed),
    traits("qwen3", Windows::Listed),
    Traits { softcaps: true, ..traits("gemma2", Windows::AllButEvery(2)) },
    Traits { softcaps: true, ..traits("gemma3", Windows::AllButEvery(6)) },
    traits("phi3", Windows::All),
];

/// Reads the keys of one architecture.
struct Keys<'a> {
    metadata: &'a Metadata,
    traits: &'static Traits,
}

impl Config {
    /// Reads and checks the sizes.
    pub fn new(checkpoint: &Checkpoint) -> Result<Self, ModelError> {
        let metadata = &checkpoint.metadata;
        let architecture = metadata.str("general.architecture")?.to_owned();
        let Some(traits) = TRAITS.iter().find(|traits| traits.architecture == architecture) else {
            return Err(ModelError::Architecture { found: architecture, known: ARCHITECTURES.join(", ") });
        };
        let keys = Keys { metadata, traits };
        keys.refuse_variants()?;
        let width = keys.size("embedding_length")?;
        let n_heads = keys.size("attention.head_count")?;
        let n_kv_heads = keys.n_kv_heads(n_heads)?;
        let head_dim = keys.head_dim(width, n_heads)?;
        let n_layers = keys.size("block_count")?;
        let context = keys.size("context_length")?;
        Ok(Self {
            n_layers,
            width,
            n_heads,
            n_kv_heads,
            head_dim,
            mlp_width: keys.size("feed_forward_length")?,
            vocab_size: metadata.strings("tokenizer.ggml.tokens")?.len(),
            context,
            rotary_base: keys.opt_constant("rope.freq_base")?.unwrap_or(10000.0),
            window_rotary_base: keys.opt_constant("rope.freq_base_swa")?,
            scaling: keys.scaling(context)?,
            norm_epsilon: keys.constant(traits.norm_epsilon)?,
            attention_scale: keys.attention_scale(width, n_layers, n_heads, head_dim)?,
            windows: keys.windows(n_layers, context)?,
            attention_softcap: keys.softcap("attn_logit_softcapping")?,
            logit_softcap: keys.softcap("final_logit_softcapping")?,
            architecture,
        })
    }
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.traits.architecture)
    }

    fn size(&self, name: &str) -> Result<usize, ModelError> {
        checked(self.key(name), self.metadata.u64(&self.key(name))?)
    }

    fn opt_size(&self, name: &str) -> Result<Option<usize>, ModelError> {
        let key = self.key(name);
        self.metadata.opt_u64(&key)?.map(|found| checked(key, found)).transpose()
    }

    fn constant(&self, name: &str) -> Result<f32, ModelError> {
        let key = self.key(name);
        let found = self.metadata.f32(&key)?;
        constant(key, found)
    }

    fn opt_constant(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let key = self.key(name);
        self.metadata.opt_f32(&key)?.map(|found| constant(key, found)).transpose()
    }

    /// A cap; 0 means none.
    fn softcap(&self, name: &str) -> Result<Option<f32>, ModelError> {
        let is_none = self.metadata.opt_f32(&self.key(name))?.is_none_or(|cap| cap == 0.0);
        if is_none { Ok(None) } else { self.opt_constant(name) }
    }

    fn n_kv_heads(&self, n_heads: usize) -> Result<usize, ModelError> {
        let n_kv_heads = self.opt_size("attention.head_count_kv")?.unwrap_or(n_heads);
        if n_heads.is_multiple_of(n_kv_heads) {
            return Ok(n_kv_heads);
        }
        Err(ModelError::Size {
            key: self.key("attention.head_count_kv"),
            found: n_kv_heads as u64,
            expected: format!("it should divide the {n_heads} query heads"),
        })
    }

    fn head_dim(&self, width: usize, n_heads: usize) -> Result<usize, ModelError> {
        let head_dim = match self.opt_size("attention.key_length")? {
            Some(head_dim) => head_dim,
            None if width.is_multiple_of(n_heads) => width / n_heads,
            None => {
                return Err(ModelError::Size {
                    key: self.key("attention.head_count"),
                    found: n_heads as u64,
                    expected: format!("it should divide the width {width}"),
                });
            }
        };
        let others = [("attention.value_length", "values"), ("rope.dimension_count", "rotated values")];
        for (name, what) in others {
            if let Some(found) = self.opt_size(name)?
                && found != head_dim
                && (self.traits.rotates || name != "rope.dimension_count")
            {
                return Err(ModelError::Unsupported {
                    what: format!("a head with a different number of {what}"),
                    found: format!("{} = {found}, head width {head_dim}", self.key(name)),
                    help: "take another model of the family".into(),
                });
            }
        }
        Ok(head_dim)
    }

    /// 1 / sqrt(head width), but for the models of the Gemma family that state or are known for another.
    fn attention_scale(
        &self,
        width: usize,
        n_layers: usize,
        n_heads: usize,
        head_dim: usize,
    ) -> Result<f32, ModelError> {
        if let Some(scale) = self.opt_constant("attention.scale")? {
            return Ok(scale);
        }
        // Gemma 2 and 3 of 27 B, whose files do not say it; llama.cpp knows them by their layers too.
        let divisor = match (self.traits.architecture, n_layers) {
            ("gemma2", 46) | ("gemma3", 62) => width / n_heads,
            _ => head_dim,
        };
        Ok(1.0 / (divisor as f32).sqrt())
    }

    fn windows(&self, n_layers: usize, context: usize) -> Result<Vec<Option<usize>>, ModelError> {
        let key = self.key("attention.sliding_window");
        let window = match self.metadata.opt_u64(&key)? {
            None | Some(0) => return Ok(vec![None; n_layers]),
            Some(window) => checked(key.clone(), window)?,
        };
        let window = (window < context).then_some(window);
        let pattern_key = self.key("attention.sliding_window_pattern");
        let pattern = match (self.metadata.get(&pattern_key), self.traits.windows) {
            (Some(Value::Array(Array::Bool(has_window))), _) if has_window.len() == n_layers => {
                let window_if = |has_window: &bool| window.filter(|_| *has_window);
                return Ok(has_window.iter().map(window_if).collect());
            }
            (Some(Value::Array(_)), _) => {
                return Err(ModelError::Unsupported {
                    what: "a list of layers with a window that does not fit its layers".into(),
                    found: pattern_key,
                    help: "take another file of the model".into(),
                });
            }
            (Some(_), _) => Windows::AllButEvery(self.size("attention.sliding_window_pattern")?),
            (None, pattern) => pattern,
        };
        match pattern {
            Windows::All => Ok(vec![window; n_layers]),
            Windows::AllButEvery(n) => {
                Ok((0..n_layers).map(|layer| window.filter(|_| layer % n < n - 1)).collect())
            }
            Windows::Listed => Err(ModelError::Unsupported {
                what: "a window without a list of the layers that have it".into(),
                found: key,
                help: "take the plain model of the family".into(),
            }),
        }
    }

    fn scaling(&self, context: usize) -> Result<Scaling, ModelError> {
        let key = self.key("rope.scaling.type");
        let factor = match self.opt_constant("rope.scaling.factor")? {
            None => self.opt_constant("rope.scale_linear")?,
            factor => factor,
        };
        let original = self.opt_size("rope.scaling.original_context_length")?;
        let magnitude = self.opt_constant("rope.scaling.attn_factor")?;
        let kind = match self.metadata.opt_str(&key)? {
            None if factor.is_some_and(|factor| factor != 1.0) => "linear",
            None => "none",
            Some(kind) => kind,
        };
        let factor = factor.unwrap_or(1.0);
        match kind {
            "none" | "longrope" => Ok(match (original, self.traits.architecture) {
                (Some(original), "phi3") => Scaling::Long {
                    original_context: original,
                    magnitude: magnitude.unwrap_or_else(|| rotary::long_magnitude(context, original)),
                },
                _ => Scaling::None,
            }),
            "linear" => Ok(Scaling::Linear { factor }),
            "yarn" => Ok(Scaling::Yarn {
                factor,
                original_context: original.unwrap_or(context),
                magnitude: magnitude.unwrap_or(1.0),
                beta_fast: self.opt_constant("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
                beta_slow: self.opt_constant("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            }),
            found => Err(ModelError::Unsupported {
                what: "a rotary scaling of another kind".into(),
                found: format!("{key} = {found}"),
                help: "none, linear, yarn and longrope work; take the plain model of the family".into(),
            }),
        }
    }

    /// Refuses what would be computed wrong if it were overlooked.
    fn refuse_variants(&self) -> Result<(), ModelError> {
        let unsupported = |key: String, found: String| {
            Err(ModelError::Unsupported {
                what: "a variant of its architecture".into(),
                found: format!("{key} = {found}"),
                help: "take the plain model of the family".into(),
            })
        };
        if let Some(kind) = self.metadata.opt_str("general.type")?.filter(|kind| *kind != "model") {
            return unsupported("general.type".into(), kind.into());
        }
        let causal = self.key("attention.causal");
        if self.metadata.opt_bool(&causal)? == Some(false) {
            return unsupported(causal, "false".into());
        }
        for (name, neutral) in VARIANT_KEYS {
            let key = self.key(name);
            let Some(value) = self.metadata.get(&key) else { continue };
            if self.honours(name) {
                continue;
            }
            let found = value.as_integer().map(|found| found as f32).or_else(|| self.metadata.f32(&key).ok());
            if found.is_none() || found != neutral {
                return unsupported(key, found.map_or_else(|| value.type_name(), |found| found.to_string()));
            }
        }
        Ok(())
    }

    /// Whether the architecture's page computes with a key of [`VARIANT_KEYS`].
    fn honours(&self, name: &str) -> bool {
        match name {
            "rope.scaling.factor" | "rope.scale_linear" | "rope.scaling.attn_factor" => self.traits.rotates,
            "attn_logit_softcapping" | "final_logit_softcapping" => self.traits.softcaps,
            "attention.scale" => true,
            _ => false,
        }
    }
}

/// A constant that is finite and above zero, as far as f32 has its inverse too.
fn constant(key: String, found: f32) -> Result<f32, ModelError> {
    if found.is_normal() && found > 0.0 && found.recip().is_normal() {
        Ok(found)
    } else {
        Err(ModelError::Constant {
            key,
            found: found.to_string(),
            expected: "it should be a number above zero",
        })
    }
}

/// Keys that change what is computed, each with the value that changes nothing. A file that states another is of a
/// variant whose plan is not written yet; to run it as if the key were not there would answer garbage.
const VARIANT_KEYS: [(&str, Option<f32>); 16] = [
    ("rope.scaling.factor", Some(1.0)),
    ("rope.scale_linear", Some(1.0)),
    ("rope.scaling.attn_factor", Some(1.0)),
    ("rope.scaling.yarn_log_multiplier", None),
    ("rope.scaling.yarn_ext_factor", Some(1.0)),
    ("rope.scaling.yarn_attn_factor", Some(1.0)),
    ("logit_scale", Some(1.0)),
    ("embedding_scale", Some(1.0)),
    ("residual_scale", Some(1.0)),
    ("attention.scale", None),
    ("attention.clamp_kqv", Some(0.0)),
    ("attention.max_alibi_bias", Some(0.0)),
    ("attn_logit_softcapping", Some(0.0)),
    ("final_logit_softcapping", Some(0.0)),
    ("expert_count", Some(0.0)),
    ("nextn_predict_layers", Some(0.0)),
];

fn checked(key: String, found: u64) -> Result<usize, ModelError> {
    if (1..=MOST).contains(&found) {
        Ok(found as usize)
    } else {
        Err(ModelError::Size { key, found, expected: format!("it should lie between 1 and {MOST}") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_are_numbers_above_zero() {
        for found in [1e-6, 1e-5, 1.0, 10000.0, 1e6] {
            assert_eq!(constant("key".into(), found), Ok(found));
        }
        for found in [0.0, -1.0, f32::NAN, f32::INFINITY, 1e-45, f32::MAX] {
            let error = constant("llama.rope.freq_base".into(), found).unwrap_err();
            assert!(error.to_string().contains("llama.rope.freq_base"), "{error}");
        }
    }

    #[test]
    fn every_architecture_has_its_traits() {
        assert_eq!(TRAITS.map(|traits| traits.architecture), ARCHITECTURES);
    }
}
