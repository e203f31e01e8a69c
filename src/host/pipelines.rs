//! Pipelines that nobody waits for: they are made while nobody asks for anything.
//!
//! Invariant: one is made at a time, and none while something is loaded.

use super::machine::Computer;
use super::serve::Place;
use super::server::Server;

/// So long (ms) nothing was computed before a pipeline is made that nobody waits for.
const QUIET_MS: f64 = 1000.0;
/// Without such a moment one is made after so long, though it may hold up a step.
const PATIENCE_MS: f64 = 4000.0;

impl<P: Place> Server<P> {
    /// Pipelines of all models that are not made, the one that is being made included.
    fn n_pipelines_left(&self) -> usize {
        let models = self.models.slots.values().filter_map(|slot| slot.hosted.model.as_ref());
        models.map(Computer::n_pipelines_left).sum::<usize>() + usize::from(self.making.is_some())
    }

    /// Whether a pipeline can be made: one is lacking, and none is being made nor anything loaded.
    pub(super) fn lacks_pipelines(&self) -> bool {
        self.loads.job.is_none() && self.making.is_none() && self.n_pipelines_left() > 0
    }

    /// When the next pipeline is to be made: once nobody has asked for anything for a while, or beside the steps that are
    /// computed, where that has not come for long.
    pub(super) fn pipeline_due_ms(&self) -> f64 {
        let patient_ms = self.made_ms + PATIENCE_MS;
        if self.steps.is_empty() { patient_ms.min(self.busy_ms + QUIET_MS) } else { patient_ms }
    }

    /// Makes a pipeline that is due.
    pub(super) fn begin_pipeline(&mut self) {
        let now_ms = self.now_ms();
        if !self.lacks_pipelines() || now_ms < self.pipeline_due_ms() {
            return;
        }
        self.made_ms = now_ms;
        let mut models = self.models.slots.values_mut().filter_map(|slot| slot.hosted.model.as_mut());
        let model = models.find(|model| model.n_pipelines_left() > 0);
        self.making = model.map(Computer::make_pipeline);
    }
}
