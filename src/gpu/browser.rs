//! What a browser says of its adapter and can do, and wgpu does not pass on.

use std::cell::Cell;

use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use super::AdapterSummary;

/// The browser's names of the features.
const SUBGROUPS: &str = "subgroups";
const DOT4: &str = "packed_4x8_integer_dot_product";

/// Architectures that are processors imitating a GPU.
const SOFTWARE: [&str; 3] = ["swiftshader", "llvmpipe", "warp"];

/// Names the adapter by its description, else by vendor and architecture, and tells whether it is software.
pub(super) fn describe(device: &wgpu::Device, mut summary: AdapterSummary) -> AdapterSummary {
    let Some(device) = device.as_webgpu() else { return summary };
    let Ok(info) = js_sys::Reflect::get(device.as_ref(), &JsValue::from_str("adapterInfo")) else {
        return summary;
    };
    let field = |name: &str| {
        let value = js_sys::Reflect::get(&info, &JsValue::from_str(name)).ok();
        value.and_then(|value| value.as_string()).unwrap_or_default()
    };
    let (architecture, description) = (field("architecture"), field("description"));
    let vendor_and_architecture = format!("{} {architecture}", field("vendor"));
    let name = if description.is_empty() { vendor_and_architecture.trim() } else { &description };
    if !name.is_empty() {
        summary.name = name.to_owned();
    }
    // Of drivers a browser tells nothing; it brings compilers of its own.
    let agent =
        property(&js_sys::global(), "navigator").and_then(|navigator| property(&navigator, "userAgent"));
    summary.driver = agent.and_then(|agent| agent.as_string()).unwrap_or_default();
    let lower = format!("{architecture} {description}").to_lowercase();
    summary.is_software |= SOFTWARE.iter().any(|software| lower.contains(software));
    summary
}

/// Whether there is WebGPU; makes wgpu see it. That looks only where it finds a page's or a worker's class by name, which
/// runtimes outside of browsers lack.
pub(super) fn show_gpu() -> bool {
    let global = js_sys::global();
    let is_there = |name: &str| property(&global, name).is_some();
    let has_gpu = gpu().is_some();
    if has_gpu && !is_there("Window") && !is_there("WorkerGlobalScope") {
        let name = JsValue::from_str("WorkerGlobalScope");
        // Any class will do that the global object is none of.
        let class = property(&global, "Promise").unwrap_or_default();
        return Reflect::set(&global, &name, &class).unwrap_or(false);
    }
    has_gpu
}

fn gpu() -> Option<JsValue> {
    property(&property(&js_sys::global(), "navigator")?, "gpu")
}

/// Whether a device has subgroups.
pub(super) fn has_subgroups(device: &wgpu::Device) -> bool {
    device.as_webgpu().is_some_and(|device| offers_subgroups(device.as_ref()))
}

/// Makes every device of an adapter with subgroups have them. wgpu does not know the feature in browsers, so that it cannot
/// ask: what its requests pass through on their way to the browser adds the question.
pub(super) fn ask_for_subgroups() {
    thread_local! { static ASKS: Cell<bool> = const { Cell::new(false) }; }
    let Some(gpu) = gpu() else { return };
    if ASKS.replace(true) {
        return;
    }
    pass_through(&gpu, "requestAdapter", |request_adapter, gpu, options| {
        let adapter = Promise::resolve(&request_adapter.call1(gpu, &options)?);
        let asking = async move {
            let adapter = JsFuture::from(adapter).await?;
            if offers_subgroups(&adapter) {
                pass_through(&adapter, "requestDevice", |request_device, adapter, descriptor| {
                    let features = property(&descriptor, "requiredFeatures");
                    let features = features.map_or_else(Array::new, |features| Array::from(&features));
                    features.push(&JsValue::from_str(SUBGROUPS));
                    Reflect::set(&descriptor, &JsValue::from_str("requiredFeatures"), &features)?;
                    request_device.call1(adapter, &descriptor)
                });
            }
            Ok(adapter)
        };
        Ok(future_to_promise(asking).into())
    });
}

/// Puts a function of its own before a method of one argument; it gets the method, its object and the argument.
fn pass_through(
    object: &JsValue,
    method: &str,
    mut instead: impl FnMut(&Function, &JsValue, JsValue) -> Result<JsValue, JsValue> + 'static,
) {
    let Some(original) = property(object, method).and_then(|method| method.dyn_into::<Function>().ok())
    else {
        return;
    };
    let this = object.clone();
    let call = move |argument| {
        instead(&original, &this, argument).unwrap_or_else(|error| Promise::reject(&error).into())
    };
    let closure: Closure<dyn FnMut(JsValue) -> JsValue> = Closure::new(call);
    // Where a browser does not let itself be changed, its devices have no subgroups.
    let _ = Reflect::set(object, &JsValue::from_str(method), &closure.into_js_value());
}

/// Whether shaders may multiply integers packed in fours. wgpu asks for all names, which not every runtime lists.
pub(super) fn has_dot4() -> bool {
    gpu().is_some_and(|gpu| has(&gpu, "wgslLanguageFeatures", DOT4))
}

/// Of an adapter or a device.
fn offers_subgroups(of: &JsValue) -> bool {
    has(of, "features", SUBGROUPS)
}

/// Whether one of an object's sets has a feature.
fn has(of: &JsValue, set: &str, feature: &str) -> bool {
    let has = |features: JsValue| {
        let has = property(&features, "has")?.dyn_into::<Function>().ok()?;
        has.call1(&features, &JsValue::from_str(feature)).ok()?.as_bool()
    };
    property(of, set).and_then(has).unwrap_or(false)
}

fn property(of: &JsValue, name: &str) -> Option<JsValue> {
    let found = Reflect::get(of, &JsValue::from_str(name)).ok()?;
    (!found.is_null() && !found.is_undefined()).then_some(found)
}
