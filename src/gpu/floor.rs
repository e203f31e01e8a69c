//! What an adapter costs before anything is computed: a dispatch that waits for the one before it, and reading memory.
//!
//! Invariant: both are differences of long and short submits, so that what a submit itself costs is in neither.

use futures_channel::oneshot;

use super::{Gpu, GpuError};

/// Dispatches of a short and of a long submit.
const DISPATCHES: [usize; 2] = [256, 1280];
/// Reads of all data in a short and in a long submit.
const READS: [usize; 2] = [2, 10];
/// Each submit is timed so often; the fastest counts.
const REPEATS: usize = 5;
/// Several times the caches of any adapter, where its bindings are so large.
const GPU_BYTES: u64 = 1 << 30;
/// The same for processors, which read more slowly.
const SOFTWARE_BYTES: u64 = 16 << 20;
/// Workgroups that fill and read, enough to occupy any GPU.
const GPU_GROUPS: u32 = 4096;
/// The same for processors.
const SOFTWARE_GROUPS: u32 = 64;
/// Bytes that a workgroup reads in one turn: 256 invocations, 4 loads of 16 bytes.
const GROUP_BYTES: u64 = 256 * 4 * 16;

/// The least that an adapter takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// An empty dispatch that depends on the one before it.
    pub dispatch_us: f64,
    /// Memory read, in 10⁹ bytes a second.
    pub bandwidth_gb_per_sec: f64,
    /// How much was read to find out.
    pub buffer_bytes: u64,
}

impl Floor {
    /// Seconds that a step cannot take less than: its dispatches one after the other, and its bytes once.
    pub fn step_secs(&self, n_dispatches: u64, n_bytes: u64) -> f64 {
        n_dispatches as f64 * self.dispatch_us * 1e-6 + n_bytes as f64 / (self.bandwidth_gb_per_sec * 1e9)
    }
}

/// Measures an adapter, by a clock in milliseconds.
pub async fn measure(gpu: &Gpu, now_ms: fn() -> f64) -> Result<Floor, GpuError> {
    let is_software = gpu.summary().is_software;
    let n_groups = if is_software { SOFTWARE_GROUPS } else { GPU_GROUPS };
    let most = if is_software { SOFTWARE_BYTES } else { GPU_BYTES }.min(gpu.max_binding_bytes());
    let unit = u64::from(n_groups) * GROUP_BYTES;
    let buffer_bytes = (most / unit).max(1) * unit;
    let bench = Bench::new(gpu, now_ms, buffer_bytes).await?;
    bench.fill(n_groups).await?;
    let read =
        bench.kernel("floor_read", include_str!("kernels/floor_read.wgsl"), &[&bench.data, &bench.result]);
    let read_ms = bench.each_ms(&read, n_groups, READS).await?;
    let dispatch =
        bench.kernel("floor_dispatch", include_str!("kernels/floor_dispatch.wgsl"), &[&bench.result]);
    let dispatch_ms = bench.each_ms(&dispatch, 1, DISPATCHES).await?;
    Ok(Floor {
        dispatch_us: dispatch_ms * 1e3,
        bandwidth_gb_per_sec: buffer_bytes as f64 / read_ms * 1e-6,
        buffer_bytes,
    })
}

/// A kernel ready to run.
struct Kernel {
    pipeline: wgpu::ComputePipeline,
    bind_group: wgpu::BindGroup,
}

/// Buffers to measure with.
struct Bench<'a> {
    gpu: &'a Gpu,
    now_ms: fn() -> f64,
    data: wgpu::Buffer,
    result: wgpu::Buffer,
}

impl<'a> Bench<'a> {
    async fn new(gpu: &'a Gpu, now_ms: fn() -> f64, buffer_bytes: u64) -> Result<Self, GpuError> {
        let scope = gpu.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let buffer = |label, size| {
            gpu.device.create_buffer(&wgpu::BufferDescriptor {
                label: Some(label),
                size,
                usage: wgpu::BufferUsages::STORAGE,
                mapped_at_creation: false,
            })
        };
        let (data, result) = (buffer("floor data", buffer_bytes), buffer("floor result", 16));
        match scope.pop().await {
            Some(_) => Err(GpuError::OutOfMemory { what: "a measurement", needed_bytes: buffer_bytes }),
            None => Ok(Self { gpu, now_ms, data, result }),
        }
    }

