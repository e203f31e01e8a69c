//! How long each operation of a step takes, by the device's own clock.
//!
//! Invariant: nothing here runs in the steady state. A pass tells when it began and ended, so every dispatch has a pass of
//! its own here, which costs more than the one pass of [`GpuModel`]'s own steps: times compare operations, and their sum is
//! more than a step takes.

use std::rc::Rc;

use super::maker::Compiled;
use super::model::{GpuModel, n_rows};
use super::readback::{Mapping, Readback};
use super::{Gpu, GpuError};
use crate::plan::batch::Batch;

/// Timestamps that a query set may hold, by WebGPU.
const MAX_QUERIES: usize = 4096;
/// An odd number of runs has a median.
const RUNS: usize = 5;

/// All dispatches of one kind in a step.
#[derive(Debug, Clone, PartialEq)]
pub struct OpTime {
    /// The kernel, and what it multiplies with.
    pub name: String,
    /// How many.
    pub dispatches: u32,
    /// Their times together.
    pub ms: f64,
    /// Bytes of weights that they read.
    pub weight_bytes: u64,
}

impl GpuModel {
    /// Runs the batch that was submitted last again and again, and times its dispatches: the median of each operation. Empty
    /// where the adapter has no timestamps. All runs are submitted at once; what is returned waits for them.
    pub fn time_ops(
        &self,
        batch: &Batch,
    ) -> impl Future<Output = Result<Vec<OpTime>, GpuError>> + 'static + use<> {
        let runs = self.gpu.has_timestamps().then(|| self.submit_timed(batch));
        let gpu = Rc::clone(&self.gpu);
        async move {
            let Some(TimedRuns { ops, run_words, mapping }) = runs else { return Ok(Vec::new()) };
            let words = mapping.take(&gpu, |words| words.to_vec()).await?;
            let ms_per_tick = f64::from(gpu.queue.get_timestamp_period()) / 1e6;
            let runs = words.chunks_exact(run_words).map(|words| by_operation(&ops, words, ms_per_tick));
            Ok(medians(&runs.collect::<Vec<_>>()))
        }
    }

    fn submit_timed(&self, batch: &Batch) -> TimedRuns {
        let is_run = |dispatch: &&Compiled| n_rows(batch, dispatch.rows) > 0;
        let timed: Vec<&Compiled> = self.compiled.iter().filter(is_run).take(MAX_QUERIES / 2).collect();
        let n_queries = (2 * timed.len() as u32).max(2);
        let device = &self.gpu.device;
        let run_bytes = (u64::from(n_queries) * 8).next_multiple_of(wgpu::QUERY_RESOLVE_BUFFER_ALIGNMENT);
        let size = run_bytes * RUNS as u64;
        let buffer = |usage| {
            device.create_buffer(&wgpu::BufferDescriptor {
                label: Some("timings"),
                size,
                usage,
                mapped_at_creation: false,
            })
        };
        let resolved = buffer(wgpu::BufferUsages::QUERY_RESOLVE | wgpu::BufferUsages::COPY_SRC);
        let readback = buffer(wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ);
        let encoder = || device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        // A submit a run: each is as long as a step, and no watchdog fires.
        for run in 0..RUNS as u64 {
            let mut encoder = encoder();
            let queries = device.create_query_set(&wgpu::QuerySetDescriptor {
                label: Some("timings"),
                ty: wgpu::QueryType::Timestamp,
                count: n_queries,
            });
            for (first, dispatch) in (0..).step_by(2).zip(&timed) {
                let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor {
                    label: None,
                    timestamp_writes: Some(wgpu::ComputePassTimestampWrites {
                        query_set: &queries,
                        beginning_of_pass_write_index: Some(first),
                        end_of_pass_write_index: Some(first + 1),
                    }),
                });
                self.dispatch(batch, dispatch, &mut pass);
            }
            encoder.resolve_query_set(&queries, 0..n_queries, &resolved, run * run_bytes);
            self.gpu.queue.submit([encoder.finish()]);
        }
        let mut encoder = encoder();
        encoder.copy_buffer_to_buffer(&resolved, 0, &readback, 0, size);
        let submission = self.gpu.queue.submit([encoder.finish()]);
        let op = |dispatch: &&Compiled| {
            let Compiled { name, weight_bytes, .. } = dispatch;
            OpTime { name: name.clone(), dispatches: 1, ms: 0.0, weight_bytes: *weight_bytes }
        };
        TimedRuns {
            ops: timed.iter().map(op).collect(),
            run_words: run_bytes as usize / 4,
            mapping: Readback::new(readback).map(size, submission),
        }
    }
}

/// Runs on their way.
struct TimedRuns {
    /// One a dispatch, without its time.
    ops: Vec<OpTime>,
    /// Words of the timestamps of a run.
    run_words: usize,
    mapping: Mapping,
}

/// Adds up the dispatches of each operation; two words a timestamp, two timestamps a dispatch.
fn by_operation(dispatches: &[OpTime], words: &[u32], ms_per_tick: f64) -> Vec<OpTime> {
    let ticks = |i: usize| u64::from(words[2 * i]) | u64::from(words[2 * i + 1]) << 32;
    let mut ops: Vec<OpTime> = Vec::new();
    for (i, dispatch) in dispatches.iter().enumerate() {
        let ms = ticks(2 * i + 1).saturating_sub(ticks(2 * i)) as f64 * ms_per_tick;
        match ops.iter_mut().find(|op| op.name == dispatch.name) {
            Some(op) => {
                op.dispatches += 1;
                op.ms += ms;
                op.weight_bytes += dispatch.weight_bytes;
            }
            None => ops.push(OpTime { ms, ..dispatch.clone() }),
        }
    }
    ops
}

/// Of each operation the median of its runs, which are alike but for their times.
fn medians(runs: &[Vec<OpTime>]) -> Vec<OpTime> {
    let Some(first) = runs.first() else { return Vec::new() };
    let median = |(op_idx, op): (usize, &OpTime)| {
        let mut times: Vec<f64> = runs.iter().map(|run| run[op_idx].ms).collect();
        times.sort_by(f64::total_cmp);
        OpTime { ms: times[times.len() / 2], ..op.clone() }
    };
    first.iter().enumerate().map(median).collect()
}

impl Gpu {
    /// Whether steps can be timed by operation here.
    pub fn has_timestamps(&self) -> bool {
        self.device.features().contains(wgpu::Features::TIMESTAMP_QUERY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_s_time_is_the_median_of_its_runs() {
        let op = |name: &str, ms| OpTime { name: name.into(), dispatches: 2, ms, weight_bytes: 3 };
        let runs = [1.0, 9.0, 3.0].map(|ms| vec![op("norm", 0.5), op("matmul", ms)]);
        assert_eq!(medians(&runs), [op("norm", 0.5), op("matmul", 3.0)]);
        assert!(medians(&[]).is_empty());
    }
}
