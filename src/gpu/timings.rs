//! How long each operation of a step takes, by the device's own clock.
//!
//! Invariant: nothing here runs in the steady state. A pass tells when it began and ended, so every dispatch has a pass of
//! its own here, which costs more than the one pass of [`GpuModel`]'s own steps: times compare operations, and their sum is
//! more than a step takes.

use super::maker::Compiled;
use super::model::{GpuModel, n_rows};
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
    /// Runs a batch that was computed again and again, and times its dispatches: the median of each operation. Empty where
    /// the adapter has no timestamps.
    pub async fn time_ops(&mut self, batch: &Batch) -> Result<Vec<OpTime>, GpuError> {
        if !self.gpu.has_timestamps() {
            return Ok(Vec::new());
        }
        let mut runs = Vec::with_capacity(RUNS);
        for _ in 0..RUNS {
            runs.push(self.time_once(batch).await?);
        }
        Ok(medians(&runs))
    }

    async fn time_once(&mut self, batch: &Batch) -> Result<Vec<OpTime>, GpuError> {
        let is_run = |dispatch: &&Compiled| n_rows(batch, dispatch.rows) > 0;
        let n_timed = self.compiled.iter().filter(is_run).take(MAX_QUERIES / 2).count();
        let n_queries = (2 * n_timed as u32).max(2);
        let device = self.gpu.device.clone();
        let queries = device.create_query_set(&wgpu::QuerySetDescriptor {
            label: Some("timings"),
            ty: wgpu::QueryType::Timestamp,
            count: n_queries,
        });
        let size = u64::from(n_queries) * 8;
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
        self.write_batch(batch);
        let mut encoder = device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        for (i, dispatch) in self.compiled.iter().filter(is_run).take(n_timed).enumerate() {
            let first = 2 * i as u32;
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
        encoder.resolve_query_set(&queries, 0..n_queries, &resolved, 0);
        encoder.copy_buffer_to_buffer(&resolved, 0, &readback, 0, size);
        let words = self.run_and_read(encoder, &readback).await?;
        let word = |i: usize| u64::from(words[i].to_bits());
        let ticks = |i: usize| word(2 * i) | word(2 * i + 1) << 32;
        let ms_per_tick = f64::from(self.gpu.queue.get_timestamp_period()) / 1e6;
        let mut ops: Vec<OpTime> = Vec::new();
        for (i, dispatch) in self.compiled.iter().filter(is_run).take(n_timed).enumerate() {
            let ms = ticks(2 * i + 1).saturating_sub(ticks(2 * i)) as f64 * ms_per_tick;
            let Compiled { name, weight_bytes, .. } = dispatch;
            match ops.iter_mut().find(|op| op.name == *name) {
                Some(op) => {
                    op.dispatches += 1;
                    op.ms += ms;
                    op.weight_bytes += weight_bytes;
                }
                None => {
                    let (name, weight_bytes) = (name.clone(), *weight_bytes);
                    ops.push(OpTime { name, dispatches: 1, ms, weight_bytes });
                }
            }
        }
        Ok(ops)
    }
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
