//! The engine in a worker: ports in, ports out, and what else a browser has to give.
//!
//! Invariant: a message is an array of the encoded bytes and its attachments; what is not, is told as garbled. What GPU
//! memory takes is done only under the engine's lock, of which there is one for each address of the page.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_channel::mpsc::{UnboundedSender, unbounded};
use js_sys::{Array, Reflect, Set, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use super::ConnectionId;
use super::serve::{Letter, serve};
use locks::Lock;
use place::WebPlace;
use surroundings::{entropy, surroundings};

mod locks;
pub mod package;
mod place;
mod records;
mod surroundings;
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
        spawn_local(async move {
            // A tab that hears of this lock finds it taken.
            place.epoch.granted().await;
            serve(Rc::new(WebPlace::Worker(place)), letters, surroundings()).await;
        });
        Self { inbox, ports, n_connections: Cell::new(0) }
    }

    /// Serves one more port. What came by it before waits in it.
    pub fn attach(&self, port: Port) {
        let connection = self.n_connections.get();
        self.n_connections.set(connection + 1);
        let inbox = self.inbox.clone();
        let on_message = Closure::<dyn Fn(JsValue)>::new(move |event: JsValue| {
            let data = Reflect::get(&event, &"data".into()).unwrap_or_default();
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

impl WorkerPlace {
    async fn own_the_gpu(&self) {
        let ask = || Lock::request(format!("pagelm engine {}", self.base), close_worker);
        self.engine.get_or_init(ask).granted().await;
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
