//! Models that the browser keeps: fetched once, gone on with where a download broke off, mended, and deleted.

use page_tests::page::keys;
use page_tests::{Gpu, Mood, Page, in_page, in_page_without_storage, in_two_lives};
use serde_json::json;
use std::cell::Cell;
use std::time::Duration;

const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
const FILE_BYTES: u64 = 98_362_432;
/// The button that shows the models, while the default one answers.
const MODELS: &str = "Model: SmolLM2 135M Instruct";
const PART_BYTES: u64 = 4 << 20;
/// To learn a file's length a few bytes are asked for.
const PROBES: u64 = 100;
const LOAD: Duration = Duration::from_secs(120);
const ANSWER: Duration = Duration::from_secs(60);

#[test]
fn a_model_is_fetched_once() {
    in_page("kept", Gpu::Missing, |page| {
        page.load_default_model()?;
        let sent = page.server().sent_bytes(FILE);
        assert!((FILE_BYTES..FILE_BYTES + PROBES).contains(&sent), "{sent} bytes were sent");
        answers(page)?;

        // Another engine, and a server that has it no more.
        page.server().set_mood(Mood::BreaksOff(0));
        begin_again(page)?;
        page.wait_for_button(&format!("Load {FILE} from this browser"), LOAD)?;
        assert!(page.shown()?.contains("98.4 MB"), "{}", page.shown()?);
        page.load_default_model()?;
        answers(page)?;
        assert_eq!(page.server().sent_bytes(FILE), sent, "nothing was fetched again");

        // What is deleted is gone; what answers goes on.
        page.press(MODELS)?;
        page.press(&format!("Delete {FILE} from this browser"))?;
        page.within(LOAD, "an empty list", || Ok((!page.shown()?.contains("Kept in")).then_some(())))?;
        page.press(MODELS)?;
        answers(page)?;
        begin_again(page)?;
        page.server().set_mood(Mood::Fair);
        page.load_default_model()?;
        assert!(page.server().sent_bytes(FILE) >= sent + FILE_BYTES);
        Ok(())
    });
}

#[test]
fn a_download_that_broke_off_goes_on() {
    const SENT: u64 = 40_000_000;
    in_page("broken-off", Gpu::Missing, |page| {
        page.server().set_mood(Mood::BreaksOff(SENT));
        page.start_loading()?;
        let alert = page.see_alert(LOAD)?;
        assert!(alert.contains(FILE) && alert.contains("could not be reached"), "{alert}");
        begin_again(page)?;
        page.wait_for_button(&format!("Go on loading {FILE} from this browser"), LOAD)?;
        let broken_off = page.server().sent_bytes(FILE);
        page.server().set_mood(Mood::Fair);
        page.press(&format!("Go on loading {FILE} from this browser"))?;
        page.wait_for_model()?;
        answers(page)?;
        let more = page.server().sent_bytes(FILE) - broken_off;
        assert!(more < FILE_BYTES - SENT + PART_BYTES, "{more} bytes more were sent");
        Ok(())
    });
}

#[test]
fn a_download_survives_a_killed_browser() {
    const SENT: u64 = 40_000_000;
    let broken_off = Cell::new(0);
    let first = |page: &Page| {
        page.server().set_mood(Mood::BreaksOff(SENT));
        page.start_loading()?;
        // The engine asks again for a while.
        page.within(LOAD, "a part of the model", || {
            Ok((page.server().sent_bytes(FILE) >= SENT).then_some(()))
        })?;
        broken_off.set(page.server().sent_bytes(FILE));
        Ok(())
    };
    in_two_lives("killed", Gpu::Missing, first, |page| {
        page.server().set_mood(Mood::Fair);
        let go_on = format!("Go on loading {FILE} from this browser");
        page.wait_for_button(&go_on, LOAD)?;
        page.press(&go_on)?;
        page.wait_for_model()?;
        answers(page)?;
        let more = page.server().sent_bytes(FILE) - broken_off.get();
        // What was on its way, and what was being written, is lost.
        assert!(more <= FILE_BYTES - SENT + 2 * PART_BYTES + PROBES, "{more} bytes more were sent");
        Ok(())
    });
}

#[test]
fn a_wrong_byte_is_noticed() {
    in_page("wrong-byte", Gpu::Missing, |page| {
        page.server().set_mood(Mood::SendsAWrongByte);
        page.start_loading()?;
        let alert = page.see_alert(LOAD)?;
        assert!(alert.contains(FILE) && alert.contains("is not the file that was promised"), "{alert}");
        page.server().set_mood(Mood::Fair);
        page.load_default_model()?;
        answers(page)
    });
}

#[test]
fn a_browser_that_keeps_nothing_is_no_obstacle() {
    in_page_without_storage("no-storage", Gpu::Missing, |page| {
        page.start_loading()?;
        let alert = page.see_alert(LOAD)?;
        assert!(
            alert.contains(&format!("{FILE} is not kept in this browser: the page may keep nothing there")),
            "{alert}"
        );
        page.wait_for_button(MODELS, LOAD)?;
        answers(page)?;
        page.press(MODELS)?;
        page.within(LOAD, "why it is not kept", || Ok(page.shown()?.contains("no: SmolLM2").then_some(())))
    });
}

