//! The Laboratory: how the engine works, seen on a text of the person's own, in the place of the conversation.
//!
//! Invariant: it asks through the same engine as the chat, and nothing before it was first opened.

use std::time::Duration;

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use self::{next::NextTokens, race::With, sequences::Batch, tokens::Tokens};
use super::{
    screen::Screen,
    state::{
        Part, State,
        lab::{Lab, Panel},
    },
};

mod next;
mod race;
mod sequences;
mod spans;
mod tinted;
mod tokens;
mod visible;

/// The end of a URL that opens it.
pub(super) const FRAGMENT: &str = "#lab";

/// The page in the place of the conversation.
#[component]
pub(crate) fn Laboratory(open: RwSignal<bool>) -> impl IntoView {
    let screen = Screen::expect();
    Effect::new(move |_| {
        if open.get() {
            screen.change_lab(Panel::Tokens, |lab| lab.is_open = true);
        }
    });
    let obstacle = Memo::new(move |_| {
        let _loading = screen.read(Part::Models, |state| state.loading.is_some());
        screen.read(Part::Benchmark, State::lab_obstacle)
    });
    view! {
        <section id="laboratory" class="lab" aria-labelledby="lab-title" hidden=move || !open.get()>
            <div class="lab-inner">
                <div class="panel-head">
                    <h2 id="lab-title">"Laboratory"</h2>
                    <button type="button" class="quiet" on:click=move |_| open.set(false)>"Back to the chat"</button>
                </div>
                <p class="lab-intro">
                    "See how a language model writes: a text becomes tokens, each step predicts one more, and all that is \
                     asked at once is computed as one batch."
                </p>
                {move || obstacle.get().map(|sentence| view! { <p class="warning" role="status">{sentence}</p> })}
                <Tokens />
                <NextTokens obstacle />
                <With obstacle />
                <Batch open obstacle />
            </div>
        </section>
    }
}

/// A panel: its name, what is seen in it, and what went wrong.
#[component]
fn PanelView(
    panel: Panel,
    id: &'static str,
    title: &'static str,
    about: &'static str,
    children: Children,
) -> impl IntoView {
    let screen = Screen::expect();
    let problem = Memo::new(move |_| screen.read(Part::Lab(panel), |state| state.lab.problem_of(panel)));
    let title_id = format!("{id}-title");
    view! {
        <section class="lab-panel" id=id aria-labelledby=title_id.clone()>
            <h3 id=title_id.clone()>{title}</h3>
            <p class="about">{about}</p>
            {children()}
            {move || problem.get().map(|sentence| view! { <p class="about error" role="alert">{sentence}</p> })}
        </section>
    }
}

/// A button that keeps the focus while it cannot be pressed, so that keys go on to be heard.
#[component]
fn Act(
    #[prop(default = "quiet")] class: &'static str,
    #[prop(into)] label: Signal<&'static str>,
    #[prop(into)] is_off: Signal<bool>,
    act: impl Fn() + 'static,
) -> impl IntoView {
    view! {
        <button
            type="button"
            class=class
            aria-disabled=move || is_off.get().then_some("true")
            on:click=move |_| {
                if !is_off.get_untracked() {
                    act();
                }
            }
        >
            {move || label.get()}
        </button>
    }
}

/// Reads the laboratory whenever a panel of it changed.
fn read<T: Send + Sync + PartialEq + 'static>(
    panel: Panel,
    read: impl Fn(&Lab) -> T + Send + Sync + 'static,
) -> Memo<T> {
    let screen = Screen::expect();
    Memo::new(move |_| screen.read(Part::Lab(panel), |state| read(&state.lab)))
}

/// Whether there are tokens to go on from.
fn has_tokens() -> Memo<bool> {
    read(Panel::Tokens, |lab| lab.current_ids().is_some())
}

/// Sends what is due once so long has passed.
fn drive_after(screen: Screen, pause_ms: f64) {
    set_timeout(move || screen.drive_lab(), Duration::from_millis(pause_ms as u64 + 10));
}

/// Moves the focus to an element, as the arrow keys do among many.
fn focus(id: &str) {
    let element = document().get_element_by_id(id).and_then(|element| element.dyn_into::<HtmlElement>().ok());
    // One that is not there takes no focus.
    let _ = element.map(|element| element.focus());
}

/// Where the arrow keys, Home and End lead from one of several.
fn led_to(key: &str, from: usize, n: usize) -> Option<usize> {
    let last = n.checked_sub(1)?;
    match key {
        "ArrowRight" | "ArrowDown" => Some((from + 1).min(last)),
        "ArrowLeft" | "ArrowUp" => Some(from.saturating_sub(1).min(last)),
        "Home" => Some(0),
        "End" => Some(last),
        _ => None,
    }
}

/// A share as a person reads it.
fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".to_owned(),
        ..0.05 => "< 0.1 %".to_owned(),
        percent => format!("{percent:.1} %"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_read_as_percents() {
        let texts = [0.0, 0.0001, 0.01234, 0.5, 1.0].map(percent);
        assert_eq!(texts, ["0 %", "< 0.1 %", "1.2 %", "50.0 %", "100.0 %"]);
    }

    #[test]
    fn arrows_lead_along_and_stay_within() {
        let led = |key, from| led_to(key, from, 3);
        assert_eq!((led("ArrowRight", 0), led("ArrowRight", 2)), (Some(1), Some(2)));
        assert_eq!((led("ArrowLeft", 1), led("ArrowLeft", 0)), (Some(0), Some(0)));
        assert_eq!((led("Home", 2), led("End", 0), led("a", 1)), (Some(0), Some(2), None));
        assert_eq!((led_to("End", 0, 0), led_to("ArrowLeft", 9, 3)), (None, Some(2)));
    }
}
