//! What a browser says of its adapter and can do, and wgpu does not pass on.

use std::cell::Cell;

use js_sys::{Array, Function, Promise, Reflect};
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::{JsFuture, future_to_promise};

use super::AdapterSummary;

/// The browser's name of the feature.
const SUBGROUPS: &str = "subgroups";

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

/// Whether a device has subgroups.
pub(super) fn has_subgroups(device: &wgpu::Device) -> bool {
    device.as_webgpu().is_some_and(|device| offers_subgroups(device.as_ref()))
}

/// Makes every device of an adapter with subgroups have them. wgpu does not know the feature in browsers, so that it cannot
/// ask: what its requests pass through on their way to the browser adds the question.
pub(super) fn ask_for_subgroups() {
    thread_local! { static ASKS: Cell<bool> = const { Cell::new(false) }; }
    let gpu = property(&js_sys::global(), "navigator").and_then(|navigator| property(&navigator, "gpu"));
    let Some(gpu) = gpu else { return };
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

/// Of an adapter or a device.
fn offers_subgroups(of: &JsValue) -> bool {
    let has = |features: JsValue| {
        let has = property(&features, "has")?.dyn_into::<Function>().ok()?;
        has.call1(&features, &JsValue::from_str(SUBGROUPS)).ok()?.as_bool()
    };
    property(of, "features").and_then(has).unwrap_or(false)
}

fn property(of: &JsValue, name: &str) -> Option<JsValue> {
    let found = Reflect::get(of, &JsValue::from_str(name)).ok()?;
    (!found.is_null() && !found.is_undefined()).then_some(found)
}
