//! Rotary positions as a `config.json` states them: the old fields `rope_theta` and `rope_scaling`, and the newer object
//! `rope_parameters`, which may hold one object a kind of layer. The arithmetic is transformers' (`modeling_rope_utils.py`).

use serde_json::{Map, Value as Json};

use super::HuggingFaceError;
use super::fields::Fields;
use crate::format::value::Value;

/// The base where none is stated.
const DEFAULT_BASE: f64 = 10000.0;
/// Gemma 3's, of the layers that see everything.
const GLOBAL_BASE: f64 = 1_000_000.0;
const FULL: &str = "full_attention";
const SLIDING: &str = "sliding_attention";

/// What a model says of its rotary positions.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Rope {
    pub(super) base: f64,
    /// Of the layers with a window, where that differs.
    pub(super) sliding_base: Option<f64>,
    pub(super) scaling: Scaling,
}

/// How the frequencies are changed for contexts longer than the model was first trained for.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Scaling {
    None,
    Linear {
        factor: f64,
    },
    Llama3 {
        factor: f64,
        low: f64,
        high: f64,
        original: f64,
    },
    Yarn {
        factor: f64,
        original: u64,
        beta_fast: Option<f64>,
        beta_slow: Option<f64>,
        /// What sine and cosine are multiplied by, divided by the formula's 0.1 · ln(factor) + 1; absent where that is 1.
        beyond_formula: Option<f64>,
    },
    LongRope {
        short: Vec<f32>,
        long: Vec<f32>,
        original: u64,
        attention_factor: f64,
    },
}

/// Sizes that the scaling depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) head_dim: u64,
    pub(super) context: u64,
}

impl Rope {
    /// Of a model of that architecture, as GGUF calls it.
    pub(super) fn read(
        fields: Fields<'_>,
        architecture: &str,
        lengths: Lengths,
    ) -> Result<Self, HuggingFaceError> {
        let parameters = fields.object("rope_parameters")?;
        let by_layer = parameters.filter(|map| map.contains_key(FULL) || map.contains_key(SLIDING));
        let empty = Map::new();
        let of_layer = |kind: &str| -> Result<&Map<String, Json>, HuggingFaceError> {
            let nested = by_layer.map(|map| Fields::of(map, "rope_parameters.").object(kind)).transpose()?;
            Ok(nested.flatten().unwrap_or(&empty))
        };
        let (map, path) = if by_layer.is_some() {
            (of_layer(FULL)?, "rope_parameters.full_attention.")
        } else if let Some(scaling) = fields.object("rope_scaling")? {
            (scaling, "rope_scaling.")
        } else {
            (parameters.unwrap_or(&empty), "rope_parameters.")
        };
        let own = Fields::of(map, path);
        let is_gemma3 = architecture == "gemma3";
        let default_base = if is_gemma3 { GLOBAL_BASE } else { DEFAULT_BASE };
        let base = own.f64("rope_theta")?.or(fields.f64("rope_theta")?).unwrap_or(default_base);
        let sliding = Fields::of(of_layer(SLIDING)?, "rope_parameters.sliding_attention.");
        if let Some(kind) = kind(sliding)?.filter(|kind| *kind != "default") {
            return Err(unsupported(sliding, kind, "default"));
        }
        let sliding_base = if is_gemma3 {
            let stated = sliding.f64("rope_theta")?.or(fields.f64("rope_local_base_freq")?);
            Some(stated.unwrap_or(DEFAULT_BASE))
        } else {
            None
        };
        for part in [own, fields] {
            if let Some(found) = part.f64("partial_rotary_factor")?.filter(|factor| *factor != 1.0) {
                return Err(HuggingFaceError::Unsupported {
                    field: "partial_rotary_factor".into(),
                    found: found.to_string(),
                    works: "1 works, so take a model that rotates its whole heads".into(),
                });
            }
        }
        let scaling = Scaling::read(own, fields, architecture, lengths)?;
        Ok(Self { base, sliding_base, scaling })
    }
}

/// The kind of scaling, under its newer name or its older one.
fn kind(fields: Fields<'_>) -> Result<Option<&str>, HuggingFaceError> {
    Ok(fields.str("rope_type")?.or(fields.str("type")?))
}

