//! What a person can do with a turn, below it: another answer, more of it, and the way between versions of a turn.

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use super::{
    screen::Screen,
    state::{Intent, Part, State},
    turn::{Speaker, TurnId},
};

/// The buttons of an answer.
#[component]
pub(crate) fn AnswerButtons(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let obstacle = obstacle(screen);
    let can_go_on = Memo::new(move |_| {
        let is_cut = screen
            .read(Part::Turn(turn_id), |state| state.turn(turn_id).is_some_and(|turn| turn.can_go_on()));
        is_cut && screen.read(Part::Turns, |state| state.makes_sense(&Intent::GoOn(turn_id)))
    });
    view! {
        <button
            type="button"
            class="copy"
            title=move || obstacle.get().unwrap_or("Another answer; this one is kept beside it")
            aria-disabled=move || obstacle.get().map(|_| "true")
            on:click=move |_| _ = screen.ask(Intent::Again(turn_id))
        >
            "Regenerate"
        </button>
        <Show when=move || can_go_on.get()>
            <button
                type="button"
                class="copy"
                title=move || obstacle.get().unwrap_or("More of this answer, from where it ends")
                aria-disabled=move || obstacle.get().map(|_| "true")
                on:click=move |_| _ = screen.ask(Intent::GoOn(turn_id))
            >
                "Continue"
            </button>
        </Show>
        <Versions turn_id />
    }
}

/// The way between the turns that follow the same one; nothing where there is only one.
#[component]
pub(crate) fn Versions(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let place = Memo::new(move |_| screen.read(Part::Turns, |state| state.place(turn_id)));
    let busy = Memo::new(move |_| screen.read(Part::Answering, |state| state.answering.is_some()));
    let step = move |label: &'static str, sign: &'static str, step: isize| {
        let is_end = move || match place.get() {
            (1, _) if step < 0 => true,
            (place, n) => place == n && step > 0,
        };
        view! {
            <button
                type="button"
                class="copy step"
                aria-label=label
                title=label
                disabled=move || is_end() || busy.get()
                on:click=move |_| show_version(screen, turn_id, step)
            >
                {sign}
            </button>
        }
    };
    let what = screen.peek(|state| match state.turn(turn_id).map(|turn| turn.speaker) {
        Some(Speaker::User) => "Versions of this message",
        _ => "Versions of this answer",
    });
    view! {
        <Show when=move || { place.get().1 > 1 }>
            <span class="versions" id=versions_id(turn_id) role="group" aria-label=what>
                {step("Previous version", "‹", -1)}
                <span>
                    {move || {
                        let (place, n) = place.get();
                        format!("{place} of {n}")
                    }}
                </span>
                {step("Next version", "›", 1)}
            </span>
        </Show>
    }
}

/// Shows another version, and leaves the focus on the same button of it.
fn show_version(screen: Screen, turn_id: TurnId, step: isize) {
    screen.amend(move |state| {
        let place = state.turns.iter().position(|turn| turn.id == turn_id);
        if state.obstacle_to_change().is_some() {
            return;
        }
        state.show_sibling(turn_id, step);
        if let Some(shown) = place.and_then(|place| state.turns.get(place)) {
            let (versions, nth) = (versions_id(shown.id), if step < 0 { "first" } else { "last" });
            let same = format!("#{versions} button:{nth}-of-type:enabled");
            let other = format!("#{versions} button:enabled");
            request_animation_frame(move || {
                let find = |selector: &str| document().query_selector(selector).ok().flatten();
                if let Some(button) = find(&same).or_else(|| find(&other)) {
                    let _ = button.unchecked_into::<HtmlElement>().focus();
                }
            });
        }
    });
}

fn versions_id(turn_id: TurnId) -> String {
    format!("versions-{turn_id}")
}

/// Above the turn at which the model's view begins: what is above that, it no longer reads.
#[component]
pub(crate) fn ViewStart(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let is_start = Memo::new(move |_| screen.read(Part::Turns, |state| state.view_start() == Some(turn_id)));
    view! {
        <Show when=move || is_start.get()>
            <p class="view-start" role="note">
                <span>"The model no longer sees what is above: its context was full."</span>
            </p>
        </Show>
    }
}

/// Why the model cannot be asked for something now, and what would help.
pub(crate) fn obstacle(screen: Screen) -> Memo<Option<&'static str>> {
    Memo::new(move |_| {
        screen.read(Part::Answering, |_| ());
        screen.read(Part::Models, State::obstacle)
    })
}
