//! Sentences about what went wrong, each until it is dismissed.

use leptos::prelude::*;

use super::{screen::Screen, state::Part};

/// The notices there are.
#[component]
pub(crate) fn Notices() -> impl IntoView {
    let screen = Screen::expect();
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
        </div>
    }
}
