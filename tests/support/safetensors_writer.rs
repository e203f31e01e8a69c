//! Safetensors files made of others, after the format's description alone: it shares no code with the reader that is tested.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "every test file uses its own part of this"
)]

use serde_json::{Map, Value, json};

/// A file whose header and data were edited.
pub fn edited(file: &[u8], edit: impl FnOnce(&mut Map<String, Value>, &mut Vec<u8>)) -> Vec<u8> {
    let header_len = u64::from_le_bytes(file[..8].try_into().unwrap()) as usize;
    let mut header = serde_json::from_slice(&file[8..8 + header_len]).unwrap();
    let mut data = file[8 + header_len..].to_vec();
    edit(&mut header, &mut data);
    let json = serde_json::to_vec(&header).unwrap();
    [&(json.len() as u64).to_le_bytes()[..], &json, &data].concat()
}

/// The same tensors under other names.
pub fn renamed(file: &[u8], rename: impl Fn(&str) -> String) -> Vec<u8> {
    edited(file, |header, _| {
        *header = std::mem::take(header).into_iter().map(|(name, info)| (rename(&name), info)).collect();
    })
}

/// One tensor more, of zeros; its shape outermost first.
pub fn with_tensor(file: &[u8], name: &str, dtype: &str, shape: &[u64], n_bytes: usize) -> Vec<u8> {
    edited(file, |header, data| {
        let start = data.len();
        data.resize(start + n_bytes, 0);
        let info = json!({"dtype": dtype, "shape": shape, "data_offsets": [start, start + n_bytes]});
        header.insert(name.into(), info);
    })
}

/// One tensor less; what follows it moves up.
pub fn without_tensor(file: &[u8], name: &str) -> Vec<u8> {
    edited(file, |header, data| {
        let removed = header.remove(name).unwrap();
        let at = |info: &Value, i: usize| info["data_offsets"][i].as_u64().unwrap() as usize;
        let (start, end) = (at(&removed, 0), at(&removed, 1));
        data.drain(start..end);
        for (_, info) in header.iter_mut().filter(|(name, _)| *name != "__metadata__") {
            if at(info, 0) >= end {
                info["data_offsets"] = json!([at(info, 0) - (end - start), at(info, 1) - (end - start)]);
            }
        }
    })
}

/// A number of a tensor replaced: the `index`-th of those with so many bytes.
pub fn with_value(file: &[u8], name: &str, index: usize, value: &[u8]) -> Vec<u8> {
    edited(file, |header, data| {
        let start = header[name]["data_offsets"][0].as_u64().unwrap() as usize + index * value.len();
        data[start..start + value.len()].copy_from_slice(value);
    })
}