fn unsupported(fields: Fields<'_>, found: &str, works: &str) -> HuggingFaceError {
    let HuggingFaceError::Field { field, .. } = fields.wrong("rope_type", "", "") else {
        unreachable!("an error about a field is one")
    };
    HuggingFaceError::Unsupported { field, found: format!("{found:?}"), works: format!("{works} work here") }
}

impl Scaling {
    fn read(
        own: Fields<'_>,
        top: Fields<'_>,
        architecture: &str,
        lengths: Lengths,
    ) -> Result<Self, HuggingFaceError> {
        let kind = match kind(own)? {
            Some(kind) => kind,
            // A factor without a kind asks for something, and does not say for what.
            None if own.f64("factor")?.is_some_and(|factor| factor != 1.0) => {
                return Err(own.wrong("rope_type", "absent", "the kind of scaling, beside its factor"));
            }
            None => "default",
        };
        match (kind, architecture) {
            ("default", _) => Ok(Self::None),
            // Phi-3's first files call it otherwise.
            ("longrope" | "su" | "yarn", "phi3") => Self::read_longrope(own, top, lengths),
            ("linear", _) if architecture != "phi3" => Ok(Self::Linear { factor: own.positive("factor")? }),
            ("llama3", "llama") => Ok(Self::Llama3 {
                factor: own.positive("factor")?,
                low: own.positive("low_freq_factor")?,
                high: own.positive("high_freq_factor")?,
                original: original(own, top)?.unwrap_or(lengths.context) as f64,
            }),
            ("yarn", _) => Self::read_yarn(own, top, lengths),
            (other, "phi3") => Err(unsupported(own, other, "default and longrope")),
            (other, "llama") => Err(unsupported(own, other, "default, linear, llama3 and yarn")),
            (other, _) => Err(unsupported(own, other, "default, linear and yarn")),
        }
    }

    fn read_yarn(own: Fields<'_>, top: Fields<'_>, lengths: Lengths) -> Result<Self, HuggingFaceError> {
        if own.bool("truncate")? == Some(false) {
            return Err(HuggingFaceError::Unsupported {
                field: "rope_scaling.truncate".into(),
                found: "false".into(),
                works: "true works".into(),
            });
        }
        let original = original(own, top)?.unwrap_or(lengths.context);
        let factor = match own.f64("factor")? {
            None if original > 0 => lengths.context as f64 / original as f64,
            _ => own.positive("factor")?,
        };
        let formula = |scale: f64| if factor <= 1.0 { 1.0 } else { 0.1 * scale * factor.ln() + 1.0 };
        let stated = own.f64("attention_factor")?;
        let non_zero = |field| Ok::<_, HuggingFaceError>(own.f64(field)?.filter(|value| *value != 0.0));
        let attention_factor = match (stated, non_zero("mscale")?, non_zero("mscale_all_dim")?) {
            (Some(stated), ..) => Some(stated),
            (None, Some(scale), Some(all)) => Some(formula(scale) / formula(all)),
            _ => None,
        };
        Ok(Self::Yarn {
            factor,
            original,
            beta_fast: non_zero("beta_fast")?,
            beta_slow: non_zero("beta_slow")?,
            beyond_formula: attention_factor.map(|stated| stated / formula(1.0)),
        })
    }

    fn read_longrope(own: Fields<'_>, top: Fields<'_>, lengths: Lengths) -> Result<Self, HuggingFaceError> {
        let factors = |field: &str| {
            let numbers = own.numbers(field)?.unwrap_or_default();
            if numbers.len() as u64 == lengths.head_dim / 2 && numbers.iter().all(|factor| *factor > 0.0) {
                return Ok(numbers.into_iter().map(|factor| factor as f32).collect());
            }
            let found = format!("a list of {}", numbers.len());
            Err(own.wrong(field, &found, &format!("a list of {} numbers above 0", lengths.head_dim / 2)))
        };
        let original = phi3_original(top)?;
        let factor = lengths.context as f64 / original as f64;
        let formula = if factor <= 1.0 { 1.0 } else { (1.0 + factor.ln() / (original as f64).ln()).sqrt() };
        Ok(Self::LongRope {
            short: factors("short_factor")?,
            long: factors("long_factor")?,
            original,
            attention_factor: own.f64("attention_factor")?.unwrap_or(formula),
        })
    }

