//! Where JavaScript runs, as the engine's loop sees it: the worker of a page, or a program with an engine of its own.
//!
//! Invariant: both are one type, so that a browser is sent the loop once.

use std::rc::Rc;

use wasm_bindgen::prelude::*;

use super::package::Program;
use super::records::CacheRecords;
use super::surroundings::sleep;
use super::{WorkerPlace, close_worker};
use crate::host::ConnectionId;
use crate::host::check::Records;
use crate::host::load::LoadError;
use crate::host::serve::Place;
use crate::protocol::{AttachedFile, ModelSource};
use crate::store::library::{self, ModelFile};
use crate::store::web::WebSource;

/// The one or the other.
pub(super) enum WebPlace {
    Worker(WorkerPlace),
    Program(Program),
}

impl Place for WebPlace {
    type Attachment = JsValue;
    type Source = ModelFile;

    fn epoch(&self) -> String {
        match self {
            Self::Worker(worker) => worker.epoch.name().to_owned(),
            Self::Program(_) => String::new(),
        }
    }

    async fn sources(&self, source: &ModelSource, attachments: &[JsValue]) -> Result<Vec<ModelFile>, String> {
        match source {
            ModelSource::Url { url } => {
                let files = match self {
                    Self::Worker(_) => library::open(url).await,
                    Self::Program(program) => program.files_at(url).await,
                };
                files.map_err(|error| error.to_string())
            }
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
        match self {
            Self::Worker(worker) => worker.own_the_gpu().await,
            Self::Program(_) => {}
        }
    }

    fn records(&self) -> Option<Rc<dyn Records>> {
        Some(Rc::new(CacheRecords))
    }

    fn post(&self, connection: ConnectionId, bytes: &[u8], attachments: &[JsValue]) {
        match self {
            Self::Worker(worker) => worker.post(connection, bytes, attachments),
            Self::Program(program) => program.tell(bytes),
        }
    }

    fn watch(&self, connection: ConnectionId, lock: &str) {
        match self {
            Self::Worker(worker) => worker.watch(connection, lock),
            Self::Program(_) => {}
        }
    }

    async fn sleep(&self, ms: f64) {
        sleep(ms).await;
    }

    fn close(&self) {
        match self {
            Self::Worker(_) => close_worker(),
            Self::Program(_) => {}
        }
    }

    fn in_words(&self, error: &LoadError) -> String {
        match (self, error) {
            (Self::Worker(_), LoadError::Context { .. }) => {
                format!("{error}; change \u{201c}Context length\u{201d} in the settings, under Loading")
            }
            _ => error.to_string(),
        }
    }
}
