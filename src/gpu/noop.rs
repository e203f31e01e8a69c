//! A device that computes nothing: what a step costs the host is counted and timed on it, and no GPU is needed.
//!
//! Invariant: everything above the driver runs as on a real device, wgpu's own checks included.

use super::shader::Variant;
use super::{Gpu, GpuError};

/// Bindings of a discrete GPU; with smaller ones large matrices are split, and cost more dispatches.
const MAX_BINDING_BYTES: u64 = (2 << 30) - 4;

impl Gpu {
    /// wgpu's noop backend, with the kernels that a real device would have.
    pub async fn noop(variant: Variant) -> Result<Self, GpuError> {
        let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
        descriptor.backends = wgpu::Backends::NOOP;
        descriptor.backend_options.noop = wgpu::NoopBackendOptions {
            enable: true,
            limits: Some(wgpu::Limits {
                max_storage_buffer_binding_size: MAX_BINDING_BYTES,
                max_buffer_size: MAX_BINDING_BYTES,
                ..wgpu::Limits::default()
            }),
            ..wgpu::NoopBackendOptions::default()
        };
        let adapters = wgpu::Instance::new(descriptor).enumerate_adapters(wgpu::Backends::NOOP).await;
        let adapter = adapters.into_iter().next().ok_or_else(|| GpuError::NoAdapter {
            reason: "wgpu was built without its noop backend".into(),
        })?;
        let mut gpu = Self::from_adapter(adapter, None).await?.with_variant(variant);
        gpu.summary.is_software = variant == Variant::Serial;
        Ok(gpu)
    }
}
