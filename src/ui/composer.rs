//! Where a person writes, sends and stops. What is written stays until it was taken.

use leptos::{ev, html, prelude::*};
use wasm_bindgen::JsCast as _;
use web_sys::{HtmlElement, HtmlInputElement, HtmlSelectElement, HtmlTextAreaElement};

use super::{
    screen::Screen,
    state::{Part, State},
    structure::FormNote,
};

const BOX_ID: &str = "message";
/// The text box grows to so many lines before it scrolls.
const MAX_ROWS: usize = 8;
/// What browsers report as the key while an input method is composing.
const COMPOSING_KEY_CODE: u32 = 229;

/// Whether a key is part of what an input method composes, the one that ends it too: not every browser says so by
/// `isComposing`.
pub(crate) fn composes(event: &ev::KeyboardEvent) -> bool {
    event.is_composing() || event.key_code() == COMPOSING_KEY_CODE
}

/// The message box and its buttons. Sending without a model opens the picker.
#[component]
pub(crate) fn Composer(models_open: RwSignal<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let text_box = NodeRef::<html::Textarea>::new();
    let n_rows = RwSignal::new(1);
    let urged = RwSignal::new(false);
    let fit = move |text_box: &HtmlTextAreaElement| {
        n_rows.set(text_box.value().lines().count().clamp(1, MAX_ROWS));
    };

    let send = move || {
        let Some(text_box) = text_box.get_untracked() else { return };
        if screen.submit(&text_box.value()) {
            text_box.set_value("");
            fit(&text_box);
            urged.set(false);
        } else if screen.peek(|state| state.model.is_none()) {
            urged.set(true);
            models_open.set(true);
        }
        // The button that was pressed may be gone.
        let _ = text_box.focus();
    };
    let on_key = move |event: ev::KeyboardEvent| {
        if event.key() == "Enter" && !event.shift_key() && !composes(&event) {
            event.prevent_default();
            send();
        }
    };
    take_back(screen, text_box, fit);
    focus_when_ready(screen, text_box);
    let placeholder = move || match screen.read(Part::Models, State::only_continues) {
        true => "Write a text for the model to continue",
        false => "Write a message",
    };

    view! {
        <form
            class="composer"
            on:submit=move |event| {
                event.prevent_default();
                send();
            }
        >
            <label class="visually-hidden" for=BOX_ID>"Message"</label>
            <textarea
                id=BOX_ID
                dir="auto"
                rows=move || n_rows.get()
                placeholder=placeholder
                autocomplete="off"
                enterkeyhint="send"
                aria-describedby="composer-hint"
                node_ref=text_box
                on:keydown=on_key
                on:input=move |_| {
                    if let Some(text_box) = text_box.get_untracked() {
                        fit(&text_box);
                    }
                }
            ></textarea>
            <FormNote />
            <Buttons urged />
        </form>
    }
}

/// The row below the box: what may hinder, and the buttons.
#[component]
fn Buttons(urged: RwSignal<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let answering = Memo::new(move |_| screen.read(Part::Answering, |state| state.answering));
    let hint = Memo::new(move |_| {
        screen.read(Part::Answering, |_| ());
        screen.read(Part::Models, |state| match state.answering {
            Some(_) => None,
            None => state.obstacle(),
        })
    });
    let loading = move || screen.read(Part::Models, |state| state.loading.is_some());
    let stop_label = move || match answering.get() {
        Some(answering) if answering.stopping => "Stopping",
        _ => "Stop",
    };
    view! {
        <div class="composer-row">
            <button type="button" class="quiet" on:click=move |_| screen.new_chat()>"New chat"</button>
            <p id="composer-hint" class="hint" class:urged=move || urged.get() && !loading() role="status">
                {move || hint.get()}
            </p>
            <button
                type="button"
                class="stop"
                title="Stop the answer (Esc)"
                hidden=move || answering.get().is_none()
                disabled=move || answering.get().is_some_and(|answering| answering.stopping)
                on:click=move |_| screen.stop()
            >
                {stop_label}
            </button>
            <button
                type="submit"
                class="primary"
                title=move || hint.get().unwrap_or("Send (Enter)")
                hidden=move || answering.get().is_some()
                aria-disabled=move || hint.get().map(|_| "true")
            >
                "Send"
            </button>
        </div>
    }
}

/// Moves the focus to the message box, as from what goes away.
pub(crate) fn focus() {
    if let Some(text_box) = document().get_element_by_id(BOX_ID) {
        let _ = text_box.unchecked_into::<HtmlElement>().focus();
    }
}

/// Puts text that was not answered back into the box, before what was written since.
fn take_back(
    screen: Screen,
    text_box: NodeRef<html::Textarea>,
    fit: impl Fn(&HtmlTextAreaElement) + Send + Sync + 'static,
) {
    Effect::new(move |_| {
        screen.read(Part::Returned, |_| ());
        let Some(text_box) = text_box.get() else { return };
        if let Some(returned) = screen.change(|state| state.take_returned()) {
            let written = text_box.value();
            let both = if written.is_empty() { returned } else { format!("{returned}\n{written}") };
            text_box.set_value(&both);
            fit(&text_box);
        }
    });
}

/// Moves the focus to the box when a model becomes ready, unless the person is writing elsewhere.
fn focus_when_ready(screen: Screen, text_box: NodeRef<html::Textarea>) {
    Effect::new(move |was_ready: Option<bool>| {
        let ready = screen.read(Part::Models, |state| state.model.is_some() && state.loading.is_none());
        if ready
            && was_ready == Some(false)
            && !writes_elsewhere()
            && let Some(text_box) = text_box.get_untracked()
        {
            let _ = text_box.focus();
        }
        ready
    });
}

fn writes_elsewhere() -> bool {
    document().active_element().is_some_and(|element| {
        let element: &HtmlElement = element.unchecked_ref();
        element.is_instance_of::<HtmlTextAreaElement>()
            || element.is_instance_of::<HtmlSelectElement>()
            || element.dyn_ref::<HtmlInputElement>().is_some_and(|input| input.type_() != "file")
    })
}
