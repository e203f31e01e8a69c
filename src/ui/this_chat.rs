//! The settings of the chat on screen: its system prompt, how it chooses tokens, what its template is told, and what happens
//! when the context is full. They are kept with the chat.

use leptos::{html, prelude::*};
use serde_json::Value;

use super::{
    own::{self, THINKING, WhenFull, given_presets},
    screen::Screen,
    state::Part,
};

/// The choice of sampling that is not one of a preset.
const OF_MODEL: &str = "";
const OWN_VALUES: &str = "\u{1}own";

/// Shows a value again in its box where another chat came on screen or a change was refused: the value may be what it was
/// while the box says something else.
pub(super) fn follow(value: Memo<String>, show: impl Fn(&str) + 'static) {
    let screen = Screen::expect();
    let shown =
        Memo::new(move |_| screen.read(Part::Preferences, |state| (state.refusals, state.chat.id.clone())));
    Effect::new(move |before: Option<()>| {
        shown.track();
        if before.is_some() {
            value.with_untracked(|value| show(value));
        }
    });
}

/// What the chat on screen has of its own.
#[component]
pub(crate) fn ThisChat() -> impl IntoView {
    let screen = Screen::expect();
    let prompt = Memo::new(move |_| screen.read(Part::Preferences, |state| state.system_prompt().to_owned()));
    let prompt_box = NodeRef::<html::Textarea>::new();
    follow(prompt, move |value| {
        prompt_box.get_untracked().into_iter().for_each(|shown| shown.set_value(value));
    });
    let when_full =
        Memo::new(move |_| screen.read(Part::Preferences, |state| state.own.when_full.name().to_owned()));
    let when_full_box = NodeRef::<html::Select>::new();
    follow(when_full, move |value| {
        when_full_box.get_untracked().into_iter().for_each(|shown| shown.set_value(value));
    });
    view! {
        <fieldset class="this-chat">
            <legend>"This chat"</legend>
            <p class="about">"Kept with the chat, and applies from the next message on."</p>
            <div class="field">
                <label for="chat-system-prompt">"System prompt"</label>
                <textarea
                    id="chat-system-prompt"
                    rows="3"
                    node_ref=prompt_box
                    aria-describedby="chat-system-prompt-about"
                    prop:value=move || prompt.get()
                    on:change:target=move |event| {
                        let text = event.target().value();
                        screen.amend(move |state| state.edit_own(|own| own.system_prompt = Some(text)));
                    }
                ></textarea>
                <p id="chat-system-prompt-about" class="about">
                    "Tells the model how to behave in this chat; empty sends none."
                </p>
            </div>
            <Presets />
            <Thinking />
            <Arguments />
            <div class="field">
                <label for="when-full">"When the context is full"</label>
                <select
                    id="when-full"
                    node_ref=when_full_box
                    aria-describedby="when-full-about"
                    prop:value=move || when_full.get()
                    on:change:target=move |event| {
                        let value = event.target().value();
                        let chosen = WhenFull::ALL.into_iter().find(|when| when.name() == value);
                        let when_full = chosen.unwrap_or_default();
                        screen.amend(move |state| state.edit_own(|own| own.when_full = when_full));
                    }
                >
                    <option value="ask">"Ask me"</option>
                    <option value="drop">"Drop the oldest turns"</option>
                    <option value="stop">"Stop"</option>
                </select>
                <p id="when-full-about" class="about">
                    "A model reads only so many tokens. Dropped turns stay on screen; a line shows where its view begins."
                </p>
            </div>
        </fieldset>
    }
}

/// How tokens are chosen: as for the model, or by one of the presets.
#[component]
fn Presets() -> impl IntoView {
    let screen = Screen::expect();
    let presets = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| {
            state.presets().into_iter().map(|preset| preset.name).collect::<Vec<_>>()
        })
    });
    let chosen = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| match (state.own.sampling, state.preset()) {
            (None, _) => OF_MODEL.to_owned(),
            (Some(_), Some(preset)) => preset.name,
            (Some(_), None) => OWN_VALUES.to_owned(),
        })
    });
    let select = NodeRef::<html::Select>::new();
    // The choice is shown once its option is there.
    Effect::new(move |_| {
        presets.track();
        let chosen = chosen.get();
        if let Some(select) = select.get() {
            request_animation_frame(move || select.set_value(&chosen));
        }
    });
    follow(chosen, move |value| {
        select.get_untracked().into_iter().for_each(|shown| shown.set_value(value));
    });
    let choose = move |value: String| {
        screen.amend(move |state| {
            let sampling = match value.as_str() {
                OF_MODEL => None,
                OWN_VALUES => Some(own::Sampling::of(&state.options())),
                name => state.presets().into_iter().find(|preset| preset.name == name).map(|it| it.sampling),
            };
            state.edit_own(|own| own.sampling = sampling);
        });
    };
    let about = move || {
        let chosen = chosen.get();
        let given = given_presets().into_iter().find(|(preset, _)| preset.name == chosen);
        match (given, chosen.as_str()) {
            (Some((preset, about)), _) => format!("{}: {about}.", preset.name),
            (None, OF_MODEL) => "As set below for the model.".to_owned(),
            (None, OWN_VALUES) => {
                "Values of this chat alone: those under “Choice” and “Repetition” below.".to_owned()
            }
            (None, name) => format!("{name}: a preset of your own."),
        }
    };
    let is_saved = move || {
        let chosen = chosen.get();
        screen.peek(|state| state.preferences.presets.iter().any(|preset| preset.name == chosen))
    };
    view! {
        <div class="field">
            <label for="preset">"Sampling"</label>
            <select
                id="preset"
                node_ref=select
                aria-describedby="preset-about"
                on:change:target=move |event| choose(event.target().value())
            >
                <option value=OF_MODEL>"As for the model"</option>
                <For each=move || presets.get() key=|name| name.clone() let:name>
                    <option value=name.clone()>{name.clone()}</option>
                </For>
                <option value=OWN_VALUES>"Own values"</option>
            </select>
            <p id="preset-about" class="about">{about}</p>
            <SavePreset />
            <Show when=is_saved>
                <button
                    type="button"
                    class="quiet small"
                    on:click=move |_| {
                        let name = chosen.get_untracked();
                        screen.edit_state(move |state| state.forget_preset(&name));
                    }
                >
                    {move || format!("Forget the preset “{}”", chosen.get())}
                </button>
            </Show>
        </div>
    }
}

