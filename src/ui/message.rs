//! One turn of the conversation. An answer grows block by block: only blocks that changed are put in place anew.

use std::time::Duration;

use leptos::prelude::*;

use super::{
    markdown,
    screen::Screen,
    state::Part,
    turn::{Speaker, Stage, TurnId},
};
use crate::protocol::FinishReason;

/// How long "Copied" is shown.
const COPIED_TIME: Duration = Duration::from_secs(2);

/// A turn, by whoever speaks.
#[component]
pub(crate) fn TurnView(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let turn = screen.peek(|state| state.turn(turn_id).cloned());
    turn.map(|turn| match turn.speaker {
        Speaker::User => view! {
            <article class="turn user" aria-label="You">
                <p>{turn.text}</p>
            </article>
        }
        .into_any(),
        Speaker::Assistant => view! { <Answer turn_id /> }.into_any(),
    })
}

/// An answer: its blocks, and below them how far it is or how it ended.
#[component]
fn Answer(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let blocks = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| {
            state.turn(turn_id).map_or_else(Vec::new, |turn| markdown::blocks(&turn.text))
        })
    });
    let n_blocks = Memo::new(move |_| blocks.with(Vec::len));
    let stage = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| state.turn(turn_id).map_or(Stage::Broken, |turn| turn.stage))
    });
    let busy = Memo::new(move |_| matches!(stage.get(), Stage::Reading { .. } | Stage::Growing));

    let block_view = move |block_idx: usize| {
        let block = Memo::new(move |_| blocks.with(|blocks| blocks.get(block_idx).cloned()));
        let html = move || block.get().map(|block| block.sanitize()).unwrap_or_default().into_string();
        view! { <div class="block" inner_html=html></div> }
    };
    view! {
        <article
            class="turn assistant"
            class:busy=move || busy.get()
            aria-label="Answer"
            aria-busy=move || if busy.get() { "true" } else { "false" }
        >
            <For each=move || 0..n_blocks.get() key=|block_idx| *block_idx children=block_view />
            {move || stage_view(stage.get())}
            <Show when=move || !busy.get()>
                <CopyButton turn_id />
            </Show>
        </article>
    }
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
        Stage::Done(FinishReason::Cancelled) => note("Stopped."),
        Stage::Broken => note("An error ended this answer."),
    }
}

/// Copies the answer as it was written; nothing where the browser allows no clipboard.
#[component]
fn CopyButton(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let copied = RwSignal::new(false);
    let copy = move |_| {
        let text = screen.peek(|state| state.turn(turn_id).map(|turn| turn.text.clone())).unwrap_or_default();
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
