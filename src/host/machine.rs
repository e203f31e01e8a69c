//! What computes: a GPU, or the processor itself. The rest of the host asks here, and need not know which.

use std::cell::OnceCell;
use std::rc::Rc;

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::Surroundings;
use super::load::LoadError;
use crate::cpu::model::CpuModel;
use crate::cpu::{CpuError, Processor};
use crate::gpu::layout::Capacity;
use crate::gpu::model::GpuModel;
use crate::gpu::timings::OpTime;
use crate::gpu::{Gpu, GpuError};
use crate::plan::batch::Batch;
use crate::plan::{Device as _, MatrixId, Plan, StepOutput, Ticket, VectorId};
use crate::protocol::{DeviceChoice, DeviceKind};

/// What models are loaded onto.
#[derive(Debug, Clone)]
pub enum Machine {
    /// A GPU, or what imitates one.
    Gpu(Rc<Gpu>),
    /// The processor itself.
    Cpu(Rc<Processor>),
}

impl Machine {
    /// What kind it is.
    pub fn kind(&self) -> DeviceKind {
        match self {
            Self::Gpu(gpu) if gpu.summary().is_software => DeviceKind::Software,
            Self::Gpu(_) => DeviceKind::Gpu,
            Self::Cpu(_) => DeviceKind::Cpu,
        }
    }

    /// Its own name.
    pub fn name(&self) -> &str {
        match self {
            Self::Gpu(gpu) => &gpu.summary().name,
            Self::Cpu(processor) => processor.name(),
        }
    }

    /// The interface that it is reached by.
    pub fn backend(&self) -> &str {
        match self {
            Self::Gpu(gpu) => &gpu.summary().backend,
            Self::Cpu(_) => "cpu",
        }
    }

    /// The kernels in use and what it allows, in words for a report.
    pub fn details(&self) -> String {
        match self {
            Self::Gpu(gpu) => gpu.details(),
            Self::Cpu(_) => "kernels of the processor".to_owned(),
        }
    }

    /// The GPU, if it is one.
    pub fn gpu(&self) -> Option<&Rc<Gpu>> {
        match self {
            Self::Gpu(gpu) => Some(gpu),
            Self::Cpu(_) => None,
        }
    }

    /// Whether the processor does the work, so that steps are long.
    pub fn is_slow(&self) -> bool {
        self.kind() != DeviceKind::Gpu
    }

    /// Largest block of memory that a layer's keys and values, or rows of a matrix, may take.
    pub fn max_binding_bytes(&self) -> u64 {
        self.gpu().map_or(u64::MAX, |gpu| gpu.max_binding_bytes())
    }
}

/// The processor of this machine, made when a model first wants it: all models share its threads.
#[derive(Debug, Clone)]
pub struct SharedProcessor {
    surroundings: Surroundings,
    made: Rc<OnceCell<Rc<Processor>>>,
}

impl SharedProcessor {
    /// Without any threads so far.
    pub fn new(surroundings: Surroundings) -> Self {
        Self { surroundings, made: Rc::default() }
    }

    /// Most bytes that models on it may take, all together, where that is known.
    pub fn most_bytes(&self) -> Option<u64> {
        (self.surroundings.processor_bytes)()
    }

    /// The time of day, in seconds since 1970.
    pub(super) fn unix_secs(&self) -> i64 {
        (self.surroundings.unix_secs)()
    }

    /// It.
    pub(super) fn get(&self) -> Result<Rc<Processor>, CpuError> {
        if let Some(made) = self.made.get() {
            return Ok(Rc::clone(made));
        }
        let Surroundings { n_threads, now_ms, turn, .. } = self.surroundings;
        let made = Rc::new(Processor::new(n_threads, Rc::new(turn), Rc::new(now_ms))?);
        Ok(Rc::clone(self.made.get_or_init(|| made)))
    }
}

/// What a model is loaded onto, and why.
#[derive(Debug, Clone)]
pub struct Chosen {
    /// It.
    pub machine: Machine,
    /// Why it is this one, or computes with these kernels, where nobody chose and they are not the first choice.
    pub note: Option<String>,
}

impl Chosen {
    /// What was asked for. Where nothing was: a GPU, or the processor where there is none, or none but what the processor
    /// imitates, several times slower than it computes by itself.
    pub async fn by(
        choice: DeviceChoice,
        processor: &SharedProcessor,
        open: impl AsyncFnOnce() -> Result<Rc<Gpu>, GpuError>,
    ) -> Result<Self, LoadError> {
        let processor = |note| Ok(Self { machine: Machine::Cpu(processor.get()?), note });
        if choice == DeviceChoice::Cpu {
            return processor(None);
        }
        match (open().await, choice) {
            (Ok(gpu), DeviceChoice::Auto) if gpu.summary().is_software => {
                let name = &gpu.summary().name;
                processor(Some(format!(
                    "the only GPU here, {name}, is one that the processor imitates, slowly"
                )))
            }
            (Ok(gpu), _) => Ok(gpu.into()),
            (
                Err(error @ (GpuError::NoWebGpu | GpuError::NoAdapter { .. } | GpuError::NoDevice { .. })),
                DeviceChoice::Auto,
            ) => processor(Some(error.to_string())),
            (Err(error), _) => Err(error.into()),
        }
    }
}

