//! How long the host works on a step: scheduling, recording, submitting, sampling.
//!
//! Invariant: what the device computes is no part of it; measure on a device that computes nothing.

use crate::engine::params::SamplingParams;
use crate::engine::{Budget, Engine, SequenceRequest};
use crate::gpu::GpuError;
use crate::gpu::model::GpuModel;
use crate::host::load::engine_config;
use crate::plan::Device as _;

/// Steps before those that count.
pub const WARM_UP_STEPS: usize = 20;

/// The times of one decode step, in ms.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HostTime {
    /// Choosing the rows, putting them on the device, recording and submitting.
    pub begin_ms: f64,
    /// Waiting for the device, and taking what it read back: of a browser mostly the wait.
    pub read_ms: f64,
    /// Sampling, and taking the token in.
    pub end_ms: f64,
}

/// Decodes a sequence for `n_steps`, by a clock in ms; the tokens mean nothing.
///
/// # Panics
/// If the model's context has no room for so many.
pub async fn measure(
    model: &mut GpuModel,
    n_steps: usize,
    now_ms: impl Fn() -> f64,
) -> Result<Vec<HostTime>, GpuError> {
    let config = engine_config(model.plan(), model.capacity(), model.cache_blocks(), model.samples());
    let n_tokens = WARM_UP_STEPS + n_steps + 1;
    assert!(n_tokens < config.context, "{n_tokens} tokens need room");
    let mut engine = Engine::new(config);
    let params = SamplingParams { temperature: 0.0, max_tokens: Some(n_tokens), ..SamplingParams::default() };
    let request = SequenceRequest { client: 0, prompt: vec![0], generated: Vec::new(), params };
    engine.add(request).expect("a token is a prompt");
    let mut times = Vec::with_capacity(n_steps);
    for step_idx in 0..WARM_UP_STEPS + n_steps {
        let began = now_ms();
        let step = engine.next_step(Budget { prefill_rows: 1 }).expect("the sequence goes on");
        let ticket = model.submit(&step.batch);
        let submitted = now_ms();
        let logits = model.read(ticket).await?;
        let read = now_ms();
        engine.retire(step.id, &logits);
        let ended = now_ms();
        if step_idx >= WARM_UP_STEPS {
            times.push(HostTime {
                begin_ms: submitted - began,
                read_ms: read - submitted,
                end_ms: ended - read,
            });
        }
    }
    Ok(times)
}
