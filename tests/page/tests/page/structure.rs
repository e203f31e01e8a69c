//! A person asks for answers in a form: what comes is JSON of the schema, and what cannot be kept is said at once.

use crate::folders::{LOAD, fixture};
use page_tests::{Gpu, Page, in_page};
use serde_json::{Value, json};
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(60);
const QUESTION: &str = "Tell me a color and a number.";
const SCHEMA: &str = r#"{
  "type": "object",
  "properties": { "color": { "enum": ["red", "blue"] }, "n": { "type": "integer", "minimum": 1, "maximum": 30 } },
  "required": ["color", "n"],
  "additionalProperties": false
}"#;

/// The text of the first element that fits, if there is one.
fn text_of(page: &Page, selector: &str) -> Result<Option<String>, String> {
    page.session().find(selector)?.first().map(|element| page.session().text(element)).transpose()
}

#[test]
fn answers_have_the_form_that_was_chosen() {
    in_page("structure", Gpu::Software, |page| {
        page.choose_folder(&fixture("llama-tiny"))?;
        page.wait_for_button("Model: llama-tiny", LOAD)?;
        page.press("Settings")?;
        page.choose_setting("form", "json-schema")?;
        page.choose_setting("form-text", "{ \"type\": ")?;
        page.within(ANSWER, "what is wrong with the schema", || {
            let about = text_of(page, "#form-text-about")?.unwrap_or_default();
            Ok(about.contains("This is not JSON yet: EOF while parsing").then_some(()))
        })?;
        page.choose_setting("form-text", SCHEMA)?;
        assert_eq!(
            text_of(page, ".form-note")?.as_deref(),
            Some("Answers as JSON of your schema\nAnswer freely")
        );
        page.press("Close")?;
        for n_answers in 1..=3 {
            page.ask(QUESTION)?;
            page.within(ANSWER, "an answer that ended", || {
                let is_over = page.offers("New chat")? && !page.offers("Stop")?;
                Ok((is_over && page.conversation()?.matches('}').count() == n_answers).then_some(()))
            })?;
        }
        let conversation = page.conversation()?;
        let answers: Vec<&str> = conversation.split(QUESTION).skip(1).collect();
        assert_eq!(answers.len(), 3, "{conversation}");
        for answer in answers {
            let (start, end) = (answer.find('{').ok_or("no object")?, answer.rfind('}').ok_or("no end")?);
            let value: Value =
                serde_json::from_str(&answer[start..=end]).map_err(|error| format!("{answer:?}: {error}"))?;
            assert!([json!("red"), json!("blue")].contains(&value["color"]), "{answer}");
            assert!(value["n"].as_u64().is_some_and(|n| (1..=30).contains(&n)), "{answer}");
        }
        // What nothing fits is refused with a sentence, and the message is still there.
        page.choose_setting(
            "form-text",
            r#"{"type": "object", "properties": {"a": {"enum": []}}, "required": ["a"]}"#,
        )?;
        page.ask("Again.")?;
        let alert = page.see_alert(ANSWER)?;
        assert!(alert.contains("the JSON Schema cannot be met"), "{alert}");
        assert!(page.message()?.contains("Again."), "the message is gone");
        page.press("Answer freely")?;
        page.within(ANSWER, "free answers", || Ok(text_of(page, ".form-note")?.is_none().then_some(())))?;
        page.press("Settings")?;
        assert_eq!(
            text_of(page, "#form-about")?.as_deref(),
            Some("The model writes whatever it finds likely.")
        );
        Ok(())
    });
}