impl From<Rc<Gpu>> for Chosen {
    fn from(gpu: Rc<Gpu>) -> Self {
        Self { machine: Machine::Gpu(gpu), note: None }
    }
}

/// A model on what computes it.
#[derive(Debug)]
pub enum Computer {
    /// On a GPU.
    Gpu(Box<GpuModel>),
    /// On the processor.
    Cpu(Box<CpuModel>),
}

/// Asks whichever it is the same.
macro_rules! either {
    ($self:expr, $model:ident => $ask:expr) => {
        match $self {
            Self::Gpu($model) => $ask,
            Self::Cpu($model) => $ask,
        }
    };
}

impl Computer {
    /// Whether a GPU computes it, which can be lost.
    pub fn is_on_gpu(&self) -> bool {
        matches!(self, Self::Gpu(_))
    }

    /// What it computes.
    pub fn plan(&self) -> &Plan {
        either!(self, model => model.plan())
    }

    /// The most of everything.
    pub fn capacity(&self) -> &Capacity {
        either!(self, model => model.capacity())
    }

    /// Blocks of each cache of the plan.
    pub fn cache_blocks(&self) -> &[usize] {
        either!(self, model => model.cache_blocks())
    }

    /// Tokens that its cache holds.
    pub fn kv_tokens(&self) -> usize {
        either!(self, model => model.kv_tokens())
    }

    /// Bytes of its cache.
    pub fn kv_bytes(&self) -> u64 {
        either!(self, model => model.kv_bytes())
    }

    /// Bytes of its weights.
    pub fn weight_bytes(&self) -> u64 {
        either!(self, model => model.weight_bytes())
    }

    /// Bytes of its machine's memory that it takes, all together.
    pub fn total_bytes(&self) -> u64 {
        match self {
            Self::Gpu(model) => model.gpu_bytes(),
            Self::Cpu(model) => model.total_bytes(),
        }
    }

    /// Brings rows of a matrix, as the file has them.
    pub fn write_rows(&mut self, id: MatrixId, first_row: usize, bytes: &[u8]) {
        either!(self, model => model.write_rows(id, first_row, bytes));
    }

    /// Brings a vector.
    pub fn write_vector(&mut self, id: VectorId, values: &[f32]) {
        either!(self, model => model.write_vector(id, values));
    }

    /// Brings a table of angles.
    pub fn write_rotary(&mut self, index: usize, divisors: Option<&[f32]>) {
        either!(self, model => model.write_rotary(index, divisors));
    }

    /// Waits until what was written has arrived.
    pub async fn flush(&self) -> Result<(), GpuError> {
        match self {
            Self::Gpu(model) => model.flush().await,
            Self::Cpu(model) => {
                model.flush().await;
                Ok(())
            }
        }
    }

    /// Cuts the prefill of the next step.
    pub fn set_prefill_submits(&mut self, n_submits: usize) {
        if let Self::Gpu(model) = self {
            model.set_prefill_submits(n_submits);
        }
    }

    /// Whether it chooses tokens by itself.
    pub fn samples(&self) -> bool {
        either!(self, model => model.samples())
    }

    /// Starts a step.
    pub fn submit(&mut self, batch: &Batch) -> Ticket {
        either!(self, model => model.submit(batch))
    }

    /// Waits for a step; a processor computes it meanwhile, and lets others run now and then.
    pub fn read(&mut self, ticket: Ticket) -> LocalBoxFuture<'static, Result<StepOutput, GpuError>> {
        match self {
            Self::Gpu(model) => model.read(ticket).boxed_local(),
            Self::Cpu(model) => {
                model.read(ticket).map(|output| output.map_err(|never| match never {})).boxed_local()
            }
        }
    }

    /// Times the operations of a step, where the device has a clock.
    pub fn time_ops(&self, batch: &Batch) -> LocalBoxFuture<'static, Result<Vec<OpTime>, GpuError>> {
        match self {
            Self::Gpu(model) => model.time_ops(batch).boxed_local(),
            Self::Cpu(_) => async { Ok(Vec::new()) }.boxed_local(),
        }
    }

    /// How many of its pipelines are not made.
    pub fn n_pipelines_left(&self) -> usize {
        match self {
            Self::Gpu(model) => model.n_pipelines_left(),
            Self::Cpu(_) => 0,
        }
    }

    /// Makes a pipeline that is lacking.
    pub fn make_pipeline(&mut self) -> LocalBoxFuture<'static, ()> {
        match self {
            Self::Gpu(model) => model.make_pipeline().boxed_local(),
            Self::Cpu(_) => async {}.boxed_local(),
        }
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use super::*;
    use crate::host::native::surroundings;

    #[test]
    fn models_share_the_processor() {
        let shared = SharedProcessor::new(surroundings());
        let choose = || {
            let chosen = Chosen::by(DeviceChoice::Cpu, &shared, async || Err(GpuError::NoWebGpu));
            match pollster::block_on(chosen).unwrap().machine {
                Machine::Cpu(processor) => processor,
                Machine::Gpu(_) => panic!("the processor was asked for"),
            }
        };
        assert!(Rc::ptr_eq(&choose(), &choose()));
    }
}
