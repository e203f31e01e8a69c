//! `config.json` as GGUF's keys. Fields that would change what is computed are read or refused, never overlooked.

use serde_json::{Map, Value as Json};

use super::family::{FAMILIES, Family, Windows};
use super::fields::{Fields, shown};
use super::rope::{Lengths, Rope, Scaling, phi3_original};
use super::{CONFIG_FILE, HuggingFaceError};
use crate::format::value::{Array, Value};

/// No model has more layers, heads or values in a head.
const MOST: u64 = 1 << 16;
/// Gemma 3 with pictures: its text part lies in an object of its own.
const WITH_PICTURES: &str = "gemma3";
const TEXT_PART: &str = "text_config";

/// The layers by which readers of GGUF know Gemma 2 and 3 of 27 B, whose scale they assume where no key says it.
const LAYERS_OF_27B: [u64; 2] = [46, 62];

/// Fields that no family has, each with what it may be: another value belongs to a variant that computes otherwise.
const NEUTRAL: [(&str, f64); 9] = [
    ("num_local_experts", 0.0),
    ("num_experts", 0.0),
    ("attention_multiplier", 1.0),
    ("embedding_multiplier", 1.0),
    ("residual_multiplier", 1.0),
    ("logits_scaling", 1.0),
    ("logit_scale", 1.0),
    ("num_nextn_predict_layers", 0.0),
    ("attn_scale", 1.0),
];

/// The same for fields that are on or off.
const SWITCHES: [(&str, bool); 5] = [
    ("use_bidirectional_attention", false),
    ("scale_attn_by_inverse_layer_idx", false),
    ("scale_attn_weights", true),
    ("add_cross_attention", false),
    ("is_encoder_decoder", false),
];

/// A `config.json` whose model type is known.
#[derive(Debug, Clone)]
pub struct ModelConfig {
    /// The whole file.
    root: Map<String, Json>,
    pub(super) family: &'static Family,
}

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    pub(super) layers: u64,
    hidden: u64,
    pub(super) heads: u64,
    pub(super) kv_heads: u64,
    head_dim: u64,
    /// Whether the heads' width is said, not just the quotient.
    states_head_dim: bool,
}

