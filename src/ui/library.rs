//! Models that this browser keeps, and the box for the address of another one.

use leptos::{ev, html, prelude::*};

use super::{screen::Screen, state::Part, words};
use crate::store::{base_name, library::StoredModel};

/// What is kept: to load it without a server, or to delete it.
#[component]
pub(crate) fn Stored() -> impl IntoView {
    let screen = Screen::expect();
    let stored = move || screen.read(Part::Models, |state| state.stored.clone());
    let room = Memo::new(move |_| screen.read(Part::Models, |state| state.free_bytes));
    view! {
        <Show when=move || !stored().is_empty()>
            <h3 class="facts-title" id="stored-title">"Kept in this browser"</h3>
            <ul class="offers stored" aria-labelledby="stored-title">
                <For
                    each=stored
                    key=|model| (model.url.clone(), model.kept_bytes)
                    children=move |model| view! { <StoredCard model /> }
                />
            </ul>
            <p class="about">
                {move || room.get().map(|free| format!("The browser has room for {} more.", words::bytes(free)))}
            </p>
        </Show>
    }
}

#[component]
fn StoredCard(model: StoredModel) -> impl IntoView {
    let screen = Screen::expect();
    let loading = move || screen.read(Part::Models, super::state::State::is_loading);
    let name = name_of(&model.url);
    let (url, url_too) = (model.url.clone(), model.url.clone());
    let verb = if model.is_complete { "Load" } else { "Go on loading" };
    view! {
        <li class="offer">
            <div>
                <p class="offer-name">{name.clone()}</p>
                <p class="offer-about">{about(&model)}</p>
            </div>
            <div class="stored-buttons">
                <button
                    type="button"
                    class="quiet"
                    disabled=loading
                    aria-label=format!("{verb} {name} from this browser")
                    on:click=move |_| screen.load_stored(&url)
                >
                    {verb}
                </button>
                <button
                    type="button"
                    class="quiet"
                    disabled=loading
                    aria-label=format!("Delete {name} from this browser")
                    on:click=move |_| screen.delete_stored(url_too.clone())
                >
                    "Delete"
                </button>
            </div>
        </li>
    }
}

/// A file's name; the repository's for a folder, whose file is only the first of many.
fn name_of(url: &str) -> String {
    match url.split_once("://").map(|(_, path)| path.split('/').collect::<Vec<_>>()) {
        Some(parts) if parts.len() > 3 && base_name(url) == "config.json" => {
            parts[1..parts.len() - 1].iter().take(2).copied().collect::<Vec<_>>().join("/")
        }
        _ => base_name(url).to_owned(),
    }
}

fn about(model: &StoredModel) -> String {
    let kept = words::bytes(model.kept_bytes);
    let host = model.url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    match model.is_complete {
        true => format!("{kept} · from {host}"),
        false => format!("{kept} of {} · from {host}", words::bytes(model.len_bytes)),
    }
}

/// The box for the address of a model that is elsewhere.
#[component]
pub(crate) fn OpenAddress() -> impl IntoView {
    let screen = Screen::expect();
    let input = NodeRef::<html::Input>::new();
    let loading = move || screen.read(Part::Models, super::state::State::is_loading);
    let submit = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if let Some(input) = input.get_untracked() {
            screen.load_address(&input.value());
        }
    };
    view! {
        <form class="open-address" on:submit=submit>
            <label for="address">"A model elsewhere"</label>
            <input
                id="address"
                type="text"
                autocomplete="off"
                spellcheck="false"
                placeholder="owner/repository/file.gguf, or a URL"
                aria-describedby="address-about"
                node_ref=input
            />
            <button type="submit" class="quiet" disabled=loading>"Load it"</button>
            <p id="address-about" class="about">
                "From Hugging Face, or any server that allows this page to read from it. It is kept in this browser, if that keeps anything."
            </p>
        </form>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kept_models_are_named_by_file_or_repository() {
        for (url, name) in [
            ("https://a.b/models/x.gguf", "x.gguf"),
            ("https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/config.json", "Qwen/Qwen3-0.6B"),
            ("https://a.b/config.json", "config.json"),
        ] {
            assert_eq!(name_of(url), name);
        }
    }
}
