//! The Benchmark page: chooses, starts, watches and keeps what `crate::bench` measures of the model that answers.

use js_sys::Date;
use leptos::prelude::*;

use super::{
    bench_plot::Plots,
    bench_table::{OpsTable, Table},
    screen::Screen,
    state::{Choices, Part, State},
};
use crate::protocol::{DeviceKind, ModelInfo};

/// A box for numbers: its id, its name, what it means, and where it lives.
struct Field {
    id: &'static str,
    label: &'static str,
    explanation: &'static str,
    get: fn(&Choices) -> String,
    set: fn(&mut Choices, String),
}

const FIELDS: [Field; 4] = [
    Field {
        id: "bench-prompt",
        label: "Prompt tokens",
        explanation: "How long each prompt is; several with commas between.",
        get: |choices| choices.prompt_tokens.clone(),
        set: |choices, text| choices.prompt_tokens = text,
    },
    Field {
        id: "bench-answer",
        label: "Answer tokens",
        explanation: "How long each answer is; several with commas between.",
        get: |choices| choices.max_tokens.clone(),
        set: |choices, text| choices.max_tokens = text,
    },
    Field {
        id: "bench-sequences",
        label: "Sequences at once",
        explanation: "How many answers are computed together, such as 1, 2, 4, 8, 16.",
        get: |choices| choices.sequences.clone(),
        set: |choices, text| choices.sequences = text,
    },
    Field {
        id: "bench-runs",
        label: "Runs",
        explanation: "How often each is measured, after a short run that warms up.",
        get: |choices| choices.runs.clone(),
        set: |choices, text| choices.runs = text,
    },
];

/// The page in the place of the conversation.
#[component]
pub(crate) fn Benchmark(open: RwSignal<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let running = Memo::new(move |_| screen.read(Part::Benchmark, |state| state.benchmark.is_running()));
    let start = move || {
        let date: String = Date::new_0().to_iso_string().into();
        // Other sessions of this engine left prompts of theirs in its cache.
        let n_made = (js_sys::Math::random() * 1e15) as u64;
        screen.start_bench(date.chars().take("2026-11-30".len()).collect(), n_made);
    };
    view! {
        <section id="benchmark" class="benchmark" aria-labelledby="benchmark-title" hidden=move || !open.get()>
            <div class="benchmark-inner">
                <div class="panel-head">
                    <h2 id="benchmark-title">"Benchmark"</h2>
                    <button type="button" class="quiet" on:click=move |_| open.set(false)>"Back to the chat"</button>
                </div>
                <Place />
                <form
                    class="bench-form"
                    on:submit=move |event| {
                        event.prevent_default();
                        if running.get_untracked() { screen.stop_bench() } else { start() }
                    }
                >
                    {FIELDS.iter().map(|field| view! { <Numbers field running /> }).collect_view()}
                    <div class="field switch">
                        <input
                            type="checkbox"
                            id="bench-cache"
                            aria-describedby="bench-cache-about"
                            prop:checked=move || {
                                screen.read(Part::Benchmark, |state| state.benchmark.choices.without_cache)
                            }
                            disabled=move || running.get()
                            on:change:target=move |event| {
                                let on = event.target().checked();
                                screen.change(|state| state.choose_bench(|choices| choices.without_cache = on));
                            }
                        />
                        <label for="bench-cache">"Also without the KV cache"</label>
                        <p id="bench-cache-about" class="about">
                            "One sequence whose every token computes all before it again. It takes long."
                        </p>
                    </div>
                    <button type="submit" class=move || if running.get() { "stop" } else { "primary" }>
                        {move || if running.get() { "Stop the benchmark" } else { "Start the benchmark" }}
                    </button>
                </form>
                <Watch />
                <Results />
            </div>
        </section>
    }
}

/// Which adapter measures, with a warning where the processor imitates it.
#[component]
fn Place() -> impl IntoView {
    let screen = Screen::expect();
    let model = Memo::new(move |_| {
        screen.read(Part::Models, |state| state.model.as_ref().map(|model| model.info.clone()))
    });
    view! {
        <p class="bench-place">{move || model.get().map_or_else(|| "Load a model first.".to_owned(), |info| place(&info))}</p>
        {move || {
            let is_software = model.get().is_some_and(|info| info.device_kind == DeviceKind::Software);
            is_software
                .then(|| {
                    view! {
                        <p class="warning">
                            "This adapter is software: the processor imitates a GPU, and the numbers are not those of one."
                        </p>
                    }
                })
        }}
    }
}

fn place(info: &ModelInfo) -> String {
    format!("{} on {} ({})", info.name, info.device_name, info.device_backend)
}

#[component]
fn Numbers(field: &'static Field, running: Memo<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let value = move || screen.read(Part::Benchmark, |state| (field.get)(&state.benchmark.choices));
    let about_id = format!("{}-about", field.id);
    view! {
        <div class="field">
            <label for=field.id>{field.label}</label>
            <input
                type="text"
                inputmode="numeric"
                autocomplete="off"
                id=field.id
                aria-describedby=about_id.clone()
                prop:value=value
                disabled=move || running.get()
                on:input:target=move |event| {
                    let text = event.target().value();
                    screen.change(|state| state.choose_bench(|choices| (field.set)(choices, text)));
                }
            />
            <p id=about_id class="about">{field.explanation}</p>
        </div>
    }
}

/// How far it is, and what went wrong.
#[component]
fn Watch() -> impl IntoView {
    let screen = Screen::expect();
    let progress = Memo::new(move |_| screen.read(Part::Benchmark, State::bench_progress));
    let problem = Memo::new(move |_| screen.read(Part::Benchmark, |state| state.benchmark.problem.clone()));
    view! {
        <div class="load bench-progress" hidden=move || progress.with(Option::is_none)>
            <p class="load-stage" role="status">
                {move || progress.get().map(|progress| progress.what)}
            </p>
            <progress
                aria-label="Runs done"
                max=move || progress.get().map_or(1, |progress| progress.n_runs)
                value=move || progress.get().map_or(0, |progress| progress.n_done)
            ></progress>
        </div>
        {move || problem.get().map(|sentence| view! { <p class="about error" role="alert">{sentence}</p> })}
    }
}

/// Plots, table and file of what was measured.
#[component]
fn Results() -> impl IntoView {
    let screen = Screen::expect();
    let report = Memo::new(move |_| screen.read(Part::Benchmark, |state| state.benchmark.report.clone()));
    move || {
        let report = report.get()?;
        let name = format!("pagelm-bench-{}.json", report.date);
        let json = js_sys::encode_uri_component(&report.to_json());
        let href = format!("data:application/json;charset=utf-8,{json}");
        let ops = report.ops.clone();
        Some(view! {
            <Plots report=report.clone() />
            <Table report />
            {ops.map(|ops| view! { <OpsTable ops /> })}
            <p>
                <a class="file-button bench-export" download=name href=href>"Export JSON"</a>
            </p>
        })
    }
}
