//! A message of the person's, which can be written anew: what followed it before stays beside it.

use leptos::{ev, html, prelude::*};

use super::{
    message::CopyButton,
    screen::Screen,
    state::Intent,
    turn::TurnId,
    turn_foot::{Versions, obstacle},
};

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
            if let Some(button) = edit_button.get_untracked() {
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
                        <p class="said">{text.get_value()}</p>
                        <p class="turn-foot">
                            <Versions turn_id />
                            <CopyButton turn_id />
                            <button
                                type="button"
                                class="copy"
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
                                "Edit"
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
                        }
                    }
                    close
                />
            </Show>
        </article>
    }
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
        "Enter" if !event.shift_key() && !event.is_composing() => {
            event.prevent_default();
            submit();
        }
        "Escape" if !event.is_composing() => {
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
