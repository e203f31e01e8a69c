//! The batch while somebody looks: whose rows the last step had, and whose blocks the KV cache holds.

use std::time::Duration;

use leptos::prelude::*;

use super::{Act, PanelView, has_tokens, read};
use crate::{
    protocol::{BatchStatus, SequenceStatus},
    ui::{
        screen::Screen,
        state::lab::{Cell, Lab, Panel, StepRows, strip},
        words,
    },
};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(250);
/// Most cells of the strip, about.
const MOST_CELLS: u32 = 320;
/// Colours of sequences; after so many they begin again.
const N_COLOURS: usize = 6;

#[component]
pub(super) fn Batch(open: RwSignal<bool>, obstacle: Memo<Option<&'static str>>) -> impl IntoView {
    let screen = Screen::expect();
    // Nobody is told who does not look, and who looks away does not.
    let look = move || {
        if open.get_untracked() && !document().hidden() && screen.peek(|state| state.lab_obstacle().is_none())
        {
            screen.change_lab(Panel::Batch, |lab| lab.watch.look());
        }
    };
    let timer = StoredValue::new(None::<IntervalHandle>);
    let stop = move || {
        if let Some(timer) = timer.try_update_value(Option::take).flatten() {
            timer.clear();
        }
    };
    Effect::new(move |_| {
        stop();
        if open.get() {
            timer.set_value(set_interval_with_handle(look, PERIOD).ok());
        }
    });
    on_cleanup(stop);
    let has_tokens = has_tokens();
    let batch = read(Panel::Batch, |lab| lab.watch.batch.clone().unwrap_or_default());
    let steps = read(Panel::Batch, |lab| lab.watch.steps.clone());
    let is_crowded = read(Panel::Batch, |lab| lab.watch.is_crowded());
    let is_off = Signal::derive(move || !is_crowded.get() && (!has_tokens.get() || obstacle.get().is_some()));
    let act = move || {
        let change = if is_crowded.get_untracked() { Lab::empty_batch } else { Lab::fill_batch };
        screen.change_lab(Panel::Batch, change);
    };
    view! {
        <PanelView
            panel=Panel::Batch
            id="lab-batch"
            title="The batch, live"
            about="All answers of all tabs are computed together: each step has a row for every answer that writes, and rows of prompts that are being read; answers come and go between steps (continuous batching). Their keys and values lie in blocks of 32 tokens anywhere in the cache (paged attention), and prompts that begin alike share blocks."
        >
            <div class="lab-acts">
                <Act
                    label=Signal::derive(move || {
                        if is_crowded.get() { "Stop the four answers" } else { "Answer the text four times at once" }
                    })
                    is_off
                    act
                />
            </div>
            <p class="lab-counts">{move || batch.with(summary)}</p>
            <div class="lab-sequences" tabindex="0" role="region" aria-label="Sequences">
                {move || batch.with(table)}
            </div>
            {move || batch.with(last_step)}
            {move || steps.with(|steps| history(steps))}
            {move || batch.with(blocks)}
        </PanelView>
    }
}

/// The batch in a line.
fn summary(batch: &BatchStatus) -> String {
    let n_running = batch.sequences.iter().filter(|sequence| sequence.is_running).count() as u32;
    let n_waiting = batch.sequences.len() as u32 - n_running;
    let rows = |of: fn(&SequenceStatus) -> u32| batch.sequences.iter().map(of).sum();
    format!(
        "{} running · {} waiting · step {}: {} of decode, {} of prefill",
        words::count(n_running.into()),
        words::count(n_waiting.into()),
        words::count(batch.steps),
        words::counted(rows(|sequence| sequence.decode_rows), "row", "rows"),
        words::count(rows(|sequence| sequence.prefill_rows).into()),
    )
}

