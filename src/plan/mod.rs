//! The operations of one step as plain data, and the one trait a device implements.
//!
//! `model` records a [`Plan`], a device compiles it once and replays it for every [`batch::Batch`]. Nothing above this
//! module knows wgpu, and nothing below it knows a model's name.

use crate::format::block::BlockType;
use batch::Batch;
use sample::Sampled;

pub mod batch;
pub mod logprobs;
pub mod philox;
pub mod sample;

/// The smallest cache worth having, in tokens.
const MIN_KV_TOKENS: usize = 64;

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
    /// Whole numbers from −127 to 127, and a scale for each head of a token.
    Q8,
}

impl KvType {
    /// Bytes of a head's keys, or values, of one token.
    pub fn head_bytes(self, head_dim: usize) -> usize {
        match self {
            Self::F16 => 2 * head_dim,
            Self::F32 => 4 * head_dim,
            Self::Q8 => head_dim + 4,
        }
    }
}

/// Arithmetic of activations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Precision {
    /// f32 activations and sums.
    Exact,
    /// Activations in ten bits with a scale for each 32, integer dot products; matrices of floats still multiply f32 activations.
    Fast,
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
    /// Width of the MLP.
    pub mlp_width: usize,
    /// Words of the vocabulary.
    pub vocab_size: usize,
}

impl Sizes {
    /// Bytes of keys and values that a block of the cache holds in one layer.
    pub fn kv_block_bytes(&self, kv: KvType) -> usize {
        2 * batch::BLOCK_TOKENS * self.n_kv_heads * kv.head_bytes(self.head_dim)
    }

    /// Blocks of a cache for so many tokens, where a layer's keys and values must fit one binding.
    pub fn kv_blocks(&self, kv: KvType, n_tokens: usize, max_binding_bytes: u64) -> usize {
        let most = (max_binding_bytes / self.kv_block_bytes(kv) as u64).max(1);
        n_tokens.div_ceil(batch::BLOCK_TOKENS).clamp(1, usize::try_from(most).unwrap_or(usize::MAX))
    }
}

/// Sizes of a cache to try in turn, in blocks: as asked, and half of the one before while memory does not suffice.
pub fn kv_sizes(asked: usize) -> impl Iterator<Item = usize> {
    let least = MIN_KV_TOKENS / batch::BLOCK_TOKENS;
    std::iter::successors(Some(asked), move |n_blocks| Some(n_blocks / 2).filter(|half| *half >= least))
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

/// A small f32 vector (a norm's weight, a bias): tensors of a file, one after the other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vector {
    /// Tensors of the file, in order.
    pub parts: Vec<VectorPart>,
}

/// One tensor of a [`Vector`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VectorPart {
    /// The tensor's name in the file.
    pub tensor: String,
    /// Its values.
    pub len: usize,
}

impl Vector {
    /// Values of all parts.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.len).sum()
    }

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How a norm measures a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// `x / sqrt(mean(x²) + epsilon)` (Zhang and Sennrich 2019).
    RootMeanSquare,
    /// `(x − mean(x)) / sqrt(variance(x) + epsilon)` (Ba, Kiros and Hinton 2016).
    Layer,
}

/// A norm: its measure of the row, then `· weight + bias`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Norm {
    /// How the row is measured.
    pub kind: NormKind,
    /// (width)
    pub weight: VectorId,
    /// (width), where there is one.
    pub bias: Option<VectorId>,
    /// Added under the root.
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

/// Angles of a rotation (Su et al. 2021): position · frequency, for each pair of a head.
#[derive(Debug, Clone, PartialEq)]
pub struct Rotary {
    /// In radians a position, before the divisors: (head_dim / 2)
    pub frequencies: Vec<f32>,
    /// Tensor whose values divide the frequencies (Llama 3, longrope): (head_dim / 2)
    pub divisors: Option<String>,
    /// Sines and cosines are multiplied by this (yarn, longrope); 1 elsewhere.
    pub magnitude: f32,
}

