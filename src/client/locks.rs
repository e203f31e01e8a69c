//! Web Locks: a lock is free once whoever held it is gone, however it went. So a tab shows that it lives, sees that its
//! engine does, and keeps others out of a chat.
//!
//! Invariant: no lock outlives the value that holds it. Where there are no locks, nothing is held.

use js_sys::{Function, Object, Promise, Reflect};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure, prelude::wasm_bindgen};
use wasm_bindgen_futures::{JsFuture, spawn_local};

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(catch, js_namespace = ["navigator", "locks"], js_name = request)]
    fn request_lock(name: &str, options: &Object, on_grant: &Function) -> Result<Promise, JsValue>;
}

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct Held {
    name: String,
    release: Function,
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Claim {
    /// It is this tab's.
    Held(Held),
    /// Someone else has it.
    Taken,
    /// This page has no locks.
    Unavailable,
}

impl Held {
    /// The lock's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // A promise's own resolver does not throw.
        let _ = self.release.call0(&JsValue::UNDEFINED);
    }
}

impl Claim {
    /// The lock, if it is this tab's.
    pub(super) fn held(self) -> Option<Held> {
        match self {
            Self::Held(held) => Some(held),
            Self::Taken | Self::Unavailable => None,
        }
    }
}

/// Whether the browser has locks at all: only where the page came by a secure way.
pub(super) fn exist() -> bool {
    let navigator = Reflect::get(&js_sys::global(), &"navigator".into()).unwrap_or_default();
    Reflect::get(&navigator, &"locks".into()).is_ok_and(|locks| locks.is_object())
}

/// Takes a lock for oneself once nobody has it.
pub(crate) async fn hold(name: &str) -> Claim {
    claim(name, "exclusive", false).await
}

/// Takes a lock for oneself, unless someone has it.
pub(crate) async fn try_hold(name: &str) -> Claim {
    claim(name, "exclusive", true).await
}

/// Whether someone has a lock for himself.
pub(crate) async fn is_taken(name: &str) -> bool {
    matches!(claim(name, "shared", true).await, Claim::Taken)
}

/// Waits until nobody has a lock for himself; false, at once, where that cannot be told.
pub(crate) async fn until_free(name: &str) -> bool {
    matches!(claim(name, "shared", false).await, Claim::Held(_))
}

/// Takes a lock away from whoever holds it, who hears of it, and leaves it to the next in line.
pub(super) fn steal(name: &str) {
    let on_grant = Closure::once_into_js(move |_lock: JsValue| {});
    // Where there are no locks, nobody holds one.
    let _ = request_lock(name, &options([("steal", true.into())]), on_grant.unchecked_ref());
}

async fn claim(name: &str, mode: &str, if_available: bool) -> Claim {
    if !exist() {
        return Claim::Unavailable;
    }
    let options = options([("mode", mode.into()), ("ifAvailable", if_available.into())]);
    // Resolves with what gives the lock back, or with nothing where it is taken.
    let answer = Promise::new(&mut |granted, refused| {
        let on_grant = Closure::once_into_js(move |lock: JsValue| {
            let mut release = JsValue::NULL;
            let held = (!lock.is_null()).then(|| Promise::new(&mut |resolve, _| release = resolve.into()));
            let _ = granted.call1(&JsValue::UNDEFINED, &release);
            held
        });
        let asked = request_lock(name, &options, on_grant.unchecked_ref());
        spawn_local(async move {
            // It rejects where the page may not have locks; otherwise it lasts as long as the lock is held.
            let is_refused = match asked {
                Ok(ended) => JsFuture::from(ended).await.is_err(),
                Err(_) => true,
            };
            if is_refused {
                let _ = refused.call0(&JsValue::UNDEFINED);
            }
        });
    });
    match JsFuture::from(answer).await.map(|release| release.dyn_into::<Function>()) {
        Ok(Ok(release)) => Claim::Held(Held { name: name.to_owned(), release }),
        Ok(Err(_)) => Claim::Taken,
        Err(_) => Claim::Unavailable,
    }
}

fn options<const N: usize>(entries: [(&str, JsValue); N]) -> Object {
    let options = Object::new();
    for (name, value) in entries {
        // A plain object takes every property.
        let _ = Reflect::set(&options, &name.into(), &value);
    }
    options
}
