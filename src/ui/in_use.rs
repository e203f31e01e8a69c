//! Asks what to do with a model that finds no room beside those that other tabs use: nothing is taken from them unasked.

use leptos::{html, prelude::*};

use super::{
    screen::Screen,
    state::{InUse, Part},
    words,
};
use crate::protocol::{IfFull, ModelUse};

/// The question; nothing while there is none.
#[component]
pub(crate) fn RoomDialog() -> impl IntoView {
    let screen = Screen::expect();
    let in_use = Memo::new(move |_| screen.read(Part::Models, |state| state.in_use.clone()));
    view! { {move || in_use.get().map(|in_use| view! { <Question in_use /> })} }
}

#[component]
fn Question(in_use: InUse) -> impl IntoView {
    let screen = Screen::expect();
    let wait = NodeRef::<html::Button>::new();
    // The safest answer is where the keyboard is.
    Effect::new(move |_| {
        if let Some(wait) = wait.get() {
            let _ = wait.focus();
        }
    });
    let rows = in_use.models.iter().map(|model| view! { <li>{use_words(model)}</li> }).collect_view();
    view! {
        <div class="in-use" role="alertdialog" aria-labelledby="in-use-title" aria-describedby="in-use-models">
            <h3 id="in-use-title">{format!("There is no room for {} now", in_use.name)}</h3>
            <div id="in-use-models">
                <p>"The device's memory is held by what other tabs use:"</p>
                <ul>{rows}</ul>
            </div>
            <p class="in-use-buttons">
                <button
                    type="button"
                    class="primary"
                    title="Load it once the other tabs leave room"
                    node_ref=wait
                    on:click=move |_| screen.load_again(IfFull::Wait)
                >
                    "Wait for room"
                </button>
                <button
                    type="button"
                    class="quiet"
                    title="Unload the others; their answers end"
                    on:click=move |_| screen.load_again(IfFull::Replace)
                >
                    "Replace"
                </button>
                <button type="button" class="quiet" on:click=move |_| screen.cancel_load()>
                    "Cancel"
                </button>
            </p>
        </div>
    }
}

/// What a model holds, and for whom.
fn use_words(model: &ModelUse) -> String {
    let answers = match model.n_sequences {
        0 => "no answer running".to_owned(),
        n_sequences => format!("{} running", words::counted(n_sequences, "answer", "answers")),
    };
    let tabs = words::counted(model.n_tabs, "tab", "tabs");
    format!("{}: {}, used by {tabs}, {answers}", model.name, words::bytes(model.n_bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_use_is_told() {
        let mut model = ModelUse { name: "Tiny".to_owned(), n_bytes: 98_400_000, n_tabs: 2, n_sequences: 1 };
        assert_eq!(use_words(&model), "Tiny: 98.4 MB, used by 2 tabs, 1 answer running");
        (model.n_tabs, model.n_sequences) = (1, 0);
        assert_eq!(use_words(&model), "Tiny: 98.4 MB, used by 1 tab, no answer running");
    }
}
