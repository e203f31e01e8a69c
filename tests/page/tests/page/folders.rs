//! Models of several files: chosen one by one or as a folder, complete or not.

use page_tests::{Gpu, Page, in_page};
use std::path::PathBuf;
use std::time::Duration;

/// A tiny model is on the device within this, its kernels compiled in software.
pub(crate) const LOAD: Duration = Duration::from_secs(240);
/// An error about local files comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
/// What it answers is nonsense; that it does is enough.
const ANSWER: Duration = Duration::from_secs(120);

pub(crate) fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("../fixtures")
        .join(name)
        .canonicalize()
        .expect("a fixture")
}

/// Waits until the model of that name answers, and asks it for its tokens of a text.
fn answers(page: &Page, name: &str) -> Result<(), String> {
    page.wait_for_button(&format!("Model: {name}"), LOAD)?;
    let request = pagelm::protocol::Request::Tokenize {
        request: 0,
        model: None,
        prompt: pagelm::protocol::Prompt::Text("Once upon a time".into()),
    };
    let answers = page.request(&[request], ANSWER)?;
    let tokenized =
        matches!(&answers[0][..], [pagelm::protocol::Event::Tokenized { ids, .. }] if !ids.is_empty());
    if tokenized { Ok(()) } else { Err(format!("the text was not tokenized: {answers:?}")) }
}

#[test]
fn the_shards_of_a_folder_chosen_together() {
    in_page("folder-files", Gpu::Software, |page| {
        let folder = fixture("llama3-rope-tiny");
        let names = ["config.json", "model.safetensors.index.json", "tokenizer.json"];
        let shards = (1..=5).map(|i| format!("model-{i:05}-of-00005.safetensors"));
        let names = names.into_iter().map(str::to_owned).chain(shards);
        let files: Vec<PathBuf> = names.map(|name| folder.join(name)).collect();
        page.choose_files(&files)?;
        // Files without their folder have no name but the engine's.
        answers(page, "llama model")
    });
}

#[test]
fn a_folder_chosen_as_one() {
    in_page("folder", Gpu::Software, |page| {
        page.choose_folder(&fixture("qwen3-tiny"))?;
        answers(page, "qwen3-tiny")
    });
}

#[test]
fn a_folder_without_its_weights() {
    in_page("folder-incomplete", Gpu::Software, |page| {
        let folder = fixture("llama-tiny");
        page.choose_files(&[folder.join("config.json"), folder.join("tokenizer.json")])?;
        let alert = page.see_alert(AT_ONCE)?;
        if alert.contains("model.safetensors is missing") { Ok(()) } else { Err(alert) }
    });
}

#[test]
fn a_folder_of_many_models() {
    in_page("folder-many", Gpu::Software, |page| {
        page.choose_folder(&fixture("."))?;
        let alert = page.see_alert(AT_ONCE)?;
        if alert.contains("more are models; open one of them") { Ok(()) } else { Err(alert) }
    });
}

/// What it is asked to continue.
const BEGINNING: &str = "Once upon a time";

#[test]
fn a_model_without_a_template_continues_a_text() {
    in_page("continue", Gpu::Software, |page| {
        page.choose_folder(&fixture("gpt2-tiny"))?;
        page.wait_for_button("Model: gpt2-tiny", LOAD)?;
        let shown = page.shown()?;
        assert!(shown.contains("it continues your text instead of answering"), "{shown}");
        assert!(!shown.contains("capital of France"), "a question is suggested: {shown}");
        page.ask(BEGINNING)?;
        page.see_answer_of(1, BEGINNING, ANSWER)?;
        let alerts = page.alerts()?;
        assert!(alerts.is_empty(), "{alerts:?}");
        Ok(())
    });
}

#[test]
fn a_file_that_is_no_model_leaves_the_answer_alone() {
    in_page("photo-while-answering", Gpu::Software, |page| {
        page.choose_folder(&fixture("gpt2-tiny"))?;
        page.wait_for_button("Model: gpt2-tiny", LOAD)?;
        page.ask(BEGINNING)?;
        page.drop_file("photo.png", b"\x89PNG\r\n\x1a\n and no model")?;
        page.see_alert(AT_ONCE)?;
        page.see_answer_of(1, BEGINNING, ANSWER)?;
        page.wait_for_button("Send", ANSWER)?;
        let conversation = page.conversation()?;
        assert!(!conversation.contains("Stopped."), "{conversation}");
        assert!(page.offers("Model: gpt2-tiny")?, "the model is gone");
        Ok(())
    });
}
