//! Firefox, which on Linux has no WebGPU: the processor computes, for all tabs, and all else is as anywhere.

use crate::bad_input::explains;
use crate::conversation::rests;
use page_tests::{Page, in_firefox};
use serde_json::json;
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(120);
const AT_ONCE: Duration = Duration::from_secs(60);
const MODEL_FILES: &str = "models/";
const QUESTION: &str = "What is the capital of France?";
const STORY: &str = "Tell me a long story about a dragon.";

#[test]
fn two_tabs_share_one_engine_on_the_processor() {
    in_firefox("firefox-two-tabs", |first| {
        first.load_default_model()?;
        let n_bytes = first.server().sent_bytes(MODEL_FILES);
        let second = first.open_tab()?;
        second.wait_for_model()?;
        for tab in [first, &second] {
            let shown = tab.shown()?;
            assert!(shown.contains("The processor computes: no WebGPU is offered here"), "{shown}");
        }
        for (busy, asker) in [(first, &second), (&second, first)] {
            busy.ask(STORY)?;
            busy.see_answer_of(10, STORY, ANSWER)?;
            asker.ask(QUESTION)?;
            asker.see("Paris", ANSWER)?;
            assert!(busy.offers("Stop")?, "the story ended before the other tab was answered");
            busy.press("Stop")?;
            busy.press("New chat")?;
        }
        let status = first.engine_status()?;
        assert_eq!((status.n_tabs, status.n_models, status.n_loads, status.n_gpu_buffers), (2, 1, 1, 0));
        assert_eq!(first.server().sent_bytes(MODEL_FILES), n_bytes, "the model was fetched again");

        // A tab that is reloaded finds the engine, the model and its chat.
        reload(first)?;
        first.wait_for_model()?;
        first.see("Paris", AT_ONCE)?;
        // The tab that loaded the model takes nothing from the other one.
        let kept = second.engine_status()?;
        assert_eq!((kept.n_tabs, kept.n_loads), (2, 1), "{kept:?}");
        first.session().open("about:blank")?;
        second.wait_for_status(AT_ONCE, "one tab", |status| status.n_tabs == 1)?;
        second.ask(QUESTION)?;
        second.see("Paris", ANSWER)?;
        assert_eq!(second.engine_status()?.n_loads, 1);
        Ok(())
    });
}

#[test]
fn a_long_prompt_is_stopped_and_a_wrong_file_is_explained() {
    in_firefox("firefox-stop", |page| {
        let letter = page.write_file("letter.gguf", b"Dear reader, this is not a model.\n")?;
        page.choose_file(&letter)?;
        explains(page, &["gguf"])?;
        page.clear_message()?;

        page.load_default_model()?;
        let prompt = "The quick brown fox jumps over the lazy dog. ".repeat(150);
        page.type_message(&prompt)?;
        page.press("Send")?;
        page.wait_for_status(AT_ONCE, "a prompt that is read", |status| {
            status.running == 1 && status.steps > 1
        })?;
        page.press("Stop")?;
        rests(page)?;
        page.see("Stopped.", AT_ONCE)?;

        // A reload of the only tab ends the engine here; the page starts the next one.
        reload(page)?;
        page.see("Stopped.", AT_ONCE)?;
        page.press("New chat")?;
        let n_bytes = page.server().sent_bytes(MODEL_FILES);
        if !page.offers("Model: SmolLM2 135M Instruct")? {
            page.load_default_model()?;
            assert_eq!(page.server().sent_bytes(MODEL_FILES), n_bytes, "Firefox did not keep the model");
        }
        page.ask(QUESTION)?;
        page.see("Paris", ANSWER)?;
        let missing = page.server().missing();
        assert!(missing.iter().all(|path| path.ends_with("favicon.ico")), "the page asks for {missing:?}");
        Ok(())
    });
}

fn reload(page: &Page) -> Result<(), String> {
    page.session().run("location.reload()", json!([]))?;
    page.wait_for_page()
}