#[test]
fn a_kept_model_is_named_and_saved() {
    let fixture = concat!(env!("CARGO_MANIFEST_DIR"), "/../fixtures/llama-tiny/model.safetensors");
    in_page("named", Gpu::Missing, |page| {
        let note = page.write_file("note.txt", b"")?;
        let downloads = note.with_file_name("downloads");
        let allow = json!({ "behavior": "allow", "downloadPath": downloads });
        page.session().tool("Browser.setDownloadBehavior", allow)?;
        load_address(page, "./fixtures/llama-tiny/config.json")?;
        page.wait_for_button("Model: llama-tiny", LOAD)?;
        page.press("Model: llama-tiny")?;
        page.press("Rename llama-tiny in this browser")?;
        let box_selector = "input[aria-label=\"The model's name in this browser\"]";
        let found = page.session().find(box_selector)?;
        let field = found.first().ok_or("there is no box for the name")?;
        page.session()
            .type_into(field, &format!("{}a{}My first{}", keys::CONTROL, keys::CONTROL, keys::ENTER))?;
        page.wait_for_button("Save My first from this browser", LOAD)?;
        assert!(page.shown()?.contains("llama-tiny ·"), "its own name is still told: {}", page.shown()?);
        page.press("Save My first from this browser")?;
        let saved = downloads.join("model.safetensors");
        let _ = std::fs::remove_file(&saved);
        let expected = std::fs::read(fixture).map_err(|error| error.to_string())?;
        page.within(LOAD, "the saved file", || {
            Ok(std::fs::read(&saved).is_ok_and(|saved| saved == expected).then_some(()))
        })?;
        begin_again(page)?;
        page.wait_for_button("Load My first from this browser", LOAD)
    });
}

#[test]
fn a_damaged_part_is_mended() {
    in_page("damaged", Gpu::Missing, |page| {
        page.load_default_model()?;
        let sent = page.server().sent_bytes(FILE);
        // As a fault of the disk would.
        let damage = "return (async () => {
            const models = await (await navigator.storage.getDirectory()).getDirectoryHandle('models');
            for await (const model of models.values()) {
                const file = await (await model.getDirectoryHandle('000')).getFileHandle('00003.part');
                const stream = await file.createWritable({ keepExistingData: true });
                await stream.write({ type: 'write', position: 12345, data: 'damaged' });
                await stream.close();
                return model.name;
            }
        })()";
        let name = page.session().run(damage, json!([]))?;
        assert!(name.as_str().is_some_and(|name| name.starts_with(FILE)), "{name}");
        begin_again(page)?;
        page.load_default_model()?;
        answers(page)?;
        let more = page.server().sent_bytes(FILE) - sent;
        assert!((PART_BYTES..PART_BYTES + PROBES).contains(&more), "{more} bytes more were sent");
        Ok(())
    });
}

#[test]
fn servers_that_misbehave() {
    in_page("moods", Gpu::Missing, |page| {
        page.server().set_mood(Mood::Lies);
        page.start_loading()?;
        let alert = page.see_alert(LOAD)?;
        assert!(alert.contains(FILE), "{alert}");
        // What is whole in spite of its server is kept all the same.
        page.server().set_mood(Mood::IgnoresRanges);
        page.load_default_model()?;
        answers(page)?;
        page.server().set_mood(Mood::BreaksOff(0));
        begin_again(page)?;
        page.load_default_model()?;
        answers(page)
    });
}

#[test]
fn a_load_is_stopped_by_a_button() {
    in_page("load-stopped", Gpu::Missing, |page| {
        page.start_loading()?;
        page.press("Pause loading")?;
        let alert = page.see_alert(LOAD)?;
        assert!(alert.contains("loading was stopped"), "{alert}");
        page.load_default_model()?;
        answers(page)
    });
}

#[test]
fn what_is_no_address_is_said() {
    in_page("address", Gpu::Missing, |page| {
        load_address(page, "nonsense")?;
        assert!(page.see_alert(LOAD)?.contains("\u{201c}nonsense\u{201d} is no address"));
        load_address(page, "./models/missing.gguf")?;
        page.within(LOAD, "the server's answer", || Ok(page.shown()?.contains("HTTP 404").then_some(())))?;
        load_address(page, &format!("./models/{FILE}"))?;
        // It is not called what its offer is.
        page.wait_for_button("Model: Smollm2 135M 8k Lc100K Mix1 Ep2", LOAD)
    });
}

fn answers(page: &Page) -> Result<(), String> {
    let n_before = page.conversation()?.matches("Paris").count();
    page.ask("What is the capital of France?")?;
    page.within(ANSWER, "Paris", || {
        Ok((page.conversation()?.matches("Paris").count() > n_before).then_some(()))
    })
}

/// Types an address, and loads what is there.
fn load_address(page: &Page, text: &str) -> Result<(), String> {
    let script = "const box = document.getElementById('address'); box.value = arguments[0];
        box.form.requestSubmit()";
    page.session().run(script, json!([text])).map(drop)
}

/// Opens the page with another engine.
fn begin_again(page: &Page) -> Result<(), String> {
    page.session().open("about:blank")?;
    // A worker may outlive its last tab for a while.
    for engine in page.session().shared_workers()? {
        page.session().end_worker(&engine)?;
    }
    page.open_page()?;
    assert_eq!(page.engine_status()?.n_models, 0, "it is another engine");
    Ok(())
}
