//! `pagelm info` and `pagelm devices`: what a file holds and what could run it. Nothing is loaded, and no GPU is needed.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use serde::Serialize;

use super::arguments::Arguments;
use super::model::Opened;
use super::output;
use super::{CliError, surroundings};
use crate::gpu::{self, AdapterSummary, Gpu};
use crate::host::machine::{Chosen, Machine, SharedProcessor};
use crate::protocol::{DeviceKind, Precision};

#[derive(Serialize)]
struct InfoJson {
    name: String,
    file: String,
    file_bytes: u64,
    architecture: String,
    parameters: u64,
    sizes: Sizes,
    block_types: Vec<BlockTypeJson>,
    tokenizer: TokenizerJson,
    chat_template: bool,
    /// The model's own limit, in tokens.
    model_context: usize,
    /// In use where nothing else is asked for.
    context: usize,
    kv: KvJson,
    device: Option<AdapterJson>,
    /// On that device.
    precision: Option<&'static str>,
    /// Why there is no device.
    #[serde(skip_serializing_if = "Option::is_none")]
    device_problem: Option<String>,
    devices: Vec<AdapterJson>,
}

#[derive(Serialize)]
struct Sizes {
    layers: usize,
    width: usize,
    heads: usize,
    kv_heads: usize,
    head_dim: usize,
    mlp_width: usize,
    vocabulary: usize,
}

#[derive(Serialize)]
struct BlockTypeJson {
    #[serde(rename = "type")]
    name: &'static str,
    tensors: u64,
    bytes: u64,
}

#[derive(Serialize)]
struct TokenizerJson {
    model: String,
    pre: Option<String>,
    end_of_generation: Vec<u32>,
}

#[derive(Serialize)]
struct KvJson {
    #[serde(rename = "type")]
    kind: &'static str,
    bytes_per_token: u64,
    pool_tokens: u64,
    pool_bytes: u64,
}

#[derive(Serialize)]
struct AdapterJson {
    name: String,
    backend: String,
    kind: &'static str,
}

impl AdapterJson {
    fn of(adapter: &AdapterSummary) -> Self {
        let kind = if adapter.is_software { DeviceKind::Software } else { DeviceKind::Gpu };
        Self { name: adapter.name.clone(), backend: adapter.backend.clone(), kind: kind.name() }
    }

    fn of_machine(machine: &Machine) -> Self {
        let (name, backend) = (machine.name().to_owned(), machine.backend().to_owned());
        Self { name, backend, kind: machine.kind().name() }
    }

    fn line(&self) -> String {
        format!("{} ({}, {})", self.name, self.backend, self.kind)
    }
}

/// Runs `pagelm info`.
pub(super) async fn info(arguments: &Arguments) -> Result<(), CliError> {
    let opened = Opened::open(arguments).await?;
    let open = async || Gpu::open(arguments.adapter_name.as_deref()).await.map(Rc::new);
    let processor = SharedProcessor::new(surroundings());
    let chosen = Chosen::by(opened.described.device(), &processor, open).await;
    let chosen = match chosen.map_err(|error| (error.to_string(), CliError::from(error))) {
        Ok(chosen) => Ok(chosen),
        // A name that no GPU has is bad input; no GPU at all is something to tell.
        Err((_, refusal @ CliError::Input(_))) => return Err(refusal),
        Err((problem, _)) => Err(problem),
    };
    let devices = gpu::adapters().await.iter().map(AdapterJson::of).collect();
    let described = collect(&opened, arguments, chosen, devices);
    if arguments.json { output::put_json(&described) } else { output::put(&text(&described)) }
}

