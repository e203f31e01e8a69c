//! The sizes and constants of a model as its file states them, checked.

use super::ARCHITECTURES;
use crate::format::checkpoint::Checkpoint;
use crate::format::metadata::MetadataError;

/// Why a file's model cannot be run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// A key of the metadata is missing or of another type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// An architecture that is not known.
    #[error("the model's architecture is {found:?}, which pagelm does not run yet; these work: {known}")]
    Architecture {
        /// As the file names it.
        found: String,
        /// What works.
        known: String,
    },
    /// A size that makes no sense.
    #[error(
        "the model states {key} = {found}, but {expected}; the file is damaged or of a kind pagelm does not know"
    )]
    Size {
        /// The key of the metadata.
        key: String,
        /// Its value.
        found: u64,
        /// What it should be.
        expected: String,
    },
    /// A constant that no computation survives.
    #[error("the model states {key} = {found}, but {expected}; the file is damaged")]
    Constant {
        /// The key of the metadata.
        key: String,
        /// Its value.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A tensor that the plan does not use: to leave it out would compute something else.
    #[error(
        "the file has a tensor {name} that pagelm does not use for architecture {architecture}; it belongs to a variant that would be computed wrong without it, so take the plain model of the family"
    )]
    UnusedTensor {
        /// Its name.
        name: String,
        /// For which architecture.
        architecture: String,
    },
    /// A tensor is missing.
    #[error(
        "the file has no tensor {name}, which a model of architecture {architecture} needs; it is incomplete or of another variant"
    )]
    MissingTensor {
        /// Its name.
        name: String,
        /// For which architecture.
        architecture: String,
    },
    /// A tensor has another shape.
    #[error(
        "tensor {name} has shape {found:?}, but the model's sizes ask for {expected:?}; the file is damaged or of another variant"
    )]
    Shape {
        /// Its name.
        name: String,
        /// Innermost first.
        found: Vec<u64>,
        /// Innermost first.
        expected: Vec<u64>,
    },
    /// A kind of tensor that does not run yet.
    #[error("{what} ({found}), which pagelm does not run yet; {help}")]
    Unsupported {
        /// What.
        what: String,
        /// As the file states it.
        found: String,
        /// What would help.
        help: String,
    },
}

/// Sizes and constants of a transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// As the file names it.
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
    /// Epsilon of the norms.
    pub norm_epsilon: f32,
}

/// No model of today has more of anything; a header that says so is damaged.
const MOST: u64 = 1 << 24;

impl Config {
    /// Reads and checks the sizes.
    pub fn new(checkpoint: &Checkpoint) -> Result<Self, ModelError> {
        let metadata = &checkpoint.metadata;
        let architecture = metadata.str("general.architecture")?.to_owned();
        if !ARCHITECTURES.contains(&architecture.as_str()) {
            return Err(ModelError::Architecture { found: architecture, known: ARCHITECTURES.join(", ") });
        }
        refuse_variants(checkpoint, &architecture)?;
        let key = |name: &str| format!("{architecture}.{name}");
        let size =
            |name: &str| -> Result<usize, ModelError> { checked(key(name), metadata.u64(&key(name))?) };
        let opt_size = |name: &str| -> Result<Option<usize>, ModelError> {
            metadata.opt_u64(&key(name))?.map(|found| checked(key(name), found)).transpose()
        };
        let width = size("embedding_length")?;
        let n_heads = size("attention.head_count")?;
        let n_kv_heads = opt_size("attention.head_count_kv")?.unwrap_or(n_heads);
        if !n_heads.is_multiple_of(n_kv_heads) {
            let expected = format!("it should divide the {n_heads} query heads");
            return Err(ModelError::Size {
                key: key("attention.head_count_kv"),
                found: n_kv_heads as u64,
                expected,
            });
        }
        let head_dim = match opt_size("attention.key_length")? {
            Some(head_dim) => head_dim,
            None if width.is_multiple_of(n_heads) => width / n_heads,
            None => {
                let expected = format!("it should divide the width {width}");
                return Err(ModelError::Size {
                    key: key("attention.head_count"),
                    found: n_heads as u64,
                    expected,
                });
            }
        };
        for (name, what) in [("attention.value_length", "values"), ("rope.dimension_count", "rotated values")]
        {
            if let Some(found) = opt_size(name)?
                && found != head_dim
            {
                let found = format!("{} = {found}, head width {head_dim}", key(name));
                let what = format!("a head with a different number of {what}");
                return Err(ModelError::Unsupported {
                    what,
                    found,
                    help: "take another model of the family".into(),
                });
            }
        }
        let vocab_size = metadata.strings("tokenizer.ggml.tokens")?.len();
        Ok(Self {
            n_layers: size("block_count")?,
            width,
            n_heads,
            n_kv_heads,
            head_dim,
            mlp_width: size("feed_forward_length")?,
            vocab_size,
            context: size("context_length")?,
            rotary_base: constant(
                key("rope.freq_base"),
                metadata.opt_f32(&key("rope.freq_base"))?.unwrap_or(10000.0),
            )?,
            norm_epsilon: {
                let key = key("attention.layer_norm_rms_epsilon");
                let found = metadata.f32(&key)?;
                constant(key, found)?
            },
            architecture,
        })
    }

    /// base^(−2i / head_dim), in f32 as the models were trained with: (head_dim / 2)
    pub fn rotary_frequencies(&self) -> Vec<f32> {
        let exponent = |i: usize| (2 * i) as f32 / self.head_dim as f32;
        (0..self.head_dim / 2).map(|i| 1.0 / self.rotary_base.powf(exponent(i))).collect()
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
const VARIANT_KEYS: [(&str, Option<f32>); 14] = [
    ("rope.scaling.factor", Some(1.0)),
    ("rope.scale_linear", Some(1.0)),
    ("rope.scaling.attn_factor", Some(1.0)),
    ("rope.scaling.yarn_log_multiplier", None),
    ("logit_scale", Some(1.0)),
    ("embedding_scale", Some(1.0)),
    ("residual_scale", Some(1.0)),
    ("attention.scale", None),
    ("attention.clamp_kqv", Some(0.0)),
    ("attention.max_alibi_bias", Some(0.0)),
    ("attention.sliding_window", Some(0.0)),
    ("attn_logit_softcapping", Some(0.0)),
    ("final_logit_softcapping", Some(0.0)),
    ("expert_count", Some(0.0)),
];

/// Refuses what would be computed wrong if it were overlooked.
fn refuse_variants(checkpoint: &Checkpoint, architecture: &str) -> Result<(), ModelError> {
    let metadata = &checkpoint.metadata;
    let unsupported = |key: String, found: String| ModelError::Unsupported {
        what: "a variant of its architecture".into(),
        found: format!("{key} = {found}"),
        help: "take the plain model of the family".into(),
    };
    let scaling_key = format!("{architecture}.rope.scaling.type");
    if let Some(scaling) = metadata.opt_str(&scaling_key)?
        && scaling != "none"
    {
        return Err(unsupported(scaling_key.clone(), scaling.into()));
    }
    for (name, neutral) in VARIANT_KEYS {
        let key = format!("{architecture}.{name}");
        let Some(value) = metadata.get(&key) else { continue };
        let found = value.as_integer().map(|found| found as f32).or_else(|| metadata.f32(&key).ok());
        if found.is_none() || found != neutral {
            let found = found.map_or_else(|| value.type_name(), |found| found.to_string());
            return Err(unsupported(key, found));
        }
    }
    Ok(())
}

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
}
