//! The page: mounts the interface, and lends its connection to tests and developers as `window.wasmBindings.request`.

use std::cell::OnceCell;

use js_sys::Promise;
use pagelm::ui::Page;
use wasm_bindgen::{JsValue, prelude::wasm_bindgen};

thread_local! {
    static PAGE: OnceCell<Page> = const { OnceCell::new() };
}

fn main() {
    console_error_panic_hook::set_once();
    PAGE.with(|page| _ = page.get_or_init(Page::mount));
}

/// Sends a request given as JSON over the page's connection, also one to break something; resolves with the JSON array of its
/// events, and rejects with a sentence.
#[wasm_bindgen]
pub fn request(json: String) -> Promise {
    PAGE.with(|page| match page.get() {
        Some(page) => page.exchange(&json),
        None => Promise::reject(&JsValue::from_str("the page is not mounted yet")),
    })
}