    /// The keys, as llama.cpp's converter writes them.
    pub(super) fn keys(&self) -> Vec<(&'static str, Value)> {
        let float = |value: f64| Value::F32(value as f32);
        let mut keys = Vec::new();
        match self {
            // Said by the tensor of factors.
            Self::None | Self::Llama3 { .. } => {}
            Self::Linear { factor } => {
                keys.push(("rope.scaling.type", Value::String("linear".into())));
                keys.push(("rope.scaling.factor", float(*factor)));
            }
            Self::Yarn { factor, original, beta_fast, beta_slow, beyond_formula } => {
                keys.push(("rope.scaling.type", Value::String("yarn".into())));
                keys.push(("rope.scaling.factor", float(*factor)));
                keys.push(("rope.scaling.original_context_length", Value::U32(*original as u32)));
                let optional = [
                    ("rope.scaling.attn_factor", beyond_formula),
                    ("rope.scaling.yarn_beta_fast", beta_fast),
                    ("rope.scaling.yarn_beta_slow", beta_slow),
                ];
                keys.extend(
                    optional.into_iter().filter_map(|(key, value)| value.map(|value| (key, float(value)))),
                );
            }
            Self::LongRope { attention_factor, .. } => {
                keys.push(("rope.scaling.attn_factor", float(*attention_factor)));
            }
        }
        keys
    }

    /// The tensors that say what no key says.
    pub(super) fn tensors(&self, base: f64, head_dim: u64) -> Vec<(&'static str, Vec<f32>)> {
        match self {
            Self::Llama3 { factor, low, high, original } => {
                let of_pair = |pair: u64| {
                    let frequency = base.powf(-((2 * pair) as f64) / head_dim as f64);
                    let turns = original * frequency / std::f64::consts::TAU;
                    let divisor = if turns > *high {
                        1.0
                    } else if turns < *low {
                        *factor
                    } else {
                        let smooth = (turns - low) / (high - low);
                        1.0 / ((1.0 - smooth) / factor + smooth)
                    };
                    divisor as f32
                };
                vec![("rope_freqs.weight", (0..head_dim / 2).map(of_pair).collect())]
            }
            Self::LongRope { short, long, .. } => {
                vec![("rope_factors_long.weight", long.clone()), ("rope_factors_short.weight", short.clone())]
            }
            Self::None | Self::Linear { .. } | Self::Yarn { .. } => Vec::new(),
        }
    }
}

/// The context that the model was first trained for.
fn original(own: Fields<'_>, top: Fields<'_>) -> Result<Option<u64>, HuggingFaceError> {
    const FIELD: &str = "original_max_position_embeddings";
    let found = top.u64(FIELD)?.or(own.u64(FIELD)?);
    match found {
        Some(found) if !(1..=u64::from(u32::MAX)).contains(&found) => {
            Err(own.wrong(FIELD, &found.to_string(), "a number of positions"))
        }
        found => Ok(found),
    }
}

