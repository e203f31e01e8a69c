//! The form of answers: chosen among the settings, and told beside the message box while there is one.
//!
//! Invariant: a schema or grammar that was written is still there after another form was chosen.

use leptos::prelude::*;

use super::{screen::Screen, state::Part};
use crate::protocol::Structure;

/// A form as it is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Free,
    Json,
    JsonSchema,
    Grammar,
}

impl Kind {
    const ALL: [Self; 4] = [Self::Free, Self::Json, Self::JsonSchema, Self::Grammar];

    fn of(structure: Option<&Structure>) -> Self {
        match structure {
            None => Self::Free,
            Some(Structure::Json) => Self::Json,
            Some(Structure::JsonSchema(_)) => Self::JsonSchema,
            Some(Structure::Grammar(_)) => Self::Grammar,
        }
    }

    /// The value of its option.
    fn name(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Json => "json",
            Self::JsonSchema => "json-schema",
            Self::Grammar => "grammar",
        }
    }

    /// What it is called.
    fn label(self) -> &'static str {
        match self {
            Self::Free => "Free text",
            Self::Json => "JSON",
            Self::JsonSchema => "JSON Schema",
            Self::Grammar => "Grammar",
        }
    }

    fn explanation(self) -> &'static str {
        match self {
            Self::Free => "The model writes whatever it finds likely.",
            Self::Json => "Every answer is a JSON object; say in your message what it should hold.",
            Self::JsonSchema => "Every answer is JSON as your schema describes it.",
            Self::Grammar => "Every answer is what your grammar describes.",
        }
    }

    /// What is said beside the message box.
    fn note(self) -> Option<&'static str> {
        match self {
            Self::Free => None,
            Self::Json => Some("Answers as JSON"),
            Self::JsonSchema => Some("Answers as JSON of your schema"),
            Self::Grammar => Some("Answers by your grammar"),
        }
    }
}

const SCHEMA_EXAMPLE: &str = r#"{
  "type": "object",
  "properties": {
    "name": { "type": "string" },
    "age": { "type": "integer", "minimum": 0 }
  },
  "required": ["name", "age"]
}"#;
const GRAMMAR_EXAMPLE: &str = "start: answer \".\"\nanswer: \"Yes\" | \"No\" | /[A-Z][a-z]+/\n";

/// What is wrong with a schema's text, as far as JSON goes; the engine checks the rest when it is asked.
fn fault_of_schema(text: &str) -> Option<String> {
    let error = serde_json::from_str::<serde::de::IgnoredAny>(text).err()?;
    Some(format!("This is not JSON yet: {error}."))
}

fn set(screen: Screen, structure: Option<Structure>) {
    screen.edit(|preferences| preferences.edit_options(|options| options.structure = structure));
}

/// The choice of a form, and the text of a schema or grammar.
#[component]
pub(crate) fn FormOfAnswers() -> impl IntoView {
    let screen = Screen::expect();
    let structure = Memo::new(move |_| {
        screen.read(Part::Preferences, |state| state.preferences.options().structure.clone())
    });
    let kind = Memo::new(move |_| Kind::of(structure.get().as_ref()));
    // What was written last, also while another form is chosen.
    let schema = RwSignal::new(SCHEMA_EXAMPLE.to_owned());
    let grammar = RwSignal::new(GRAMMAR_EXAMPLE.to_owned());
    Effect::new(move |_| match structure.get() {
        Some(Structure::JsonSchema(text)) => schema.set(text),
        Some(Structure::Grammar(text)) => grammar.set(text),
        Some(Structure::Json) | None => {}
    });
    let choose = move |name: String| {
        let chosen = Kind::ALL.into_iter().find(|kind| kind.name() == name);
        set(
            screen,
            match chosen.unwrap_or(Kind::Free) {
                Kind::Free => None,
                Kind::Json => Some(Structure::Json),
                Kind::JsonSchema => Some(Structure::JsonSchema(schema.get_untracked())),
                Kind::Grammar => Some(Structure::Grammar(grammar.get_untracked())),
            },
        );
    };
    view! {
        <fieldset>
            <legend>"Form of the answer"</legend>
            <div class="field form-select">
                <label for="form">"Form"</label>
                <select
                    id="form"
                    aria-describedby="form-about"
                    prop:value=move || kind.get().name()
                    on:change:target=move |event| choose(event.target().value())
                >
                    {Kind::ALL.map(|kind| view! { <option value=kind.name()>{kind.label()}</option> }).collect_view()}
                </select>
                <p id="form-about" class="about">{move || kind.get().explanation()}</p>
            </div>
            {move || match kind.get() {
                Kind::Free | Kind::Json => None,
                Kind::JsonSchema => Some(view! { <FormText kind=Kind::JsonSchema text=schema /> }),
                Kind::Grammar => Some(view! { <FormText kind=Kind::Grammar text=grammar /> }),
            }}
        </fieldset>
    }
}

/// The text of a schema or grammar.
#[component]
fn FormText(kind: Kind, text: RwSignal<String>) -> impl IntoView {
    let screen = Screen::expect();
    let is_schema = kind == Kind::JsonSchema;
    let fault = move || if is_schema { fault_of_schema(&text.get()) } else { None };
    let hint = if is_schema {
        "Wider schemas give the model more room: without a type, anything fits. Leave room in the longest answer, or it is cut."
    } else {
        "In llguidance's variant of Lark: rules in lower case, the first of them start; texts in quotes, regular expressions in slashes."
    };
    view! {
        <div class="field form-text">
            <label for="form-text">{if is_schema { "Schema" } else { "Grammar" }}</label>
            <textarea
                id="form-text"
                rows="9"
                spellcheck="false"
                autocapitalize="off"
                aria-describedby="form-text-about"
                aria-invalid=move || fault().map(|_| "true")
                prop:value=move || text.get()
                on:change:target=move |event| {
                    let written = event.target().value();
                    let structure = if is_schema { Structure::JsonSchema(written) } else { Structure::Grammar(written) };
                    set(screen, Some(structure));
                }
            ></textarea>
            <p id="form-text-about" class="about" class:error=move || fault().is_some() aria-live="polite">
                {move || fault().unwrap_or_else(|| hint.to_owned())}
            </p>
        </div>
    }
}

/// Says that answers have a form, with a way back.
#[component]
pub(crate) fn FormNote() -> impl IntoView {
    let screen = Screen::expect();
    let note = Memo::new(move |_| {
        screen
            .read(Part::Preferences, |state| Kind::of(state.preferences.options().structure.as_ref()).note())
    });
    move || {
        note.get().map(|note| {
            view! {
                <p class="form-note" role="status">
                    {note}
                    <button type="button" class="quiet" on:click=move |_| set(screen, None)>
                        "Answer freely"
                    </button>
                </p>
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schema_that_is_no_json_is_told_and_the_examples_are_right() {
        assert_eq!(fault_of_schema(SCHEMA_EXAMPLE), None);
        let fault = fault_of_schema("{\"type\": }").unwrap();
        assert_eq!(fault, "This is not JSON yet: expected value at line 1 column 10.");
        assert!(GRAMMAR_EXAMPLE.starts_with("start: "));
        for kind in Kind::ALL {
            assert_eq!(kind.note().is_some(), kind != Kind::Free);
        }
    }
}
