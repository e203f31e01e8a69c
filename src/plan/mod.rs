//! The operations of one step as plain data, and the one trait a device implements.
//!
//! `model` records a [`Plan`], a device compiles it once and replays it for every [`batch::Batch`]. Nothing above this
//! module knows wgpu, and nothing below it knows a model's name.

use crate::format::block::BlockType;
use batch::Batch;

pub mod batch;

/// Index of a matrix in [`Plan::matrices`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MatrixId(pub usize);

/// Index of a vector in [`Plan::vectors`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VectorId(pub usize);

/// Number type of the KV cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum KvType {
    /// Half precision, packed in pairs.
    F16,
    /// Single precision.
    F32,
}

impl KvType {
    /// Bytes of one value.
    pub fn bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::F32 => 4,
        }
    }
}

/// Sizes of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Layers.
    pub n_layers: usize,
    /// Width of the residual stream.
    pub width: usize,
    /// Query heads.
    pub n_heads: usize,
    /// Key and value heads; each serves `n_heads / n_kv_heads` query heads.
    pub n_kv_heads: usize,
    /// Width of a head.
    pub head_dim: usize,
    /// Width of the gated MLP.
    pub mlp_width: usize,
    /// Words of the vocabulary.
    pub vocab_size: usize,
}

impl Sizes {
    /// Bytes of keys and values that a block of the cache holds in one layer.
    pub fn kv_block_bytes(&self, kv: KvType) -> usize {
        2 * batch::BLOCK_TOKENS * self.n_kv_heads * self.head_dim * kv.bytes()
    }

    /// Blocks of a cache for so many tokens, where a layer's keys and values must fit one binding.
    pub fn kv_blocks(&self, kv: KvType, n_tokens: usize, max_binding_bytes: u64) -> usize {
        let most = (max_binding_bytes / self.kv_block_bytes(kv) as u64).max(1);
        n_tokens.div_ceil(batch::BLOCK_TOKENS).clamp(1, usize::try_from(most).unwrap_or(usize::MAX))
    }
}

/// A weight matrix on the device: tensors of a file with the same columns and block type, stacked by rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matrix {
    /// Tensors of the file, top to bottom.
    pub parts: Vec<MatrixPart>,
    /// Columns: the width of what it multiplies.
    pub n_columns: usize,
    /// How its values are stored.
    pub block_type: BlockType,
}

/// One tensor of a [`Matrix`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MatrixPart {
    /// The tensor's name in the file.
    pub tensor: String,
    /// Its rows.
    pub n_rows: usize,
}

impl Matrix {
    /// Rows of all parts.
    pub fn n_rows(&self) -> usize {
        self.parts.iter().map(|part| part.n_rows).sum()
    }
}

/// A small f32 vector (a norm's weight).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// The tensor's name in the file.
    pub tensor: String,
    /// Its values.
    pub len: usize,
}

/// Root-mean-square norm: `x / sqrt(mean(x²) + epsilon) · weight` (Zhang and Sennrich 2019).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RmsNorm {
    /// (width)
    pub weight: VectorId,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// Which two values of a head a rotation turns together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RotaryPairs {
    /// (2i, 2i + 1): GGUF files of architecture `llama`, whose Q and K rows the converter permuted.
    Adjacent,
    /// (i, i + head_dim / 2): everything else.
    SplitHalf,
}

/// What is projected back onto the residual stream; each is a region of the device's activations, (rows, width). The
/// stream itself is none of them: no operation reads and writes one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// What attention gathered: (rows, n_heads · head_dim)
    Attended,
    /// What the gated MLP made: (rows, mlp_width)
    Gated,
}

/// One operation of a step, over all its rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// hidden = embedding of each row's token.
    Embed {
        /// (vocab_size, width)
        table: MatrixId,
    },
    /// norm → q, k, v projections → rotate q and k → keep q, write k and v to the cache.
    ///
    /// One operation, not three, since a device that computes a pair of outputs together can do it in one dispatch.
    ProjectQkv {
        /// Its keys and values go here.
        layer: usize,
        /// Prologue.
        norm: RmsNorm,
        /// Rows of q, then k, then v; several matrices where their block types differ, one dispatch each.
        weights: Vec<MatrixId>,
        /// Which values rotate together.
        pairs: RotaryPairs,
    },
    /// attended = softmax(q · kᵀ · scale, causal) · v, read from the paged cache.
    Attend {
        /// Whose cache.
        layer: usize,
        /// Usually 1 / sqrt(head_dim).
        scale: f32,
    },
    /// hidden += weights · input.
    ProjectAdd {
        /// (width, input's width)
        weights: MatrixId,
        /// What is projected back.
        input: Activation,
    },
    /// gated = silu(gate · norm(hidden)) · (up · norm(hidden)).
    GatedMlp {
        /// Prologue.
        norm: RmsNorm,
        /// Rows of gate, then up: (2 · mlp_width, width)
        weights: MatrixId,
    },
    /// logits = weights · norm(hidden), for the rows that want them.
    Logits {
        /// Prologue.
        norm: RmsNorm,
        /// (vocab_size, width)
        weights: MatrixId,
    },
}

/// All operations of one step of a model, at one precision and KV type.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Sizes of the model.
    pub sizes: Sizes,
    /// Inverse frequencies of the rotation: (head_dim / 2)
    pub rotary_frequencies: Vec<f32>,
    /// Number type of the cache.
    pub kv: KvType,
    /// Weight matrices.
    pub matrices: Vec<Matrix>,
    /// Small vectors.
    pub vectors: Vec<Vector>,
    /// What to do, in order.
    pub ops: Vec<Op>,
}

/// A step that was submitted and not yet read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// What a device that computes plans does. A value is one loaded model on one device.
#[allow(async_fn_in_trait, reason = "the engine lives on one thread, so its futures need no Send")]
pub trait Device {
    /// Why a step failed.
    type Error: std::error::Error;

    /// Starts a step and returns at once.
    fn submit(&mut self, batch: &Batch) -> Ticket;

    /// Waits for a step and returns its logits: (logit rows, vocab_size), flattened. Tickets are read in their order.
    async fn read(&mut self, ticket: Ticket) -> Result<Vec<f32>, Self::Error>;
}
