//! Lets a `.gguf` file be dropped anywhere on the page.

use leptos::{ev, prelude::*};
use web_sys::DragEvent;

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
    let files = event.data_transfer().and_then(|data| data.files());
    let Some(files) = files else { return };
    if screen.peek(|state| state.loading.is_some()) {
        screen.change(|state| {
            state.notify("A model is still loading; drop the file once it is ready.".to_owned());
        });
    } else if files.length() > 1 {
        let sentence =
            format!("{} files were dropped; a model is one .gguf file, so drop one.", files.length());
        screen.change(|state| state.notify(sentence));
    } else if let Some(file) = files.get(0) {
        screen.load_file(file);
    }
}
