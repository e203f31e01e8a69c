//! Models that this browser keeps, and the box for the address of another one.

use leptos::{ev, html, prelude::*};

use super::{
    fit::{Need, Verdict},
    screen::Screen,
    state::{Part, State},
    words,
};
use crate::store::{
    base_name,
    library::{About, StoredModel},
};

/// What is kept: to load it without a server, to call it otherwise, to save it elsewhere, or to delete it.
#[component]
pub(crate) fn Stored() -> impl IntoView {
    let screen = Screen::expect();
    let stored = move || screen.read(Part::Models, |state| state.stored.clone());
    let room = Memo::new(move |_| screen.read(Part::Models, |state| (state.free_bytes, state.is_lasting)));
    view! {
        <Show when=move || !stored().is_empty()>
            <h3 class="facts-title" id="stored-title">"Kept in this browser"</h3>
            <ul class="offers stored" aria-labelledby="stored-title">
                <For
                    each=stored
                    key=|model| (model.url.clone(), model.kept_bytes, model.about.clone())
                    children=move |model| view! { <StoredCard model /> }
                />
            </ul>
            <p class="about">{move || room_words(room.get())}</p>
        </Show>
    }
}

/// What the browser says of its room, and of what it does with what lies there.
fn room_words((free_bytes, is_lasting): (Option<u64>, Option<bool>)) -> String {
    let room = free_bytes.map(|free| format!("The browser has room for {} more.", words::bytes(free)));
    let lasting = is_lasting.map(|is_lasting| match is_lasting {
        true => "What is here stays until you delete it.",
        false => "It may take away what is here when the device runs out of space.",
    });
    [room.as_deref(), lasting].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

#[component]
fn StoredCard(model: StoredModel) -> impl IntoView {
    let screen = Screen::expect();
    let loading = move || screen.read(Part::Models, State::is_loading);
    let renaming = RwSignal::new(false);
    let own_name = name_of(&model.url);
    let title = model.about.title.clone().unwrap_or_else(|| own_name.clone());
    let url = StoredValue::new(model.url.clone());
    let verb = if model.is_complete { "Load" } else { "Go on loading" };
    let button = |verb: &'static str, what: fn(Screen, String)| {
        view! {
            <button
                type="button"
                class="quiet"
                disabled=loading
                aria-label=format!("{verb} {title} from this browser")
                on:click=move |_| what(screen, url.get_value())
            >
                {verb}
            </button>
        }
    };
    let load = button(verb, |screen, url| screen.load_stored(&url));
    let save = model.is_complete.then(|| button("Save", Screen::export_stored));
    let delete = button("Delete", Screen::delete_stored);
    let (shown, typed, about) = (title.clone(), title.clone(), about(&model, &own_name));
    view! {
        <li class="offer">
            <div>
                <Show
                    when=move || renaming.get()
                    fallback=move || view! { <p class="offer-name">{shown.clone()}</p> }
                >
                    <Rename title=typed.clone() url renaming />
                </Show>
                <p class="offer-about">{about}</p>
                <VerdictLine need=need(&model) />
            </div>
            <div class="stored-buttons">
                {load}
                <button
                    type="button"
                    class="quiet"
                    aria-label=format!("Rename {title} in this browser")
                    aria-expanded=move || if renaming.get() { "true" } else { "false" }
                    on:click=move |_| renaming.update(|renaming| *renaming = !*renaming)
                >
                    "Rename"
                </button>
                {save}
                {delete}
            </div>
        </li>
    }
}

/// The box in which a model is called otherwise: Enter keeps what it says, Escape does not, and nothing gives the file's
/// name back.
#[component]
fn Rename(title: String, url: StoredValue<String>, renaming: RwSignal<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let input = NodeRef::<html::Input>::new();
    Effect::new(move |_| {
        if let Some(input) = input.get() {
            let _ = input.focus();
            input.select();
        }
    });
    let keep = move |event: ev::SubmitEvent| {
        event.prevent_default();
        if let Some(input) = input.get_untracked() {
            screen.rename_stored(url.get_value(), &input.value());
        }
        renaming.set(false);
    };
    let on_key = move |event: ev::KeyboardEvent| {
        if event.key() == "Escape" && !event.is_composing() {
            event.stop_propagation();
            renaming.set(false);
        }
    };
    view! {
        <form class="rename" on:submit=keep on:keydown=on_key>
            <input
                type="text"
                aria-label="The model's name in this browser"
                autocomplete="off"
                maxlength="120"
                value=title
                node_ref=input
            />
            <button type="submit" class="quiet">"Keep"</button>
        </form>
    }
}

