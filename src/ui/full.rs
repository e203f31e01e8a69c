//! The question of what to do when a conversation no longer fits in the model's context.

use leptos::{html, prelude::*};

use super::{screen::Screen, screen::now_ms, state::Part, words};

/// The question, as long as it is open.
#[component]
pub(crate) fn FullContext() -> impl IntoView {
    let screen = Screen::expect();
    let full = Memo::new(move |_| screen.read(Part::Answering, |state| state.full));
    let first = NodeRef::<html::Button>::new();
    Effect::new(move |_| {
        if let Some(button) = first.get() {
            request_animation_frame(move || {
                let _ = button.focus();
            });
        }
    });
    let question = move || {
        full.get().map(|full| {
            let (has, holds) = (words::tokens(full.n_tokens), words::count(full.limit.into()));
            view! {
                <div class="full" role="alertdialog" aria-labelledby="full-title" aria-describedby="full-about">
                    <p id="full-title" class="full-title">"The model's context is full"</p>
                    <p id="full-about">
                        {format!("This conversation has {has}; the model's context holds {holds}, with the answer. ")}
                        "Without its oldest turns it goes on: you still see them, the model does not."
                    </p>
                    <p class="full-row">
                        <button
                            type="button"
                            class="primary"
                            node_ref=first
                            on:click=move |_| screen.drop_oldest()
                        >
                            "Drop the oldest turns"
                        </button>
                        <button type="button" class="quiet" on:click=move |_| screen.change(|state| _ = state.stop(now_ms()))>
                            "Stop here"
                        </button>
                    </p>
                </div>
            }
        })
    };
    view! { {question} }
}
