//! The engine in a worker: ports in, ports out.
//!
//! Invariant: a message is an array of the encoded bytes and its attachments; what is not, is answered with a sentence.

use std::cell::RefCell;
use std::rc::Rc;

use futures_channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures_util::StreamExt as _;
use js_sys::{Array, Function, Uint8Array};
use wasm_bindgen::prelude::*;

use super::load::{self, LoadError};
use super::{ConnectionId, Host, Surroundings};
use crate::protocol::{self, AttachedFile, Event, LoadOptions, ModelInfo, ModelSource, Request};
use crate::store::{Source as _, web::WebSource};

#[wasm_bindgen]
extern "C" {
    /// Anything that messages are posted to: a worker's own scope, later a shared worker's port.
    pub type Port;

    #[wasm_bindgen(method, catch, js_name = postMessage)]
    fn post_message(this: &Port, message: &JsValue) -> Result<(), JsValue>;

    #[wasm_bindgen(method, setter, js_name = onmessage)]
    fn set_onmessage(this: &Port, handler: &Function);

    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;
}

/// What a port brought.
struct Letter {
    connection: ConnectionId,
    message: Result<(Request, Vec<JsValue>), String>,
}

/// The engine, and the ports it answers.
pub struct WebHost {
    ports: Rc<RefCell<Vec<Port>>>,
    inbox: UnboundedSender<Letter>,
}

impl WebHost {
    /// Starts the loop; it runs as long as the worker does.
    pub fn start() -> Self {
        let ports = Rc::new(RefCell::new(Vec::new()));
        let (inbox, letters) = unbounded();
        wasm_bindgen_futures::spawn_local(run(letters, Rc::clone(&ports)));
        Self { ports, inbox }
    }

    /// Serves one more port; `early` are the messages that came before.
    pub fn attach(&self, port: Port, early: &Array) {
        let connection = self.ports.borrow().len() as ConnectionId;
        let inbox = self.inbox.clone();
        let deliver = move |data: JsValue| {
            // The loop lives as long as the worker.
            let _ = inbox.unbounded_send(Letter { connection, message: open(&data) });
        };
        early.iter().for_each(&deliver);
        let handler = Closure::<dyn Fn(JsValue)>::new(move |event: JsValue| {
            deliver(js_sys::Reflect::get(&event, &"data".into()).unwrap_or_default());
        });
        port.set_onmessage(handler.as_ref().unchecked_ref());
        // As long-lived as the port, which lives as long as the worker.
        handler.forget();
        self.ports.borrow_mut().push(port);
    }

    /// Tells every port in plain words that the engine cannot go on.
    pub fn announce_failure(&self, text: &str) {
        let message = Array::of2(&"fatal".into(), &text.into());
        for port in self.ports.borrow().iter() {
            let _ = port.post_message(&message);
        }
    }
}

/// The one loop: letters first, then a step, then what it brought.
async fn run(mut letters: UnboundedReceiver<Letter>, ports: Rc<RefCell<Vec<Port>>>) {
    let surroundings = Surroundings { now_ms: performance_now, unix_secs, entropy, memory_bytes };
    let mut host = Host::new(surroundings, None);
    loop {
        while let Ok(letter) = letters.try_recv() {
            receive(&mut host, letter, &ports).await;
        }
        post_all(&mut host, &ports);
        if host.has_work() {
            host.step().await;
            post_all(&mut host, &ports);
        } else {
            let Some(letter) = letters.next().await else { return };
            receive(&mut host, letter, &ports).await;
        }
    }
}

async fn receive(host: &mut Host, letter: Letter, ports: &RefCell<Vec<Port>>) {
    let connection = letter.connection;
    let (request, attachments) = match letter.message {
        Ok(message) => message,
        Err(error) => return post(ports, connection, &Event::Failed { request: None, error }),
    };
    match request {
        Request::Hello { version, .. } => host.greet(connection, version),
        Request::Load { source, options, .. } => {
            load_model(host, connection, source, &options, &attachments, ports).await;
        }
        Request::Generate { request, prompts, options, .. } => {
            host.generate(connection, request, &prompts[0], &options);
        }
        Request::Tokenize { request, prompt, .. } => host.tokenize(connection, request, &prompt),
        Request::Status { request } => host.status(connection, request),
        Request::Cancel { request } => host.cancel(connection, request),
        Request::Received { .. } | Request::Bye | Request::Break { .. } => {}
    }
}

