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

/// So long a verdict is good that some kernels are wrong.
const WRONG_SECS: i64 = 7 * 24 * 3600;

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
    let key = key_of(gpu, &plan, context);
    let now_secs = processor.unix_secs();
    let kept = records.recall(&key).await.and_then(|text| undated(&text, now_secs));
    let verdict = match kept {
        Some(verdict) => verdict,
        None => {
            // Without threads, a lost device, or no memory: whoever loads the model meets the same, and tells.
            let Ok(processor) = processor.get() else { return Ok(chosen) };
            let Ok(verdict) = check(gpu, plan, context, processor).await else { return Ok(chosen) };
            records.keep(&key, &dated(&verdict, now_secs)).await;
            verdict
        }
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

/// A verdict to be kept. One that something is wrong is good for a time: a browser does not tell its graphics driver, which may
/// be a better one by then, and a fault may pass.
fn dated(verdict: &Verdict, now_secs: i64) -> String {
    let until = if verdict.wrong.is_empty() { i64::MAX } else { now_secs.saturating_add(WRONG_SECS) };
    format!("until {until}\n{}", verdict.to_text())
}

/// What was kept, while it is good.
fn undated(text: &str, now_secs: i64) -> Option<Verdict> {
    let (until, verdict) = text.strip_prefix("until ")?.split_once('\n')?;
    let until: i64 = until.parse().ok()?;
    if until <= now_secs { None } else { Verdict::from_text(verdict) }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_is_looked_at_again_after_a_week() {
        let right = Verdict { right: Some(Variant::Serial), wrong: Vec::new() };
        let wrong = Verdict { right: None, wrong: vec![Wrong { variant: Variant::Serial, error: 1.0 }] };
        for (verdict, is_good_for_ever) in [(right, true), (wrong, false)] {
            let text = dated(&verdict, 1000);
            assert_eq!(undated(&text, 1000 + WRONG_SECS - 1).as_ref(), Some(&verdict));
            assert_eq!(undated(&text, 1000 + WRONG_SECS).is_some(), is_good_for_ever);
        }
        for text in ["", "until", "until 5", "until x\nright serial\n", "right serial\n"] {
            assert_eq!(undated(text, 0), None, "{text:?}");
        }
    }
}
