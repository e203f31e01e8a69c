//! What the browser says of itself, for a report. What it does not say is left out.

use js_sys::{Array, Function, Object, Promise, Reflect};
use leptos::prelude::window;
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;

use super::words;

/// Limits of an adapter that decide what runs on it.
const LIMITS: [&str; 5] = [
    "maxBufferSize",
    "maxStorageBufferBindingSize",
    "maxStorageBuffersPerShaderStage",
    "maxComputeInvocationsPerWorkgroup",
    "maxComputeWorkgroupStorageSize",
];

/// Lines about it.
pub(super) async fn lines() -> Vec<String> {
    let navigator = JsValue::from(window().navigator());
    let agent = text(&navigator, "userAgent");
    let n_threads = get(&navigator, "hardwareConcurrency").and_then(|count| count.as_f64());
    let mut lines = vec![format!("Browser: {agent}")];
    lines.extend(n_threads.map(|count| format!("Processor threads: {count}")));
    lines.push(format!("WebGPU: {}", adapter(&navigator).await));
    lines.push(format!("Storage: {}", storage(&navigator).await));
    let keeper = get(&navigator, "serviceWorker").and_then(|container| get(&container, "controller"));
    lines.push(format!("Kept for offline use: {}", if keeper.is_some() { "yes" } else { "no" }));
    lines
}

/// The adapter that a page is given, with its features and limits.
async fn adapter(navigator: &JsValue) -> String {
    let Some(gpu) = get(navigator, "gpu") else { return "not offered here".to_owned() };
    let Some(adapter) = called(&gpu, "requestAdapter").await else { return "no adapter".to_owned() };
    let info = get(&adapter, "info").unwrap_or_default();
    let names = ["vendor", "architecture", "device", "description"].map(|name| text(&info, name));
    let names: Vec<String> = names.into_iter().filter(|name| !name.is_empty()).collect();
    let features = get(&adapter, "features").map(|features| Array::from(&features)).unwrap_or_default();
    let mut features: Vec<String> = features.iter().filter_map(|feature| feature.as_string()).collect();
    features.sort();
    let limits = get(&adapter, "limits").unwrap_or_default();
    let limit = |name: &str| get(&limits, name)?.as_f64().map(|value| format!("{name} {value}"));
    let limits: Vec<String> = LIMITS.into_iter().filter_map(limit).collect();
    format!("{}; features {}; limits {}", names.join(" "), features.join(" "), limits.join(", "))
}

/// What is kept, how much may be, and whether it lasts.
async fn storage(navigator: &JsValue) -> String {
    let Some(storage) = get(navigator, "storage") else { return "not offered here".to_owned() };
    let estimate = called(&storage, "estimate").await.unwrap_or_default();
    let bytes = |name: &str| {
        let n_bytes = get(&estimate, name).and_then(|value| value.as_f64());
        n_bytes.map_or_else(|| "unknown".to_owned(), |n_bytes| words::bytes(n_bytes as u64))
    };
    let lasts = called(&storage, "persisted").await.is_some_and(|lasts| lasts.is_truthy());
    let lasts = if lasts { "lasting" } else { "may be cleared by the browser" };
    format!("{} of {}, {lasts}", bytes("usage"), bytes("quota"))
}

/// A property, unless it is missing or null.
fn get(object: &JsValue, name: &str) -> Option<JsValue> {
    let object = object.dyn_ref::<Object>()?;
    Reflect::get(object, &name.into()).ok().filter(|value| !value.is_undefined() && !value.is_null())
}

fn text(object: &JsValue, name: &str) -> String {
    get(object, name).and_then(|value| value.as_string()).unwrap_or_default()
}

/// What a method without arguments promises, unless it is refused or null.
async fn called(object: &JsValue, method: &str) -> Option<JsValue> {
    let method = get(object, method)?.dyn_into::<Function>().ok()?;
    let promise = method.call0(object).ok()?.dyn_into::<Promise>().ok()?;
    JsFuture::from(promise).await.ok().filter(|value| !value.is_undefined() && !value.is_null())
}