fn table(batch: &BatchStatus) -> impl IntoView + use<> {
    if batch.sequences.is_empty() {
        return view! { <p class="lab-note">"No answer is computed now."</p> }.into_any();
    }
    let row = |(place, sequence): (usize, &SequenceStatus)| {
        let cells = cells(sequence).map(|text| view! { <td>{text}</td> });
        view! {
            <tr class:own=sequence.is_own>
                <th scope="row">
                    <span class=format!("lab-key {}", colour_of(place)) aria-hidden="true"></span>
                    {place + 1}
                </th>
                {cells.collect_view()}
            </tr>
        }
    };
    view! {
        <table>
            <thead>
                <tr>
                    <th scope="col">"Sequence"</th>
                    <th scope="col">"Tab"</th>
                    <th scope="col">"State"</th>
                    <th scope="col">"Tokens"</th>
                    <th scope="col">"Rows"</th>
                    <th scope="col">"Own blocks"</th>
                    <th scope="col">"Shared"</th>
                </tr>
            </thead>
            <tbody>{batch.sequences.iter().enumerate().map(row).collect_view()}</tbody>
        </table>
    }
    .into_any()
}

/// What is told of a sequence.
fn cells(sequence: &SequenceStatus) -> [String; 6] {
    let whose = match (sequence.is_own, sequence.tab) {
        (true, tab) => format!("{tab} (this)"),
        (false, 0) => "closed".to_owned(),
        (false, tab) => tab.to_string(),
    };
    let state = match (sequence.is_running, sequence.n_tokens > sequence.prompt_tokens) {
        (false, _) => "waits",
        (true, true) => "writes",
        (true, false) => "reads",
    };
    let rows = match (sequence.decode_rows, sequence.prefill_rows) {
        (0, 0) => "–".to_owned(),
        (0, n) => format!("{n} prefill"),
        (n, _) => format!("{n} decode"),
    };
    [
        whose,
        state.to_owned(),
        format!("{} of {} cached", sequence.cached_tokens, sequence.n_tokens),
        rows,
        sequence.alone_blocks.to_string(),
        sequence.shared_blocks.to_string(),
    ]
}

/// The rows of the last step as cells, those of a sequence in its colour; prefill is framed.
fn last_step(batch: &BatchStatus) -> Option<impl IntoView + use<>> {
    let n_rows: u32 =
        batch.sequences.iter().map(|sequence| sequence.prefill_rows + sequence.decode_rows).sum();
    if n_rows == 0 {
        return None;
    }
    let n_each = n_rows.div_ceil(MOST_CELLS);
    let several = |(place, sequence): (usize, &SequenceStatus)| {
        let cell = |kind: &str| {
            let class = format!("lab-cell {} {kind}", colour_of(place));
            view! { <i class=class></i> }
        };
        let decode = (0..sequence.decode_rows.div_ceil(n_each)).map(|_| cell("decode"));
        decode.chain((0..sequence.prefill_rows.div_ceil(n_each)).map(|_| cell("prefill"))).collect_view()
    };
    let about = match n_each {
        1 => format!("The last step: {}", words::counted(n_rows, "row", "rows")),
        n => format!("The last step: {}; a cell is up to {n}", words::counted(n_rows, "row", "rows")),
    };
    Some(view! {
        <figure class="lab-blocks">
            <figcaption>{format!("{about}. Framed rows read a prompt, filled ones write.")}</figcaption>
            <div class="lab-strip" role="img" aria-label=about>
                {batch.sequences.iter().enumerate().map(several).collect_view()}
            </div>
        </figure>
    })
}

/// Rows of the steps that were seen, as columns side by side.
fn history(steps: &[StepRows]) -> Option<impl IntoView + use<>> {
    let most = steps.iter().map(|step| step.prefill + step.decode).max()?;
    let column = |step: &StepRows| {
        let height = |n: u32| format!("{:.1}%", f64::from(n) / f64::from(most) * 100.0);
        let told = format!("Step {}: {} decode, {} prefill", step.step, step.decode, step.prefill);
        view! {
            <span class="lab-step" title=told>
                <span class="work-prefill" style:height=height(step.prefill)></span>
                <span class="work-decode" style:height=height(step.decode)></span>
            </span>
        }
    };
    let label = format!("Rows of the last {} steps that were seen, at most {most}", steps.len());
    Some(view! {
        <figure class="lab-history">
            <figcaption>
                {format!("Rows of the steps seen; the tallest has {}", words::counted(most, "row", "rows"))}
            </figcaption>
            <div class="lab-steps" role="img" aria-label=label>
                {steps.iter().map(column).collect_view()}
            </div>
            <ul class="bench-keys">
                <li><span class="lab-key work-decode" aria-hidden="true"></span>"decode"</li>
                <li><span class="lab-key work-prefill" aria-hidden="true"></span>"prefill"</li>
            </ul>
        </figure>
    })
}