/// Whether a model fits, once the browser told what it has to compute with.
#[component]
pub(crate) fn VerdictLine(need: Need) -> impl IntoView {
    let screen = Screen::expect();
    let options = Memo::new(move |_| screen.read(Part::Preferences, |state| state.preferences.load.clone()));
    let verdict = move || {
        let reach = screen.read(Part::Models, |state| state.reach)?;
        Some(view! { <VerdictView verdict=reach.verdict(need, &options.get()) /> })
    };
    view! { {verdict} }
}

/// What is said of a model before it is fetched.
#[component]
pub(crate) fn VerdictView(verdict: Verdict) -> impl IntoView {
    view! {
        <p class="offer-about" class:warning=verdict.is_warning>
            {format!("{}.", verdict.words)}
        </p>
    }
}

fn need(model: &StoredModel) -> Need {
    let About { kv_bytes_per_token, context, .. } = model.about;
    Need { weight_bytes: model.len_bytes, kv_bytes_per_token, context }
}

/// A file's name; a folder's or a repository's where the file is only the first of many.
fn name_of(url: &str) -> String {
    let path = url.split_once("://").map_or(url, |(_, path)| path);
    let parts: Vec<&str> = path.split('/').collect();
    match &parts[..] {
        ["huggingface.co", owner, repository, .., "config.json"] => format!("{owner}/{repository}"),
        [_, .., folder, "config.json"] => (*folder).to_owned(),
        _ => base_name(url).to_owned(),
    }
}

/// Its size and what it is, as far as that is known, and where it is from.
fn about(model: &StoredModel, own_name: &str) -> String {
    let kept = words::bytes(model.kept_bytes);
    let host = model.url.split("://").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default();
    let size = match model.is_complete {
        true => kept,
        false => format!("{kept} of {}", words::bytes(model.len_bytes)),
    };
    let About { title, quantization, license, .. } = &model.about;
    let own_name = title.as_ref().map(|_| own_name.to_owned());
    let from = format!("from {host}");
    let known = [own_name, Some(size), quantization.clone(), license.clone(), Some(from)];
    known.into_iter().flatten().collect::<Vec<_>>().join(" · ")
}

/// The box for the address of a model that is elsewhere.
#[component]
pub(crate) fn OpenAddress() -> impl IntoView {
    let screen = Screen::expect();
    let input = NodeRef::<html::Input>::new();
    let loading = move || screen.read(Part::Models, State::is_loading);
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
    fn what_is_known_of_a_kept_model_is_told() {
        let mut model = StoredModel {
            url: "https://a.b/x.gguf".into(),
            kept_bytes: 1_000_000,
            len_bytes: 2_000_000,
            is_complete: false,
            about: About::default(),
        };
        assert_eq!(about(&model, "x.gguf"), "1.0 MB of 2.0 MB · from a.b");
        model.is_complete = true;
        model.about = About {
            title: Some("Mine".into()),
            quantization: Some("Q4_1".into()),
            license: Some("MIT".into()),
            ..About::default()
        };
        assert_eq!(about(&model, "x.gguf"), "x.gguf · 1.0 MB · Q4_1 · MIT · from a.b");
        assert!(room_words((Some(5_000_000), Some(false))).contains("5.0 MB more. It may take away"));
        assert_eq!(room_words((None, None)), "");
    }

    #[test]
    fn kept_models_are_named_by_file_or_repository() {
        for (url, name) in [
            ("https://a.b/models/x.gguf", "x.gguf"),
            ("https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/config.json", "Qwen/Qwen3-0.6B"),
            ("https://a.b/config.json", "config.json"),
            ("https://a.b/some/tiny/config.json", "tiny"),
        ] {
            assert_eq!(name_of(url), name);
        }
    }
}
