//! All WGSL that can be put together parses and validates, within WebGPU's default limits.
#![cfg(feature = "native")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

use std::collections::HashSet;

use naga::front::wgsl;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use pagelm::gpu::shader::{Emit, ShaderKey};

/// Head widths of today's models, and the narrowest.
const HEAD_DIMS: [u32; 6] = [4, 32, 64, 80, 128, 256];

/// What WebGPU has without asking, as packing halves; and subgroups, which some kernels are chosen for where there are any.
const CAPABILITIES: Capabilities = Capabilities::SHADER_FLOAT16_IN_FLOAT32.union(Capabilities::SUBGROUP);

/// WebGPU's default limits.
const MAX_STORAGE_BUFFERS: usize = 8;
const MAX_WORKGROUP_BYTES: u32 = 16384;
const MAX_INVOCATIONS: u32 = 256;

#[test]
fn every_shader_validates_within_default_limits() {
    let mut faults = Vec::new();
    let mut n_shaders = 0;
    let keys: HashSet<ShaderKey> = HEAD_DIMS.into_iter().flat_map(ShaderKey::all).collect();
    for key in keys {
        n_shaders += 1;
        // Browsers may lack one function, which only packed matmuls call.
        let lacks_dot4 = matches!(key, ShaderKey::MatmulFast(_, _, 1, Emit::Store));
        for has_dot4 in [true, false].into_iter().take(1 + usize::from(lacks_dot4)) {
            if let Err(fault) = validate(key, &key.source(has_dot4)) {
                faults.push(format!("{key:?}, dot4 {has_dot4}: {fault}"));
            }
        }
        if let Err(fault) = validate(key, &key.noise_source()) {
            faults.push(format!("{key:?}, as noise: {fault}"));
        }
    }
    assert!(n_shaders > 100, "the list of shaders is there");
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn validate(key: ShaderKey, source: &str) -> Result<(), String> {
    // Chrome's SwiftShader leaves a variable of a loop as the turn before left it, where it is given no value.
    if let Some(line) = source.lines().find(|line| line.starts_with(' ') && is_without_value(line)) {
        return Err(format!("a variable without a value: {}", line.trim()));
    }
    let module = wgsl::parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let info = Validator::new(ValidationFlags::all(), CAPABILITIES)
        .validate(&module)
        .map_err(|error| error.emit_to_string(source))?;
    let [entry] = module.entry_points.as_slice() else { return Err("not one entry point".into()) };
    if entry.name != key.entry_point() {
        return Err(format!("the entry point is {}", entry.name));
    }
    let invocations: u32 = entry.workgroup_size.iter().product();
    if invocations > MAX_INVOCATIONS {
        return Err(format!("{invocations} invocations a workgroup"));
    }
    let (mut n_storage, mut workgroup_bytes) = (0, 0);
    for (handle, variable) in module.global_variables.iter() {
        match variable.space {
            naga::AddressSpace::Storage { .. } => n_storage += 1,
            naga::AddressSpace::WorkGroup if !info.get_entry_point(0)[handle].is_empty() => {
                workgroup_bytes += module.types[variable.ty].inner.size(module.to_ctx());
            }
            _ => {}
        }
    }
    if n_storage > MAX_STORAGE_BUFFERS || workgroup_bytes > MAX_WORKGROUP_BYTES {
        return Err(format!("{n_storage} storage buffers, {workgroup_bytes} bytes of workgroup memory"));
    }
    Ok(())
}

fn is_without_value(line: &str) -> bool {
    line.trim_start().starts_with("var ") && !line.contains('=')
}
