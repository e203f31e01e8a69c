//! One turn of the conversation: what a person said, or an answer in its parts.

use std::time::Duration;

use leptos::{ev::MouseEvent, prelude::*};
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use super::{
    blocks::{Blocks, Shown},
    markdown::COPY_LABEL,
    own_turn::OwnTurn,
    screen::Screen,
    state::Part,
    thinking,
    thought::Thought,
    turn::{Speaker, Stage, TurnId},
    turn_foot::AnswerButtons,
    usage::UsageView,
};
use crate::protocol::{FinishReason, UNMET};

/// How long "Copied" is shown.
const COPIED_TIME: Duration = Duration::from_secs(2);

/// A turn, by whoever speaks.
#[component]
pub(crate) fn TurnView(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let turn = screen.peek(|state| state.turn(turn_id).cloned());
    turn.map(|turn| match turn.speaker {
        Speaker::User => view! { <OwnTurn turn_id text=turn.text /> }.into_any(),
        Speaker::Assistant => view! { <Answer turn_id /> }.into_any(),
    })
}

/// An answer: what was thought, what is said, and below them how far it is or how it ended.
#[component]
fn Answer(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let stage = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| state.turn(turn_id).map_or(Stage::Broken, |turn| turn.stage))
    });
    let busy = Memo::new(move |_| stage.get().is_busy());
    let usage = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| state.turn(turn_id).and_then(|turn| turn.usage))
    });
    view! {
        <article
            class="turn assistant"
            class:busy=move || busy.get()
            class:can-copy=window().is_secure_context()
            aria-label="Answer"
            aria-busy=move || if busy.get() { "true" } else { "false" }
            on:click=copy_code
        >
            <Thought turn_id />
            <Blocks turn_id shown=Shown::Said />
            {move || stage_view(stage.get())}
            <Show when=move || !busy.get()>
                <p class="turn-foot">
                    <CopyButton turn_id />
                    <AnswerButtons turn_id />
                    {move || usage.get().map(|usage| view! { <UsageView usage /> })}
                </p>
            </Show>
        </article>
    }
}

/// Copies the block of code whose button was pressed: what is shown of an answer has no listeners of its own.
fn copy_code(event: MouseEvent) {
    let pressed = event.target().and_then(|target| target.dyn_into::<HtmlElement>().ok());
    let Some(button) = pressed.filter(|element| element.matches(".code-head button").unwrap_or(false)) else {
        return;
    };
    let block = button.closest(".code").ok().flatten();
    let code = block.and_then(|block| block.query_selector("pre").ok().flatten());
    let text = code.and_then(|code| code.text_content()).unwrap_or_default();
    let written = window().navigator().clipboard().write_text(&text);
    leptos::task::spawn_local(async move {
        if wasm_bindgen_futures::JsFuture::from(written).await.is_ok() {
            button.set_text_content(Some("Copied"));
            set_timeout(move || button.set_text_content(Some(COPY_LABEL)), COPIED_TIME);
        }
    });
}

/// What there is to say about how far an answer is.
fn stage_view(stage: Stage) -> Option<AnyView> {
    let note = |text: &'static str| Some(view! { <p class="note">{text}</p> }.into_any());
    match stage {
        Stage::Reading { done_tokens, total_tokens } => {
            let words = match total_tokens {
                0 => "Reading your message".to_owned(),
                _ => format!("Reading the conversation: {done_tokens} of {total_tokens} tokens"),
            };
            Some(view! { <p class="reading">{words}</p> }.into_any())
        }
        Stage::Growing | Stage::Done(FinishReason::Stop) => None,
        Stage::Done(FinishReason::Length) => {
            note("It ends here: the longest answer or the context is reached.")
        }
        Stage::Recovering => note("The engine or its GPU was lost and is coming back; the answer goes on."),
        Stage::Done(FinishReason::Cancelled) => note("Stopped."),
        Stage::Done(FinishReason::Unmet) => note(UNMET),
        Stage::Interrupted => note("Stopped: the page was reloaded or closed."),
        Stage::Broken => note("An error ended this answer."),
    }
}

/// Copies what the answer says, as it was written; nothing where the browser allows no clipboard.
#[component]
fn CopyButton(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let copied = RwSignal::new(false);
    let copy = move |_| {
        let text = screen
            .peek(|state| state.turn(turn_id).map(|turn| thinking::said(&turn.text).to_owned()))
            .unwrap_or_default();
        let written = window().navigator().clipboard().write_text(&text);
        leptos::task::spawn_local(async move {
            if wasm_bindgen_futures::JsFuture::from(written).await.is_ok() {
                copied.set(true);
                set_timeout(move || _ = copied.try_set(false), COPIED_TIME);
            }
        });
    };
    window().is_secure_context().then(|| {
        view! {
            <button type="button" class="copy" on:click=copy>
                {move || if copied.get() { "Copied" } else { "Copy" }}
            </button>
        }
    })
}