/// Keeps how this chat chooses under a name.
#[component]
fn SavePreset() -> impl IntoView {
    let screen = Screen::expect();
    let name = NodeRef::<html::Input>::new();
    let said = RwSignal::new(None::<Result<String, String>>);
    let save = move || {
        let Some(name_box) = name.get_untracked() else { return };
        let name = name_box.value().trim().to_owned();
        screen.amend(move |state| {
            let result = state.save_preset(&name);
            if result.is_ok() {
                name_box.set_value("");
            }
            said.set(Some(result.map(|()| format!("“{name}” is saved; any chat can use it."))));
        });
    };
    view! {
        <form
            class="save-preset"
            on:submit=move |event| {
                event.prevent_default();
                save();
            }
        >
            <input
                type="text"
                aria-label="Name of a new preset"
                placeholder="Save as preset: name"
                autocomplete="off"
                maxlength=own::MAX_NAME_CHARS.to_string()
                node_ref=name
            />
            <button type="submit" class="quiet small">"Save"</button>
        </form>
        <p class="about" class:error=move || matches!(said.get(), Some(Err(_))) role="status">
            {move || said.get().map(|said| said.unwrap_or_else(|sentence| sentence))}
        </p>
    }
}

/// Whether the model is to think before it answers, where its template lets that be chosen.
#[component]
fn Thinking() -> impl IntoView {
    let screen = Screen::expect();
    let is_offered = Memo::new(move |_| {
        screen.read(Part::Models, |state| {
            let reads = |name: &String| name == THINKING;
            state.model.as_ref().is_some_and(|model| model.info.template_arguments.iter().any(reads))
        })
    });
    let value = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| match state.own.arguments.get(THINKING) {
            Some(Value::Bool(true)) => "on".to_owned(),
            Some(Value::Bool(false)) => "off".to_owned(),
            _ => String::new(),
        })
    });
    let select = NodeRef::<html::Select>::new();
    follow(value, move |value| {
        select.get_untracked().into_iter().for_each(|shown| shown.set_value(value));
    });
    let choose = move |value: String| {
        screen.amend(move |state| {
            state.edit_own(|own| match value.as_str() {
                "" => _ = own.arguments.shift_remove(THINKING),
                value => _ = own.arguments.insert(THINKING.to_owned(), (value == "on").into()),
            });
        });
    };
    view! {
        <Show when=move || is_offered.get()>
            <div class="field number">
                <label for="thinking">"Thinking"</label>
                <select
                    id="thinking"
                    node_ref=select
                    aria-describedby="thinking-about"
                    prop:value=move || value.get()
                    on:change:target=move |event| choose(event.target().value())
                >
                    <option value="">"as it is"</option>
                    <option value="on">"on"</option>
                    <option value="off">"off"</option>
                </select>
                <p id="thinking-about" class="about">
                    "Whether the model reasons before it answers: better, and slower."
                </p>
            </div>
        </Show>
    }
}

/// What the chat template is told beside the conversation.
#[component]
fn Arguments() -> impl IntoView {
    let screen = Screen::expect();
    let error = RwSignal::new(None::<String>);
    let lines = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| own::lines_from_arguments(&state.own.arguments))
    });
    Effect::new(move |_| {
        lines.track();
        error.set(None);
    });
    let lines_box = NodeRef::<html::Textarea>::new();
    follow(lines, move |value| {
        error.set(None);
        lines_box.get_untracked().into_iter().for_each(|shown| shown.set_value(value));
    });
    let read = move || {
        let read = screen.read(Part::Models, |state| {
            state.model.as_ref().map(|model| model.info.template_arguments.join(", ")).unwrap_or_default()
        });
        if read.is_empty() { String::new() } else { format!(" This model's template reads: {read}.") }
    };
    let commit = move |text: String| match own::arguments_from_lines(&text) {
        Ok(arguments) => {
            error.set(None);
            screen.amend(move |state| state.edit_own(|own| own.arguments = arguments));
        }
        Err(sentence) => error.set(Some(sentence)),
    };
    view! {
        <div class="field">
            <label for="arguments">"Template arguments"</label>
            <textarea
                id="arguments"
                node_ref=lines_box
                class="code"
                rows="2"
                spellcheck="false"
                autocomplete="off"
                placeholder="enable_thinking = false"
                aria-describedby="arguments-about"
                aria-invalid=move || error.get().map(|_| "true")
                prop:value=move || lines.get()
                on:change:target=move |event| commit(event.target().value())
            ></textarea>
            <p id="arguments-about" class="about" class:error=move || error.get().is_some() aria-live="polite">
                {move || {
                    error
                        .get()
                        .unwrap_or_else(|| {
                            format!("What the chat template is told, one a line: name = JSON value.{}", read())
                        })
                }}
            </p>
        </div>
    }
}
