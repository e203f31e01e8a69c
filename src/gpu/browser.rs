//! What a browser says of its adapter and wgpu does not pass on.

use wasm_bindgen::JsValue;

use super::AdapterSummary;

/// Architectures that are processors imitating a GPU.
const SOFTWARE: [&str; 3] = ["swiftshader", "llvmpipe", "warp"];

/// Names the adapter by its description, else by vendor and architecture, and tells whether it is software.
pub(super) fn describe(device: &wgpu::Device, summary: &mut AdapterSummary) {
    let Some(device) = device.as_webgpu() else { return };
    let Ok(info) = js_sys::Reflect::get(device.as_ref(), &JsValue::from_str("adapterInfo")) else { return };
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
    let lower = format!("{architecture} {description}").to_lowercase();
    summary.is_software |= SOFTWARE.iter().any(|software| lower.contains(software));
}
