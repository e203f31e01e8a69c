//! What a model thought before its answer, folded: a person opens it, and nothing else does or closes it.

use std::time::Duration;

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use web_sys::{Element, Event};

use super::{
    blocks::{Blocks, Shown},
    screen::{Screen, now_ms},
    state::{Part, State},
    thinking,
    turn::TurnId,
    words,
};

const SECOND: Duration = Duration::from_secs(1);

/// The thought of an answer; nothing where it has none.
#[component]
pub(crate) fn Thought(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let exists = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| with_parts(state, turn_id, |parts| parts.thought.is_some()))
    });
    view! {
        <Show when=move || exists.get()>
            <Folded turn_id />
        </Show>
    }
}

#[component]
fn Folded(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let thinking = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| with_parts(state, turn_id, |parts| parts.is_thinking))
    });
    // The last line that is complete: words that come one by one would disturb.
    let line = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| {
            with_parts(state, turn_id, |parts| {
                let lines = parts.thought.filter(|_| parts.is_thinking)?.rsplit_once('\n')?.0;
                Some(thinking::last_line(lines).to_owned())
            })
        })
    });
    let spent_ms = spent_ms(thinking);
    let opened = RwSignal::new(false);
    let on_toggle = move |event: Event| {
        let details = event.target().and_then(|target| target.dyn_into::<Element>().ok());
        if details.is_some_and(|details| details.has_attribute("open")) {
            opened.set(true);
        }
    };
    let title = move || match spent_ms.get() {
        Some(ms) if thinking.get() => format!("Thinking… {}", words::seconds(ms)),
        Some(ms) => format!("Thought for {}", words::seconds(ms)),
        None => "Thoughts".to_owned(),
    };
    view! {
        <details class="thought" on:toggle=on_toggle>
            <summary aria-live="off">
                <span class="thought-title">{title}</span>
                <span class="thought-line" dir="auto" aria-hidden="true">{move || line.get()}</span>
            </summary>
            <Show when=move || opened.get()>
                <div class="thought-text"><Blocks turn_id shown=Shown::Thought /></div>
            </Show>
        </details>
    }
}

/// How long it was seen to think, to the second while it does; nothing where it was not.
fn spent_ms(thinking: Memo<bool>) -> RwSignal<Option<f64>> {
    let spent_ms = RwSignal::new(None);
    let begin_ms = StoredValue::new(None);
    let look = move || {
        let begin_ms = begin_ms.try_get_value().flatten();
        if let Some(begin_ms) = begin_ms {
            spent_ms.try_set(Some(now_ms() - begin_ms));
        }
    };
    Effect::new(move |ticking: Option<Option<IntervalHandle>>| {
        if let Some(ticking) = ticking.flatten() {
            ticking.clear();
            look();
        }
        if !thinking.get() {
            return None;
        }
        if begin_ms.get_value().is_none() {
            begin_ms.set_value(Some(now_ms()));
        }
        look();
        let ticking = set_interval_with_handle(look, SECOND).ok();
        on_cleanup(move || {
            if let Some(ticking) = ticking {
                ticking.clear();
            }
        });
        ticking
    });
    spent_ms
}

fn with_parts<T: Default>(state: &State, turn_id: TurnId, read: impl FnOnce(thinking::Parts<'_>) -> T) -> T {
    let turn = state.turn(turn_id);
    turn.map(|turn| read(thinking::parts(&turn.text, turn.stage.is_busy()))).unwrap_or_default()
}
