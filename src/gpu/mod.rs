//! Runs a plan with wgpu: the adapter, its limits, and what went wrong with it.
//!
//! Invariant: limits and features are read from the adapter, never assumed.

use std::sync::{Arc, Mutex};

use futures_channel::oneshot;

use crate::gpu::shader::Variant;
use crate::gpu::tuning::{AdapterClass, Tuning};
use buffers::Live;
use lower::{LowerError, Target};
use noise::Noise;
use pipelines::Known;

mod attend_text;
mod attention_sums;
pub mod batch_words;
mod block_texts;
#[cfg(target_arch = "wasm32")]
mod browser;
pub mod buffers;
pub mod costs;
pub mod floor;
pub mod layout;
pub mod lower;
mod maker;
mod matvec_text;
pub mod model;
pub mod noise;
#[cfg(feature = "native")]
mod noop;
pub mod packed;
mod pipelines;
mod readback;
mod sampled_words;
mod serial_attention;
mod serial_tile;
pub mod shader;
pub mod timings;
pub mod tuning;
pub mod weights;

/// Why the GPU cannot do what was asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GpuError {
    /// There is no WebGPU here at all.
    #[error(
        "no WebGPU is offered here; on a secure page (https or localhost) a current Chrome, Edge or Safari 26 has it, and Firefox on Windows and macOS"
    )]
    NoWebGpu,
    /// There is no adapter.
    #[error(
        "no GPU adapter was found: {reason}; install or enable a graphics driver (natively Vulkan, Metal or DX12, in a browser its hardware acceleration)"
    )]
    NoAdapter {
        /// What was found instead.
        reason: String,
    },
    /// No adapter has that name.
    #[error("no GPU adapter has {name:?} in its name: {reason}; name one of them, or none to take the best")]
    NotNamed {
        /// What was asked for.
        name: String,
        /// What there is.
        reason: String,
    },
    /// The adapter gave no device.
    #[error(
        "the GPU {adapter} gave no device: {reason}; close other programs that use it, or restart the browser"
    )]
    NoDevice {
        /// Its name.
        adapter: String,
        /// Its reason.
        reason: String,
    },
    /// The plan does not fit this device.
    #[error(transparent)]
    Lower(#[from] LowerError),
    /// Memory ran out.
    #[error(
        "the GPU has no room for {what} ({needed_bytes} bytes); close other tabs or programs that use it, or take a smaller model or context"
    )]
    OutOfMemory {
        /// For what.
        what: &'static str,
        /// How much was asked.
        needed_bytes: u64,
    },
    /// The device is gone.
    #[error("the GPU was lost ({reason}); load the model again, or a smaller one if that repeats")]
    Lost {
        /// What the driver said.
        reason: String,
    },
    /// A mistake of ours, as the driver words it.
    #[error(
        "the GPU refused a command ({reason}); this is a fault in pagelm, please report it with the adapter's name"
    )]
    Refused {
        /// What the driver said.
        reason: String,
    },
}

/// An adapter as people see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AdapterSummary {
    /// Its own name.
    pub name: String,
    /// The interface it is reached by, such as `vulkan`.
    pub backend: String,
    /// What drives it: the driver and its version, in a browser that browser's.
    pub driver: String,
    /// Whether the processor imitates it.
    pub is_software: bool,
}

/// An open device; copies are of the same device.
#[derive(Debug, Clone)]
pub struct Gpu {
    device: wgpu::Device,
    queue: wgpu::Queue,
    limits: wgpu::Limits,
    summary: AdapterSummary,
    variant: Variant,
    tuning: Tuning,
    /// As a test wants it.
    samples: Option<bool>,
    max_matrix_bytes: u64,
    has_dot4: bool,
    noise: Option<Noise>,
    known: Known,
    fault: Arc<Mutex<Option<GpuError>>>,
    live: Arc<Live>,
}

impl Gpu {
    /// Opens the adapter whose name contains `name` (in any case), else the best one.
    pub async fn open(name: Option<&str>) -> Result<Self, GpuError> {
        #[cfg(target_arch = "wasm32")]
        if !browser::show_gpu() {
            return Err(GpuError::NoWebGpu);
        }
        let instance = instance();
        if cfg!(target_arch = "wasm32") && !wgpu::util::is_browser_webgpu_supported().await {
            return Err(GpuError::NoWebGpu);
        }
        let adapter = match name {
            None => {
                let options = wgpu::RequestAdapterOptions {
                    power_preference: wgpu::PowerPreference::HighPerformance,
                    ..Default::default()
                };
                let found = instance.request_adapter(&options).await;
                found.map_err(|error| GpuError::NoAdapter { reason: error.to_string() })?
            }
            Some(name) => named_adapter(&instance, name).await?,
        };
        #[cfg(target_arch = "wasm32")]
        let has_dot4 = browser::has_dot4();
        #[cfg(not(target_arch = "wasm32"))]
        let has_dot4 = {
            let dot4 = wgpu::WgslLanguageFeatures::Packed4x8IntegerDotProduct;
            instance.wgsl_language_features().contains(dot4)
        };
        Ok(Self { has_dot4, ..Self::from_adapter(adapter, None).await? })
    }

