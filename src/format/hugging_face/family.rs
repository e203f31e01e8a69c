//! The model types that are read, as data: what each is called in GGUF, what transformers assumes where a field is absent,
//! and what its tensors are called. The defaults are those of transformers 5 (`configuration_*.py`).

/// What there is to know about a `model_type`.
#[derive(Debug, PartialEq)]
pub(super) struct Family {
    /// In `config.json`.
    pub(super) model_type: &'static str,
    /// In GGUF.
    pub(super) architecture: &'static str,
    /// The field that names the activation, and the names of the one that the architecture has.
    pub(super) activation: (&'static str, &'static [&'static str]),
    pub(super) sizes: Sizes,
    /// Whether the embedding makes the logits too, where `tie_word_embeddings` is absent.
    pub(super) tied: bool,
    /// Whether GGUF's rows of q and k stand in pairs.
    pub(super) paired_rows: bool,
    /// Whether norms are stored less one.
    pub(super) norms_less_one: bool,
    /// Which layers see a window only.
    pub(super) windows: Windows,
    /// The parts of a layer: as they are called here and in GGUF.
    pub(super) parts: &'static [(&'static str, &'static str)],
}

/// What is assumed where a field is absent.
#[derive(Debug, PartialEq)]
pub(super) struct Sizes {
    pub(super) hidden: u64,
    pub(super) intermediate: u64,
    pub(super) layers: u64,
    pub(super) heads: u64,
    /// As many as there are query heads where absent.
    pub(super) kv_heads: Option<u64>,
    /// The width divided by the heads where absent.
    pub(super) head_dim: Option<u64>,
    pub(super) context: u64,
    pub(super) epsilon: f64,
}

/// Which layers attend to the last `sliding_window` positions only.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Windows {
    /// None.
    None,
    /// All, if there is a window; its default.
    All(Option<u64>),
    /// Those from `max_window_layers` on, if `use_sliding_window`; or as `layer_types` says.
    Late,
    /// All but every n-th, or as `layer_types` says.
    ButEvery(u64),
}

const SILU: (&str, &[&str]) = ("hidden_act", &["silu", "swish"]);
const GELU_TANH: (&str, &[&str]) = ("hidden_activation", &["gelu_pytorch_tanh"]);

const GATED: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

const GEMMA: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.q_proj", "attn_q"),
    ("self_attn.k_proj", "attn_k"),
    ("self_attn.v_proj", "attn_v"),
    ("self_attn.o_proj", "attn_output"),
    ("self_attn.q_norm", "attn_q_norm"),
    ("self_attn.k_norm", "attn_k_norm"),
    ("post_attention_layernorm", "post_attention_norm"),
    ("pre_feedforward_layernorm", "ffn_norm"),
    ("post_feedforward_layernorm", "post_ffw_norm"),
    ("mlp.gate_proj", "ffn_gate"),
    ("mlp.up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

const PHI3: &[(&str, &str)] = &[
    ("input_layernorm", "attn_norm"),
    ("self_attn.qkv_proj", "attn_qkv"),
    ("self_attn.o_proj", "attn_output"),
    ("post_attention_layernorm", "ffn_norm"),
    ("mlp.gate_up_proj", "ffn_up"),
    ("mlp.down_proj", "ffn_down"),
];

const GPT2: &[(&str, &str)] = &[
    ("ln_1", "attn_norm"),
    ("attn.c_attn", "attn_qkv"),
    ("attn.c_proj", "attn_output"),
    ("ln_2", "ffn_norm"),
    ("mlp.c_fc", "ffn_up"),
    ("mlp.c_proj", "ffn_down"),
];

/// What stands outside of the layers, in every family.
pub(super) const OUTER: &[(&str, &str)] = &[
    ("embed_tokens", "token_embd"),
    ("norm", "output_norm"),
    ("lm_head", "output"),
    ("wte", "token_embd"),
    ("wpe", "position_embd"),
    ("ln_f", "output_norm"),
];

const QWEN_SIZES: Sizes = Sizes {
    hidden: 4096,
    intermediate: 22016,
    layers: 32,
    heads: 32,
    kv_heads: Some(32),
    head_dim: None,
    context: 32768,
    epsilon: 1e-6,
};

const GEMMA_SIZES: Sizes = Sizes {
    hidden: 2304,
    intermediate: 9216,
    layers: 26,
    heads: 8,
    kv_heads: Some(4),
    head_dim: Some(256),
    context: 8192,
    epsilon: 1e-6,
};

/// All that are read. Gemma 3's type with pictures, `gemma3`, is read for its text.
pub(super) const FAMILIES: [Family; 8] = [
    Family {
        model_type: "gpt2",
        architecture: "gpt2",
        activation: ("activation_function", &["gelu_new", "gelu_pytorch_tanh"]),
        sizes: Sizes {
            hidden: 768,
            // Four times the width, whatever that is.
            intermediate: 0,
            layers: 12,
            heads: 12,
            kv_heads: None,
            head_dim: None,
            context: 1024,
            epsilon: 1e-5,
        },
        tied: true,
        paired_rows: false,
        norms_less_one: false,
        windows: Windows::None,
        parts: GPT2,
    },
    Family {
        model_type: "llama",
        architecture: "llama",
        activation: SILU,
        sizes: Sizes {
            hidden: 4096,
            intermediate: 11008,
            layers: 32,
            heads: 32,
            kv_heads: None,
            head_dim: None,
            context: 2048,
            epsilon: 1e-6,
        },
        tied: false,
        paired_rows: true,
        norms_less_one: false,
        windows: Windows::None,
        parts: GATED,
    },
    Family {
        model_type: "mistral",
        architecture: "llama",
        activation: SILU,
        sizes: Sizes {
            hidden: 4096,
            intermediate: 14336,
            layers: 32,
            heads: 32,
            kv_heads: Some(8),
            head_dim: None,
            context: 131_072,
            epsilon: 1e-6,
        },
        tied: false,
        paired_rows: true,
        norms_less_one: false,
        windows: Windows::All(Some(4096)),
        parts: GATED,
    },
    Family {
        model_type: "qwen2",
        architecture: "qwen2",
        activation: SILU,
        sizes: QWEN_SIZES,
        tied: false,
        paired_rows: false,
        norms_less_one: false,
        windows: Windows::Late,
        parts: GATED,
    },
    Family {
        model_type: "qwen3",
        architecture: "qwen3",
        activation: SILU,
        sizes: Sizes { head_dim: Some(128), ..QWEN_SIZES },
        tied: false,
        paired_rows: false,
        norms_less_one: false,
        windows: Windows::Late,
        parts: GATED,
    },
    Family {
        model_type: "gemma2",
        architecture: "gemma2",
        activation: GELU_TANH,
        sizes: GEMMA_SIZES,
        tied: true,
        paired_rows: false,
        norms_less_one: true,
        windows: Windows::ButEvery(2),
        parts: GEMMA,
    },
    Family {
        model_type: "gemma3_text",
        architecture: "gemma3",
        activation: GELU_TANH,
        sizes: Sizes { context: 131_072, ..GEMMA_SIZES },
        tied: true,
        paired_rows: false,
        norms_less_one: true,
        windows: Windows::ButEvery(6),
        parts: GEMMA,
    },
    Family {
        model_type: "phi3",
        architecture: "phi3",
        activation: SILU,
        sizes: Sizes {
            hidden: 3072,
            intermediate: 8192,
            layers: 32,
            heads: 32,
            kv_heads: None,
            head_dim: None,
            context: 4096,
            epsilon: 1e-5,
        },
        tied: false,
        paired_rows: false,
        norms_less_one: false,
        windows: Windows::All(None),
        parts: PHI3,
    },
];
