//! A message of the person's, which can be written anew: what followed it before stays beside it.

use std::time::Duration;

use leptos::{ev, html, prelude::*};
use wasm_bindgen_futures::JsFuture;

use super::{
    composer::{self, composes},
    screen::Screen,
    state::Intent,
    turn::TurnId,
    turn_foot::{Versions, obstacle},
};

/// How long it is shown that a message was copied.
const COPIED_TIME: Duration = Duration::from_secs(2);

/// What the person said, and below it what can be done with it.
#[component]
pub(crate) fn OwnTurn(turn_id: TurnId, text: String) -> impl IntoView {
    let screen = Screen::expect();
    let editing = RwSignal::new(false);
    let edit_button = NodeRef::<html::Button>::new();
    let obstacle = obstacle(screen);
    let close = move || {
        editing.set(false);
        request_animation_frame(move || {
            // The message may be gone by now.
            if let Some(button) = edit_button.try_get_untracked().flatten() {
                let _ = button.focus();
            }
        });
    };
    let text = StoredValue::new(text);
    view! {
        <article class="turn user" aria-label="You">
            <Show
                when=move || editing.get()
                fallback=move || {
                    view! {
                        <p class="said" dir="auto">{text.get_value()}</p>
                        <p class="turn-foot">
                            <Versions turn_id />
                            <CopyMessage text=text.get_value() />
                            <button
                                type="button"
                                class="copy icon"
                                aria-label="Edit message"
                                node_ref=edit_button
                                title=move || {
                                    obstacle.get().unwrap_or("Write it anew; what followed is kept beside it")
                                }
                                aria-disabled=move || obstacle.get().map(|_| "true")
                                on:click=move |_| {
                                    if obstacle.get_untracked().is_none() {
                                        editing.set(true);
                                    }
                                }
                            >
                                <svg viewBox="0 0 24 24" aria-hidden="true">
                                    <path d="M4 20h4L19 9l-4-4L4 16zM13 7l4 4" />
                                </svg>
                            </button>
                        </p>
                    }
                }
            >
                <EditBox
                    text=text.get_value()
                    send=move |text: String| {
                        if screen.ask(Intent::Edit(turn_id, text)) {
                            editing.set(false);
                            composer::focus();
                        }
                    }
                    close
                />
            </Show>
        </article>
    }
}

/// Copies the message; nothing where the browser allows no clipboard.
#[component]
fn CopyMessage(text: String) -> impl IntoView {
    let copied = RwSignal::new(false);
    let copy = move |_| {
        let written = window().navigator().clipboard().write_text(&text);
        leptos::task::spawn_local(async move {
            if JsFuture::from(written).await.is_ok() {
                let _gone = copied.try_set(true);
                set_timeout(move || _ = copied.try_set(false), COPIED_TIME);
            }
        });
    };
    window().is_secure_context().then(|| {
        view! {
            <button
                type="button"
                class="copy icon"
                aria-label=move || if copied.get() { "Copied" } else { "Copy message" }
                title=move || if copied.get() { "Copied" } else { "Copy" }
                on:click=copy
            >
                <svg viewBox="0 0 24 24" aria-hidden="true">
                    <path d=move || {
                        if copied.get() { "M5 13l5 5L20 7" } else { "M9 9h11v11H9zM15 9V4H4v11h5" }
                    } />
                </svg>
            </button>
        }
    })
}

/// The box in which a message is written anew.
#[component]
fn EditBox(
    text: String,
    send: impl Fn(String) + Copy + Send + Sync + 'static,
    close: impl Fn() + Copy + Send + Sync + 'static,
) -> impl IntoView {
    let text_box = NodeRef::<html::Textarea>::new();
    let n_rows = text.lines().count().clamp(2, 12);
    Effect::new(move |_| {
        if let Some(text_box) = text_box.get() {
            request_animation_frame(move || {
                let _ = text_box.focus();
            });
        }
    });
    let submit = move || {
        if let Some(text_box) = text_box.get_untracked() {
            send(text_box.value());
        }
    };
    let on_key = move |event: ev::KeyboardEvent| match event.key().as_str() {
        "Enter" if !event.shift_key() && !composes(&event) => {
            event.prevent_default();
            submit();
        }
        "Escape" if !composes(&event) => {
            event.stop_propagation();
            close();
        }
        _ => {}
    };
    view! {
        <form
            class="edit"
            on:submit=move |event| {
                event.prevent_default();
                submit();
            }
        >
            <textarea
                aria-label="Edit your message"
                rows=n_rows
                prop:value=text
                node_ref=text_box
                on:keydown=on_key
            ></textarea>
            <p class="edit-row">
                <button type="button" class="quiet" on:click=move |_| close()>"Cancel"</button>
                <button type="submit" class="primary">"Send again"</button>
            </p>
        </form>
    }
}
