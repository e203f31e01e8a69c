//! The model picker: what is on offer, a file of one's own, and how far a load is.

use js_sys::Reflect;
use leptos::{ev, html, prelude::*};
use wasm_bindgen::JsValue;
use web_sys::File;

use super::{
    catalogue::Offer,
    fit::room_warning,
    in_use::RoomDialog,
    library::{OpenAddress, Stored, VerdictLine, VerdictView},
    progress::Progress,
    screen::Screen,
    state::{Loaded, Loading, Part, State},
    words,
};
use crate::store::library::whole_url;

/// The picker; it stays in the page while hidden, so that a chosen file is not lost.
#[component]
pub(crate) fn Models(shown: Memo<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let offers = move || screen.read(Part::Models, |state| state.offers.clone());
    let title = move || {
        let ready = screen.read(Part::Models, |state| state.model.is_some());
        if ready { "Models" } else { "Choose a model" }
    };
    view! {
        <section id="models" class="models" aria-labelledby="models-title" hidden=move || !shown.get()>
            <h2 id="models-title">{title}</h2>
            <p class="lead">
                "It is loaded into this page and runs on your device. What you write never leaves it."
            </p>
            <ul class="offers">
                <ForEnumerate
                    each=offers
                    key=|offer| offer.url.clone()
                    children=move |offer_idx, offer| {
                        view! { <OfferCard offer offer_idx /> }
                    }
                />
            </ul>
            <OpenFile />
            <OpenAddress />
            <RoomDialog />
            <LoadProgress />
            <Stored />
            <Answering />
        </section>
    }
}

/// One offered model and the button that loads it.
#[component]
fn OfferCard(offer: Offer, offer_idx: ReadSignal<usize>) -> impl IntoView {
    let screen = Screen::expect();
    let name = offer.name.clone();
    let loaded = Memo::new(move |_| {
        screen.read(Part::Models, |state| state.model.as_ref().is_some_and(|model| model.name == name))
    });
    let loading = move || screen.read(Part::Models, State::is_loading);
    let about = format!("{} · {} · {}", words::bytes(offer.n_bytes), offer.quantization, offer.license);
    let (n_bytes, whole) = (offer.n_bytes, whole_url(&offer.url));
    let room = move || {
        screen.read(Part::Models, |state| {
            let stored = state.stored_at(whole.as_deref());
            let kept_bytes = stored.map_or(0, |stored| stored.kept_bytes);
            room_warning(n_bytes.saturating_sub(kept_bytes), state.free_bytes)
        })
    };
    view! {
        <li class="offer">
            <div>
                <p class="offer-name">{offer.name.clone()}</p>
                <p class="offer-about">{about}</p>
                <VerdictLine need=offer.need />
                {move || room().map(|verdict| view! { <VerdictView verdict /> })}
            </div>
            <button
                type="button"
                class=move || if loaded.get() { "quiet" } else { "primary" }
                disabled=loading
                aria-label=move || {
                    format!("{} {}", if loaded.get() { "Load again:" } else { "Load" }, offer.name)
                }
                on:click=move |_| screen.load_offer(offer_idx.get_untracked())
            >
                {move || if loaded.get() { "Load again" } else { "Load" }}
            </button>
        </li>
    }
}

/// The ways to files of one's own.
#[component]
fn OpenFile() -> impl IntoView {
    view! {
        <p class="open-file">
            <FileButton label="Open files" folder=false />
            <FileButton label="Open a folder" folder=true />
            <span>
                "or drop them anywhere on this page: a .gguf file, all parts of one, or a Hugging Face folder"
            </span>
        </p>
    }
}

/// A button that lets files or a folder be chosen.
#[component]
fn FileButton(label: &'static str, folder: bool) -> impl IntoView {
    let screen = Screen::expect();
    let input = NodeRef::<html::Input>::new();
    let loading = move || screen.read(Part::Models, State::is_loading);
    let chosen = move |_: ev::Event| {
        let Some(input) = input.get_untracked() else { return };
        let Some(list) = input.files() else { return };
        let files: Vec<File> = (0..list.length()).filter_map(|index| list.get(index)).collect();
        if !files.is_empty() {
            screen.load_files(files.into_iter().map(|file| (path_of(&file), file)).collect());
        }
        // The same files may be chosen again.
        input.set_value("");
    };
    view! {
        <label class="file-button">
            {label}
            <input
                type="file"
                class="visually-hidden"
                multiple=true
                prop:webkitdirectory=folder
                accept=(!folder).then_some(".gguf,.safetensors,.json,.txt,.jinja")
                node_ref=input
                disabled=loading
                on:change=chosen
            />
        </label>
    }
}

