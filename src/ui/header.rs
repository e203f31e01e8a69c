//! The bar at the top: what this is, which model answers, and the way to the settings.

use leptos::prelude::*;

use super::{
    screen::Screen,
    state::{Part, State},
};

/// The bar. Chats and settings open beside the conversation. The model button opens and closes the picker, which stays open while there is no model.
#[component]
pub(crate) fn Header(
    models_open: RwSignal<bool>,
    models_shown: Memo<bool>,
    settings_open: RwSignal<bool>,
    chats_open: RwSignal<bool>,
    bench_open: RwSignal<bool>,
    lab_open: RwSignal<bool>,
) -> impl IntoView {
    let screen = Screen::expect();
    let model_name = move || screen.read(Part::Models, model_name);
    let model_class = move || {
        screen.read(Part::Models, |state| {
            let light = match (&state.loading, &state.model) {
                (Some(_), _) => "busy",
                (None, Some(_)) => "on",
                (None, None) => "off",
            };
            format!("model-button {light}")
        })
    };
    let expanded = |open: bool| if open { "true" } else { "false" };

    view! {
        <header class="header">
            <h1 class="brand">
                <svg viewBox="0 0 24 24" aria-hidden="true">
                    <path class="leaf" d="M6 2.5h8.2L19 7.3V19a2.5 2.5 0 0 1-2.5 2.5H6A2.5 2.5 0 0 1 3.5 19V5A2.5 2.5 0 0 1 6 2.5Z" />
                    <path class="lines" d="M7.5 10.5h7.5M7.5 14h5" />
                    <circle class="caret" cx="15.4" cy="17.2" r="1.3" />
                </svg>
                <span class="wordmark">"pagelm"</span>
            </h1>
            <button
                type="button"
                class="quiet"
                id="chats-button"
                aria-controls="chats"
                aria-expanded=move || expanded(chats_open.get())
                on:click=move |_| chats_open.update(|open| *open = !*open)
            >
                <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d="M2.5 3h11v7.5H7.5l-3 2.7v-2.7h-2Z" />
                </svg>
                <span class="bench-label">"Chats"</span>
            </button>
            <button
                type="button"
                class=model_class
                id="model-button"
                aria-controls="models"
                aria-expanded=move || expanded(models_shown.get())
                on:click=move |_| models_open.update(|open| *open = !*open)
            >
                <span class="light" aria-hidden="true"></span>
                <span class="visually-hidden">"Model: "</span>
                <span class="model-name">{model_name}</span>
            </button>
            <button
                type="button"
                class="quiet"
                id="bench-button"
                aria-controls="benchmark"
                aria-expanded=move || expanded(bench_open.get())
                on:click=move |_| bench_open.update(|open| *open = !*open)
            >
                <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d="M3 13V8M8 13V3M13 13V6" />
                </svg>
                <span class="bench-label">"Benchmark"</span>
            </button>
            <button
                type="button"
                class="quiet"
                id="lab-button"
                aria-controls="laboratory"
                aria-expanded=move || expanded(lab_open.get())
                on:click=move |_| lab_open.update(|open| *open = !*open)
            >
                <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d="M6.2 2h3.6M7 2v4.2L3.2 13h9.6L9 6.2V2M5 10h6" />
                </svg>
                <span class="bench-label">"Laboratory"</span>
            </button>
            <button
                type="button"
                class="quiet"
                id="settings-button"
                aria-controls="settings"
                aria-expanded=move || expanded(settings_open.get())
                on:click=move |_| settings_open.update(|open| *open = !*open)
            >
                <svg viewBox="0 0 16 16" aria-hidden="true">
                    <path d="M2 4.5h5.5M11.5 4.5H14M2 11.5h2.5M8.5 11.5H14" />
                    <circle cx="9.5" cy="4.5" r="1.8" />
                    <circle cx="6.5" cy="11.5" r="1.8" />
                </svg>
                <span class="bench-label">"Settings"</span>
            </button>
        </header>
    }
}

/// What the model button says.
fn model_name(state: &State) -> String {
    match (&state.loading, &state.model) {
        (Some(loading), _) => format!("Loading {}", loading.name),
        (None, Some(model)) => model.name.clone(),
        (None, None) => "No model yet".to_owned(),
    }
}