/// Metadata, and the tensors that follow from it.
pub(super) type Keys = (Vec<(String, Value)>, Vec<(&'static str, Vec<f32>)>);

impl ModelConfig {
    /// Reads the text of the file.
    pub fn parse(text: &[u8]) -> Result<Self, HuggingFaceError> {
        let damaged = |problem: String| HuggingFaceError::Json { file: CONFIG_FILE, problem };
        let root: Map<String, Json> =
            serde_json::from_slice(text).map_err(|error| damaged(error.to_string()))?;
        let found = Fields::new(&root).str("model_type")?;
        let wanted = if found == Some(WITH_PICTURES) { "gemma3_text" } else { found.unwrap_or_default() };
        let family = FAMILIES.iter().find(|family| family.model_type == wanted);
        let Some(family) = family else {
            let known: Vec<&str> = FAMILIES.iter().map(|family| family.model_type).collect();
            let found = found.map_or_else(|| "not stated".into(), |found| format!("{found:?}"));
            return Err(HuggingFaceError::ModelType { found, known: known.join(", ") });
        };
        let config = Self { root, family };
        config.refuse_variants()?;
        Ok(config)
    }

    /// The model's type, as transformers names it.
    pub fn model_type(&self) -> &'static str {
        self.family.model_type
    }

    /// The fields of the text model.
    fn fields(&self) -> Fields<'_> {
        match self.root.get(TEXT_PART) {
            Some(Json::Object(text)) => Fields::of(text, "text_config."),
            _ => Fields::new(&self.root),
        }
    }

    /// Whether the folder holds more than the text model.
    pub(super) fn has_pictures(&self) -> bool {
        self.root.contains_key(TEXT_PART)
    }

    /// Whether the embedding makes the logits too.
    pub(super) fn is_tied(&self) -> Result<bool, HuggingFaceError> {
        let stated = Fields::new(&self.root).bool("tie_word_embeddings")?;
        let stated = stated.or(self.fields().bool("tie_word_embeddings")?);
        Ok(stated.unwrap_or(self.family.tied))
    }

    /// Whether a field promises biases.
    pub(super) fn promises(&self, field: &str) -> Result<bool, HuggingFaceError> {
        Ok(self.fields().bool(field)?.unwrap_or(false))
    }

    fn refuse_variants(&self) -> Result<(), HuggingFaceError> {
        let (field, allowed) = self.family.activation;
        let fields = self.fields();
        let unsupported = |field: &str, found: String, works: String| {
            Err(HuggingFaceError::Unsupported { field: field.into(), found, works })
        };
        if let Some(found) = fields.str(field)?
            && !allowed.contains(&found)
        {
            let works = format!("{} works for {}", allowed.join(" or "), self.family.model_type);
            return unsupported(field, format!("{found:?}"), works);
        }
        for (field, neutral) in NEUTRAL {
            if let Some(found) = fields.f64(field)?.filter(|found| *found != neutral) {
                return unsupported(field, found.to_string(), "take the plain model of the family".into());
            }
        }
        for (field, neutral) in SWITCHES {
            if let Some(found) = fields.bool(field)?.filter(|found| *found != neutral) {
                return unsupported(field, found.to_string(), format!("{neutral} works"));
            }
        }
        match Fields::new(&self.root).some("quantization_config") {
            None => Ok(()),
            Some(found) => unsupported(
                "quantization_config",
                shown(found),
                "take the model with weights in F32, F16 or BF16, or as GGUF".into(),
            ),
        }
    }

    /// A size, within what models have.
    fn size(&self, names: &[&str], default: u64, most: u64) -> Result<u64, HuggingFaceError> {
        let fields = self.fields();
        for name in names {
            if let Some(found) = fields.u64(name)? {
                let wanted = || fields.wrong(name, &found.to_string(), &format!("a number from 1 to {most}"));
                return if (1..=most).contains(&found) { Ok(found) } else { Err(wanted()) };
            }
        }
        Ok(default)
    }

    pub(super) fn sizes(&self) -> Result<Sizes, HuggingFaceError> {
        let defaults = &self.family.sizes;
        let hidden = self.size(&["hidden_size", "n_embd"], defaults.hidden, 1 << 24)?;
        let heads = self.size(&["num_attention_heads", "n_head"], defaults.heads, MOST)?;
        let stated = match self.fields().some("head_dim") {
            Some(_) => Some(self.size(&["head_dim"], 0, MOST)?),
            None => defaults.head_dim,
        };
        Ok(Sizes {
            layers: self.size(&["num_hidden_layers", "n_layer"], defaults.layers, MOST)?,
            hidden,
            heads,
            kv_heads: self.size(&["num_key_value_heads"], defaults.kv_heads.unwrap_or(heads), MOST)?,
            head_dim: stated.unwrap_or(hidden / heads),
            states_head_dim: stated.is_some(),
        })
    }

    /// Words of the vocabulary, where that is stated.
    pub(super) fn vocabulary(&self) -> Result<Option<u64>, HuggingFaceError> {
        self.fields().u64("vocab_size")
    }

    /// Everything but the tokenizer, under GGUF's keys; `name` is what the folder is called.
    pub(super) fn keys(&self, name: Option<&str>) -> Result<Keys, HuggingFaceError> {
        let (fields, defaults) = (self.fields(), &self.family.sizes);
        let architecture = self.family.architecture;
        let is_gpt2 = architecture == "gpt2";
        let sizes = self.sizes()?;
        let context = self.size(&["max_position_embeddings", "n_positions"], defaults.context, 1 << 31)?;
        let default_mlp = if is_gpt2 { 4 * sizes.hidden } else { defaults.intermediate };
        let mlp = self.size(&["intermediate_size", "n_inner"], default_mlp, 1 << 24)?;
        let epsilon = fields
            .f64(if is_gpt2 { "layer_norm_epsilon" } else { "rms_norm_eps" })?
            .unwrap_or(defaults.epsilon);

        let mut keys = Vec::new();
        let mut put = |key: &str, value: Value| keys.push((key.to_owned(), value));
        put("general.architecture", Value::String(architecture.into()));
        put("general.type", Value::String("model".into()));
        if let Some(name) =
            name.or(Fields::new(&self.root).str("_name_or_path")?).filter(|name| !name.is_empty())
        {
            put("general.name", Value::String(name.into()));
        }
        let mut put = |key: &str, value: Value| keys.push((format!("{architecture}.{key}"), value));
        let number = |value: u64| Value::U32(value as u32);
        let float = |value: f64| Value::F32(value as f32);
        put("block_count", number(sizes.layers));
        put("context_length", number(context));
        put("embedding_length", number(sizes.hidden));
        put("feed_forward_length", number(mlp));
        put("attention.head_count", number(sizes.heads));
        if let Some(vocabulary) = self.vocabulary()?.filter(|size| *size <= u64::from(u32::MAX)) {
            put("vocab_size", number(vocabulary));
        }
        if is_gpt2 {
            put("attention.layer_norm_epsilon", float(epsilon));
            return Ok((keys, Vec::new()));
        }
        put("attention.head_count_kv", number(sizes.kv_heads));
        put("attention.layer_norm_rms_epsilon", float(epsilon));
        if sizes.states_head_dim {
            put("attention.key_length", number(sizes.head_dim));
            put("attention.value_length", number(sizes.head_dim));
        }
        if matches!(architecture, "llama" | "phi3") {
            put("rope.dimension_count", number(sizes.head_dim));
        }
        let rope = Rope::read(fields, architecture, Lengths { head_dim: sizes.head_dim, context })?;
        put("rope.freq_base", float(rope.base));
        if let Some(base) = rope.sliding_base {
            put("rope.freq_base_swa", float(base));
        }
        if architecture == "phi3" {
            let original = phi3_original(fields)?;
            put("rope.scaling.original_context_length", number(original));
            // Without it the two lengths would say that there is one.
            if rope.scaling == Scaling::None && context > original {
                put("rope.scaling.attn_factor", float(1.0));
            }
        }
        rope.scaling.keys().into_iter().for_each(|(key, value)| put(key, value));
        self.windows(sizes.layers)?.into_iter().for_each(|(key, value)| put(key, value));
        self.gemma_keys(sizes)?.into_iter().for_each(|(key, value)| put(key, value));
        Ok((keys, rope.scaling.tensors(rope.base, sizes.head_dim)))
    }

    /// The scale of attention and the soft caps of logits, which only Gemmas have.
    fn gemma_keys(&self, sizes: Sizes) -> Result<Vec<(&'static str, Value)>, HuggingFaceError> {
        let fields = self.fields();
        let mut keys = Vec::new();
        if !self.family.norms_less_one {
            return Ok(keys);
        }
        const DEFAULT_SCALAR: f64 = 256.0;
        let scalar = match fields.some("query_pre_attn_scalar") {
            None => DEFAULT_SCALAR,
            Some(_) => fields.positive("query_pre_attn_scalar")?,
        };
        if scalar != sizes.head_dim as f64 || LAYERS_OF_27B.contains(&sizes.layers) {
            keys.push(("attention.scale", Value::F32(scalar.sqrt().recip() as f32)));
        }
        let is_gemma2 = self.family.architecture == "gemma2";
        for (field, key, default) in [
            ("attn_logit_softcapping", "attn_logit_softcapping", 50.0),
            ("final_logit_softcapping", "final_logit_softcapping", 30.0),
        ] {
            let cap = match fields.get(field) {
                None => is_gemma2.then_some(default),
                Some(Json::Null) => None,
                Some(_) => Some(fields.positive(field)?),
            };
            keys.extend(cap.map(|cap| (key, Value::F32(cap as f32))));
        }
        Ok(keys)
    }

    /// The window, and which layers have it.
    fn windows(&self, n_layers: u64) -> Result<Vec<(&'static str, Value)>, HuggingFaceError> {
        let fields = self.fields();
        let default = match self.family.windows {
            Windows::None => return Ok(Vec::new()),
            Windows::All(default) => default,
            Windows::Late if fields.bool("use_sliding_window")? != Some(true) => None,
            Windows::Late | Windows::ButEvery(_) => Some(4096),
        };
        let is_off = self.family.windows == Windows::Late && default.is_none();
        let window = match fields.get("sliding_window") {
            _ if is_off => None,
            None => default,
            Some(_) => fields.u64("sliding_window")?,
        };
        let layers = self.windowed_layers(n_layers)?;
        let window = window.filter(|window| *window > 0 && layers.contains(&true));
        let mut keys = Vec::new();
        match window {
            Some(window) if window <= u64::from(u32::MAX) => {
                keys.push(("attention.sliding_window", Value::U32(window as u32)));
            }
            Some(window) => {
                let found = window.to_string();
                return Err(fields.wrong("sliding_window", &found, "a number of positions"));
            }
            // What tells Phi-4 from Phi-3.
            None if self.family.architecture == "phi3" => {
                return Ok(vec![("attention.sliding_window", Value::U32(0))]);
            }
            None => return Ok(keys),
        }
        let has_period = |n: u64| {
            let in_period = |i: u64| n == 0 || i % n < n - 1;
            layers.iter().zip(0..).all(|(windowed, i)| *windowed == in_period(i))
        };
        let known = match self.family.windows {
            Windows::None | Windows::All(_) => has_period(0),
            Windows::ButEvery(n) => has_period(n),
            Windows::Late => false,
        };
        if !known {
            let value = match (2..=n_layers).find(|n| has_period(*n)) {
                Some(n) => Value::U32(n as u32),
                None => Value::Array(Array::Bool(layers)),
            };
            keys.push(("attention.sliding_window_pattern", value));
        }
        Ok(keys)
    }

    /// Whether each layer sees a window only.
    fn windowed_layers(&self, n_layers: u64) -> Result<Vec<bool>, HuggingFaceError> {
        let fields = self.fields();
        let by_rule = |rule: &dyn Fn(u64) -> bool| Ok((0..n_layers).map(rule).collect());
        let stated = match self.family.windows {
            Windows::None | Windows::All(_) => return by_rule(&|_| true),
            Windows::Late | Windows::ButEvery(_) => fields.strings("layer_types")?,
        };
        let Some(types) = stated else {
            return match self.family.windows {
                Windows::Late => {
                    let first = fields.u64("max_window_layers")?.unwrap_or(28);
                    by_rule(&|i| i >= first)
                }
                Windows::ButEvery(default) => {
                    let period =
                        fields.u64("sliding_window_pattern")?.or(fields.u64("_sliding_window_pattern")?);
                    let period = period.unwrap_or(default).max(1);
                    by_rule(&|i| (i + 1) % period != 0)
                }
                Windows::None | Windows::All(_) => by_rule(&|_| true),
            };
        };
        if types.len() as u64 != n_layers {
            let found = format!("a list of {}", types.len());
            return Err(fields.wrong("layer_types", &found, &format!("one of the {n_layers} layers")));
        }
        let windowed = |kind: &str| match kind {
            "sliding_attention" => Ok(true),
            "full_attention" => Ok(false),
            other => Err(HuggingFaceError::Unsupported {
                field: "layer_types".into(),
                found: format!("{other:?}"),
                works: "full_attention and sliding_attention work".into(),
            }),
        };
        types.into_iter().map(windowed).collect()
    }
}
