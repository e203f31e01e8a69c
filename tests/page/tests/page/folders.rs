//! Models of several files: chosen one by one or as a folder, complete or not.

use page_tests::{Gpu, Page, in_page};
use std::path::PathBuf;
use std::time::Duration;

/// A tiny model is on the device within this, its kernels compiled in software.
const LOAD: Duration = Duration::from_secs(240);
/// An error about local files comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
/// What it answers is nonsense; that it does is enough.
const ANSWER: Duration = Duration::from_secs(120);

fn fixture(name: &str) -> PathBuf {
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
        answers(page, "config.json and 7 files more")
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