async fn load_model(
    host: &mut Host,
    connection: ConnectionId,
    source: ModelSource,
    options: &LoadOptions,
    attachments: &[JsValue],
    ports: &RefCell<Vec<Port>>,
) {
    let event = match try_load(host, connection, source, options, attachments, ports).await {
        Ok(model) => {
            Event::Ready { model, source: ModelSource::Url { url: String::new() }, options: options.clone() }
        }
        Err(error) => Event::LoadFailed { error, unloaded: host.loaded().is_none() },
    };
    post_all(host, ports);
    post(ports, connection, &event);
}

/// Answers run on until the new model's headers have been found good. The error is a sentence.
async fn try_load(
    host: &mut Host,
    connection: ConnectionId,
    source: ModelSource,
    options: &LoadOptions,
    attachments: &[JsValue],
    ports: &RefCell<Vec<Port>>,
) -> Result<ModelInfo, String> {
    let sources = sources(source, attachments).await?;
    let stage = match &sources[..] {
        [source] => format!("Loading {}", source.name()),
        [first, _] => format!("Loading {} and 1 more file", first.name()),
        [first, ..] => format!("Loading {} and {} more files", first.name(), sources.len() - 1),
        [] => "Loading".into(),
    };
    let total_bytes = sources.iter().map(WebSource::len_bytes).sum();
    post(ports, connection, &Event::Loading { stage: stage.clone(), done_bytes: 0, total_bytes });
    let described = load::describe(sources, options).await.map_err(in_words)?;
    let gpu = host.make_room().await.map_err(|error| error.to_string())?;
    // Before the weights, which may take minutes.
    post_all(host, ports);
    let progress = |done_bytes, total_bytes| {
        post(ports, connection, &Event::Loading { stage: stage.clone(), done_bytes, total_bytes });
    };
    host.load_on(gpu, described, progress).await.map_err(in_words)
}

/// The error as a sentence; what a setting of the page caused, with the way to it.
fn in_words(error: LoadError) -> String {
    match error {
        LoadError::Context { .. } => {
            format!("{error}; change \u{201c}Context length\u{201d} in the settings, under Loading")
        }
        _ => error.to_string(),
    }
}

async fn sources(source: ModelSource, attachments: &[JsValue]) -> Result<Vec<WebSource>, String> {
    match source {
        ModelSource::Url { url } => WebSource::model_files(&url).await.map_err(|error| error.to_string()),
        ModelSource::Attachments { files } => {
            let file = |(index, AttachedFile { name, .. }): (usize, AttachedFile)| {
                let attachment = attachments.get(index).and_then(|value| value.dyn_ref::<web_sys::Blob>());
                let blob = attachment
                    .ok_or_else(|| format!("{name}: the file did not reach the engine; open it again"))?;
                Ok(WebSource::from_blob(name, blob.clone()))
            };
            files.into_iter().enumerate().map(file).collect()
        }
    }
}

fn open(data: &JsValue) -> Result<(Request, Vec<JsValue>), String> {
    let parts: &Array = data.dyn_ref().ok_or("a message to the engine is not an array; reload the page")?;
    let bytes: Uint8Array =
        parts.get(0).dyn_into().ok().ok_or("a message to the engine has no bytes; reload the page")?;
    let request = protocol::decode(&bytes.to_vec()).map_err(|error| error.to_string())?;
    Ok((request, parts.iter().skip(1).collect()))
}

fn post_all(host: &mut Host, ports: &RefCell<Vec<Port>>) {
    for (connection, event) in host.take_events() {
        post(ports, connection, &event);
    }
}

fn post(ports: &RefCell<Vec<Port>>, connection: ConnectionId, event: &Event) {
    let message = Array::of1(&Uint8Array::from(protocol::encode(event).as_slice()));
    if let Some(port) = ports.borrow().get(connection as usize) {
        // A port whose tab is gone takes no messages, and nobody misses them.
        let _ = port.post_message(&message);
    }
}

fn unix_secs() -> i64 {
    (js_sys::Date::now() / 1000.0) as i64
}

fn entropy() -> u64 {
    let halves = [js_sys::Math::random(), js_sys::Math::random()].map(|half| (half * 4294967296.0) as u64);
    halves[0] << 32 | halves[1]
}

fn memory_bytes() -> Option<u64> {
    let memory: js_sys::WebAssembly::Memory = wasm_bindgen::memory().dyn_into().ok()?;
    let buffer: js_sys::ArrayBuffer = memory.buffer().dyn_into().ok()?;
    Some(u64::from(buffer.byte_length()))
}
