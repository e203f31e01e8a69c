//! The engine in a worker: ports in, ports out, and what else a browser has to give.
//!
//! Invariant: a message is an array of the encoded bytes and its attachments; what is not, is told as garbled. What GPU
//! memory takes is done only under the engine's lock, of which there is one for each address of the page.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_channel::mpsc::{UnboundedSender, unbounded};
use js_sys::{Array, Function, Promise, Set, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::{JsFuture, spawn_local};

use super::check::Records;
use super::load::LoadError;
use super::serve::{Letter, Place, serve};
use super::{ConnectionId, Surroundings};
use crate::protocol::{AttachedFile, ModelSource};
use crate::store::library::{self, ModelFile};
use crate::store::web::WebSource;
use locks::Lock;
use records::CacheRecords;

mod locks;
mod records;
mod turns;

#[wasm_bindgen]
extern "C" {
    /// What messages are posted to: a shared worker's port, or what www/engine_worker.js makes of the tabs' channel.
    pub type Port;

    #[wasm_bindgen(method, catch, js_name = postMessage)]
    fn post_message(this: &Port, message: &JsValue) -> Result<(), JsValue>;

    #[wasm_bindgen(method, setter, js_name = onmessage)]
    fn set_onmessage(this: &Port, handler: &JsValue);

    #[wasm_bindgen(method, js_name = close)]
    fn close_port(this: &Port);

    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;

    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &Function, ms: f64) -> f64;

    #[wasm_bindgen(js_name = close)]
    fn close_worker();

    /// Of www/engine_worker.js: tells every port in plain words that the engine cannot go on, and ends the worker.
    pub fn fatal(sentence: &str);
}

/// The engine, and the ports it answers.
pub struct WebHost {
    inbox: UnboundedSender<Letter<JsValue>>,
    ports: Rc<Ports>,
    n_connections: Cell<ConnectionId>,
}

/// The ports that are open.
struct Ports {
    open: RefCell<BTreeMap<ConnectionId, OpenPort>>,
    /// The worker script's own list of them, which lets them live.
    met: Set,
}

struct OpenPort {
    port: Port,
    _on_message: Closure<dyn Fn(JsValue)>,
}

/// The worker, as the engine's loop sees it.
struct WorkerPlace {
    ports: Rc<Ports>,
    inbox: UnboundedSender<Letter<JsValue>>,
    /// Shows that the engine lives.
    epoch: Lock,
    /// The path of the page.
    base: String,
    /// Shows that it alone may take GPU memory. Asked for when that is wanted: an engine without a model is in nobody's way.
    engine: OnceCell<Lock>,
}

impl WebHost {
    /// Starts the loop of the engine for the page under the path `base`; it runs as long as the worker does. `met` is the
    /// worker script's list of ports.
    pub fn start(base: &str, met: Set) -> Self {
        let ports = Rc::new(Ports { open: RefCell::default(), met });
        let (inbox, letters) = unbounded();
        // Whoever takes this lock away, or the other one, wants the engine gone.
        let place = WorkerPlace {
            ports: Rc::clone(&ports),
            inbox: inbox.clone(),
            epoch: Lock::request(format!("pagelm epoch {:016x}", entropy()), close_worker),
            base: base.to_owned(),
            engine: OnceCell::new(),
        };
        let surroundings = Surroundings {
            now_ms: performance_now,
            unix_secs,
            entropy,
            memory_bytes,
            turn: turns::turn,
            n_threads: 1,
        };
        spawn_local(async move {
            // A tab that hears of this lock finds it taken.
            place.epoch.granted().await;
            serve(Rc::new(place), letters, surroundings).await;
        });
        Self { inbox, ports, n_connections: Cell::new(0) }
    }

    /// Serves one more port. What came by it before waits in it.
    pub fn attach(&self, port: Port) {
        let connection = self.n_connections.get();
        self.n_connections.set(connection + 1);
        let inbox = self.inbox.clone();
        let on_message = Closure::<dyn Fn(JsValue)>::new(move |event: JsValue| {
            let data = js_sys::Reflect::get(&event, &"data".into()).unwrap_or_default();
            // The loop lives as long as the worker.
            let _ = inbox.unbounded_send(open(connection, &data));
        });
        port.set_onmessage(on_message.as_ref());
        self.ports.open.borrow_mut().insert(connection, OpenPort { port, _on_message: on_message });
    }
}

impl Ports {
    fn close(&self, connection: ConnectionId) {
        if let Some(OpenPort { port, .. }) = self.open.borrow_mut().remove(&connection) {
            port.set_onmessage(&JsValue::NULL);
            port.close_port();
            self.met.delete(&port);
        }
    }
}

impl Place for WorkerPlace {
    type Attachment = JsValue;
    type Source = ModelFile;

    fn epoch(&self) -> String {
        self.epoch.name().to_owned()
    }

    async fn sources(&self, source: &ModelSource, attachments: &[JsValue]) -> Result<Vec<ModelFile>, String> {
        match source {
            ModelSource::Url { url } => library::open(url).await.map_err(|error| error.to_string()),
            ModelSource::Attachments { files } => {
                let file = |(index, AttachedFile { name, .. }): (usize, &AttachedFile)| {
                    let blob = attachments.get(index).and_then(|value| value.dyn_ref::<web_sys::Blob>());
                    let blob = blob
                        .ok_or_else(|| format!("{name}: the file did not reach the engine; open it again"))?;
                    Ok(ModelFile::Plain(WebSource::from_blob(name, blob.clone())))
                };
                files.iter().enumerate().map(file).collect()
            }
        }
    }

    async fn own_the_gpu(&self) {
        let ask = || Lock::request(format!("pagelm engine {}", self.base), close_worker);
        self.engine.get_or_init(ask).granted().await;
    }

    fn records(&self) -> Option<Rc<dyn Records>> {
        Some(Rc::new(CacheRecords))
    }

    fn post(&self, connection: ConnectionId, bytes: &[u8], attachments: &[JsValue]) {
        let mut message = Array::of1(&Uint8Array::from(bytes));
        message.extend(attachments);
        if let Some(OpenPort { port, .. }) = self.ports.open.borrow().get(&connection) {
            // A port whose tab is gone takes no messages, and nobody misses them.
            let _ = port.post_message(&message);
        }
    }

    fn watch(&self, connection: ConnectionId, lock: &str) {
        let (inbox, ports) = (self.inbox.clone(), Rc::clone(&self.ports));
        locks::when_free(lock, move || {
            ports.close(connection);
            let _ = inbox.unbounded_send(Letter::Gone { connection });
        });
    }

    async fn sleep(&self, ms: f64) {
        let promise = Promise::new(&mut |resolve, _| _ = set_timeout(&resolve, ms));
        // A timer does not fail.
        let _ = JsFuture::from(promise).await;
    }

    fn close(&self) {
        close_worker();
    }

    fn in_words(&self, error: &LoadError) -> String {
        match error {
            LoadError::Context { .. } => {
                format!("{error}; change \u{201c}Context length\u{201d} in the settings, under Loading")
            }
            _ => error.to_string(),
        }
    }
}

fn open(connection: ConnectionId, data: &JsValue) -> Letter<JsValue> {
    let parts = data.dyn_ref::<Array>();
    match parts.map(|parts| (parts, parts.get(0).dyn_into::<Uint8Array>())) {
        Some((parts, Ok(bytes))) => {
            Letter::Message { connection, bytes: bytes.to_vec(), attachments: parts.iter().skip(1).collect() }
        }
        _ => Letter::Garbled { connection },
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