/// A file's path from the chosen folder on; its name where it was chosen by itself.
fn path_of(file: &File) -> String {
    let path = Reflect::get(file, &JsValue::from_str("webkitRelativePath")).ok();
    path.and_then(|path| path.as_string()).filter(|path| !path.is_empty()).unwrap_or_else(|| file.name())
}

/// How far the load is; nothing while none is on its way.
#[component]
fn LoadProgress() -> impl IntoView {
    let screen = Screen::expect();
    let loading = Memo::new(move |_| screen.read(Part::Models, |state| state.loading.is_some()));
    let is_own = Memo::new(move |_| {
        screen.read(Part::Models, |state| state.loading.as_ref().is_some_and(Loading::is_own))
    });
    let is_download = Memo::new(move |_| {
        screen.read(Part::Models, |state| state.loading.as_ref().is_some_and(Loading::is_download))
    });
    let with_progress = move |read: fn(&Progress) -> String| {
        screen.read(Part::Loading, |state| {
            state.loading.as_ref().map_or_else(String::new, |loading| read(&loading.progress))
        })
    };
    let stage = Memo::new(move |_| with_progress(|progress| progress.stage.clone()));
    let fraction = move || {
        screen.read(Part::Loading, |state| {
            state
                .loading
                .as_ref()
                .and_then(|loading| loading.progress.fraction())
                .map(|done| done.to_string())
        })
    };
    view! {
        <Show when=move || loading.get()>
            <div class="load">
                <p class="load-stage" role="status">{move || stage.get()}</p>
                <progress aria-label="Loading the model" max="1" value=fraction></progress>
                <p class="load-numbers">{move || with_progress(progress_words)}</p>
                <Show when=move || is_own.get()>
                    <button type="button" class="quiet" on:click=move |_| screen.give_up_load()>
                        {move || if is_download.get() { "Pause loading" } else { "Stop loading" }}
                    </button>
                </Show>
            </div>
        </Show>
    }
}

/// Bytes, rate and time left, as far as they are known.
fn progress_words(progress: &Progress) -> String {
    let mut words = Vec::new();
    if progress.total_bytes > 0 {
        words.push(format!(
            "{} of {}",
            words::bytes(progress.done_bytes),
            words::bytes(progress.total_bytes)
        ));
    } else if progress.done_bytes > 0 {
        words.push(words::bytes(progress.done_bytes));
    }
    if let Some(bytes_per_sec) = progress.bytes_per_sec() {
        words.push(format!("{}/s", words::bytes(bytes_per_sec as u64)));
    }
    words.extend(progress.secs_left().map(words::time_left));
    words.join(" · ")
}

/// What the model that answers is; nothing without one.
#[component]
fn Answering() -> impl IntoView {
    let screen = Screen::expect();
    let facts =
        move || screen.read(Part::Models, |state| state.model.as_ref().map(|model| facts(model, state)));
    view! {
        {move || {
            facts()
                .map(|facts| {
                    let rows = facts
                        .into_iter()
                        .map(|(term, value)| view! { <div><dt>{term}</dt><dd>{value}</dd></div> })
                        .collect_view();
                    view! {
                        <h3 class="facts-title">"Answering now"</h3>
                        <dl class="facts">{rows}</dl>
                    }
                })
        }}
    }
}

fn facts(model: &Loaded, state: &State) -> Vec<(&'static str, String)> {
    let info = &model.info;
    let mut facts = vec![
        ("Model", model.name.clone()),
        ("Kind", format!("{}, {} layers", info.architecture, info.n_layers)),
        ("Parameters", words::parameters(info.n_parameters)),
        ("File", words::bytes(info.file_bytes)),
        ("Weights on the device", words::bytes(info.weight_bytes)),
    ];
    facts.push(("Packed as", info.quantization.clone()));
    facts.extend(info.license.clone().map(|license| ("Licence", license)));
    if let Some(url) = model.url().and_then(whole_url) {
        let kept = match (state.stored_at(Some(&url)), &info.storage_note) {
            (Some(stored), _) if stored.is_complete => "yes; it opens without its server".to_owned(),
            (Some(_), None) => "in part".to_owned(),
            (_, Some(note)) => format!("no: {note}"),
            (None, None) => "no; it was deleted".to_owned(),
        };
        facts.push(("Kept here", kept));
    }
    facts
}