/// A rotation of queries and keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rotation {
    /// Index in [`Plan::rotaries`].
    pub rotary: usize,
    /// Which values rotate together.
    pub pairs: RotaryPairs,
}

/// What all layers of one kind share: where their keys and values lie, and how far back they look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cache {
    /// A position sees so many positions, itself the last; all before it where absent.
    pub window: Option<usize>,
}

/// A function of one value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Nonlinearity {
    /// x / (1 + exp(−x)) (Elfwing, Uchibe and Doya 2017).
    Silu,
    /// GELU with its tanh approximation (Hendrycks and Gimpel 2016), as GPT-2 and Gemma have it.
    GeluTanh,
}

/// What is projected back onto the residual stream; each is a region of the device's activations, (rows, width). The
/// stream itself is none of them: no operation reads and writes one buffer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// What attention gathered: (rows, n_heads · head_dim)
    Attended,
    /// What the first half of the MLP made: (rows, mlp_width)
    Mlp,
}

/// One operation of a step, over all its rows.
#[derive(Debug, Clone, PartialEq)]
pub enum Op {
    /// hidden = embedding of each row's token · scale.
    Embed {
        /// (vocab_size, width)
        table: MatrixId,
        /// sqrt(width) for Gemma, else 1.
        scale: f32,
    },
    /// hidden += the learned embedding of each row's position.
    AddPosition {
        /// (positions, width)
        table: MatrixId,
    },
    /// norm → q, k, v projections → norms of each head of q and k → rotate q and k → keep q, write k and v to the cache.
    ///
    /// One operation, not three, since a device that computes a pair of outputs together can do it in one dispatch.
    ProjectQkv {
        /// Its keys and values go here.
        layer: usize,
        /// Prologue.
        norm: Norm,
        /// Rows of q, then k, then v; several matrices where their block types differ, one dispatch each.
        weights: Vec<MatrixId>,
        /// Added to q, k and v: (q rows + k rows + v rows)
        bias: Option<VectorId>,
        /// Of each head of q and of k, with weights of (head_dim): (Henry et al. 2020).
        head_norms: Option<[Norm; 2]>,
        /// None where positions are learned.
        rotation: Option<Rotation>,
    },
    /// attended = softmax(q · kᵀ · scale, causal, within the cache's window) · v, read from the paged cache.
    Attend {
        /// Whose cache.
        layer: usize,
        /// Usually 1 / sqrt(head_dim).
        scale: f32,
        /// Scores become cap · tanh(score / cap).
        softcap: Option<f32>,
    },
    /// hidden += post_norm(weights · input + bias).
    ProjectAdd {
        /// (width, input's width)
        weights: MatrixId,
        /// (width)
        bias: Option<VectorId>,
        /// What is projected back.
        input: Activation,
        /// Of what is added, before it is added (Gemma).
        post_norm: Option<Norm>,
    },
    /// mlp = nonlinearity(gate · norm(hidden) + gate bias) · (up · norm(hidden) + up bias).
    GatedMlp {
        /// Prologue.
        norm: Norm,
        /// Rows of gate, then up: (2 · mlp_width, width); two matrices where their block types differ.
        weights: Vec<MatrixId>,
        /// Of gate, then up: (2 · mlp_width)
        bias: Option<VectorId>,
        /// Of the gate.
        nonlinearity: Nonlinearity,
    },
    /// mlp = nonlinearity(weights · norm(hidden) + bias).
    Mlp {
        /// Prologue.
        norm: Norm,
        /// (mlp_width, width)
        weights: MatrixId,
        /// (mlp_width)
        bias: Option<VectorId>,
        /// Of each value.
        nonlinearity: Nonlinearity,
    },
    /// logits = weights · norm(hidden), for the rows that want them.
    Logits {
        /// Prologue.
        norm: Norm,
        /// (vocab_size, width)
        weights: MatrixId,
        /// Logits become cap · tanh(logit / cap).
        softcap: Option<f32>,
    },
}

