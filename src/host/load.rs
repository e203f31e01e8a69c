//! A model from where it rests to where it runs: header, tokenizer, plan, then the weights in pieces.
//!
//! Invariant: never more than one piece of the weights is in host memory.

use std::rc::Rc;

use super::machine::{Chosen, Computer, Machine};
use super::open::open;
use super::pace::Pace;
use super::request::MAX_OUTPUTS;
use super::weights::write_weights;
use crate::cpu::model::CpuModel;
use crate::cpu::{self, CpuError};
use crate::engine::blocks::{CacheConfig, Window};
use crate::engine::{Engine, EngineConfig};
use crate::format::block::BlockType;
use crate::format::checkpoint::{Checkpoint, Repack};
use crate::format::hugging_face::HuggingFaceError;
use crate::format::split::SplitError;
use crate::gpu::layout::{Capacity, Layout};
use crate::gpu::model::{GpuModel, readback_bytes};
use crate::gpu::weights::device_bytes;
use crate::gpu::{Gpu, GpuError};
use crate::model::config::Config;
use crate::model::error::ModelError;
use crate::plan::batch::{BLOCK_TOKENS, STEPS_IN_FLIGHT};
use crate::plan::{self, KvType, Plan};
use crate::protocol::{self, DeviceChoice, LoadOptions, ModelInfo, Precision, Quantize};
use crate::store::files::{ModelFiles, ReadError};
use crate::store::{OpenError, Source};
use crate::text::{TextError, Tokenizer, Vocabulary};

/// The context where none is asked for and the model has a longer one.
pub const DEFAULT_CONTEXT: usize = 4096;

/// Bytes that one step's logits may take on their way back.
const LOGITS_BYTES: usize = 16 << 20;

/// The longest model name that is shown.
const MAX_NAME_CHARS: usize = 120;

