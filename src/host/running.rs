//! Steps under way: each machine computes its own, one after the other.

use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;

use super::hosted::Stepped;
use crate::protocol::ModelId;

/// What is computed of all models.
#[derive(Default)]
pub(super) struct Running {
    /// In the order in which they were submitted.
    steps: Vec<Step>,
}

struct Step {
    model: ModelId,
    on_gpu: bool,
    reading: LocalBoxFuture<'static, Stepped>,
}

impl Running {
    /// Adds a step that was submitted to the GPU, or to the processor.
    pub(super) fn push(&mut self, model: ModelId, on_gpu: bool, reading: LocalBoxFuture<'static, Stepped>) {
        self.steps.push(Step { model, on_gpu, reading });
    }

    /// Steps that one of the machines has.
    pub(super) fn count(&self, on_gpu: bool) -> usize {
        self.steps.iter().filter(|step| step.on_gpu == on_gpu).count()
    }

    /// Whether nothing is computed.
    pub(super) fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The first step of a machine, if it has ended, and whose it is.
    pub(super) fn poll(&mut self, on_gpu: bool, context: &mut Context<'_>) -> Option<(ModelId, Stepped)> {
        let first = self.steps.iter().position(|step| step.on_gpu == on_gpu)?;
        let Poll::Ready(stepped) = self.steps[first].reading.poll_unpin(context) else { return None };
        Some((self.steps.remove(first).model, stepped))
    }

    /// Drops the steps of a model.
    pub(super) fn forget(&mut self, model: ModelId) {
        self.steps.retain(|step| step.model != model);
    }

    /// Drops all that the GPU has.
    pub(super) fn forget_gpu(&mut self) {
        self.steps.retain(|step| !step.on_gpu);
    }
}