/// The KV cache as a strip of cells, and what they stand for.
fn blocks(batch: &BatchStatus) -> Option<impl IntoView + use<>> {
    let (cells, n_each) = strip(batch, MOST_CELLS);
    let BatchStatus { alone_blocks, shared_blocks, cached_blocks, empty_blocks, .. } = batch;
    let n_blocks = alone_blocks + shared_blocks + cached_blocks + empty_blocks;
    if n_blocks == 0 {
        return None;
    }
    let several = |(cell, n): (Cell, u32)| {
        let class = format!("lab-cell {}", class_of(cell));
        let title = name_of(cell);
        (0..n).map(move |_| view! { <i class=class.clone() title=title.clone()></i> }).collect_view()
    };
    let of_each = match n_each {
        1 => "a cell is one block".to_owned(),
        n => format!("a cell is up to {n} blocks"),
    };
    let numbers = format!(
        "{} owned by one sequence · {} shared · {} cached · {} free",
        words::count((*alone_blocks).into()),
        words::count((*shared_blocks).into()),
        words::count((*cached_blocks).into()),
        words::count((*empty_blocks).into()),
    );
    let label = format!("{} of the KV cache: {numbers}", words::counted(n_blocks, "block", "blocks"));
    let keys = [
        ("cell-own", "owned, by the sequence's colour"),
        ("cell-shared", "shared"),
        ("cell-cached", "cached: kept for whoever begins alike"),
        ("cell-empty", "free"),
    ];
    let key = |(class, words): (&'static str, &'static str)| {
        view! { <li><i class=format!("lab-cell {class}") aria-hidden="true"></i>{words}</li> }
    };
    Some(view! {
        <figure class="lab-blocks">
            <figcaption>{format!("{}: {numbers}; {of_each}", words::counted(n_blocks, "KV block", "KV blocks"))}</figcaption>
            <div class="lab-strip" role="img" aria-label=label>
                {cells.into_iter().map(several).collect_view()}
            </div>
            <ul class="bench-keys">{keys.map(key).collect_view()}</ul>
        </figure>
    })
}

fn colour_of(place: usize) -> String {
    format!("sequence-{}", place % N_COLOURS)
}

fn class_of(cell: Cell) -> String {
    match cell {
        Cell::Alone(place) => colour_of(place),
        Cell::Shared => "cell-shared".to_owned(),
        Cell::Cached => "cell-cached".to_owned(),
        Cell::Empty => "cell-empty".to_owned(),
    }
}

fn name_of(cell: Cell) -> String {
    match cell {
        Cell::Alone(place) => format!("Sequence {}", place + 1),
        Cell::Shared => "Shared".to_owned(),
        Cell::Cached => "Cached".to_owned(),
        Cell::Empty => "Free".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_told_without_what_anybody_wrote() {
        let own = SequenceStatus {
            tab: 2,
            is_own: true,
            is_running: true,
            prompt_tokens: 5,
            n_tokens: 9,
            cached_tokens: 8,
            decode_rows: 1,
            alone_blocks: 1,
            ..SequenceStatus::default()
        };
        let other = SequenceStatus {
            tab: 1,
            is_own: false,
            n_tokens: 5,
            decode_rows: 0,
            prefill_rows: 4,
            shared_blocks: 2,
            ..own
        };
        let waiting = SequenceStatus { is_running: false, prefill_rows: 0, tab: 0, ..other };
        assert_eq!(cells(&own), ["2 (this)", "writes", "8 of 9 cached", "1 decode", "1", "0"]);
        assert_eq!(cells(&other), ["1", "reads", "8 of 5 cached", "4 prefill", "1", "2"]);
        assert_eq!(cells(&waiting)[..2], ["closed", "waits"]);
        assert_eq!(cells(&waiting)[3], "–");
        let batch =
            BatchStatus { steps: 1200, sequences: vec![own, other, waiting], ..BatchStatus::default() };
        assert_eq!(
            summary(&batch),
            "2 running · 1 waiting · step 1\u{202f}200: 1 row of decode, 4 of prefill"
        );
    }
}
