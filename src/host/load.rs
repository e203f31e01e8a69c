//! A model from where it rests to where it runs: header, tokenizer, plan, then the weights in pieces.
//!
//! Invariant: never more than one piece of the weights is in host memory.

use std::rc::Rc;

use super::pace::Pace;
use crate::engine::{Engine, EngineConfig};
use crate::format::block::BlockType;
use crate::format::checkpoint::{Checkpoint, Origin};
use crate::gpu::layout::Capacity;
use crate::gpu::model::GpuModel;
use crate::gpu::{Gpu, GpuError};
use crate::model::config::{Config, ModelError};
use crate::plan::batch::BLOCK_TOKENS;
use crate::plan::{self, KvType, MatrixId, Plan, VectorId};
use crate::protocol::{self, DeviceChoice, DeviceKind, LoadOptions, ModelInfo, Precision};
use crate::store::{OpenError, Source, StoreError, read_header};
use crate::text::{TextError, Tokenizer, Vocabulary};

/// The context where none is asked for and the model has a longer one.
pub const DEFAULT_CONTEXT: usize = 4096;

/// Weights read at once, in bytes.
const PIECE_BYTES: usize = 2 << 20;

/// Weights written before the host waits for the device, in bytes: staging memory is bounded by it.
const FLUSH_BYTES: usize = 32 << 20;

/// Bytes that one step's logits may take on their way back.
const LOGITS_BYTES: usize = 8 << 20;

/// The longest model name that is shown.
const MAX_NAME_CHARS: usize = 120;

/// Why a model was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A read of the file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the file says of its model.
    #[error("{name}: {error}")]
    Model {
        /// The file.
        name: String,
        /// What is wrong.
        error: ModelError,
    },
    /// What the file says of its tokenizer.
    #[error("{name}: {error}")]
    Text {
        /// The file.
        name: String,
        /// What is wrong.
        error: TextError,
    },
    /// The device.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// An option that is not there yet.
    #[error("{option} is not available in this build yet; use {instead}")]
    NotYet {
        /// What was asked.
        option: &'static str,
        /// What works.
        instead: &'static str,
    },
    /// A model without room.
    #[error(
        "the model states a context of {most} tokens, which holds no prompt and answer; the file is damaged"
    )]
    NoContext {
        /// The model's own limit.
        most: usize,
    },
    /// A context out of range.
    #[error(
        "a context of {asked} tokens was asked for, but it must lie between 2 and {most}, what the model was made for"
    )]
    Context {
        /// Tokens asked for.
        asked: u32,
        /// The model's own limit.
        most: usize,
    },
}

/// What a file's header tells, checked; nothing is on a device yet.
pub struct Described {
    checkpoint: Checkpoint,
    config: Config,
    plan: Plan,
    tokenizer: Tokenizer,
    name: String,
    context: usize,
    kv_tokens: usize,
}

/// A model that answers.
pub struct Loaded {
    /// Its tokenizer and template.
    pub tokenizer: Rc<Tokenizer>,
    /// Its weights and cache.
    pub model: GpuModel,
    /// Its sequences.
    pub engine: Engine,
    /// How much fits a step.
    pub pace: Pace,
    /// What people are told of it.
    pub info: ModelInfo,
}

/// Reads and checks a file's header.
pub async fn describe(source: &impl Source, options: &LoadOptions) -> Result<Described, LoadError> {
    check_options(options)?;
    let mut checkpoint = Checkpoint::from_gguf(read_header(source).await?);
    let name = source.name().to_owned();
    let model_error = |error| LoadError::Model { name: name.clone(), error };
    let config = Config::new(&checkpoint).map_err(model_error)?;
    let kv = match options.kv {
        protocol::KvType::F16 => KvType::F16,
        protocol::KvType::F32 => KvType::F32,
    };
    let plan = crate::model::plan(&checkpoint, &config, kv).map_err(model_error)?;
    let vocabulary = Vocabulary::from_gguf(&mut checkpoint.metadata);
    let tokenizer =
        vocabulary.and_then(Tokenizer::new).map_err(|error| LoadError::Text { name: name.clone(), error })?;
    // The pool holds one full context, shared by all sequences.
    let context = checked_context(options.context, config.context)?;
    Ok(Described { checkpoint, config, plan, tokenizer, name, context, kv_tokens: context })
}

/// A context that holds a prompt and an answer, and that the model was made for.
fn checked_context(asked: Option<u32>, most: usize) -> Result<usize, LoadError> {
    if most < 2 {
        return Err(LoadError::NoContext { most });
    }
    let asked = asked.unwrap_or(most.min(DEFAULT_CONTEXT) as u32);
    if (2..=most).contains(&(asked as usize)) {
        Ok(asked as usize)
    } else {
        Err(LoadError::Context { asked, most })
    }
}

fn check_options(options: &LoadOptions) -> Result<(), LoadError> {
    if options.device == DeviceChoice::Cpu {
        return Err(LoadError::NotYet { option: "the device cpu", instead: "gpu or auto" });
    }
    if options.precision == Precision::Fast {
        return Err(LoadError::NotYet { option: "the precision fast", instead: "exact" });
    }
    Ok(())
}

