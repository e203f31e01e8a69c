//! A page's side of its engine: sends requests, hears events. It knows messages and no meaning of theirs.

mod exchange;
mod port;

use std::{
    cell::{Cell, RefCell},
    ops::ControlFlow,
    rc::Rc,
};

use wasm_bindgen::JsValue;

use self::port::Port;
use crate::protocol::{self, BUILD, Event, Request, RequestId, VERSION};

/// What reaches the page.
#[derive(Debug, Clone, PartialEq)]
pub enum Incoming {
    /// The engine said something.
    Event(Event),
    /// The engine is gone, and one sentence why; [`Client::restart`] starts another.
    Lost(String),
}

/// Called with everything that arrives, until it breaks.
type Listener = Box<dyn FnMut(&Incoming) -> ControlFlow<()>>;

/// A connection to one engine, which it starts. Every request's id comes from [`Client::next_request`], so that all
/// askers of a page share the connection.
pub struct Client {
    port: RefCell<Option<Port>>,
    listeners: RefCell<Vec<Listener>>,
    last_request: Cell<RequestId>,
}

impl Client {
    /// A connection without an engine: listen first, then [`Client::restart`].
    pub fn new() -> Rc<Self> {
        Rc::new(Self {
            port: RefCell::new(None),
            listeners: RefCell::new(Vec::new()),
            last_request: Cell::new(0),
        })
    }

    /// Ends the engine there is, if any, and starts a new one. A failure to start is heard as [`Incoming::Lost`].
    pub fn restart(self: &Rc<Self>) {
        // The old port goes first: its worker ends and its late messages have nobody to reach.
        self.port.replace(None);
        let client = Rc::downgrade(self);
        let opened = Port::open(move |incoming| {
            if let Some(client) = client.upgrade() {
                client.hear(&incoming);
            }
        });
        match opened {
            Ok(port) => {
                self.port.replace(Some(port));
                self.send(
                    &Request::Hello { version: VERSION, build: BUILD.into(), lock: String::new() },
                    &[],
                );
            }
            Err(sentence) => self.hear(&Incoming::Lost(sentence)),
        }
    }

    /// An id that no request of this page has had.
    pub fn next_request(&self) -> RequestId {
        self.last_request.set(self.last_request.get() + 1);
        self.last_request.get()
    }

    /// Sends a request, with the files it names by index. Where no engine runs, that is heard as [`Incoming::Lost`].
    pub fn send(&self, request: &Request, attachments: &[JsValue]) {
        let posted = match &*self.port.borrow() {
            Some(port) => port.post(&protocol::encode(request), attachments),
            None => Err("The engine is not running; load a model to start it again.".to_owned()),
        };
        if let Err(sentence) = posted {
            self.hear(&Incoming::Lost(sentence));
        }
    }

    /// Calls `listener` with everything that arrives from now on, until it breaks.
    pub fn listen(&self, listener: impl FnMut(&Incoming) -> ControlFlow<()> + 'static) {
        self.listeners.borrow_mut().push(Box::new(listener));
    }

    /// Tells every listener. They are taken out meanwhile, so that a listener may itself use the client.
    fn hear(&self, incoming: &Incoming) {
        let mut listeners = self.listeners.take();
        listeners.retain_mut(|listener| listener(incoming).is_continue());
        let mut added = self.listeners.borrow_mut();
        listeners.append(&mut added);
        *added = listeners;
    }
}
