//! Web Locks: the browser gives them back when their tab ends, however it ends. Where there are none, nothing is held.

use js_sys::{Function, Object, Promise, Reflect};
use leptos::prelude::*;
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;

/// A lock that is held until this is dropped.
#[derive(Debug)]
pub(crate) struct WebLock {
    release: Function,
}

/// What came of asking for a lock.
#[derive(Debug)]
pub(crate) enum Claim {
    /// It is this tab's.
    Held(WebLock),
    /// Someone else has it.
    Taken,
    /// This browser has no locks.
    Unavailable,
}

impl Drop for WebLock {
    fn drop(&mut self) {
        // A promise's own resolver does not throw.
        let _ = self.release.call0(&JsValue::UNDEFINED);
    }
}

/// Takes a lock for oneself, unless someone has it.
pub(crate) async fn try_exclusive(name: &str) -> Claim {
    request(name, "exclusive", true).await
}

/// Takes a lock for oneself once nobody has it.
pub(crate) async fn exclusive(name: &str) -> Claim {
    request(name, "exclusive", false).await
}

/// Whether someone has the lock for himself.
pub(crate) async fn is_taken(name: &str) -> bool {
    matches!(request(name, "shared", true).await, Claim::Taken)
}

/// Waits until nobody has the lock for himself.
pub(crate) async fn until_free(name: &str) {
    drop(request(name, "shared", false).await);
}

async fn request(name: &str, mode: &str, if_available: bool) -> Claim {
    let Some((locks, request)) = lock_manager() else { return Claim::Unavailable };
    let answer = Promise::new(&mut |resolve, reject| {
        let asked = ask(&locks, &request, name, mode, if_available, resolve);
        leptos::task::spawn_local(async move {
            // It rejects where the page may not have locks; otherwise it lasts as long as the lock is held.
            let refused = match asked {
                Ok(asked) => JsFuture::from(asked).await.is_err(),
                Err(_) => true,
            };
            if refused {
                let _ = reject.call0(&JsValue::UNDEFINED);
            }
        });
    });
    match JsFuture::from(answer).await.map(|release| release.dyn_into::<Function>()) {
        Ok(Ok(release)) => Claim::Held(WebLock { release }),
        Ok(Err(_)) => Claim::Taken,
        Err(_) => Claim::Unavailable,
    }
}

/// Asks, and has `granted` called with what gives the lock back, or with nothing where it is taken.
fn ask(
    locks: &JsValue,
    request: &Function,
    name: &str,
    mode: &str,
    if_available: bool,
    granted: Function,
) -> Result<Promise, JsValue> {
    let options = Object::new();
    Reflect::set(&options, &"mode".into(), &mode.into())?;
    Reflect::set(&options, &"ifAvailable".into(), &if_available.into())?;
    let callback = Closure::once_into_js(move |lock: JsValue| -> JsValue {
        let mut release = JsValue::NULL;
        let held = match lock.is_null() {
            true => JsValue::UNDEFINED,
            false => Promise::new(&mut |resolve, _| release = resolve.into()).into(),
        };
        let _ = granted.call1(&JsValue::UNDEFINED, &release);
        held
    });
    request.call3(locks, &name.into(), &options, &callback)?.dyn_into()
}

/// The browser's locks and how to ask them; not every page is given them.
fn lock_manager() -> Option<(JsValue, Function)> {
    let locks = Reflect::get(&window().navigator(), &"locks".into()).ok()?;
    let request = Reflect::get(&locks, &"request".into()).ok()?.dyn_into().ok()?;
    Some((locks, request))
}
