//! The settings: those of the chat on screen, the system prompt of new ones, how tokens are chosen, and how the next model is run.

use leptos::{html, prelude::*};

use super::{
    fields::{self, LinesField, NumberField, Range, SwitchField},
    report::Report,
    screen::Screen,
    state::Part,
    structure::FormOfAnswers,
    this_chat::{ThisChat, follow},
};
use crate::protocol::{DeviceChoice, KvType, Precision, Quantize};

/// The longest context that can be asked for, in tokens.
const MAX_CONTEXT: f64 = 1_048_576.0;
const CONTEXT_LABEL: &str = "Context length";
/// An unused model can be kept for a day.
const MAX_KEEP_MINUTES: f64 = 1440.0;
const KEEP_LABEL: &str = "Keep an unused model";

/// The settings beside the conversation, or above it where there is no room.
#[component]
pub(crate) fn Settings(open: RwSignal<bool>) -> impl IntoView {
    let screen = Screen::expect();
    let title = NodeRef::<html::H2>::new();
    Effect::new(move |was_open: Option<bool>| {
        let is_open = open.get();
        if is_open && was_open == Some(false) {
            // Only once it is no longer hidden can it have the focus.
            request_animation_frame(move || {
                if let Some(title) = title.get_untracked() {
                    let _ = title.focus();
                }
            });
        }
        is_open
    });
    let model = move || {
        screen.read(Part::Preferences, |state| match state.preferences.model() {
            "" => "of the model".to_owned(),
            model => format!("of {model}"),
        })
    };
    let changed = move || screen.read(Part::Preferences, |state| state.preferences.options_changed());
    view! {
        <aside id="settings" class="panel settings" aria-labelledby="settings-title" hidden=move || !open.get()>
            <div class="panel-head">
                <h2 id="settings-title" tabindex="-1" node_ref=title>"Settings"</h2>
                <button type="button" class="quiet" on:click=move |_| open.set(false)>"Close"</button>
            </div>
            <ThisChat />
            <SystemPrompt />
            <div class="options-head">
                <p>"The options below are those "{model}", and apply from the next message on."</p>
                <button
                    type="button"
                    class="quiet"
                    disabled=move || !changed()
                    on:click=move |_| screen.edit(|preferences| preferences.reset_options())
                >
                    "Use its defaults"
                </button>
            </div>
            <NumberGroup title="Choice" fields=fields::CHOICE />
            <NumberGroup title="Repetition" fields=fields::REPETITION />
            <NumberGroup title="Length" fields=fields::LENGTH />
            <fieldset>
                <legend>"Words"</legend>
                {fields::WORDS.iter().map(|field| view! { <Lines field /> }).collect_view()}
                {fields::SWITCHES.iter().map(|field| view! { <Switch field /> }).collect_view()}
            </fieldset>
            <FormOfAnswers />
            <LoadSettings />
            <Report />
        </aside>
    }
}

#[component]
fn SystemPrompt() -> impl IntoView {
    let screen = Screen::expect();
    let text = move || screen.read(Part::Preferences, |state| state.preferences.system_prompt.clone());
    view! {
        <div class="field">
            <label for="system-prompt">"System prompt of new chats"</label>
            <textarea
                id="system-prompt"
                rows="4"
                aria-describedby="system-prompt-about"
                prop:value=text
                on:change:target=move |event| {
                    let text = event.target().value();
                    screen.edit(|preferences| preferences.system_prompt = text);
                }
            ></textarea>
            <p id="system-prompt-about" class="about">
                "What a chat begins with that has no other; empty sends none."
            </p>
        </div>
    }
}

#[component]
fn NumberGroup(title: &'static str, fields: &'static [NumberField]) -> impl IntoView {
    view! {
        <fieldset>
            <legend>{title}</legend>
            {fields.iter().map(|field| view! { <Number field /> }).collect_view()}
        </fieldset>
    }
}

#[component]
fn Number(field: &'static NumberField) -> impl IntoView {
    let screen = Screen::expect();
    let value = Memo::new(move |_| screen.read(Part::Preferences, |state| (field.get)(&state.options())));
    let commit = move |text: String| {
        // Tried on a copy: a text out of range must not count as a change.
        let mut options = screen.peek(|state| state.options());
        field.apply(&mut options, &text)?;
        screen.edit_options(move |current| *current = options);
        Ok(())
    };
    view! {
        <NumberBox
            id=field.id
            label=field.label
            explanation=field.explanation
            placeholder=field.when_empty.unwrap_or_default()
            value
            commit
        />
    }
}