    /// Opens a device on an adapter, with limits other than its own where a test wants less.
    pub async fn from_adapter(
        adapter: wgpu::Adapter,
        limits: Option<wgpu::Limits>,
    ) -> Result<Self, GpuError> {
        let summary = summarize(&adapter);
        let info = adapter.get_info();
        let descriptor = wgpu::DeviceDescriptor {
            label: Some("pagelm"),
            // In a browser wgpu knows no subgroups: `browser` asks for them.
            required_features: adapter.features()
                & (wgpu::Features::SUBGROUP | wgpu::Features::TIMESTAMP_QUERY),
            required_limits: limits.unwrap_or_else(|| adapter.limits()),
            ..Default::default()
        };
        let (device, queue) = adapter.request_device(&descriptor).await.map_err(|error| {
            GpuError::NoDevice { adapter: summary.name.clone(), reason: error.to_string() }
        })?;
        #[cfg(target_arch = "wasm32")]
        let summary = browser::describe(&device, summary);
        let fault = Arc::new(Mutex::new(None));
        let on_error = Arc::clone(&fault);
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| record(&on_error, refused(&error))));
        let on_loss = Arc::clone(&fault);
        device.set_device_lost_callback(move |_, reason| record(&on_loss, GpuError::Lost { reason }));
        let class = AdapterClass::of(&summary.name, info.device_type);
        // Where compilers choose a size for each kernel, a row alone would be summed in another order than in a crowd.
        // Apple's have one size, whatever is said of them.
        let is_of_one_size = info.subgroup_min_size == info.subgroup_max_size || class == AdapterClass::Apple;
        let variant = match has_subgroups(&device) && is_of_one_size {
            _ if summary.is_software => Variant::Serial,
            true => Variant::Subgroup,
            false => Variant::Workgroup,
        };
        let tuning = AdapterClass::of(&summary.name, info.device_type).tuning();
        let limits = device.limits();
        let max_matrix_bytes = max_binding_bytes(&limits);
        Ok(Self {
            device,
            queue,
            limits,
            summary,
            variant,
            tuning,
            samples: None,
            max_matrix_bytes,
            has_dot4: cfg!(not(target_arch = "wasm32")),
            noise: None,
            known: Known::default(),
            fault,
            live: Arc::default(),
        })
    }

    /// Chooses the kernels of another kind of adapter: all must be right on every adapter.
    ///
    /// # Panics
    /// If they need subgroups and the device has none.
    pub fn with_variant(self, variant: Variant) -> Self {
        assert!(variant != Variant::Subgroup || has_subgroups(&self.device), "the device has no subgroups");
        Self { variant, ..self }
    }

    /// Has kernels return noise, on an adapter that is taken for a real GPU: to see that this is noticed.
    pub fn with_noise(self, noise: Noise) -> Self {
        let summary = AdapterSummary { is_software: false, ..self.summary };
        Self { summary, noise: Some(noise), ..self }
    }

    /// Which kernels return noise.
    pub fn noise(&self) -> Option<Noise> {
        self.noise
    }

    /// Cuts work otherwise.
    pub fn with_tuning(self, tuning: Tuning) -> Self {
        Self { tuning, ..self }
    }

    /// How work is cut.
    pub fn tuning(&self) -> Tuning {
        self.tuning
    }

    /// Chooses tokens, or leaves that to the host: both must be right on every adapter.
    pub fn with_sampling(self, samples: bool) -> Self {
        Self { samples: Some(samples), ..self }
    }

    /// Whether it chooses tokens. Where the processor imitates a GPU the host does that as fast, and logits need not travel.
    pub fn samples(&self) -> bool {
        self.samples.unwrap_or(self.variant != Variant::Serial)
    }

    /// Whether kernels may use subgroups.
    pub fn has_subgroups(&self) -> bool {
        has_subgroups(&self.device)
    }

    /// The adapter.
    pub fn summary(&self) -> &AdapterSummary {
        &self.summary
    }

    /// The kernels in use and what the adapter allows, in words for a report.
    pub fn details(&self) -> String {
        let said = |has| if has { "yes" } else { "no" };
        format!(
            "kernels {:?}, byte products {}, subgroups {}, tokens chosen on it {}, largest binding {} bytes, largest buffer {} bytes, driver {}",
            self.variant,
            said(self.has_dot4),
            said(self.has_subgroups()),
            said(self.samples()),
            self.max_binding_bytes(),
            self.max_buffer_bytes(),
            self.summary.driver,
        )
    }

    /// The kernels in use.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Largest storage binding in bytes.
    pub fn max_binding_bytes(&self) -> u64 {
        max_binding_bytes(&self.limits)
    }

    /// Lays activations out as for an adapter with smaller bindings.
    pub fn with_max_binding_bytes(mut self, max_binding_bytes: u64) -> Self {
        self.limits.max_storage_buffer_binding_size = max_binding_bytes;
        self
    }

    /// Largest binding of a matrix in bytes; larger matrices are split by rows.
    pub fn max_matrix_bytes(&self) -> u64 {
        self.max_matrix_bytes
    }

    /// Splits matrices as an adapter with smaller bindings would.
    pub fn with_max_matrix_bytes(self, max_matrix_bytes: u64) -> Self {
        Self { max_matrix_bytes, ..self }
    }

    /// Multiplies bytes without `dot4I8Packed`, as on a browser whose WGSL lacks it.
    pub fn without_dot4(self) -> Self {
        Self { has_dot4: false, known: Known::default(), ..self }
    }

    /// What lowering has to know.
    pub fn target(&self) -> Target {
        let Self { variant, tuning, max_matrix_bytes, .. } = *self;
        Target { variant, tuning, max_matrix_bytes, samples: self.samples() }
    }

    /// Largest buffer in bytes.
    pub fn max_buffer_bytes(&self) -> u64 {
        self.limits.max_buffer_size
    }

    /// Buffers of the models on this device.
    pub fn live(&self) -> &Live {
        &self.live
    }

    /// Gives the device up: what runs on it is lost, as when a driver resets.
    pub fn destroy(&self) {
        self.lose("it was destroyed");
        self.device.destroy();
    }

    /// Takes the device for lost, whatever it still does.
    pub fn lose(&self, reason: &str) {
        record(&self.fault, GpuError::Lost { reason: reason.into() });
    }

    /// Waits until the device has done what was asked of it.
    pub(crate) async fn settle(&self) -> Result<(), GpuError> {
        let (done, finished) = oneshot::channel();
        self.queue.on_submitted_work_done(move || {
            let _ = done.send(());
        });
        self.drive(None)?;
        if finished.await.is_err() {
            return Err(self.lost("it stopped answering while it was waited for"));
        }
        self.fault().map_or(Ok(()), Err)
    }

    /// What went wrong since the device was opened, if anything.
    pub fn fault(&self) -> Option<GpuError> {
        self.fault.lock().expect("no holder of this lock panics").clone()
    }
}

