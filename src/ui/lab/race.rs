//! Where an answer's time goes, and what the KV cache saves of it: the same answer with and without.

use leptos::prelude::*;

use super::{Act, PanelView, has_tokens, read, spans::TimelineView};
use crate::ui::{
    bench_plot::{Plot, Series},
    screen::Screen,
    state::lab::{Lab, Panel, Race},
    words,
};

/// Lengths of the answer that may be chosen.
const LENGTHS: [u32; 4] = [8, 16, 32, 64];

#[component]
pub(super) fn With(obstacle: Memo<Option<&'static str>>) -> impl IntoView {
    let screen = Screen::expect();
    let timeline = read(Panel::Next, |lab| lab.next.timeline.clone());
    let has_tokens = has_tokens();
    let is_running = read(Panel::Race, |lab| lab.race.is_running());
    let progress = read(Panel::Race, |lab| lab.race.progress());
    let race = read(Panel::Race, |lab| lab.race.clone());
    let n_tokens = RwSignal::new(LENGTHS[1]);
    let is_off = Signal::derive(move || !is_running.get() && (!has_tokens.get() || obstacle.get().is_some()));
    let act = move || {
        if is_running.get_untracked() {
            screen.change_lab(Panel::Race, Lab::stop_race);
        } else {
            screen.change_lab(Panel::Race, |lab| lab.start_race(n_tokens.get_untracked()));
        }
    };
    let length = move |n: u32| {
        view! { <option value=n selected=n == LENGTHS[1]>{words::tokens(n)}</option> }
    };
    view! {
        <PanelView
            panel=Panel::Race
            id="lab-race"
            title="Prefill, decode and the KV cache"
            about="Prefill reads the whole prompt at once, many tokens in each step; decode then writes one token a step. What was computed of earlier tokens, their keys and values, is kept in the KV cache; without it every new token computes all before it again."
        >
            {move || timeline.get().map(|timeline| view! { <TimelineView timeline /> })}
            <div class="lab-acts">
                <label class="lab-length">
                    "Answer of "
                    <select
                        id="lab-length"
                        disabled=move || is_running.get()
                        on:change:target=move |event| {
                            n_tokens.set(event.target().value().parse().unwrap_or(LENGTHS[1]));
                        }
                    >
                        {LENGTHS.map(length).collect_view()}
                    </select>
                </label>
                <Act
                    class="primary"
                    label=Signal::derive(move || if is_running.get() { "Stop both" } else { "Run both" })
                    is_off
                    act
                />
                <progress
                    aria-label="Tokens written"
                    hidden=move || !is_running.get()
                    max=move || progress.get().1
                    value=move || progress.get().0
                ></progress>
            </div>
            <p class="lab-note" role="status">{move || race.with(verdict)}</p>
            {move || {
                let series = race.with(series);
                (!series.is_empty())
                    .then(|| {
                        view! {
                            <Plot
                                title="Time of each token, with and without the KV cache"
                                x_label="position"
                                y_label="ms"
                                series
                            />
                        }
                    })
            }}
        </PanelView>
    }
}

/// What came of it, in a sentence or two.
fn verdict(race: &Race) -> String {
    let Some(ratio) = race.ratio() else { return String::new() };
    let (n_alike, n_tokens) = (race.n_alike(), race.with.tokens.len());
    let alike = if n_alike == n_tokens {
        format!("Both wrote the same {n_tokens} tokens.")
    } else {
        format!(
            "The first {n_alike} tokens are the same; after them two were nearly as likely, and either may be taken."
        )
    };
    format!(
        "With the KV cache {}, without it {}: {ratio:.1} times as long. {alike}",
        words::time(race.with.total_ms()),
        words::time(race.without.total_ms())
    )
}

/// A line for each way, by the place of each token.
fn series(race: &Race) -> Vec<Series> {
    let line = |name: &str, times_ms: &[f64]| Series {
        name: name.to_owned(),
        points: (1..).zip(times_ms).map(|(n, ms)| (f64::from(n) + race.n_prompt() as f64, *ms)).collect(),
    };
    let both = [
        line("with the KV cache", &race.with.times_ms),
        line("without the KV cache", &race.without.times_ms),
    ];
    both.into_iter().filter(|line| !line.points.is_empty()).collect()
}
