//! Whether a GPU computes rightly: drivers exist that return garbage. Before a model first runs on an adapter, a small one of
//! its kind runs there and on the processor; where they differ another family of kernels is tried, then the processor.
//!
//! Invariant: what was found is kept for the adapter, its driver, the kernels and this build, and is found again where any of
//! these is another. Where nothing can be kept it is found again each time.

mod probe;
mod small;
mod verdict;
mod weights;

use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::load::{Described, LoadError};
use super::machine::{Chosen, Machine, SharedProcessor};
use crate::cpu::{CpuError, Processor};
use crate::gpu::shader::Variant;
use crate::gpu::{Gpu, GpuError};
use crate::plan::Plan;
use crate::protocol::DeviceChoice;
use crate::store::Source;
use probe::{Probe, bound};
pub use small::small;
use verdict::key_of;
pub use verdict::{Verdict, Wrong};

/// Where verdicts are kept.
pub trait Records {
    /// What was kept under this key, whatever it says now.
    fn recall<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Option<String>>;

    /// Keeps a text under a key, if it can.
    fn keep<'a>(&'a self, key: &'a str, text: &'a str) -> LocalBoxFuture<'a, ()>;
}

/// Why there is no verdict.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The GPU could not run the steps.
    #[error(transparent)]
    Gpu(#[from] GpuError),
    /// The processor could not.
    #[error(transparent)]
    Cpu(#[from] CpuError),
}

/// What to load a model onto, where `chosen` is what would be first choice: its GPU if that computes rightly, also with other
/// kernels, or else the processor, unless the GPU was asked for.
pub(super) async fn trusted<S: Source>(
    described: &Described<S>,
    chosen: Chosen,
    processor: &SharedProcessor,
    records: &dyn Records,
) -> Result<Chosen, LoadError> {
    let Machine::Gpu(gpu) = &chosen.machine else { return Ok(chosen) };
    let context = described.context();
    let plan = small(&described.plan_on(chosen.machine.is_slow()), context, gpu.tuning());
    let key = key_of(gpu, &plan);
    let kept = records.recall(&key).await.and_then(|text| Verdict::from_text(&text));
    let verdict = match kept {
        Some(verdict) => verdict,
        None => match check(gpu, plan, context, processor.get()?).await {
            Ok(verdict) => {
                records.keep(&key, &verdict.to_text()).await;
                verdict
            }
            // A lost device, or no memory: whoever loads the model meets the same, and tells.
            Err(_) => return Ok(chosen),
        },
    };
    let sentence = verdict.sentence(&gpu.summary().name);
    match verdict.right {
        Some(variant) if variant == gpu.variant() => Ok(chosen),
        Some(variant) => {
            let gpu = Gpu::clone(gpu).with_variant(variant);
            Ok(Chosen { machine: Machine::Gpu(Rc::new(gpu)), note: Some(sentence) })
        }
        None if described.device() == DeviceChoice::Gpu => Err(LoadError::WrongGpu { sentence }),
        None => Ok(Chosen { machine: Machine::Cpu(processor.get()?), note: Some(sentence) }),
    }
}

/// Computes with each family of kernels that the device has, from the one in use on, until one is right.
pub async fn check(
    gpu: &Rc<Gpu>,
    plan: Plan,
    context: usize,
    processor: Rc<Processor>,
) -> Result<Verdict, CheckError> {
    let bound = bound(&plan);
    let probe = Probe::new(plan, context, processor).await?;
    let mut wrong = Vec::new();
    for &variant in families(gpu.variant()) {
        let gpu = if variant == gpu.variant() {
            Rc::clone(gpu)
        } else {
            Rc::new(Gpu::clone(gpu).with_variant(variant))
        };
        let error = probe.error_of(gpu).await?;
        if error <= bound {
            return Ok(Verdict { right: Some(variant), wrong });
        }
        wrong.push(Wrong { variant, error });
    }
    Ok(Verdict { right: None, wrong })
}

/// The kernels in use, then those that ask less of a driver.
fn families(first: Variant) -> &'static [Variant] {
    match first {
        Variant::Subgroup => &[Variant::Subgroup, Variant::Workgroup, Variant::Serial],
        Variant::Workgroup => &[Variant::Workgroup, Variant::Serial],
        Variant::Serial => &[Variant::Serial, Variant::Workgroup],
    }
}
