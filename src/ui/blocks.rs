//! A part of an answer, block by block as it grows: only blocks that changed are read and put in place anew, and the
//! slower that is, the less often.

use std::time::Duration;

use leptos::{html, prelude::*};

use super::{
    markdown::{Block, Reader, Tail},
    pace::Pace,
    patch::patch,
    screen::{Screen, now_ms},
    state::Part,
    thinking,
    turn::{Stage, TurnId},
};

/// A part no longer than this is shown anew with every frame.
const PACED_BYTES: usize = 8192;

/// Which part of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// What was thought before it.
    Thought,
    /// What is said.
    Said,
}

/// The blocks of a part.
#[component]
pub(crate) fn Blocks(turn_id: TurnId, shown: Shown) -> impl IntoView {
    let pace = StoredValue::new(Pace::default());
    // None is ever taken away: fewer may be shown.
    let cells = StoredValue::new(Vec::new());
    let n_blocks = paced_blocks(turn_id, shown, pace, cells);
    let block_view = move |block_idx: usize| {
        let cell = cells.with_value(|cells: &Vec<ArcRwSignal<Block>>| cells.get(block_idx).cloned());
        cell.map(|cell| block_view(cell, pace))
    };
    view! { <For each=move || 0..n_blocks.get() key=|block_idx| *block_idx children=block_view /> }
}

fn block_view(cell: ArcRwSignal<Block>, pace: StoredValue<Pace>) -> impl IntoView {
    let element = NodeRef::<html::Div>::new();
    let begin_ms = now_ms();
    let first = cell.get_untracked();
    let first_html = first.sanitize().into_string();
    add_cost(pace, begin_ms);
    Effect::new(move |shown: Option<Block>| {
        let block = cell.get();
        if shown.as_ref().unwrap_or(&first) != &block
            && let Some(element) = element.get_untracked()
        {
            let begin_ms = now_ms();
            patch(&element, &block.sanitize().into_string());
            add_cost(pace, begin_ms);
        }
        block
    });
    view! { <div class="block" dir="auto" inner_html=first_html node_ref=element></div> }
}

/// Keeps the cells as the blocks are to be shown, and tells how many there are. A long text that takes long to put in place
/// is put there less often while it grows; its end is shown at once.
fn paced_blocks(
    turn_id: TurnId,
    shown: Shown,
    pace: StoredValue<Pace>,
    cells: StoredValue<Vec<ArcRwSignal<Block>>>,
) -> RwSignal<usize> {
    let screen = Screen::expect();
    let n_blocks = RwSignal::new(0);
    let reader = StoredValue::new(Reader::default());
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
        let tail = screen.peek(|state| {
            let turn = state.turn(turn_id)?;
            let parts = thinking::parts(&turn.text, turn.stage.is_busy());
            let text = match shown {
                Shown::Thought => parts.thought.unwrap_or_default(),
                Shown::Said => parts.said,
            };
            reader.try_update_value(|reader| reader.read(text))
        });
        let n_new = tail.map_or(0, |tail| fill(cells, tail));
        if n_blocks.get_untracked() != n_new {
            n_blocks.set(n_new);
        }
        add_cost(pace, begin_ms);
        if paced {
            // Between a frame's start and the next task it is laid out.
            request_animation_frame(move || {
                let frame_ms = now_ms();
                set_timeout(move || add_cost(pace, frame_ms), Duration::ZERO);
            });
        }
    });
    n_blocks
}

/// Puts blocks that differ into their cells; tells how many blocks there are.
fn fill(cells: StoredValue<Vec<ArcRwSignal<Block>>>, tail: Tail) -> usize {
    let n_blocks = tail.n_before + tail.blocks.len();
    for (block_idx, block) in (tail.n_before..).zip(tail.blocks) {
        match cells.with_value(|cells| cells.get(block_idx).cloned()) {
            Some(cell) if cell.with_untracked(|shown| *shown == block) => {}
            Some(cell) => cell.set(block),
            None => cells.update_value(|cells| cells.push(ArcRwSignal::new(block))),
        }
    }
    n_blocks
}

/// Counts the time since `begin_ms` as spent on showing the part, if it is still there.
fn add_cost(pace: StoredValue<Pace>, begin_ms: f64) {
    let end_ms = now_ms();
    let _gone = pace.try_update_value(|pace| pace.add(end_ms, end_ms - begin_ms));
}
