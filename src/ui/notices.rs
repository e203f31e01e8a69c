//! Sentences about what went wrong, each until it is dismissed, and the way out when the engine says nothing at all.

use leptos::prelude::*;

use super::{screen::Screen, state::Part};

/// The notices there are.
#[component]
pub(crate) fn Notices() -> impl IntoView {
    let screen = Screen::expect();
    let silent = Memo::new(move |_| screen.read(Part::Silence, |state| state.silent));
    view! {
        <div class="notices">
            <For
                each=move || screen.read(Part::Notices, |state| state.notices.clone())
                key=|notice| notice.id
                children=move |notice| {
                    view! {
                        <div class="notice" role="alert">
                            <p>{notice.text}</p>
                            <button
                                type="button"
                                class="quiet"
                                on:click=move |_| screen.change(|state| state.dismiss(notice.id))
                            >
                                "Dismiss"
                            </button>
                        </div>
                    }
                }
            />
            <Show when=move || silent.get()>
                <div class="notice" role="alert">
                    <p>"The engine has said nothing for a while. It may still be busy; if it hangs, restart it."</p>
                    <button type="button" class="quiet" on:click=move |_| screen.restart_engine()>
                        "Restart the engine"
                    </button>
                </div>
            </Show>
        </div>
    }
}
