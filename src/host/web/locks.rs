//! Web Locks in the engine's worker: what is held until the worker ends, and whose end is waited for.

use std::cell::Cell;
use std::rc::Rc;

use js_sys::{Function, Object, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["navigator", "locks"], js_name = request)]
    fn request_lock(name: &str, options: &Object, on_grant: &Function) -> Result<Promise, JsValue>;
}

/// A lock that is asked for, then held as long as the worker lives.
pub(super) struct Lock {
    /// Empty where the browser has no locks.
    name: String,
    granted: Promise,
}

impl Lock {
    /// Stands in line for a lock. `lost` is called if another takes it away. A browser that lets the page keep nothing
    /// refuses it: then it counts as granted, for nobody else has it either.
    pub(super) fn request(name: String, lost: impl FnOnce() + 'static) -> Self {
        let mut grant = None;
        let granted = Promise::new(&mut |resolve, _| grant = Some(resolve));
        let grant = Rc::new(Cell::new(grant));
        let take_grant = {
            let grant = Rc::clone(&grant);
            // A promise's own resolver does not throw.
            move || grant.take().map(|grant| grant.call0(&JsValue::UNDEFINED))
        };
        let on_grant = Closure::once_into_js(move |_lock: JsValue| {
            take_grant();
            Promise::new(&mut |_, _| ())
        });
        match request_lock(&name, &Object::new(), on_grant.unchecked_ref()) {
            Ok(ended) => {
                wasm_bindgen_futures::spawn_local(async move {
                    if JsFuture::from(ended).await.is_err() {
                        match grant.take() {
                            Some(refused) => _ = refused.call0(&JsValue::UNDEFINED),
                            None => lost(),
                        }
                    }
                });
                Self { name, granted }
            }
            Err(_) => Self { name: String::new(), granted: Promise::resolve(&JsValue::UNDEFINED) },
        }
    }

    /// A refused one has its name too: whoever asks for it is refused as well.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Waits until it is held.
    pub(super) async fn granted(&self) {
        // It is always resolved, but by the end of the worker.
        let _ = JsFuture::from(self.granted.clone()).await;
    }
}

/// Calls `then` once nobody holds a lock.
pub(super) fn when_free(name: &str, then: impl FnOnce() + 'static) {
    if name.is_empty() {
        return;
    }
    let options = Object::new();
    // A plain object takes every property.
    let _ = Reflect::set(&options, &"mode".into(), &"shared".into());
    let on_grant = Closure::once_into_js(move |_lock: JsValue| then());
    // Where there are no locks, a tab's end is told by itself alone.
    let _ = request_lock(name, &options, on_grant.unchecked_ref());
}
