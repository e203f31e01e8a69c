//! What a check found: which kernels are right and which are not, as a text that is kept and as a sentence.
//!
//! Invariant: a text that is not of this form is no verdict.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use super::probe::CONTEXT;
use crate::gpu::Gpu;
use crate::gpu::shader::{VARIANTS, Variant};
use crate::plan::Plan;
use crate::protocol::BUILD;

/// A family of kernels that computes wrongly.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Wrong {
    /// Which.
    pub variant: Variant,
    /// How far logits are from what is right: the greatest difference over the greatest logit.
    pub error: f64,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The first family that computes rightly, if any does.
    pub right: Option<Variant>,
    /// Those before it.
    pub wrong: Vec<Wrong>,
}

impl Verdict {
    /// To be kept.
    pub fn to_text(&self) -> String {
        let wrong = self.wrong.iter().map(|wrong| format!("wrong {} {}\n", name(wrong.variant), wrong.error));
        let right = self.right.map(|variant| format!("right {}\n", name(variant)));
        wrong.chain(right).collect()
    }

    /// What was kept.
    pub fn from_text(text: &str) -> Option<Self> {
        let mut verdict = Self { right: None, wrong: Vec::new() };
        for line in text.lines() {
            match line.split(' ').collect::<Vec<_>>()[..] {
                ["wrong", variant, error] if verdict.right.is_none() => {
                    verdict.wrong.push(Wrong { variant: variant_of(variant)?, error: error.parse().ok()? });
                }
                ["right", variant] if verdict.right.is_none() => verdict.right = Some(variant_of(variant)?),
                _ => return None,
            }
        }
        (verdict.right.is_some() || !verdict.wrong.is_empty()).then_some(verdict)
    }

    /// What is wrong with the GPU of that name, and what would help.
    pub fn sentence(&self, gpu_name: &str) -> String {
        let each =
            self.wrong.iter().map(|wrong| format!("{} ({})", words(wrong.variant), percents(wrong.error)));
        let each = each.collect::<Vec<_>>().join(", ");
        let instead = match self.right {
            Some(variant) => format!("its kernels {} compute", words(variant)),
            None => "nothing that it computes can be trusted".to_owned(),
        };
        format!(
            "{gpu_name} computes wrongly with its kernels {each}, so {instead}; a newer graphics driver or browser may help"
        )
    }
}

/// What a verdict is good for: another adapter, driver, family of kernels, build or kind of model has its own.
pub(super) fn key_of(gpu: &Gpu, plan: &Plan, context: usize) -> String {
    let summary = gpu.summary();
    let mut hasher = DefaultHasher::new();
    // What a plan is made of has a form for people alone.
    format!("{plan:?}").hash(&mut hasher);
    // No further position is computed.
    context.min(CONTEXT).hash(&mut hasher);
    format!("{:?}", (gpu.variant(), gpu.tuning(), gpu.samples(), gpu.noise())).hash(&mut hasher);
    let (name, backend, driver) = (&summary.name, &summary.backend, &summary.driver);
    format!("{BUILD} | {backend} | {name} | {driver} | {:016x}", hasher.finish())
}

fn name(variant: Variant) -> &'static str {
    match variant {
        Variant::Serial => "serial",
        Variant::Workgroup => "workgroup",
        Variant::Subgroup => "subgroup",
    }
}

fn variant_of(word: &str) -> Option<Variant> {
    VARIANTS.into_iter().find(|variant| name(*variant) == word)
}

fn words(variant: Variant) -> &'static str {
    match variant {
        Variant::Serial => "without barriers",
        Variant::Workgroup => "of workgroups",
        Variant::Subgroup => "of subgroups",
    }
}

/// How far logits are off.
fn percents(error: f64) -> String {
    match error {
        error if error < 0.1 => format!("logits are off by {:.2} %", error * 100.0),
        error if error < 10.0 => format!("logits are off by {:.0} %", error * 100.0),
        error if error.is_finite() => "logits are far off".to_owned(),
        _ => "logits are no numbers".to_owned(),
    }
}