/// Phi-3's, which has a default.
pub(super) fn phi3_original(top: Fields<'_>) -> Result<u64, HuggingFaceError> {
    const DEFAULT: u64 = 4096;
    Ok(original(top, top)?.unwrap_or(DEFAULT))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(json: &str, architecture: &str) -> Result<Rope, HuggingFaceError> {
        let map: Map<String, Json> = serde_json::from_str(json).unwrap();
        Rope::read(Fields::new(&map), architecture, Lengths { head_dim: 4, context: 8192 })
    }

    #[test]
    fn old_and_new_forms_say_the_same() {
        for (old, new, architecture) in [
            (
                r#"{"rope_theta": 5e5}"#,
                r#"{"rope_parameters": {"rope_theta": 5e5, "rope_type": "default"}}"#,
                "llama",
            ),
            (
                r#"{"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 4}}"#,
                r#"{"rope_parameters": {"rope_theta": 5e5, "rope_type": "linear", "factor": 4.0}}"#,
                "llama",
            ),
            (
                r#"{"rope_theta": 1e4, "rope_scaling": {"type": "yarn", "factor": 4, "original_max_position_embeddings": 2048}}"#,
                r#"{"rope_parameters": {"rope_theta": 1e4, "rope_type": "yarn", "factor": 4, "original_max_position_embeddings": 2048}}"#,
                "qwen2",
            ),
            (
                r#"{"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": {"rope_type": "linear", "factor": 8}}"#,
                r#"{"rope_parameters": {"full_attention": {"rope_theta": 1e6, "rope_type": "linear", "factor": 8},
                    "sliding_attention": {"rope_theta": 1e4, "rope_type": "default"}}}"#,
                "gemma3",
            ),
            ("{}", r#"{"rope_theta": 1e6, "rope_local_base_freq": 1e4, "rope_scaling": null}"#, "gemma3"),
            (
                r#"{"rope_scaling": {"type": "su", "short_factor": [1, 1.5], "long_factor": [2, 3]}}"#,
                r#"{"rope_parameters": {"rope_type": "longrope", "short_factor": [1, 1.5], "long_factor": [2, 3], "partial_rotary_factor": 1.0},
                    "original_max_position_embeddings": 4096}"#,
                "phi3",
            ),
        ] {
            assert_eq!(read(old, architecture), read(new, architecture), "{old}");
            assert!(read(old, architecture).is_ok(), "{old}");
        }
    }

    #[test]
    fn what_would_be_computed_wrong_is_refused_by_name() {
        for (json, architecture, part) in [
            (
                r#"{"rope_scaling": {"type": "dynamic", "factor": 2}}"#,
                "llama",
                "rope_scaling.rope_type is \"dynamic\"",
            ),
            (r#"{"rope_scaling": {"rope_type": "llama3", "factor": 2}}"#, "qwen2", "linear and yarn work"),
            (r#"{"rope_scaling": {"type": "linear"}}"#, "llama", "rope_scaling.factor is missing"),
            (r#"{"rope_scaling": {"type": "linear", "factor": 0}}"#, "llama", "factor is 0"),
            (r#"{"rope_scaling": {"type": "yarn", "factor": 2, "truncate": false}}"#, "llama", "truncate"),
            (r#"{"partial_rotary_factor": 0.75}"#, "phi3", "partial_rotary_factor is 0.75"),
            (
                r#"{"rope_parameters": {"partial_rotary_factor": 0.5}}"#,
                "llama",
                "partial_rotary_factor is 0.5",
            ),
            (
                r#"{"rope_scaling": {"type": "longrope", "short_factor": [1], "long_factor": [2, 3]}}"#,
                "phi3",
                "a list of 1",
            ),
            (r#"{"rope_scaling": {"type": "longrope"}}"#, "llama", "llama3 and yarn work"),
            (
                r#"{"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}"#,
                "gemma3",
                "sliding_attention.rope_type",
            ),
            (r#"{"rope_theta": "large"}"#, "llama", "rope_theta is \"large\""),
        ] {
            let error = read(json, architecture).unwrap_err().to_string();
            assert!(error.starts_with("config.json") && error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn factors_are_those_of_the_formulas() {
        let yarn = |extra: &str| {
            let json = format!(r#"{{"rope_scaling": {{"type": "yarn", "factor": 4{extra}}}}}"#);
            match read(&json, "llama").unwrap().scaling {
                Scaling::Yarn { beyond_formula, .. } => beyond_formula,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(yarn(""), None);
        let formula = 0.1 * 4f64.ln() + 1.0;
        assert_eq!(yarn(r#", "attention_factor": 1.5"#), Some(1.5 / formula));
        let ratio = yarn(r#", "mscale": 0.5, "mscale_all_dim": 1"#).unwrap();
        assert!((ratio - (0.05 * 4f64.ln() + 1.0) / formula / formula).abs() < 1e-12);

        // Of 4 pairs: one that turns often, one in between, and two that hardly turn.
        let scaling = Scaling::Llama3 { factor: 8.0, low: 1.0, high: 4.0, original: 64.0 };
        let [(name, factors)] = &scaling.tensors(10000.0, 8)[..] else { panic!() };
        assert_eq!((*name, factors[0], factors[2], factors[3]), ("rope_freqs.weight", 1.0, 8.0, 8.0));
        // 64 / 2π · 0.1 turns = 1.0186: smooth = 0.0062.
        let smooth = (64.0 / std::f64::consts::TAU * 0.1 - 1.0) / 3.0;
        assert!((f64::from(factors[1]) - 1.0 / ((1.0 - smooth) / 8.0 + smooth)).abs() < 1e-5);
    }
}
