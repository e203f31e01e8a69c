//! One turn of the conversation. An answer grows block by block: only blocks that changed are put in place anew, and
//! the slower that is, the less often.

use std::time::Duration;

use leptos::prelude::*;

use super::{
    markdown::{self, Block},
    own_turn::OwnTurn,
    pace::Pace,
    screen::{Screen, now_ms},
    state::Part,
    turn::{Speaker, Stage, TurnId},
    turn_foot::AnswerButtons,
    usage::UsageView,
};
use crate::protocol::FinishReason;

/// How long "Copied" is shown.
const COPIED_TIME: Duration = Duration::from_secs(2);
/// An answer no longer than this is shown anew with every frame.
const PACED_BYTES: usize = 8192;

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

/// An answer: its blocks, and below them how far it is or how it ended.
#[component]
fn Answer(turn_id: TurnId) -> impl IntoView {
    let screen = Screen::expect();
    let pace = StoredValue::new(Pace::default());
    let blocks = paced_blocks(turn_id, pace);
    let n_blocks = Memo::new(move |_| blocks.with(Vec::len));
    let stage = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| state.turn(turn_id).map_or(Stage::Broken, |turn| turn.stage))
    });
    let busy = Memo::new(move |_| stage.get().is_busy());
    let usage = Memo::new(move |_| {
        screen.read(Part::Turn(turn_id), |state| state.turn(turn_id).and_then(|turn| turn.usage))
    });

    let block_view = move |block_idx: usize| {
        let block = Memo::new(move |_| blocks.with(|blocks| blocks.get(block_idx).cloned()));
        let html = move || {
            let begin_ms = now_ms();
            let html = block.get().map(|block| block.sanitize()).unwrap_or_default();
            add_cost(pace, begin_ms);
            html.into_string()
        };
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
                <p class="turn-foot">
                    <CopyButton turn_id />
                    <AnswerButtons turn_id />
                    {move || usage.get().map(|usage| view! { <UsageView usage /> })}
                </p>
            </Show>
        </article>
    }
}

/// The answer's blocks as they are to be shown. A long text that takes long to put in place is put there less often
/// while it grows; its end is shown at once.
fn paced_blocks(turn_id: TurnId, pace: StoredValue<Pace>) -> RwSignal<Vec<Block>> {
    let screen = Screen::expect();
    let blocks = RwSignal::new(Vec::new());
    let waiting = StoredValue::new(false);
    // Turns with the end of a wait.
    let due = ArcTrigger::new();
    Effect::new(move |_| {
        due.track();
        let paced = screen.read(Part::Turn(turn_id), |state| {
            state
                .turn(turn_id)
                .is_some_and(|turn| turn.stage == Stage::Growing && turn.text.len() > PACED_BYTES)
        });
        let begin_ms = now_ms();
        if let Some(wait) = pace.with_value(|pace| pace.wait(begin_ms)).filter(|_| paced) {
            if !waiting.get_value() {
                waiting.set_value(true);
                let due = due.clone();
                let go_on = move || {
                    // Nothing is left to do for an answer that is gone.
                    if waiting.try_set_value(false).is_none() {
                        due.notify();
                    }
                };
                set_timeout(go_on, wait);
            }
            return;
        }
        pace.update_value(Pace::begin);
        let text_blocks = screen.peek(|state| state.turn(turn_id).map(|turn| markdown::blocks(&turn.text)));
        blocks.set(text_blocks.unwrap_or_default());
        add_cost(pace, begin_ms);
        if paced {
            // Between a frame's start and the next task it is laid out.
            request_animation_frame(move || {
                let frame_ms = now_ms();
                set_timeout(move || add_cost(pace, frame_ms), Duration::ZERO);
            });
        }
    });
    blocks
}

/// Counts the time since `begin_ms` as spent on showing the answer, if it is still there.
fn add_cost(pace: StoredValue<Pace>, begin_ms: f64) {
    let end_ms = now_ms();
    let _gone = pace.try_update_value(|pace| pace.add(end_ms, end_ms - begin_ms));
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
        Stage::Interrupted => note("Stopped: the page was reloaded or closed."),
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
