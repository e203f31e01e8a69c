//! The conversation, which follows the newest words as long as the person is at its end.

use leptos::{html, prelude::*};

use super::{message::TurnView, screen::Screen, state::Part};

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
    let go_to_end = move || {
        if let Some(log) = log.get_untracked() {
            log.set_scroll_top(log.scroll_height());
        }
    };

    Effect::new(move |n_before: Option<usize>| {
        let turns = screen.turn_ids();
        if let Some(&last) = turns.last() {
            screen.read(Part::Turn(last), |_| ());
        }
        // Asking something is a wish to see its answer.
        if n_before.is_some_and(|n_before| turns.len() > n_before) {
            at_end.set(true);
        }
        if at_end.get_untracked() {
            // The words themselves are put in place by other effects of this frame.
            request_animation_frame(go_to_end);
        }
        turns.len()
    });
    let on_scroll = move |_| {
        if let Some(log) = log.get_untracked() {
            let end = log.scroll_height() - log.scroll_top() - log.client_height() < END_PX;
            if at_end.get_untracked() != end {
                at_end.set(end);
            }
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
                    go_to_end();
                }
            >
                "Newest"
            </button>
        </div>
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
    view! {
        <Show when=move || ready.get()>
            <div class="invitation">
                <p class="invitation-title">"Ask something"</p>
                <p>"The answer is computed here, on this device."</p>
                <div class="suggestions">{SUGGESTIONS.map(suggestion).collect_view()}</div>
            </div>
        </Show>
    }
}