impl Described {
    /// What the files say; tokens and merges are with the tokenizer now.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.checkpoint
    }

    /// The model's sizes.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The model's tokenizer and template.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model's own name, or its file's, fit to be shown: what controls a terminal is left out, and a novel is cut.
    pub fn model_name(&self) -> String {
        let name = self.checkpoint.metadata.opt_str("general.name").ok().flatten().unwrap_or(&self.name);
        name.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
    }

    /// Parameters in all.
    pub fn n_parameters(&self) -> u64 {
        self.checkpoint.tensors().iter().map(|tensor| tensor.n_values()).sum()
    }

    /// Longest conversation in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Sequences that run at once; the others wait. Each has a row of logits in every step.
    pub fn max_sequences(&self) -> usize {
        (LOGITS_BYTES / (self.config.vocab_size * 4) / 8 * 8).clamp(8, 64)
    }

    /// Asks for room for so many sequences of `context` tokens each, instead of one; no more than run at once.
    pub fn with_room(mut self, context: u32, n_sequences: usize) -> Result<Self, LoadError> {
        self.context = checked_context(Some(context), self.config.context)?;
        self.kv_tokens = self.context.next_multiple_of(BLOCK_TOKENS) * n_sequences.min(self.max_sequences());
        Ok(self)
    }

    /// Tokens and bytes of the KV pool on a device with such a largest binding, if its memory suffices: as asked, in
    /// whole blocks, and a layer's keys and values in one binding.
    pub fn kv_pool(&self, max_binding_bytes: u64) -> (u64, u64) {
        let sizes = self.plan.sizes;
        let n_blocks = sizes.kv_blocks(self.plan.kv, self.kv_tokens, max_binding_bytes);
        let block_bytes = sizes.kv_block_bytes(self.plan.kv) * sizes.n_layers;
        ((n_blocks * BLOCK_TOKENS) as u64, n_blocks as u64 * block_bytes as u64)
    }

    /// Makes room on the device and brings the weights there; `progress` hears of bytes done and in all.
    pub async fn load(
        self,
        source: &impl Source,
        gpu: Rc<Gpu>,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Loaded, LoadError> {
        let is_software = gpu.summary().is_software;
        let vocab_size = self.config.vocab_size;
        let logit_rows = self.max_sequences();
        let capacity = Capacity {
            decode_rows: logit_rows,
            prefill_rows: Pace::most_rows(is_software),
            logit_rows,
            context: self.context,
        };
        let model = GpuModel::new(Rc::clone(&gpu), self.plan.clone(), capacity, self.kv_tokens).await?;
        write_weights(&self.checkpoint, &self.plan, &model, source, &mut progress).await?;
        // Less where memory did not suffice.
        let context = self.context.min(model.kv_tokens());
        let kv_note = (context < self.context)
            .then(|| format!("the GPU's memory holds {context} tokens of the {} asked for", self.context));
        let engine = Engine::new(EngineConfig {
            n_blocks: model.kv_tokens() / BLOCK_TOKENS,
            context,
            vocab_size,
            max_sequences: logit_rows,
            max_logit_rows: logit_rows,
        });
        let info = ModelInfo {
            name: self.model_name(),
            architecture: self.config.architecture.clone(),
            n_parameters: self.n_parameters(),
            file_bytes: source.len_bytes(),
            weight_bytes: model.weight_bytes(),
            context: context as u32,
            kv_tokens: model.kv_tokens() as u32,
            kv_bytes: model.kv_bytes(),
            kv_note,
            device_name: gpu.summary().name.clone(),
            device_kind: if is_software { DeviceKind::Software } else { DeviceKind::Gpu },
            n_layers: self.config.n_layers as u32,
            vocab_size: vocab_size as u32,
        };
        Ok(Loaded { tokenizer: Rc::new(self.tokenizer), model, engine, pace: Pace::new(is_software), info })
    }
}

async fn write_weights(
    checkpoint: &Checkpoint,
    plan: &Plan,
    model: &GpuModel,
    source: &impl Source,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), LoadError> {
    let mut done = 0;
    let mut unflushed = 0;
    for (i, vector) in plan.vectors.iter().enumerate() {
        let tensor = checkpoint.tensor(&vector.tensor).expect("the recorder checked it");
        let crate::format::checkpoint::Origin::Stored(stored) = &tensor.origin else { unreachable!() };
        let offset_bytes = stored.offset_bytes;
        let bytes = source.read(offset_bytes, tensor.n_bytes() as usize).await?;
        let values: Vec<f32> =
            bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        model.write_vector(VectorId(i), &values);
        done += tensor.n_bytes();
    }
    let total = done + plan.matrices.iter().map(matrix_bytes).sum::<u64>();
    progress(done, total);
    for (i, matrix) in plan.matrices.iter().enumerate() {
        let mut first_row = 0;
        for part in &matrix.parts {
            let tensor = checkpoint.tensor(&part.tensor).expect("the recorder checked it");
            let crate::format::checkpoint::Origin::Stored(stored) = &tensor.origin else { unreachable!() };
        let offset_bytes = stored.offset_bytes;
            let row_bytes = tensor.row_bytes as usize;
            let piece_rows = (PIECE_BYTES / row_bytes).max(1);
            for row in (0..part.n_rows).step_by(piece_rows) {
                let n_bytes = piece_rows.min(part.n_rows - row) * row_bytes;
                let piece = source.read(offset_bytes + (row * row_bytes) as u64, n_bytes).await?;
                model.write_rows(MatrixId(i), first_row + row, &piece);
                done += n_bytes as u64;
                unflushed += n_bytes;
                if unflushed >= FLUSH_BYTES {
                    model.flush().await?;
                    unflushed = 0;
                    progress(done, total);
                }
            }
            first_row += part.n_rows;
        }
        progress(done, total);
    }
    model.flush().await?;
    Ok(())
}

/// Bytes of a matrix in the file.
fn matrix_bytes(matrix: &plan::Matrix) -> u64 {
    let block: BlockType = matrix.block_type;
    block.row_bytes(matrix.n_columns as u64).unwrap_or(0) * matrix.n_rows() as u64
}
