//! Moves envelopes over anything with `postMessage` and `onmessage`: `[Uint8Array message, ...attachments]` both ways.
//!
//! An engine that cannot go on says `["fatal", sentence]` instead; after that, or an error of the worker itself, the
//! port stays silent.

use std::{cell::Cell, rc::Rc};

use js_sys::{Array, Uint8Array};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use web_sys::{ErrorEvent, MessageEvent, Worker, WorkerOptions, WorkerType};

use super::Incoming;
use crate::protocol;

/// Where the engine's worker script lies, relative to the page.
const WORKER_SCRIPT: &str = "engine_worker.js";

/// An open connection to an engine of its own; dropping it ends the engine.
pub(super) struct Port {
    worker: Worker,
    // The browser calls these for as long as the worker lives.
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_error: Closure<dyn FnMut(ErrorEvent)>,
}

impl Port {
    /// Starts an engine in a worker of its own and hands what it says to `hear`. The error is a sentence.
    pub(super) fn open(hear: impl Fn(Incoming) + Clone + 'static) -> Result<Self, String> {
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        options.set_name("pagelm engine");
        let worker = Worker::new_with_options(WORKER_SCRIPT, &options).map_err(|error| {
            format!(
                "This browser did not start the engine's worker ({}); a current browser would.",
                words(&error)
            )
        })?;
        // One fault may be told twice, by the engine's own last words and by its worker: the first says the most.
        let lost = Rc::new(Cell::new(false));
        let hear = move |incoming: Incoming| {
            if !lost.get() {
                lost.set(matches!(incoming, Incoming::Lost(_)));
                hear(incoming);
            }
        };
        let on_message = Closure::new({
            let hear = hear.clone();
            move |event: MessageEvent| hear(open_envelope(&event.data()))
        });
        let on_error = Closure::new(move |event: ErrorEvent| hear(Incoming::Lost(worker_error(&event))));
        worker.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        worker.set_onerror(Some(on_error.as_ref().unchecked_ref()));
        Ok(Self { worker, _on_message: on_message, _on_error: on_error })
    }

    /// Sends one message and its attachments. The error is a sentence.
    pub(super) fn post(&self, message: &[u8], attachments: &[JsValue]) -> Result<(), String> {
        let mut envelope = Array::of1(&Uint8Array::from(message));
        envelope.extend(attachments);
        self.worker
            .post_message(&envelope)
            .map_err(|error| format!("The engine could not be reached: {}; reload the page.", words(&error)))
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.worker.set_onmessage(None);
        self.worker.set_onerror(None);
        self.worker.terminate();
    }
}

/// What an envelope from the engine says; one that cannot be read means that page and engine do not belong together.
fn open_envelope(data: &JsValue) -> Incoming {
    let envelope = data.dyn_ref::<Array>().map(|parts| (parts.get(0), parts.get(1)));
    match envelope {
        Some((first, sentence)) if first.as_string().as_deref() == Some("fatal") => Incoming::Lost(
            sentence.as_string().unwrap_or_else(|| "The engine stopped without saying why.".to_owned()),
        ),
        Some((first, _)) if first.is_instance_of::<Uint8Array>() => {
            match protocol::decode(&first.unchecked_into::<Uint8Array>().to_vec()) {
                Ok(event) => Incoming::Event(event),
                Err(error) => Incoming::Lost(format!("The engine's message is unreadable: {error}.")),
            }
        }
        _ => Incoming::Lost("The engine sent something that is not a message; reload the page.".to_owned()),
    }
}

/// An error event of the worker as a sentence. Its text is empty where the script itself could not be fetched.
fn worker_error(event: &ErrorEvent) -> String {
    // An `Event`, not an `ErrorEvent`, comes where the script is missing, and has no such field.
    let message = js_sys::Reflect::get(event, &JsValue::from_str("message")).ok();
    match message.and_then(|message| message.as_string()).filter(|message| !message.is_empty()) {
        Some(message) => format!("The engine stopped: {message}. Load a model to start it again."),
        None => {
            format!(
                "The engine did not start: {WORKER_SCRIPT} beside this page could not be loaded; reload the page."
            )
        }
    }
}

/// A thrown value in words.
fn words(error: &JsValue) -> String {
    match error.dyn_ref::<js_sys::Error>() {
        Some(error) => error.message().into(),
        None => error.as_string().unwrap_or_else(|| "no reason given".to_owned()),
    }
}
