//! Lets files and folders be dropped anywhere on the page.

use std::collections::VecDeque;

use js_sys::{Array, Promise};
use leptos::{ev, prelude::*};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    DataTransfer, DragEvent, File, FileSystemDirectoryEntry, FileSystemDirectoryReader, FileSystemEntry,
    FileSystemFileEntry,
};

use super::{screen::Screen, state::State};

/// Files and folders in a dropped folder beyond this are not looked at: no model has so many.
const MAX_FILES: usize = 10_000;

/// The veil shown while files are dragged over the page.
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
            <p>"Drop a .gguf file, all parts of one, or a Hugging Face folder to load it, or exported chats"</p>
        </div>
    }
}

fn carries_files(event: &DragEvent) -> bool {
    event.data_transfer().is_some_and(|data| data.types().iter().any(|kind| kind == "Files"))
}

fn open_dropped(screen: Screen, event: &DragEvent) {
    let Some(data) = event.data_transfer() else { return };
    let list = data.files();
    let files: Vec<File> =
        list.iter().flat_map(|list| (0..list.length()).filter_map(|index| list.get(index))).collect();
    // A model has more than texts; exported chats are one.
    if !files.is_empty() && files.iter().all(|file| file.name().to_lowercase().ends_with(".json")) {
        return screen.import(files);
    }
    if screen.peek(State::is_loading) {
        let sentence = "A model is still loading; drop the files once it is ready.".to_owned();
        return screen.change(|state| state.notify(sentence));
    }
    let folders = dropped_folders(&data);
    // A folder is among them too, and looks like a file without bytes.
    let mut found: Vec<(String, File)> = files
        .into_iter()
        .map(|file| (file.name(), file))
        .filter(|(name, _)| folders.iter().all(|folder| folder.name() != *name))
        .collect();
    if folders.is_empty() {
        return screen.load_files(found);
    }
    leptos::task::spawn_local(async move {
        for folder in folders {
            let name = folder.name();
            match files_in(folder).await {
                Ok(files) => found.extend(files),
                Err(_) => {
                    let sentence = format!("{name} could not be read; choose it with the button instead.");
                    return screen.change(|state| state.refuse(sentence));
                }
            }
        }
        screen.load_files(found);
    });
}

/// The folders among what was dropped. They can be asked for only while the event is handled.
fn dropped_folders(data: &DataTransfer) -> Vec<FileSystemDirectoryEntry> {
    let items = data.items();
    let entry = |index: u32| -> Option<FileSystemEntry> {
        // The name is old and everywhere.
        items.get(index)?.webkit_get_as_entry().ok().flatten()
    };
    let folders = (0..items.length()).filter_map(entry).filter(FileSystemEntry::is_directory);
    folders.filter_map(|entry| entry.dyn_into().ok()).collect()
}

/// The files that lie in a folder, each with its path from that folder on.
async fn files_in(folder: FileSystemDirectoryEntry) -> Result<Vec<(String, File)>, JsValue> {
    let mut found = Vec::new();
    let mut waiting = VecDeque::from([(folder.name(), folder)]);
    while let Some((path, folder)) = waiting.pop_front() {
        let reader = folder.create_reader();
        // It gives some at a time, and at last none.
        while found.len() + waiting.len() < MAX_FILES {
            let entries = next_entries(&reader).await?;
            if entries.length() == 0 {
                break;
            }
            for entry in entries.iter() {
                let name = entry.unchecked_ref::<FileSystemEntry>().name();
                let path = format!("{path}/{name}");
                match entry.dyn_into::<FileSystemFileEntry>() {
                    Ok(file) => found.push((path, file_of(&file).await?)),
                    Err(entry) => waiting.extend(entry.dyn_into().ok().map(|folder| (path, folder))),
                }
            }
        }
    }
    Ok(found)
}

async fn next_entries(reader: &FileSystemDirectoryReader) -> Result<Array, JsValue> {
    let entries = Promise::new(&mut |resolve, reject| {
        if let Err(error) = reader.read_entries_with_callback_and_callback(&resolve, &reject) {
            let _ = reject.call1(&JsValue::UNDEFINED, &error);
        }
    });
    Ok(Array::from(&JsFuture::from(entries).await?))
}

async fn file_of(entry: &FileSystemFileEntry) -> Result<File, JsValue> {
    let file = Promise::new(&mut |resolve, reject| {
        entry.file_with_callback_and_callback(&resolve, &reject);
    });
    JsFuture::from(file).await?.dyn_into()
}
