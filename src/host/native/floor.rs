//! `pagelm bench --floor`: what this adapter takes before anything is computed. No model is needed.

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::output;
use crate::gpu::floor::{self, Floor};
use crate::gpu::{AdapterSummary, Gpu};
use crate::protocol::DeviceKind;

#[derive(Serialize)]
struct FloorJson {
    device: AdapterJson,
    dispatch_us: f64,
    bandwidth_gb_per_sec: f64,
    buffer_bytes: u64,
}

#[derive(Serialize)]
struct AdapterJson {
    name: String,
    backend: String,
    kind: &'static str,
}

/// Runs the command.
pub(super) async fn floor(arguments: &Arguments) -> Result<(), CliError> {
    let gpu = Gpu::open(arguments.adapter_name.as_deref()).await?;
    let floor = floor::measure(&gpu, super::now_ms).await?;
    if arguments.json {
        output::put_json(&json(&floor, gpu.summary()))
    } else {
        output::put(&text(&floor, gpu.summary()))
    }
}

fn json(floor: &Floor, adapter: &AdapterSummary) -> FloorJson {
    let kind = if adapter.is_software { DeviceKind::Software } else { DeviceKind::Gpu };
    FloorJson {
        device: AdapterJson {
            name: adapter.name.clone(),
            backend: adapter.backend.clone(),
            kind: kind.name(),
        },
        dispatch_us: floor.dispatch_us,
        bandwidth_gb_per_sec: floor.bandwidth_gb_per_sec,
        buffer_bytes: floor.buffer_bytes,
    }
}

fn text(floor: &Floor, adapter: &AdapterSummary) -> String {
    format!(
        "{} ({})\nan empty dispatch after another: {:.2} µs\nmemory read: {:.1} GB/s, of {}\n",
        adapter.name,
        adapter.backend,
        floor.dispatch_us,
        floor.bandwidth_gb_per_sec,
        output::bytes(floor.buffer_bytes)
    )
}
