//! The text so far: each token that was taken is tinted by how likely it was, and shows what else might have come.

use leptos::{html, prelude::*};
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use super::{percent, read, visible::visible};
use crate::ui::{
    screen::Screen,
    state::lab::{Panel, Taken},
};

/// The tints: from which probability on, and how that reads. The last has none below it.
const TINTS: [(f64, &str); 5] = [
    (0.9, "90 % and more"),
    (0.5, "50 to 90 %"),
    (0.2, "20 to 50 %"),
    (0.05, "5 to 20 %"),
    (0.0, "below 5 %"),
];
/// So much of the text before is shown.
const MOST_CHARS: usize = 600;
/// Room for what else might have come, in CSS pixels.
const POPOVER_PX: i32 = 240;

/// The token that is looked at, and where its alternatives are shown.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Shown {
    serial: u64,
    left_px: i32,
    top_px: i32,
}

#[component]
pub(super) fn TextSoFar() -> impl IntoView {
    let screen = Screen::expect();
    let prompt = read(Panel::Next, |lab| end_of(&lab.next.prompt_text));
    let serials =
        read(Panel::Next, |lab| lab.next.taken.iter().map(|taken| taken.serial).collect::<Vec<_>>());
    let shown = RwSignal::new(None::<Shown>);
    let text = NodeRef::<html::Div>::new();
    // What was taken back has no alternatives any more.
    Effect::new(move |_| {
        let is_there = |shown: Shown| serials.with(|serials| serials.contains(&shown.serial));
        if shown.get_untracked().is_some_and(|shown| !is_there(shown)) {
            shown.set(None);
        }
    });
    let show = move |serial: u64, target: &web_sys::EventTarget| {
        let (Some(text), Some(token)) = (text.get_untracked(), target.dyn_ref::<HtmlElement>()) else {
            return;
        };
        let room_px = text.client_width() - POPOVER_PX;
        let left_px = token.offset_left().min(room_px).max(0);
        let top_px = token.offset_top() + token.offset_height() + 4;
        shown.set(Some(Shown { serial, left_px, top_px }));
    };
    let token = move |serial: u64| {
        let taken = screen.peek(|state| find(&state.lab.next.taken, serial).cloned())?;
        let is_shown = move || shown.get().is_some_and(|shown| shown.serial == serial);
        let share = f64::from(taken.logprob).exp();
        Some(view! {
            <button
                type="button"
                class=format!("lab-token tint-{}", tint_of(share))
                data-id=taken.id
                data-logprob=taken.logprob
                aria-label=format!("{}, {}", visible(&taken.text), percent(share))
                aria-describedby=move || is_shown().then_some("lab-alternatives")
                on:mouseenter:target=move |event| show(serial, &event.target())
                on:focus:target=move |event| show(serial, &event.target())
                on:click:target=move |event| show(serial, &event.target())
                on:mouseleave=move |_| shown.set(None)
                on:blur=move |_| shown.set(None)
            >
                {taken.text.replace('\n', "⏎")}
            </button>
            {taken.text.ends_with('\n').then(|| view! { <br /> })}
        })
    };
    let popover = move || {
        let Shown { serial, left_px, top_px } = shown.get()?;
        let taken = screen.peek(|state| find(&state.lab.next.taken, serial).cloned())?;
        Some(view! {
            <div
                class="lab-popover"
                id="lab-alternatives"
                role="tooltip"
                style:left=format!("{left_px}px")
                style:top=format!("{top_px}px")
            >
                {alternatives(&taken)}
            </div>
        })
    };
    view! {
        <h4 class="lab-subtitle">"The text so far"</h4>
        <div
            class="lab-answer"
            node_ref=text
            on:keydown=move |event| {
                if event.key() == "Escape" && shown.get_untracked().is_some() {
                    // It does no more, as stop an answer.
                    event.stop_propagation();
                    shown.set(None);
                }
            }
        >
            <span class="lab-before">{move || prompt.get()}</span>
            <For each=move || serials.get() key=|serial| *serial children=token />
            {popover}
        </div>
        <Legend />
    }
}

fn find(taken: &[Taken], serial: u64) -> Option<&Taken> {
    taken.iter().find(|taken| taken.serial == serial)
}

/// The end of a text, with a sign that it is one.
fn end_of(text: &str) -> String {
    let n_over = text.chars().count().saturating_sub(MOST_CHARS);
    match n_over {
        0 => text.to_owned(),
        n => format!("… {}", text.chars().skip(n).collect::<String>()),
    }
}

/// The place among the tints.
fn tint_of(share: f64) -> usize {
    TINTS.iter().position(|(from, _)| share >= *from).unwrap_or(TINTS.len() - 1)
}

/// The ten that were likeliest at a token's place; the token itself where it was none of them.
fn alternatives(taken: &Taken) -> impl IntoView + use<> {
    let chosen = taken.id;
    let row = move |id: u32, text: &str, logprob: f32| {
        let share = f64::from(logprob).exp();
        view! {
            <li class:chosen=id == chosen>
                <span class="lab-bar-text">{visible(text)}</span>
                <span class="lab-bar-track">
                    <span class="lab-bar-fill" style:width=format!("{:.2}%", share * 100.0)></span>
                </span>
                <span class="lab-bar-share">{percent(share)}</span>
            </li>
        }
    };
    let is_among = taken.likely.iter().any(|token| token.id == chosen);
    let rows = taken.likely.iter().map(|token| row(token.id, &token.text, token.logprob)).collect_view();
    let own = (!is_among).then(|| row(chosen, &taken.text, taken.logprob));
    view! { <ol aria-label="Likeliest at this place">{rows} {own}</ol> }
}

#[component]
fn Legend() -> impl IntoView {
    let tint = |(place, (_, words)): (usize, (f64, &'static str))| {
        view! {
            <li>
                <span class=format!("lab-token tint-{place}") aria-hidden="true">"abc"</span>
                {words}
            </li>
        }
    };
    view! {
        <ul class="lab-legend" aria-label="Tints: how likely a token was">
            {TINTS.into_iter().enumerate().map(tint).collect_view()}
        </ul>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_probability_has_a_tint() {
        assert_eq!([1.0, 0.9, 0.6, 0.2, 0.05, 0.01, 0.0, f64::NAN].map(tint_of), [0, 0, 1, 2, 3, 4, 4, 4]);
    }

    #[test]
    fn the_end_of_a_long_text_is_shown() {
        assert_eq!(end_of("ab"), "ab");
        let long = format!("x{}", "é".repeat(MOST_CHARS));
        assert_eq!(end_of(&long), format!("… {}", "é".repeat(MOST_CHARS)));
    }
}
