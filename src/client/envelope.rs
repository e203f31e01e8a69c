//! What crosses: `[Uint8Array message, ...attachments]` both ways, and from the engine's worker script a few words of its
//! own: `["open", instance]`, `["no-gpu"]` and `["fatal", sentence, instance]`.

use js_sys::{Array, Uint8Array};
use wasm_bindgen::{JsCast as _, JsValue};

use crate::protocol::{self, Event};

/// What came over a line.
#[derive(Debug)]
pub(super) enum Heard {
    /// A worker listens; the name tells it from the one before it.
    Open(String),
    /// There is no WebGPU where that worker runs.
    NoGpu,
    /// The engine said something, with what travels beside it.
    Event(Box<Event>, Vec<JsValue>),
    /// The engine cannot go on: one sentence why.
    Fatal(String),
    /// No engine can be had this way: one sentence why, and what would help.
    Broken(String),
}

/// A message and its attachments, ready to be posted.
pub(super) fn pack(message: &[u8], attachments: &[JsValue]) -> Array {
    let mut envelope = Array::of1(&Uint8Array::from(message));
    envelope.extend(attachments);
    envelope
}

/// What was posted; one that cannot be read means that page and engine do not belong together.
pub(super) fn open(data: &JsValue) -> Heard {
    let Some(parts) = data.dyn_ref::<Array>() else { return foreign() };
    let (first, second) = (parts.get(0), parts.get(1).as_string());
    if let Some(bytes) = first.dyn_ref::<Uint8Array>() {
        return match protocol::decode(&bytes.to_vec()) {
            Ok(event) => Heard::Event(Box::new(event), parts.iter().skip(1).collect()),
            Err(error) => Heard::Broken(format!("The engine's message is unreadable: {error}.")),
        };
    }
    match (first.as_string().as_deref(), second) {
        (Some("open"), Some(instance)) => Heard::Open(instance),
        (Some("no-gpu"), _) => Heard::NoGpu,
        (Some("fatal"), Some(sentence)) => Heard::Fatal(sentence),
        _ => foreign(),
    }
}

fn foreign() -> Heard {
    Heard::Broken("The engine sent something that is not a message; reload the page.".to_owned())
}

/// A thrown value in words.
pub(super) fn words(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => error.message().into(),
        None => error.as_string().unwrap_or_else(|| "no reason given".to_owned()),
    }
}
