//! What becomes of everything when its device fails.
//!
//! Invariant: nothing is lost with a device but time, unless that repeats: models are loaded again from where they came
//! from, and answers go on from their tokens.

use std::collections::BTreeMap;

use super::loads::{Job, Stage};
use super::residency::Farewell;
use super::serve::Place;
use super::server::Server;
use crate::gpu::GpuError;
use crate::protocol::{DeviceChoice, Fault};

impl<P: Place> Server<P> {
    /// Breaks something, as a tab asked.
    pub(super) fn break_on_purpose(&mut self, fault: Fault) {
        match (fault, &self.gpu) {
            (Fault::Noise, _) => self.is_noisy = true,
            (Fault::Panic, _) => panic!("a tab asked for this panic, to see that everything recovers"),
            (Fault::DestroyDevice, Some(gpu)) => gpu.destroy(),
            (Fault::LoseDevice, Some(gpu)) => gpu.lose("for no known reason"),
            (_, None) => {}
        }
    }

    /// Notices a device that failed while nobody waited for it.
    pub(super) fn look_at_device(&mut self) {
        match self.gpu.as_ref().and_then(|gpu| gpu.fault()) {
            None => {}
            Some(GpuError::Lost { reason }) => self.lose_device(&reason),
            Some(error) => self.fail_device(&error),
        }
    }

    /// The device is lost: every model on it is loaded again, and its answers go on from their tokens.
    pub(super) fn lose_device(&mut self, reason: &str) {
        self.is_news = true;
        self.forget_gpu();
        if self.loads.job.as_ref().is_some_and(wants_gpu)
            && let Some(job) = self.loads.interrupt()
        {
            self.loads.queue.push_front(job);
        }
        self.n_losses += 1;
        if self.losses.count(self.now_ms()) {
            let reason = format!(
                "the GPU was lost three times within a minute ({reason}); load a smaller model, or one with a shorter context"
            );
            return self.give_up(&reason);
        }
        for id in self.models.on_gpu().into_iter().rev() {
            if self.users(id).is_empty() {
                // Nobody waits for it, and others wait for theirs.
                self.unload(id, &Farewell::Quiet);
                continue;
            }
            let Some(slot) = self.models.slots.get_mut(&id) else { continue };
            slot.hosted.lose();
            slot.is_lost = true;
            let stage = Stage::new(format!("The GPU was lost; loading {} again", slot.hosted.info.name));
            let is_its = |job: &Job<P>| job.again.as_ref().is_some_and(|(again, _)| *again == id);
            if !self.loads.queue.iter().any(is_its) {
                self.loads.queue.push_front(Job {
                    wanted: slot.wanted.clone(),
                    attachments: slot.attachments.clone(),
                    askers: BTreeMap::new(),
                    again: Some((id, slot.sources.clone())),
                    needed: None,
                    stage: stage.clone(),
                });
            }
            self.users(id).into_iter().for_each(|user| self.tell(user, stage.event()));
        }
    }

    /// Nothing more comes of it; what the processor computes goes on.
    fn forget_gpu(&mut self) {
        self.gpu = None;
        self.steps.forget_gpu();
        self.making = None;
    }

    /// The device refuses what it is told, or has no memory for it: nothing on it can be trusted.
    pub(super) fn fail_device(&mut self, error: &GpuError) {
        self.forget_gpu();
        self.give_up(&error.to_string());
    }

    /// Ends everything that needs the GPU; a later load begins afresh.
    fn give_up(&mut self, reason: &str) {
        let is_under_way = self.loads.job.as_ref().is_some_and(wants_gpu);
        let under_way = if is_under_way { self.loads.interrupt() } else { None };
        let (queue, others): (Vec<_>, Vec<_>) = self.loads.queue.drain(..).partition(wants_gpu);
        self.loads.queue.extend(others);
        for id in self.models.on_gpu() {
            self.unload(id, &Farewell::Failed(reason));
        }
        for job in under_way.into_iter().chain(queue) {
            self.tell_load_failed(job.asker_set(), reason);
        }
    }
}

/// Whether a load may be for the GPU.
fn wants_gpu<P: Place>(job: &Job<P>) -> bool {
    job.wanted.options.device != DeviceChoice::Cpu
}