/// Why a model was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The file.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// A read of the weights.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// What the parts of a split file say.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// What a Hugging Face folder says.
    #[error("{name}: {error}")]
    Folder {
        /// The folder.
        name: String,
        /// What is wrong.
        error: HuggingFaceError,
    },
    /// A file is not there.
    #[error("{missing} is missing; {help}")]
    NoFile {
        /// What it is called.
        missing: &'static str,
        /// What would help.
        help: &'static str,
    },
    /// Files of two models.
    #[error("{first} and {second} are of two models; choose the files of one")]
    TwoModels {
        /// A file of one.
        first: String,
        /// A file of the other.
        second: String,
    },
    /// Weights that only Python can read.
    #[error(
        "{name} is a Python pickle, which pagelm does not read; take the model's .safetensors or .gguf files"
    )]
    Pickle {
        /// The file.
        name: String,
    },
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
    /// The GPU.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The processor.
    #[error(transparent)]
    Cpu(#[from] CpuError),
    /// The GPU that was asked for computes wrongly.
    #[error("{sentence}, and with auto or cpu as the device the processor computes")]
    WrongGpu {
        /// What is wrong with it.
        sentence: String,
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

/// What a model's files tell, checked; nothing is on a device yet.
pub struct Described<S> {
    files: ModelFiles<S>,
    config: Config,
    plan: Plan,
    precision: Precision,
    tokenizer: Tokenizer,
    context: usize,
    kv_tokens: usize,
    device: DeviceChoice,
}

/// A model that answers.
pub struct Loaded {
    /// Its tokenizer and template.
    pub tokenizer: Rc<Tokenizer>,
    /// Its weights and cache.
    pub model: Computer,
    /// Its sequences.
    pub engine: Engine,
    /// How much fits a step.
    pub pace: Pace,
    /// What people are told of it.
    pub info: ModelInfo,
    /// What its engine has to work with.
    pub config: EngineConfig,
}

/// Reads and checks what the files of a model say: a GGUF file, all parts of one, or those of a Hugging Face folder.
pub async fn describe<S: Source>(sources: Vec<S>, options: &LoadOptions) -> Result<Described<S>, LoadError> {
    describe_files(open(sources).await?, options)
}

/// The same for files that are open already.
pub fn describe_files<S: Source>(
    mut files: ModelFiles<S>,
    options: &LoadOptions,
) -> Result<Described<S>, LoadError> {
    match options.quantize {
        Quantize::None => {}
        Quantize::Q8 => files.checkpoint.quantize(BlockType::Q8_0, Repack::Floats),
        Quantize::Q4 => files.checkpoint.quantize(BlockType::Q4_0, Repack::Floats),
    }
    let config = Config::new(&files.checkpoint).map_err(|error| model_error(&files, error))?;
    let kv = match options.kv {
        protocol::KvType::F16 => KvType::F16,
        protocol::KvType::F32 => KvType::F32,
        protocol::KvType::Q8 => KvType::Q8,
    };
    // The pool holds one full context, shared by all sequences.
    let context = checked_context(options.context, config.context)?;
    let plan = crate::model::plan(&files.checkpoint, &config, kv, context)
        .map_err(|error| model_error(&files, error))?;
    let vocabulary = Vocabulary::from_gguf(&mut files.checkpoint.metadata);
    let tokenizer = vocabulary
        .and_then(Tokenizer::new)
        .map_err(|error| LoadError::Text { name: files.name().to_owned(), error })?;
    Ok(Described {
        files,
        config,
        plan,
        precision: options.precision,
        tokenizer,
        context,
        kv_tokens: context,
        device: options.device,
    })
}

/// An error of the model with its place: the file that has a tensor of another shape, and the tensor's name there.
fn model_error<S: Source>(files: &ModelFiles<S>, error: ModelError) -> LoadError {
    let place = match &error {
        ModelError::Shape { name, .. } => files.place_of(name).filter(|(_, theirs)| theirs != name),
        _ => None,
    };
    let name = match place {
        Some((file, theirs)) => format!("{file}, {theirs}"),
        None => files.name().to_owned(),
    };
    LoadError::Model { name, error }
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

/// Without what controls a terminal, and no novel.
fn fit_to_be_shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(MAX_NAME_CHARS).collect()
}

impl<S: Source> Described<S> {
    /// What the files say; tokens and merges are with the tokenizer now.
    pub fn checkpoint(&self) -> &Checkpoint {
        &self.files.checkpoint
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
        let metadata = &self.files.checkpoint.metadata;
        fit_to_be_shown(metadata.opt_str("general.name").ok().flatten().unwrap_or(self.files.name()))
    }

    /// The licence that the files name.
    fn license(&self) -> Option<String> {
        self.files.checkpoint.metadata.opt_str("general.license").ok().flatten().map(fit_to_be_shown)
    }

    /// How most weights are packed.
    fn quantization(&self) -> String {
        self.files.checkpoint.main_block_type().map_or_else(String::new, |packed| packed.name().to_owned())
    }

    /// Bytes of the files with weights.
    pub fn file_bytes(&self) -> u64 {
        self.files.len_bytes()
    }

    /// Parameters in all.
    pub fn n_parameters(&self) -> u64 {
        self.files.checkpoint.tensors().iter().map(|tensor| tensor.n_values()).sum()
    }

    /// Longest conversation in tokens.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Sequences that run at once; the others wait. Each has a row of logits in every step.
    pub fn max_sequences(&self) -> usize {
        (LOGITS_BYTES / (self.config.vocab_size * 4) / 8 * 8).clamp(8, 64)
    }

    /// Asks for room for so many sequences of `context` tokens each, instead of one; no more than run at once. Each of
    /// several has a block more, which the scheduler keeps free before it lets another run beside it.
    pub fn with_room(mut self, context: u32, n_sequences: usize) -> Result<Self, LoadError> {
        self.context = checked_context(Some(context), self.config.context)?;
        let plan = crate::model::plan(&self.files.checkpoint, &self.config, self.plan.kv, self.context);
        self.plan = plan.map_err(|error| model_error(&self.files, error))?;
        let n_sequences = n_sequences.min(self.max_sequences());
        let spare_tokens = if n_sequences > 1 { BLOCK_TOKENS } else { 0 };
        self.kv_tokens = (self.context.next_multiple_of(BLOCK_TOKENS) + spare_tokens) * n_sequences;
        Ok(self)
    }

    /// Tokens and bytes of the KV pool on a device with such a largest binding, if its memory suffices: as asked, in
    /// whole blocks, and a layer's keys and values in one binding.
    pub fn kv_pool(&self, max_binding_bytes: u64) -> (u64, u64) {
        let sizes = self.plan.sizes;
        let n_blocks = sizes.kv_blocks(self.plan.kv, self.kv_tokens, max_binding_bytes);
        let blocks = self.plan.cache_blocks(n_blocks, self.max_sequences(), Pace::most_rows(false));
        ((n_blocks * BLOCK_TOKENS) as u64, self.plan.kv_bytes(&blocks))
    }

    /// Which device was asked for.
    pub fn device(&self) -> DeviceChoice {
        self.device
    }

    /// Arithmetic of activations on a device: never [`Precision::Auto`].
    pub fn precision_on(&self, is_software: bool) -> Precision {
        match self.precision {
            Precision::Auto if is_software => Precision::Fast,
            Precision::Auto => Precision::Exact,
            asked => asked,
        }
    }

    /// What is computed on a device.
    pub fn plan_on(&self, is_software: bool) -> Plan {
        let precision = match self.precision_on(is_software) {
            Precision::Fast => plan::Precision::Fast,
            Precision::Auto | Precision::Exact => plan::Precision::Exact,
        };
        Plan { precision, ..self.plan.clone() }
    }

    /// Bytes that the model will take on a machine, all together, if its memory suffices.
    pub fn needed_bytes(&self, machine: &Machine) -> Result<u64, GpuError> {
        let Some(gpu) = machine.gpu() else {
            return Ok(CpuModel::needed_bytes(&self.plan_on(true), &self.capacity(true), self.kv_tokens));
        };
        let max_binding_bytes = gpu.max_binding_bytes();
        let is_software = gpu.summary().is_software;
        let layout = Layout::new(
            &self.plan_on(is_software),
            &self.capacity(is_software),
            gpu.variant(),
            max_binding_bytes,
        )?;
        let weights = self.plan.matrices.iter().map(|matrix| {
            let n_rows = matrix.parts.iter().map(|part| part.n_rows).sum();
            let bytes = device_bytes(matrix.block_type, n_rows, matrix.n_columns);
            bytes.quants + bytes.scales
        });
        let capacity = self.capacity(gpu.summary().is_software);
        let readbacks = STEPS_IN_FLIGHT as u64 * readback_bytes(&capacity, self.config.vocab_size);
        let activations =
            layout.hidden_bytes + layout.inputs_bytes + layout.outputs_bytes + layout.tables_bytes;
        Ok(weights.sum::<u64>() + activations + readbacks + self.kv_pool(max_binding_bytes).1)
    }

    /// Refuses weights that are more than fits where the processor computes.
    pub fn check_size(&self, machine: &Machine, processor_bytes: Option<u64>) -> Result<(), CpuError> {
        let weight_bytes = cpu::model::weight_bytes(&self.plan);
        match (machine, processor_bytes) {
            (Machine::Cpu(_), Some(most_bytes)) if weight_bytes > most_bytes => {
                Err(CpuError::TooLarge { weight_bytes, most_bytes })
            }
            _ => Ok(()),
        }
    }

    fn capacity(&self, is_software: bool) -> Capacity {
        let logit_rows = self.max_sequences();
        Capacity {
            decode_rows: logit_rows,
            prefill_rows: Pace::most_rows(is_software),
            logit_rows,
            context: self.context,
        }
    }

    /// Makes room for it on a device, and writes no weights: to count and time what steps cost the host.
    pub async fn without_weights(&self, gpu: Rc<Gpu>) -> Result<GpuModel, GpuError> {
        let is_software = gpu.summary().is_software;
        GpuModel::new(gpu, self.plan_on(is_software), self.capacity(is_software), self.kv_tokens).await
    }

    /// Makes room on the machine and brings the weights there; `progress` hears of bytes done and in all.
    pub async fn load(self, chosen: Chosen, progress: impl FnMut(u64, u64)) -> Result<Loaded, LoadError> {
        let mut loaded = self.load_for_first_token(chosen, progress).await?;
        while loaded.model.n_pipelines_left() > 0 {
            loaded.model.make_pipeline().await;
        }
        Ok(loaded)
    }

    /// The same with the pipelines that a first token needs; the others are to be made when there is time.
    pub async fn load_for_first_token(
        self,
        Chosen { machine, note }: Chosen,
        mut progress: impl FnMut(u64, u64),
    ) -> Result<Loaded, LoadError> {
        let is_slow = machine.is_slow();
        let vocab_size = self.config.vocab_size;
        let (plan, capacity) = (self.plan_on(is_slow), self.capacity(is_slow));
        let mut model = match &machine {
            Machine::Gpu(gpu) => {
                let model = GpuModel::for_first_token(Rc::clone(gpu), plan, capacity, self.kv_tokens).await?;
                Computer::Gpu(Box::new(model))
            }
            Machine::Cpu(processor) => {
                let model = CpuModel::new(plan, capacity, self.kv_tokens, Rc::clone(processor))?;
                Computer::Cpu(Box::new(model))
            }
        };
        write_weights(&self.files, &self.plan, &mut model, &mut progress).await?;
        self.files.finish().await.map_err(ReadError::Store)?;
        let config = engine_config(model.plan(), model.capacity(), model.cache_blocks(), model.samples());
        let context = config.context;
        let kv_note = (context < self.context).then(|| {
            let whose = if model.is_on_gpu() { "the GPU's memory" } else { "memory" };
            format!("{whose} holds {context} tokens of the {} asked for", self.context)
        });
        let engine = Engine::new(config.clone());
        let info = ModelInfo {
            id: 0,
            name: self.model_name(),
            architecture: self.config.architecture.clone(),
            quantization: self.quantization(),
            license: self.license(),
            n_parameters: self.n_parameters(),
            file_bytes: self.files.len_bytes(),
            storage_note: self.files.note(),
            weight_bytes: model.weight_bytes(),
            context: context as u32,
            kv_tokens: model.kv_tokens() as u32,
            kv_bytes: model.kv_bytes(),
            kv_note,
            device_name: machine.name().to_owned(),
            device_backend: machine.backend().to_owned(),
            device_kind: machine.kind(),
            device_note: note,
            device_details: machine.details(),
            precision: self.precision_on(is_slow),
            n_layers: self.config.n_layers as u32,
            vocab_size: vocab_size as u32,
            has_chat_template: self.tokenizer.has_template(),
            template_arguments: self.tokenizer.template_arguments(),
        };
        let (tokenizer, pace) = (Rc::new(self.tokenizer), Pace::new(is_slow));
        Ok(Loaded { tokenizer, model, engine, pace, info, config })
    }
}

/// What an engine has to work with on a model.
pub fn engine_config(
    plan: &Plan,
    capacity: &Capacity,
    cache_blocks: &[usize],
    samples_on_device: bool,
) -> EngineConfig {
    let cache = |(cache, n_blocks): (usize, &usize)| CacheConfig {
        n_blocks: *n_blocks,
        window: plan.caches[cache].window.map(|tokens| Window {
            tokens,
            blocks: plan.window_blocks(cache, capacity.prefill_rows).expect("it has a window"),
        }),
    };
    let caches: Vec<CacheConfig> = cache_blocks.iter().enumerate().map(cache).collect();
    // Less where memory did not suffice; a window holds a sequence of any length.
    let most = caches.iter().map(CacheConfig::max_tokens).min().expect("a plan has a cache");
    EngineConfig {
        caches,
        context: capacity.context.min(most),
        vocab_size: plan.sizes.vocab_size,
        max_sequences: capacity.logit_rows,
        max_waiting_of_client: MAX_OUTPUTS,
        max_logit_rows: capacity.logit_rows,
        samples_on_device,
    }
}
