//! A line to the engine in a worker that all tabs of the origin share.

use js_sys::{Object, Promise, Reflect};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure, prelude::wasm_bindgen};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Event, MessageEvent, MessagePort};

use super::{
    envelope::{self, Heard, words},
    place::{self, WORKER_SCRIPT},
};

#[wasm_bindgen]
extern "C" {
    type SharedWorker;

    #[wasm_bindgen(constructor, catch)]
    fn new(script: &str, options: &Object) -> Result<SharedWorker, JsValue>;

    #[wasm_bindgen(method, getter)]
    fn port(this: &SharedWorker) -> MessagePort;

    #[wasm_bindgen(method, setter, js_name = onerror)]
    fn set_onerror(this: &SharedWorker, handler: &JsValue);

    #[wasm_bindgen(catch, js_namespace = ["navigator", "gpu"], js_name = requestAdapter)]
    fn request_adapter() -> Result<Promise, JsValue>;
}

/// Whether the browser has such workers.
pub(super) fn exists() -> bool {
    Reflect::get(&js_sys::global(), &"SharedWorker".into()).is_ok_and(|constructor| constructor.is_function())
}

/// Whether the page gets what its shared worker did not: then a worker of its own does too.
pub(super) async fn page_has_gpu() -> bool {
    match request_adapter() {
        Ok(asked) => JsFuture::from(asked).await.is_ok_and(|adapter| adapter.is_object()),
        // Without WebGPU there is nobody to ask.
        Err(_) => false,
    }
}

/// An open line; dropping it closes it, and the engine lives on as long as another tab is there.
pub(super) struct SharedLine {
    worker: SharedWorker,
    port: MessagePort,
    // The browser calls these for as long as the line is open.
    _on_message: Closure<dyn FnMut(MessageEvent)>,
    _on_error: Closure<dyn FnMut(Event)>,
}

impl SharedLine {
    /// Connects with the worker, which is started if there is none; one that `needs_gpu` leaves where it finds none. The
    /// error is a sentence.
    pub(super) fn open(
        generation: u32,
        needs_gpu: bool,
        hear: impl Fn(Heard) + Clone + 'static,
    ) -> Result<Self, String> {
        let options = Object::new();
        let set = |property: &str, value: JsValue| {
            // A plain object takes every property.
            let _ = Reflect::set(&options, &property.into(), &value);
        };
        set("type", "module".into());
        let kind = if needs_gpu { "" } else { "without-gpu" };
        set("name", format!("pagelm engine {generation} {kind}").trim_end().into());
        // Where the browser knows this, a reload of the only tab finds the engine still there.
        set("extendedLifetime", true.into());
        // Some browsers tell workers apart by their URL alone.
        let script = match (generation, needs_gpu) {
            (0, true) => WORKER_SCRIPT.to_owned(),
            _ => format!("{WORKER_SCRIPT}?{generation}&{kind}"),
        };
        let worker = SharedWorker::new(&script, &options).map_err(|error| {
            format!(
                "This browser did not start the engine's worker ({}); a current browser would.",
                words(&error)
            )
        })?;
        let port = worker.port();
        let on_message = Closure::new({
            let hear = hear.clone();
            move |event: MessageEvent| hear(envelope::open(&event.data()))
        });
        let on_error = Closure::new(move |event: Event| hear(place::worker_error(&event)));
        worker.set_onerror(on_error.as_ref());
        port.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        Ok(Self { worker, port, _on_message: on_message, _on_error: on_error })
    }

    /// Sends one message and its attachments. The error is the browser's own.
    pub(super) fn post(&self, message: &[u8], attachments: &[JsValue]) -> Result<(), JsValue> {
        self.port.post_message(&envelope::pack(message, attachments))
    }
}

impl Drop for SharedLine {
    fn drop(&mut self) {
        self.worker.set_onerror(&JsValue::NULL);
        self.port.set_onmessage(None);
        self.port.close();
    }
}
