//! Tensors of a safetensors file by name, for fixtures: it shares no code with the reader that is tested.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use serde_json::Value;

/// The bytes of a tensor.
pub fn tensor_bytes<'a>(file: &'a [u8], name: &str) -> &'a [u8] {
    let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let header: Value = serde_json::from_slice(&file[8..8 + header_len]).unwrap();
    let at = |i: usize| header[name]["data_offsets"][i].as_u64().unwrap() as usize + 8 + header_len;
    &file[at(0)..at(1)]
}

/// The values of a tensor of f32.
pub fn tensor_values(file: &[u8], name: &str) -> Vec<f32> {
    tensor_bytes(file, name).as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)).collect()
}