/// A labelled box for a number, which says what is allowed where its text is not.
#[component]
fn NumberBox(
    id: &'static str,
    label: &'static str,
    explanation: &'static str,
    placeholder: &'static str,
    value: Memo<String>,
    commit: impl Fn(String) -> Result<(), String> + 'static,
) -> impl IntoView {
    let error = RwSignal::new(None::<String>);
    // Whatever else changes the value makes a refused text, and what was said about it, go.
    Effect::new(move |_| {
        value.track();
        error.set(None);
    });
    let number_box = NodeRef::<html::Input>::new();
    follow(value, move |value| {
        error.set(None);
        number_box.get_untracked().into_iter().for_each(|shown| shown.set_value(value));
    });
    let about_id = format!("{id}-about");
    view! {
        <div class="field number">
            <label for=id>{label}</label>
            <input
                id=id
                node_ref=number_box
                type="text"
                inputmode="decimal"
                autocomplete="off"
                placeholder=placeholder
                aria-describedby=about_id.clone()
                aria-invalid=move || error.get().map(|_| "true")
                prop:value=move || value.get()
                on:change:target=move |event| error.set(commit(event.target().value()).err())
            />
            <p id=about_id class="about" class:error=move || error.get().is_some() aria-live="polite">
                {move || error.get().unwrap_or_else(|| explanation.to_owned())}
            </p>
        </div>
    }
}

#[component]
fn Lines(field: &'static LinesField) -> impl IntoView {
    let screen = Screen::expect();
    let value = move || {
        screen.read(Part::Preferences, |state| fields::lines_from_texts((field.get)(&state.options())))
    };
    let about_id = format!("{}-about", field.id);
    view! {
        <div class="field">
            <label for=field.id>{field.label}</label>
            <textarea
                id=field.id
                rows="2"
                aria-describedby=about_id.clone()
                prop:value=value
                on:change:target=move |event| {
                    let texts = fields::texts_from_lines(&event.target().value());
                    screen.edit_options(move |options| (field.set)(options, texts));
                }
            ></textarea>
            <p id=about_id class="about">{field.explanation}</p>
        </div>
    }
}

#[component]
fn Switch(field: &'static SwitchField) -> impl IntoView {
    let screen = Screen::expect();
    let value = move || screen.read(Part::Preferences, |state| (field.get)(&state.options()));
    let about_id = format!("{}-about", field.id);
    view! {
        <div class="field switch">
            <input
                id=field.id
                type="checkbox"
                aria-describedby=about_id.clone()
                prop:checked=value
                on:change:target=move |event| {
                    let on = event.target().checked();
                    screen.edit_options(move |options| (field.set)(options, on));
                }
            />
            <label for=field.id>{field.label}</label>
            <p id=about_id class="about">{field.explanation}</p>
        </div>
    }
}