    /// A kernel of this folder, by its name, with what its bindings are.
    fn kernel(&self, name: &str, text: &str, buffers: &[&wgpu::Buffer]) -> Kernel {
        let (device, label) = (&self.gpu.device, Some(name));
        let source = wgpu::ShaderSource::Wgsl(text.into());
        let module = device.create_shader_module(wgpu::ShaderModuleDescriptor { label, source });
        let pipeline = device.create_compute_pipeline(&wgpu::ComputePipelineDescriptor {
            label,
            layout: None,
            module: &module,
            entry_point: label,
            compilation_options: wgpu::PipelineCompilationOptions::default(),
            cache: None,
        });
        let entries: Vec<wgpu::BindGroupEntry<'_>> = buffers
            .iter()
            .zip(0..)
            .map(|(buffer, binding)| wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() })
            .collect();
        let layout = pipeline.get_bind_group_layout(0);
        let descriptor = wgpu::BindGroupDescriptor { label, layout: &layout, entries: &entries };
        let bind_group = device.create_bind_group(&descriptor);
        Kernel { pipeline, bind_group }
    }

    /// Writes the data: memory that was never written may be read without being there.
    async fn fill(&self, n_groups: u32) -> Result<(), GpuError> {
        let fill = self.kernel("floor_fill", include_str!("kernels/floor_fill.wgsl"), &[&self.data]);
        self.submit_ms(&fill, n_groups, 1).await.map(drop)
    }

    /// What one dispatch takes: how much longer a submit with more of them takes.
    async fn each_ms(&self, kernel: &Kernel, n_groups: u32, counts: [usize; 2]) -> Result<f64, GpuError> {
        let mut fastest = [f64::INFINITY; 2];
        for _ in 0..=REPEATS {
            for (fastest, n) in fastest.iter_mut().zip(counts) {
                *fastest = fastest.min(self.submit_ms(kernel, n_groups, n).await?);
            }
        }
        let [short, long] = fastest;
        let difference = (long - short) / (counts[1] - counts[0]) as f64;
        // A clock too coarse, or a machine too busy, to tell them apart.
        Ok(if difference > 0.0 { difference } else { long / counts[1] as f64 })
    }

    /// From a submit until all of it is done.
    async fn submit_ms(&self, kernel: &Kernel, n_groups: u32, n_dispatches: usize) -> Result<f64, GpuError> {
        let mut encoder = self.gpu.device.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
        let mut pass = encoder.begin_compute_pass(&wgpu::ComputePassDescriptor::default());
        for _ in 0..n_dispatches {
            pass.set_pipeline(&kernel.pipeline);
            pass.set_bind_group(0, &kernel.bind_group, &[]);
            pass.dispatch_workgroups(n_groups, 1, 1);
        }
        drop(pass);
        let commands = encoder.finish();
        let (done, finished) = oneshot::channel();
        let start = (self.now_ms)();
        self.gpu.queue.submit([commands]);
        self.gpu.queue.on_submitted_work_done(move || _ = done.send(()));
        self.gpu.drive(None)?;
        if finished.await.is_err() {
            return Err(self.gpu.lost("it stopped answering while it was measured"));
        }
        let elapsed = (self.now_ms)() - start;
        self.gpu.fault().map_or(Ok(elapsed), Err)
    }
}

#[cfg(all(test, feature = "native"))]
mod tests {
    use super::*;
    use std::sync::OnceLock;
    use std::time::Instant;

    fn now_ms() -> f64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_secs_f64() * 1e3
    }

    #[test]
    fn an_adapter_has_a_floor() {
        let floor = pollster::block_on(async {
            let gpu = Gpu::open(None).await.expect("an adapter");
            measure(&gpu, now_ms).await.expect("a measurement")
        });
        assert!(floor.dispatch_us.is_finite() && floor.dispatch_us > 0.0, "{floor:?}");
        assert!(floor.bandwidth_gb_per_sec.is_finite() && floor.bandwidth_gb_per_sec > 0.0, "{floor:?}");
        assert!(
            floor.buffer_bytes >= GROUP_BYTES && floor.buffer_bytes.is_multiple_of(GROUP_BYTES),
            "{floor:?}"
        );
    }

    #[test]
    fn a_step_takes_its_dispatches_and_its_bytes() {
        let floor = Floor { dispatch_us: 2.0, bandwidth_gb_per_sec: 100.0, buffer_bytes: GROUP_BYTES };
        let secs = floor.step_secs(200, 100_000_000);
        assert!((secs - (400e-6 + 1e-3)).abs() < 1e-12, "{secs}");
    }
}
