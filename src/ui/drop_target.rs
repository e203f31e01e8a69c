//! Lets a `.gguf` file be dropped anywhere on the page.

use js_sys::{Array, Function, Reflect};
use leptos::{ev, prelude::*};
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::{DataTransfer, DragEvent};

use super::screen::Screen;

/// The veil shown while a file is dragged over the page.
#[component]
pub(crate) fn DropTarget() -> impl IntoView {
    let screen = Screen::expect();
    // Entering a child is announced before leaving its parent, so the file is gone only at zero.
    let depth = RwSignal::new(0_u32);
    let listeners = [
        window_event_listener(ev::dragenter, move |event| {
            if carries_files(&event) {
                event.prevent_default();
                depth.update(|depth| *depth += 1);
            }
        }),
        window_event_listener(ev::dragover, move |event| {
            if carries_files(&event) {
                event.prevent_default();
            }
        }),
        window_event_listener(ev::dragleave, move |event| {
            if carries_files(&event) {
                depth.update(|depth| *depth = depth.saturating_sub(1));
            }
        }),
        window_event_listener(ev::drop, move |event| {
            if carries_files(&event) {
                event.prevent_default();
                depth.set(0);
                open_dropped(screen, &event);
            }
        }),
    ];
    on_cleanup(move || listeners.into_iter().for_each(|listener| listener.remove()));
    view! {
        <div class="veil" hidden=move || depth.get() == 0>
            <p>"Drop the .gguf file to load it"</p>
        </div>
    }
}

fn carries_files(event: &DragEvent) -> bool {
    event.data_transfer().is_some_and(|data| data.types().iter().any(|kind| kind == "Files"))
}

fn open_dropped(screen: Screen, event: &DragEvent) {
    let Some(data) = event.data_transfer() else { return };
    let Some(files) = data.files() else { return };
    let refusal = if let Some(name) = dropped_folder(&data) {
        Some(format!("{name} is a folder; open it, and drop a .gguf file that lies in it."))
    } else if screen.peek(|state| state.loading.is_some()) {
        Some("A model is still loading; drop the file once it is ready.".to_owned())
    } else if files.length() > 1 {
        Some(format!("{} files were dropped; a model is one .gguf file, so drop one.", files.length()))
    } else {
        None
    };
    match (refusal, files.get(0)) {
        (Some(sentence), _) => screen.change(|state| state.notify(sentence)),
        (None, Some(file)) => screen.load_file(file),
        (None, None) => {}
    }
}

/// The name of the first folder among what was dropped. As a file it would look like one without bytes.
fn dropped_folder(data: &DataTransfer) -> Option<String> {
    let items = Array::from(&property(data, "items")?);
    items.iter().find_map(|item| {
        // The name is old and everywhere; what has it not has no folders either.
        let as_entry = property(&item, "webkitGetAsEntry")?.dyn_into::<Function>().ok()?;
        let entry = as_entry.call0(&item).ok()?;
        let is_folder = property(&entry, "isDirectory")?.as_bool()?;
        is_folder.then(|| property(&entry, "name")?.as_string())?
    })
}

/// A property of an object; nothing of what is no object.
fn property(object: &JsValue, name: &str) -> Option<JsValue> {
    Reflect::get(object, &JsValue::from_str(name)).ok()
}