/// How the next model is run.
#[component]
fn LoadSettings() -> impl IntoView {
    let screen = Screen::expect();
    let context = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| {
            state.preferences.load.context.map_or_else(String::new, |n_tokens| n_tokens.to_string())
        })
    });
    let commit_context = move |text: String| {
        let n_tokens = match text.trim() {
            "" => None,
            text => Some(Range::Whole(1.0, MAX_CONTEXT).parse(CONTEXT_LABEL, text)? as u32),
        };
        screen.edit(|preferences| preferences.load.context = n_tokens);
        Ok(())
    };
    let keep_minutes = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| {
            let secs = state.preferences.load.keep_unused_secs;
            secs.map_or_else(String::new, |secs| (secs / 60).to_string())
        })
    });
    let commit_keep = move |text: String| {
        let secs = match text.trim() {
            "" => None,
            text => Some(Range::Whole(0.0, MAX_KEEP_MINUTES).parse(KEEP_LABEL, text)? as u32 * 60),
        };
        screen.edit(|preferences| preferences.load.keep_unused_secs = secs);
        Ok(())
    };
    let kv = move || screen.read(Part::Preferences, |state| state.preferences.load.kv.name());
    let device = move || screen.read(Part::Preferences, |state| state.preferences.load.device.name());
    let precision = move || screen.read(Part::Preferences, |state| state.preferences.load.precision.name());
    let quantize =
        move || screen.read(Part::Preferences, |state| quantize_name(state.preferences.load.quantize));
    view! {
        <fieldset>
            <legend>"Loading"</legend>
            <p class="about">"These apply when a model is loaded the next time."</p>
            <NumberBox
                id="context"
                label=CONTEXT_LABEL
                explanation="Tokens of the longest conversation; more takes more memory."
                placeholder="auto"
                value=context
                commit=commit_context
            />
            <div class="field number">
                <label for="kv">"KV cache"</label>
                <select
                    id="kv"
                    aria-describedby="kv-about"
                    prop:value=kv
                    on:change:target=move |event| {
                        let value = event.target().value();
                        let chosen = KvType::NAMED.into_iter().find(|(name, _)| *name == value);
                        let kv = chosen.map_or_else(KvType::default, |(_, kv)| kv);
                        screen.edit(|preferences| preferences.load.kv = kv);
                    }
                >
                    <option value="f16">"f16"</option>
                    <option value="f32">"f32"</option>
                    <option value="q8">"q8"</option>
                </select>
                <p id="kv-about" class="about">"f16 takes half the memory of f32, q8 a quarter; each is a little less exact."</p>
            </div>
            <div class="field number">
                <label for="device">"Device"</label>
                <select
                    id="device"
                    aria-describedby="device-about"
                    prop:value=device
                    on:change:target=move |event| {
                        let value = event.target().value();
                        let chosen = DeviceChoice::ALL.into_iter().find(|choice| choice.name() == value);
                        screen.edit(|preferences| preferences.load.device = chosen.unwrap_or_default());
                    }
                >
                    <option value="auto">"auto"</option>
                    <option value="gpu">"GPU"</option>
                    <option value="cpu">"CPU"</option>
                </select>
                <p id="device-about" class="about">"Auto takes the GPU, or the processor where there is none, or only one that the processor imitates."</p>
            </div>
            <div class="field number">
                <label for="precision">"Arithmetic"</label>
                <select
                    id="precision"
                    aria-describedby="precision-about"
                    prop:value=precision
                    on:change:target=move |event| {
                        let value = event.target().value();
                        let all = [Precision::Auto, Precision::Exact, Precision::Fast];
                        let chosen = all.into_iter().find(|choice| choice.name() == value);
                        screen.edit(|preferences| preferences.load.precision = chosen.unwrap_or_default());
                    }
                >
                    <option value="auto">"auto"</option>
                    <option value="exact">"exact"</option>
                    <option value="fast">"fast"</option>
                </select>
                <p id="precision-about" class="about">
                    "Fast rounds activations to ten bits: a little less exact. Auto is fast where the processor computes."
                </p>
            </div>
            <div class="field number">
                <label for="quantize">"Weights"</label>
                <select
                    id="quantize"
                    aria-describedby="quantize-about"
                    prop:value=quantize
                    on:change:target=move |event| {
                        let value = event.target().value();
                        let all = [Quantize::None, Quantize::Q8, Quantize::Q4];
                        let chosen = all.into_iter().find(|choice| quantize_name(*choice) == value);
                        screen
                            .edit(|preferences| preferences.load.quantize = chosen.unwrap_or_default());
                    }
                >
                    <option value="none">"as is"</option>
                    <option value="q8_0">"8 bits"</option>
                    <option value="q4_0">"4 bits"</option>
                </select>
                <p id="quantize-about" class="about">
                    "Packs 16- and 32-bit weights while they load: less memory, and less exact. Packed ones stay as they are."
                </p>
            </div>
            <NumberBox
                id="keep-unused"
                label=KEEP_LABEL
                explanation="For so many minutes a model stays loaded while no tab uses it; 0 unloads it at once."
                placeholder="5"
                value=keep_minutes
                commit=commit_keep
            />
        </fieldset>
    }
}

fn quantize_name(quantize: Quantize) -> &'static str {
    match quantize {
        Quantize::None => "none",
        Quantize::Q8 => "q8_0",
        Quantize::Q4 => "q4_0",
    }
}
