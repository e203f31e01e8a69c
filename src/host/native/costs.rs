//! `pagelm bench --plan` and `--host`: what a token costs, counted, and what its step costs the host, timed; both on a
//! device that computes nothing.
//!
//! Invariant: no GPU is needed and no weight is read: the costs are those of the model's shape.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Instant;

use serde::Serialize;

use super::CliError;
use super::arguments::Arguments;
use super::model::Opened;
use super::output;
use crate::bench::percentiles::Percentiles;
use crate::gpu::Gpu;
use crate::gpu::costs::Costs;
use crate::gpu::model::GpuModel;
use crate::gpu::shader::Variant;
use crate::host::host_time;

/// GB a second that are assumed where none are stated: those of a laptop with two channels of memory.
const BANDWIDTH: f64 = 100.0;
/// The place of the token whose costs are counted, where none is stated.
const POSITION: u32 = 1024;
/// Steps that are timed.
const HOST_STEPS: usize = 400;

/// One decode step, in this form and no other.
#[derive(Serialize)]
struct CostsJson {
    layers: u64,
    dispatches: u64,
    submits: u64,
    host_writes: u64,
    gpu_objects_created: u64,
    weight_bytes: u64,
    kv_bytes: u64,
}

#[derive(Serialize)]
struct HostJson {
    kernels: &'static str,
    layers: u64,
    dispatches: u64,
    steps: usize,
    host_ms: Option<Percentiles>,
}

/// Runs `pagelm bench --plan`.
pub(super) async fn plan(arguments: &Arguments) -> Result<(), CliError> {
    let opened = Opened::open(arguments).await?;
    let context = opened.described.context();
    let position =
        arguments.position.map_or(context.min(POSITION as usize) - 1, |position| position as usize);
    if position >= context {
        return Err(CliError::Input(format!(
            "--position {position} lies behind the context of {context} tokens; state a smaller one, or a larger --context"
        )));
    }
    let variant = arguments.kernels.unwrap_or(Variant::Workgroup);
    let mut model = model(&opened, variant).await?;
    let costs = Costs::of_token(&mut model, position).await?;
    if arguments.json {
        let Costs { layers, dispatches, submits, host_writes, gpu_objects_created, weight_bytes, kv_bytes } =
            costs;
        return output::put_json(&CostsJson {
            layers,
            dispatches,
            submits,
            host_writes,
            gpu_objects_created,
            weight_bytes,
            kv_bytes,
        });
    }
    let bandwidth = arguments.bandwidth.unwrap_or(BANDWIDTH);
    output::put(&text(&costs, &opened.described.model_name(), variant, position, bandwidth))
}

async fn model(opened: &Opened, variant: Variant) -> Result<GpuModel, CliError> {
    let gpu = Gpu::noop(variant).await?;
    Ok(opened.described.without_weights(Rc::new(gpu)).await?)
}

fn text(costs: &Costs, name: &str, variant: Variant, position: usize, bandwidth: f64) -> String {
    let mut text = format!(
        "A token of {name} at position {position}, decoded alone with the {} kernels:\n",
        kernels(variant)
    );
    let mut line = |what: &str, value: String| {
        let _ = writeln!(text, "{what:<24}{value}");
    };
    line("layers", costs.layers.to_string());
    let per_layer = costs.dispatches as f64 / costs.layers as f64;
    line("dispatches", format!("{} ({per_layer:.2} a layer)", costs.dispatches));
    line("submits", costs.submits.to_string());
    line("host writes", costs.host_writes.to_string());
    line("GPU objects created", costs.gpu_objects_created.to_string());
    line("weights read", output::bytes(costs.weight_bytes));
    line("KV cache read", output::bytes(costs.kv_bytes));
    let floor_ms = costs.floor_ms(bandwidth * 1e9);
    line(
        &format!("at {bandwidth} GB/s"),
        format!("at least {floor_ms:.3} ms, at most {:.1} tokens/s", 1000.0 / floor_ms),
    );
    text
}

/// As `--kernels` names them.
fn kernels(variant: Variant) -> &'static str {
    super::spec::KERNELS.iter().find(|(_, known)| *known == variant).map_or("other", |(name, _)| name)
}

/// Runs `pagelm bench --host`.
pub(super) async fn host(arguments: &Arguments) -> Result<(), CliError> {
    let opened = Opened::open(arguments).await?;
    let variant = arguments.kernels.unwrap_or(Variant::Workgroup);
    let mut model = model(&opened, variant).await?;
    let costs = Costs::of_token(&mut model, 0).await?;
    let context = opened.described.context();
    let room = context.saturating_sub(host_time::WARM_UP_STEPS + 2);
    if room == 0 {
        return Err(CliError::Input(format!(
            "--host times {} steps and more, but the context holds {context} tokens; take a longer --context",
            host_time::WARM_UP_STEPS + 2
        )));
    }
    let start = Instant::now();
    let now_ms = || start.elapsed().as_secs_f64() * 1000.0;
    let times = host_time::measure(&mut model, HOST_STEPS.min(room), now_ms).await?;
    // Nothing is waited for here: all of a step is the host's.
    let whole: Vec<f64> = times.iter().map(|time| time.begin_ms + time.read_ms + time.end_ms).collect();
    let mean = |of: fn(&host_time::HostTime) -> f64| times.iter().map(of).sum::<f64>() / times.len() as f64;
    let host_ms = Percentiles::of(&whole);
    if arguments.json {
        return output::put_json(&HostJson {
            kernels: kernels(variant),
            layers: costs.layers,
            dispatches: costs.dispatches,
            steps: times.len(),
            host_ms,
        });
    }
    let Percentiles { mean: all, p50, p95, p99 } =
        host_ms.unwrap_or(Percentiles { mean: 0.0, p50: 0.0, p95: 0.0, p99: 0.0 });
    output::put(&format!(
        "Host time of a decode step of {} layers, {} dispatches ({} kernels), on a device that computes nothing:\n\
         mean {all:.3} ms, p50 {p50:.3}, p95 {p95:.3}, p99 {p99:.3}, of {} steps\n\
         {:.3} ms to schedule, record and submit, {:.3} to read back, {:.3} to sample\n",
        costs.layers,
        costs.dispatches,
        kernels(variant),
        times.len(),
        mean(|time| time.begin_ms),
        mean(|time| time.read_ms),
        mean(|time| time.end_ms),
    ))
}
