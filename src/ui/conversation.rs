//! The conversation, which follows the newest words as long as the person is at its end.

use leptos::{html, prelude::*};
use wasm_bindgen::{JsCast as _, closure::Closure};
use web_sys::{Element, ResizeObserver};

use super::{
    message::TurnView,
    screen::Screen,
    state::{Part, State},
    turn_foot::ViewStart,
};

/// So near its end, in CSS pixels, the conversation counts as being there.
const END_PX: i32 = 48;

/// What a person might ask first.
const SUGGESTIONS: [&str; 3] =
    ["What is the capital of France?", "Explain rain to a child.", "Write a haiku about the sea."];

/// The turns so far, or an invitation where there are none.
#[component]
pub(crate) fn Conversation() -> impl IntoView {
    let screen = Screen::expect();
    let log = NodeRef::<html::Div>::new();
    let at_end = RwSignal::new(true);
    let follow = move || {
        if let Some(log) = log.get_untracked().filter(|_| at_end.get_untracked()) {
            log.set_scroll_top(log.scroll_height());
        }
    };
    let watch = watch_sizes(follow);

    Effect::new(move |n_before: Option<usize>| {
        let turns = screen.turn_ids();
        // Asking something is a wish to see its answer.
        if n_before.is_some_and(|n_before| turns.len() > n_before) {
            at_end.set(true);
        }
        // The turns themselves are put in place by other effects of this frame.
        request_animation_frame(move || {
            if let Some(log) = log.get_untracked() {
                watch(&log);
            }
            follow();
        });
        turns.len()
    });
    let last_top_px = StoredValue::new(0);
    let on_scroll = move |_| {
        let Some(log) = log.get_untracked() else { return };
        let top_px = log.scroll_top();
        let to_end_px = log.scroll_height() - top_px - log.client_height();
        let was_at_end = at_end.get_untracked();
        // Any move up is a wish to read there; moving down, the end only has to be neared. What is at the end stays
        // there: words may have come since it was scrolled to.
        let is_at_end =
            if top_px < last_top_px.get_value() { to_end_px < 2 } else { was_at_end || to_end_px < END_PX };
        last_top_px.set_value(top_px);
        if is_at_end != was_at_end {
            at_end.set(is_at_end);
        }
    };

    view! {
        <div class="conversation">
            <div
                class="log"
                role="log"
                aria-live="polite"
                aria-label="Conversation"
                tabindex="0"
                node_ref=log
                on:scroll=on_scroll
            >
                <For each=move || screen.turn_ids() key=|turn_id| *turn_id let:turn_id>
                    <ViewStart turn_id />
                    <TurnView turn_id />
                </For>
            </div>
            <Invitation />
            <button
                type="button"
                class="to-end"
                hidden=move || at_end.get()
                on:click=move |_| {
                    at_end.set(true);
                    follow();
                }
            >
                "Newest"
            </button>
        </div>
    }
}

/// What watches the conversation and its last turn, and follows within the same frame when either changes its size: words
/// are never seen before they are scrolled to.
fn watch_sizes(follow: impl Fn() + 'static) -> impl Fn(&Element) + Copy + Send + Sync {
    let callback = Closure::<dyn Fn()>::new(follow);
    // A browser without it follows turn by turn.
    let observer = ResizeObserver::new(callback.as_ref().unchecked_ref()).ok();
    let kept = StoredValue::new_local((observer, callback));
    on_cleanup(move || {
        kept.with_value(|(observer, _)| observer.iter().for_each(ResizeObserver::disconnect));
    });
    move |log: &Element| {
        kept.try_with_value(|(observer, _)| {
            let Some(observer) = observer else { return };
            observer.disconnect();
            observer.observe(log);
            if let Some(last) = log.last_element_child() {
                observer.observe(&last);
            }
        });
    }
}

/// Shown while a model waits for the first message.
#[component]
fn Invitation() -> impl IntoView {
    let screen = Screen::expect();
    let ready = Memo::new(move |_| {
        let empty = screen.read(Part::Turns, |state| state.turns.is_empty());
        empty && screen.read(Part::Models, |state| state.model.is_some())
    });
    let suggestion = move |text: &'static str| {
        view! {
            <button type="button" class="suggestion" on:click=move |_| _ = screen.submit(text)>
                {text}
            </button>
        }
    };
    let only_continues = Memo::new(move |_| screen.read(Part::Models, State::only_continues));
    view! {
        <Show when=move || ready.get()>
            <div class="invitation">
                <Show
                    when=move || !only_continues.get()
                    fallback=|| {
                        view! {
                            <p class="invitation-title">"Begin a text"</p>
                            <p>"The model goes on with it here, on this device."</p>
                        }
                    }
                >
                    <p class="invitation-title">"Ask something"</p>
                    <p>"The answer is computed here, on this device."</p>
                    <div class="suggestions">{SUGGESTIONS.map(suggestion).collect_view()}</div>
                </Show>
            </div>
        </Show>
    }
}