fn collect(
    opened: &Opened,
    arguments: &Arguments,
    chosen: Result<Chosen, String>,
    devices: Vec<AdapterJson>,
) -> InfoJson {
    let described = &opened.described;
    let (checkpoint, config, tokenizer) = (described.checkpoint(), described.config(), described.tokenizer());
    let mut block_types: BTreeMap<_, (u64, u64)> = BTreeMap::new();
    for tensor in checkpoint.tensors() {
        let (n_tensors, n_bytes) = block_types.entry(tensor.block_type).or_default();
        *n_tensors += 1;
        *n_bytes += tensor.n_bytes();
    }
    let text = |key: &str| checkpoint.metadata.opt_str(key).ok().flatten().map(str::to_owned);
    let machine = chosen.as_ref().ok().map(|chosen| &chosen.machine);
    let (pool_tokens, pool_bytes) = described.kv_pool(machine.map_or(u64::MAX, Machine::max_binding_bytes));
    let kind = arguments.load.kv.name();
    let precision = machine.map(|machine| described.precision_on(machine.is_slow()));
    InfoJson {
        name: described.model_name(),
        file: arguments.model().display().to_string(),
        file_bytes: described.file_bytes(),
        architecture: config.architecture.clone(),
        parameters: described.n_parameters(),
        sizes: Sizes {
            layers: config.n_layers,
            width: config.width,
            heads: config.n_heads,
            kv_heads: config.n_kv_heads,
            head_dim: config.head_dim,
            mlp_width: config.mlp_width,
            vocabulary: config.vocab_size,
        },
        block_types: block_types
            .into_iter()
            .map(|(block_type, (tensors, bytes))| BlockTypeJson { name: block_type.name(), tensors, bytes })
            .collect(),
        tokenizer: TokenizerJson {
            model: text("tokenizer.ggml.model").unwrap_or_default(),
            pre: text("tokenizer.ggml.pre"),
            end_of_generation: tokenizer.eog().to_vec(),
        },
        chat_template: tokenizer.has_template(),
        model_context: config.context,
        context: described.context(),
        kv: KvJson { kind, bytes_per_token: pool_bytes / pool_tokens, pool_tokens, pool_bytes },
        device: machine.map(AdapterJson::of_machine),
        precision: precision.map(Precision::name),
        device_problem: chosen.map_or_else(Some, |chosen| chosen.note),
        devices,
    }
}

fn text(info: &InfoJson) -> String {
    let mut out = String::new();
    let mut line = |what: &str, value: String| {
        let _ = writeln!(out, "{what:<14}{value}");
    };
    line("name", info.name.clone());
    line("file", format!("{}, {}", info.file, output::bytes(info.file_bytes)));
    line("architecture", info.architecture.clone());
    line("parameters", output::parameters(info.parameters));
    let sizes = &info.sizes;
    line(
        "sizes",
        format!(
            "{} layers, width {}, {} query and {} KV heads of {}, MLP {}, vocabulary {}",
            sizes.layers,
            sizes.width,
            sizes.heads,
            sizes.kv_heads,
            sizes.head_dim,
            sizes.mlp_width,
            sizes.vocabulary
        ),
    );
    let each =
        |block: &BlockTypeJson| format!("{} {} ({})", block.tensors, block.name, output::bytes(block.bytes));
    line("tensors", info.block_types.iter().map(each).collect::<Vec<_>>().join(", "));
    let pre = info.tokenizer.pre.as_deref().unwrap_or("no pre-tokenizer");
    let template = if info.chat_template { "with a chat template" } else { "no chat template" };
    line("tokenizer", format!("{}, {pre}, {template}", info.tokenizer.model));
    line("context", format!("{} tokens of the model's {}", info.context, info.model_context));
    let kv = &info.kv;
    line(
        "KV cache",
        format!(
            "{}, {} a token, a pool of {} tokens ({}): one context, within the device's largest binding a layer; less where memory does not suffice",
            kv.kind,
            output::bytes(kv.bytes_per_token),
            kv.pool_tokens,
            output::bytes(kv.pool_bytes)
        ),
    );
    match (&info.device, &info.device_problem) {
        (Some(device), None) => line("device", device.line()),
        (Some(device), Some(problem)) => line("device", format!("{}: {problem}", device.line())),
        (None, problem) => {
            line("device", format!("none: {}", problem.as_deref().unwrap_or("no reason known")));
        }
    }
    for device in &info.devices {
        line("available", device.line());
    }
    out
}

#[derive(Serialize)]
struct DevicesJson {
    devices: Vec<AdapterJson>,
}

/// Runs `pagelm devices`.
pub(super) async fn devices(arguments: &Arguments) -> Result<(), CliError> {
    let devices: Vec<AdapterJson> = gpu::adapters().await.iter().map(AdapterJson::of).collect();
    if arguments.json {
        return output::put_json(&DevicesJson { devices });
    }
    if devices.is_empty() {
        output::note("no GPU adapter was found; install or enable a Vulkan, Metal or DX12 driver");
    }
    devices.iter().try_for_each(|device| output::put(&format!("{}\n", device.line())))
}
