//! Web Locks: a lock is free once whoever held it is gone, however it went. So a tab shows that it lives, and sees that
//! its engine does.
//!
//! Invariant: no lock outlives the value that holds it.

use std::{cell::RefCell, rc::Rc};

use futures_channel::oneshot;
use js_sys::{Function, Object, Promise, Reflect};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure, prelude::wasm_bindgen};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["navigator", "locks"], js_name = request)]
    fn request_lock(name: &str, options: &Object, on_grant: &Function) -> Result<Promise, JsValue>;
}

/// A lock that is held until this is dropped.
pub(super) struct Held {
    name: String,
    release: Function,
}

impl Held {
    /// The lock's name.
    pub(super) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A promise's own resolver does not throw.
        let _ = self.release.call0(&JsValue::UNDEFINED);
    }
}

/// Whether the browser has locks at all: only where the page came by a secure way.
pub(super) fn exist() -> bool {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).unwrap_or_default();
    Reflect::get(&navigator, &"locks".into()).is_ok_and(|locks| locks.is_object())
}

/// Waits for a lock; nothing where there are no locks.
pub(super) async fn hold(name: &str) -> Option<Held> {
    let mut release = None;
    let until_released = Promise::new(&mut |resolve, _| release = Some(resolve));
    let (sender, granted) = oneshot::channel();
    let sender = Rc::new(RefCell::new(Some(sender)));
    let on_grant = Closure::once_into_js({
        let sender = Rc::clone(&sender);
        move |_lock: JsValue| {
            // Nobody waits any more where the page has let go meanwhile: then the lock is free again at once.
            sender.take().and_then(|sender| sender.send(()).ok()).map(|()| until_released)
        }
    });
    let on_refusal = Closure::once_into_js(move |_error: JsValue| drop(sender.take()));
    let ended = request_lock(name, &Object::new(), on_grant.unchecked_ref()).ok()?;
    // A refusal ends the wait.
    let _ = Reflect::get(&ended, &"catch".into())
        .and_then(|catch| catch.unchecked_into::<Function>().call1(&ended, &on_refusal));
    granted.await.ok()?;
    Some(Held { name: name.to_owned(), release: release? })
}

/// Calls `then` once nobody holds a lock for itself alone.
pub(super) fn when_free(name: &str, then: impl FnOnce() + 'static) {
    let on_grant = Closure::once_into_js(move |_lock: JsValue| then());
    // Where there are no locks, nothing is ever noticed this way.
    let _ = request_lock(name, &options("mode", "shared".into()), on_grant.unchecked_ref());
}

/// Takes a lock away from whoever holds it, who hears of it, and leaves it to the next in line.
pub(super) fn steal(name: &str) {
    let on_grant = Closure::once_into_js(move |_lock: JsValue| {});
    let _ = request_lock(name, &options("steal", true.into()), on_grant.unchecked_ref());
}

fn options(name: &str, value: JsValue) -> Object {
    let options = Object::new();
    // A plain object takes every property.
    let _ = Reflect::set(&options, &name.into(), &value);
    options
}
