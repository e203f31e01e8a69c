//! One quiet line about speed, counts and where it runs, with a plain warning where that is slow.

use leptos::prelude::*;

use super::{
    live::Live,
    screen::Screen,
    state::{Part, State},
    words,
};
use crate::protocol::{DeviceKind, ModelInfo};

/// Said of a model that knows no conversation.
const ONLY_CONTINUES: &str = "This model has no chat template: it continues your text instead of answering.";

/// The status line: of the last answer, of the engine, of the model.
#[component]
pub(crate) fn Status() -> impl IntoView {
    let screen = Screen::expect();
    let model = Memo::new(move |_| {
        screen.read(Part::Models, |state| state.model.as_ref().map(|model| model.info.clone()))
    });
    view! {
        <footer class="status" aria-label="Status">
            {move || model.get().map(|info| view! { <Counts context=info.context /> })}
            <Live />
            {move || {
                model
                    .get()
                    .map(|info| {
                        let warning = warning(&info);
                        view! {
                            <p class="where">{place(&info)}</p>
                            {(!info.has_chat_template).then(|| view! { <p class="warning">{ONLY_CONTINUES}</p> })}
                            {warning.map(|warning| view! { <p class="warning">{warning}</p> })}
                            {info.kv_note.map(|note| view! { <p class="warning">{note}</p> })}
                        }
                    })
            }}
        </footer>
    }
}

/// Speed and counts of the last answer, and how full the context is.
#[component]
fn Counts(context: u32) -> impl IntoView {
    let screen = Screen::expect();
    let used = move || screen.read(Part::Status, context_tokens);
    let numbers = move || screen.read(Part::Status, numbers);
    view! {
        <p class="counts">
            {move || {
                numbers().into_iter().map(|number| view! { <span>{number}</span> }).collect_view()
            }}
            // Of a chat that was not answered here it is not known.
            <span class="context" hidden=move || used() == 0>
                <meter aria-label="Context used" min="0" max=context value=used></meter>
                {move || {
                    format!("context {} of {}", words::count(used().into()), words::count(context.into()))
                }}
            </span>
        </p>
    }
}

fn context_tokens(state: &State) -> u32 {
    state.tally.map_or(0, |tally| tally.context_tokens())
}

fn numbers(state: &State) -> Vec<String> {
    let Some(tally) = state.tally else { return Vec::new() };
    let mut numbers: Vec<String> = tally.tokens_per_sec().map(words::speed).into_iter().collect();
    let cached = match tally.cached_tokens() {
        0 => String::new(),
        cached_tokens => format!(", {} cached", words::count(cached_tokens.into())),
    };
    numbers.push(format!("prompt {}{cached}", words::count(tally.prompt_tokens.into())));
    numbers.push(format!("generated {}", words::count(tally.generated_tokens.into())));
    numbers
}

/// Where it runs and what the KV cache takes.
fn place(info: &ModelInfo) -> String {
    let kind = match info.device_kind {
        DeviceKind::Gpu => "GPU",
        DeviceKind::Software => "software",
        DeviceKind::Cpu => "processor",
    };
    let (n_tokens, n_bytes) = (words::count(info.kv_tokens.into()), words::bytes(info.kv_bytes));
    format!("{} ({kind}, {}) · KV {n_tokens} tokens, {n_bytes}", info.device_name, info.precision.name())
}

fn warning(info: &ModelInfo) -> Option<String> {
    match (info.device_kind, &info.device_note) {
        (DeviceKind::Gpu | DeviceKind::Software, Some(note)) => Some(format!("{note}.")),
        (DeviceKind::Software, None) => {
            Some("No graphics processor is in use: answers are right but slow.".into())
        }
        (DeviceKind::Cpu, Some(note)) => Some(format!("The processor computes: {note}.")),
        (DeviceKind::Gpu | DeviceKind::Cpu, None) => None,
    }
}