/// All operations of one step of a model, at one precision and KV type.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Sizes of the model.
    pub sizes: Sizes,
    /// Tables of angles.
    pub rotaries: Vec<Rotary>,
    /// Number type of the cache.
    pub kv: KvType,
    /// Arithmetic of activations.
    pub precision: Precision,
    /// Kinds of layers by how far they look back; each has block tables of its own.
    pub caches: Vec<Cache>,
    /// The cache of each layer, an index into `caches`: (layers)
    pub layer_caches: Vec<usize>,
    /// Weight matrices.
    pub matrices: Vec<Matrix>,
    /// Small vectors.
    pub vectors: Vec<Vector>,
    /// What to do, in order.
    pub ops: Vec<Op>,
}

impl Plan {
    /// Most blocks that a sequence has use for at once in a cache, where steps have at most so many prefill rows: a whole
    /// chunk of each step in flight and what its rows see. `None` without a window.
    pub fn window_blocks(&self, cache: usize, prefill_rows: usize) -> Option<usize> {
        let window = self.caches[cache].window?;
        let ahead = batch::STEPS_IN_FLIGHT * prefill_rows.max(1);
        Some((window + ahead).div_ceil(batch::BLOCK_TOKENS) + 1)
    }

    /// Blocks of each cache, where one without a window has `n_blocks`: no more than so many sequences can use.
    pub fn cache_blocks(&self, n_blocks: usize, n_sequences: usize, prefill_rows: usize) -> Vec<usize> {
        let blocks = |cache| match self.window_blocks(cache, prefill_rows) {
            None => n_blocks,
            Some(most) => n_blocks.min(most.saturating_mul(n_sequences)),
        };
        (0..self.caches.len()).map(blocks).collect()
    }

    /// Bytes of keys and values of all layers, where the caches have so many blocks.
    pub fn kv_bytes(&self, cache_blocks: &[usize]) -> u64 {
        let block_bytes = self.sizes.kv_block_bytes(self.kv) as u64;
        self.layer_caches.iter().map(|cache| cache_blocks[*cache] as u64 * block_bytes).sum()
    }
}

/// A step that was submitted and not yet read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ticket(pub u64);

/// What a step brought.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepOutput {
    /// Of the rows whose logits the host reads, in their order: (host rows, vocab_size), flattened.
    pub logits: Vec<f32>,
    /// Of the rows that the device sampled, in their order: (sampled rows)
    pub sampled: Vec<Sampled>,
}

impl StepOutput {
    /// Whether something that was computed is no number.
    pub fn has_nan(&self) -> bool {
        self.logits.iter().any(|logit| logit.is_nan()) || self.sampled.iter().any(|sampled| sampled.has_nan)
    }
}

/// What a device that computes plans does. A value is one loaded model on one device.
pub trait Device {
    /// Why a step failed.
    type Error: std::error::Error;

    /// Whether it chooses tokens by itself ([`batch::Wants::Token`]), and takes them as tokens of the next step.
    fn samples(&self) -> bool;

    /// Starts a step and returns at once. At most [`batch::STEPS_IN_FLIGHT`] are submitted and not yet read.
    fn submit(&mut self, batch: &Batch) -> Ticket;

    /// Waits for a step. What is returned owns all it waits for, so that the next step can be submitted meanwhile. Tickets
    /// are read in their order.
    fn read(
        &mut self,
        ticket: Ticket,
    ) -> impl Future<Output = Result<StepOutput, Self::Error>> + 'static + use<Self>;
}

#[cfg(test)]
mod tests {
    use super::kv_sizes;

    #[test]
    fn a_cache_that_does_not_fit_is_halved_until_it_is_not_worth_having() {
        let sizes = |asked| kv_sizes(asked).collect::<Vec<_>>();
        assert_eq!(sizes(128), [128, 64, 32, 16, 8, 4, 2]);
        assert_eq!(sizes(5), [5, 2]);
        assert_eq!(sizes(1), [1], "what was asked for is tried in any case");
    }
}
