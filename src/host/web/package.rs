//! The engine as a package: one of a program's own, wherever JavaScript runs.
//!
//! Invariant: nothing here needs a browser, and nothing lives on once the engine is dropped: its loop ends, with its models.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use futures_channel::mpsc::{UnboundedSender, unbounded};
use js_sys::{Array, Function, Uint8Array};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::spawn_local;

use super::place::WebPlace;
use super::surroundings::surroundings;
use crate::host::ConnectionId;
use crate::host::serve::{Letter, serve};
use crate::protocol::{self, BUILD, Request, VERSION};
use crate::store::OpenError;
use crate::store::library::ModelFile;
use crate::store::web::WebSource;

/// The only connection of each engine.
const CONNECTION: ConnectionId = 0;

thread_local! {
    /// What hears of the end of each engine that lives.
    static HEARERS: RefCell<BTreeMap<u64, Function>> = const { RefCell::new(BTreeMap::new()) };
}

/// An engine, and the one who asks it.
pub struct PackageHost {
    inbox: UnboundedSender<Letter<JsValue>>,
    /// Its place among [`HEARERS`].
    number: u64,
}

/// A program, as the engine's loop sees it.
pub(super) struct Program {
    /// Is called with each encoded event.
    tell: Function,
    /// Is asked for URLs.
    fetch: Function,
}

impl PackageHost {
    /// Starts an engine. `tell` is called with each encoded event, or with a sentence where the engine cannot go on; `fetch`
    /// is asked for the URLs of models.
    pub fn start(tell: Function, fetch: Function) -> Self {
        let (inbox, letters) = unbounded();
        let number = HEARERS.with_borrow_mut(|hearers| {
            let number = hearers.last_key_value().map_or(0, |(last, _)| last + 1);
            hearers.insert(number, tell.clone());
            number
        });
        let place = WebPlace::Program(Program { tell, fetch });
        spawn_local(serve(Rc::new(place), letters, surroundings()));
        let host = Self { inbox, number };
        let hello = Request::Hello { version: VERSION, build: BUILD.into(), lock: String::new() };
        host.send(protocol::encode(&hello), &Array::new());
        host
    }

    /// Asks by an encoded [`Request`] and what belongs to it.
    pub fn send(&self, request: Vec<u8>, attachments: &Array) {
        let attachments = attachments.to_vec();
        self.deliver(Letter::Message { connection: CONNECTION, bytes: request, attachments });
    }

    fn deliver(&self, letter: Letter<JsValue>) {
        // The loop lives as long as this.
        let _ = self.inbox.unbounded_send(letter);
    }
}

impl Drop for PackageHost {
    fn drop(&mut self) {
        HEARERS.with_borrow_mut(|hearers| _ = hearers.remove(&self.number));
    }
}

impl Program {
    /// The files of the model at a URL, which are kept nowhere: whose storage it would be, the program decides.
    pub(super) async fn files_at(&self, url: &str) -> Result<Vec<ModelFile>, OpenError> {
        let files = WebSource::model_files_by(&self.fetch, url).await?;
        Ok(files.into_iter().map(ModelFile::Plain).collect())
    }

    pub(super) fn tell(&self, event: &[u8]) {
        // It keeps what it hears, and throws nothing.
        let _ = self.tell.call1(&JsValue::UNDEFINED, &Uint8Array::from(event));
    }
}

/// Tells every engine's program in plain words that it cannot go on; whether there was one.
pub fn fatal(sentence: &str) -> bool {
    // Whatever was borrowed when the engine stopped stays borrowed.
    let hearers =
        HEARERS.with(|hearers| hearers.try_borrow().map(|hearers| hearers.clone()).unwrap_or_default());
    for tell in hearers.values() {
        let _ = tell.call1(&JsValue::UNDEFINED, &sentence.into());
    }
    !hearers.is_empty()
}
