//! One connection with one engine: over a shared worker or over the tabs' channel.
//!
//! Invariant: the tab's lock is held before anything is said and until the line is closed, so that the engine may take a
//! free lock for a tab that is gone.

use wasm_bindgen::JsValue;

use super::{envelope::words, locks::Held, shared::SharedLine, tabs::TabsLine};
use crate::protocol::{self, BUILD, Event, Request, VERSION};

/// Events between two [`Request::Received`].
const EVENTS_A_RECEIPT: u32 = 16;

/// What messages travel by.
pub(super) enum Line {
    Shared { line: SharedLine, generation: u32 },
    Tabs(TabsLine),
}

/// A connection; dropping it closes it and frees the tab's lock.
pub(super) struct Link {
    line: Line,
    // After the line: the lock goes last.
    lock: Option<Held>,
    /// The worker that listens, once it said so.
    instance: Option<String>,
    /// The lock that the engine holds, once it said so.
    epoch: Option<String>,
    n_unreceipted: u32,
}

impl Link {
    pub(super) fn new(line: Line, lock: Option<Held>) -> Self {
        Self { line, lock, instance: None, epoch: None, n_unreceipted: 0 }
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    pub(super) fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    pub(super) fn epoch(&self) -> Option<&str> {
        self.epoch.as_deref()
    }

    pub(super) fn is_open(&self) -> bool {
        self.instance.is_some()
    }

    /// A worker listens: greets it, if this is the first that is heard of it. Tells whether it is another than before.
    pub(super) fn opened(&mut self, instance: String) -> Result<bool, String> {
        match &self.instance {
            Some(before) => Ok(*before != instance),
            None => {
                self.instance = Some(instance);
                let lock = self.lock.as_ref().map_or_else(String::new, |lock| lock.name().to_owned());
                self.post(&Request::Hello { version: VERSION, build: BUILD.into(), lock }, &[])?;
                Ok(false)
            }
        }
    }

    /// Counts an event and says so now and then; the lock to watch, where the event is the first to name one.
    pub(super) fn received(&mut self, event: &Event) -> Result<Option<String>, String> {
        self.n_unreceipted += 1;
        if self.n_unreceipted == EVENTS_A_RECEIPT {
            self.n_unreceipted = 0;
            self.post(&Request::Received { n_events: EVENTS_A_RECEIPT }, &[])?;
        }
        match event {
            Event::Welcome { epoch, .. } if !epoch.is_empty() && self.epoch.is_none() => {
                self.epoch = Some(epoch.clone());
                Ok(self.epoch.clone())
            }
            _ => Ok(None),
        }
    }

    /// Sends a request and its attachments. The error is a sentence.
    pub(super) fn post(&self, request: &Request, attachments: &[JsValue]) -> Result<(), String> {
        let message = protocol::encode(request);
        let posted = match &self.line {
            Line::Shared { line, .. } => line.post(&message, attachments),
            Line::Tabs(line) => line.post(&message, attachments),
        };
        posted
            .map_err(|error| format!("The engine could not be reached: {}; reload the page.", words(&error)))
    }
}