fn has_subgroups(device: &wgpu::Device) -> bool {
    #[cfg(target_arch = "wasm32")]
    return browser::has_subgroups(device);
    #[cfg(not(target_arch = "wasm32"))]
    device.features().contains(wgpu::Features::SUBGROUP)
}

fn max_binding_bytes(limits: &wgpu::Limits) -> u64 {
    limits.max_storage_buffer_binding_size.min(limits.max_buffer_size)
}

/// All adapters that could be opened; in a browser the one it offers.
pub async fn adapters() -> Vec<AdapterSummary> {
    let instance = instance();
    instance.enumerate_adapters(wgpu::Backends::PRIMARY).await.iter().map(summarize).collect()
}

fn instance() -> wgpu::Instance {
    #[cfg(target_arch = "wasm32")]
    browser::ask_for_subgroups();
    let mut descriptor = wgpu::InstanceDescriptor::new_without_display_handle();
    descriptor.backends = wgpu::Backends::PRIMARY;
    wgpu::Instance::new(descriptor)
}

async fn named_adapter(instance: &wgpu::Instance, name: &str) -> Result<wgpu::Adapter, GpuError> {
    let adapters = instance.enumerate_adapters(wgpu::Backends::PRIMARY).await;
    let names: Vec<String> = adapters.iter().map(|adapter| adapter.get_info().name).collect();
    let wanted = name.to_lowercase();
    adapters.into_iter().find(|adapter| adapter.get_info().name.to_lowercase().contains(&wanted)).ok_or_else(
        || {
            let reason = if names.is_empty() {
                "there is none".into()
            } else {
                format!("there are {}", names.join(", "))
            };
            GpuError::NotNamed { name: name.to_owned(), reason }
        },
    )
}

fn summarize(adapter: &wgpu::Adapter) -> AdapterSummary {
    let info = adapter.get_info();
    let name = if info.name.is_empty() { "WebGPU adapter".into() } else { info.name };
    AdapterSummary {
        name,
        backend: info.backend.to_string(),
        driver: format!("{} {}", info.driver, info.driver_info).trim().to_owned(),
        is_software: info.device_type == wgpu::DeviceType::Cpu,
    }
}

/// Keeps the first fault: what follows it is its consequence.
fn record(fault: &Mutex<Option<GpuError>>, error: GpuError) {
    fault.lock().expect("no holder of this lock panics").get_or_insert(error);
}

fn refused(error: &wgpu::Error) -> GpuError {
    match error {
        wgpu::Error::OutOfMemory { .. } => GpuError::OutOfMemory { what: "a buffer", needed_bytes: 0 },
        other => GpuError::Refused { reason: other.to_string() },
    }
}
