//! What people do with chats that they keep: write anew, go back and on, find, name, take out and in; nothing is lost.

use std::path::{Path, PathBuf};
use std::time::Duration;

use page_tests::page::keys;
use page_tests::{Gpu, Page, in_page};
use serde_json::{Value, json};

use crate::folders::{LOAD, fixture};

const ANSWER: Duration = Duration::from_secs(120);
/// What the page itself does comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
/// A tiny model, given a chat template.
const MODEL: &str = "talk-tiny";
const TEMPLATE: &str = "{% if enable_thinking is defined and not enable_thinking %}\
    {{ raise_exception('it must think') }}{% endif %}\
    {% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[answer]";

/// Loads the model; answers of `max_tokens` tokens are the likeliest ones.
fn prepare(page: &Page, max_tokens: u32) -> Result<(), String> {
    let options = json!({ "ignore_eos": true, "max_tokens": max_tokens, "temperature": 0.0 });
    let preferences = json!({ "options": { MODEL: options } }).to_string();
    page.session().run("localStorage.setItem('pagelm.preferences', arguments[0])", json!([preferences]))?;
    page.open_page()?;
    load(page)
}

fn load(page: &Page) -> Result<(), String> {
    page.choose_folder(&talking_model(page)?)?;
    page.wait_for_button(&format!("Model: {MODEL}"), LOAD)
}

/// A copy of the model with a template, in a folder of this test's own.
fn talking_model(page: &Page) -> Result<PathBuf, String> {
    let folder = files_folder(page)?.join(MODEL);
    let copy = || -> std::io::Result<()> {
        std::fs::create_dir_all(&folder)?;
        for name in ["config.json", "model.safetensors", "tokenizer.json"] {
            std::fs::copy(fixture("llama-yarn-tiny").join(name), folder.join(name))?;
        }
        std::fs::write(folder.join("chat_template.jinja"), TEMPLATE)
    };
    copy().map_err(|error| format!("the model could not be copied: {error}"))?;
    Ok(folder)
}

/// A folder for files of this browser's: no other test uses it.
fn files_folder(page: &Page) -> Result<PathBuf, String> {
    let port = page.server().url().chars().filter(char::is_ascii_digit).collect::<String>();
    let beside = page.write_file("beside", b"")?;
    let folder = beside.parent().ok_or("a file lies in a folder")?.join(format!("keeping-{port}"));
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    Ok(folder)
}

fn run(page: &Page, script: &str) -> Result<Value, String> {
    page.session().run(script, json!([]))
}

/// The texts of the answers on screen.
fn answers(page: &Page) -> Result<Vec<String>, String> {
    let script = "return [...document.querySelectorAll('article[aria-label=Answer]')].map(article =>
        [...article.querySelectorAll('.block')].map(block => block.textContent).join('\\n').trim())";
    serde_json::from_value(run(page, script)?).map_err(|error| error.to_string())
}

/// Waits until no answer is on its way, and returns the last one.
fn last_answer(page: &Page) -> Result<String, String> {
    page.within(ANSWER, "a complete answer", || {
        let busy = run(page, "return !!document.querySelector('[aria-busy=true]')")?;
        Ok(answers(page)?.pop().filter(|text| busy == false && !text.is_empty()))
    })
}

/// Presses the last button of that name.
fn press_last(page: &Page, name: &str) -> Result<(), String> {
    page.wait_for_button(name, AT_ONCE)?;
    let script = "const named = [...document.querySelectorAll('button')].filter(button =>
            (button.ariaLabel ?? button.textContent.trim()) === arguments[0] && button.checkVisibility());
        named.at(-1)?.click();
        return named.length > 0";
    let pressed = page.session().run(script, json!([name]))?;
    if pressed == true { Ok(()) } else { Err(format!("there is no button {name:?}")) }
}

fn see_anywhere(page: &Page, text: &str) -> Result<(), String> {
    page.within(AT_ONCE, &format!("{text:?}"), || Ok(page.shown()?.contains(text).then_some(())))
}

fn see_answer(page: &Page, text: &str) -> Result<(), String> {
    page.within(ANSWER, &format!("the answer {text:?}"), || {
        Ok((answers(page)?.last().map(String::as_str) == Some(text)).then_some(()))
    })
}

fn reload(page: &Page) -> Result<(), String> {
    // So long at most it takes until the last words are safe.
    std::thread::sleep(Duration::from_millis(700));
    run(page, "window.isOld = true; setTimeout(() => location.reload())")?;
    page.within(AT_ONCE, "the page anew", || {
        Ok(run(page, "return !window.isOld").is_ok_and(|new| new == true).then_some(()))
    })?;
    page.wait_for_page()?;
    if !page.offers(&format!("Model: {MODEL}"))? {
        load(page)?;
    }
    Ok(())
}

/// The kept bodies of all chats, by id.
fn bodies(page: &Page) -> Result<Vec<(String, Value)>, String> {
    let script = "window.kept = null;
        const open = indexedDB.open('pagelm.chats');
        open.onsuccess = () => {
            const store = open.result.transaction('bodies').objectStore('bodies');
            const keys = store.getAllKeys(), texts = store.getAll();
            texts.onsuccess = () => {
                window.kept = keys.result.map((key, place) => [key, JSON.parse(texts.result[place])]);
                open.result.close();
            };
        };";
    run(page, script)?;
    let kept = page.within(AT_ONCE, "what is kept", || {
        Ok(Some(run(page, "return window.kept")?).filter(|kept| !kept.is_null()))
    })?;
    serde_json::from_value(kept).map_err(|error| error.to_string())
}

/// The titles in the list of chats.
fn listed(page: &Page) -> Result<Vec<String>, String> {
    let script = "return [...document.querySelectorAll('#chats .chat-title')].map(e => e.textContent)";
    serde_json::from_value(run(page, script)?).map_err(|error| error.to_string())
}

fn see_listed(page: &Page, n_chats: usize) -> Result<Vec<String>, String> {
    page.within(AT_ONCE, &format!("{n_chats} chats in the list"), || {
        Ok(Some(listed(page)?).filter(|titles| titles.len() == n_chats))
    })
}

/// Types into the box of that label in the place of what is there.
fn write_into(page: &Page, label: &str, text: &str) -> Result<(), String> {
    let boxes = page.within(AT_ONCE, &format!("a box {label:?}"), || {
        let boxes = page.session().find(&format!("[aria-label='{label}']"))?;
        Ok(Some(boxes).filter(|boxes| !boxes.is_empty()))
    })?;
    let all = format!("{}a{}{}", keys::CONTROL, keys::CONTROL, keys::DELETE);
    page.session().type_into(&boxes[0], &format!("{all}{text}"))
}

#[test]
fn answers_are_gone_on_with_made_anew_and_messages_sent_again() {
    in_page("keeping-branches", Gpu::Missing, |page| {
        prepare(page, 12)?;
        page.ask("Once upon a time")?;
        let short = last_answer(page)?;
        page.see("the longest answer or the context is reached", AT_ONCE)?;

        // After a reload it goes on in the same turn, as if it had never ended.
        reload(page)?;
        see_answer(page, &short)?;
        press_last(page, "Continue")?;
        page.within(ANSWER, "more of the answer", || Ok((last_answer(page)? != short).then_some(())))?;
        let long = last_answer(page)?;
        page.choose_setting("max_tokens", "24")?;
        press_last(page, "Regenerate")?;
        see_anywhere(page, "2 of 2")?;
        assert_eq!(last_answer(page)?, long, "an answer that goes on is another than one that never ended");
        press_last(page, "Regenerate")?;
        see_anywhere(page, "3 of 3")?;
        last_answer(page)?;
        press_last(page, "Previous version")?;
        see_anywhere(page, "2 of 3")?;

        press_last(page, "Edit message")?;
        write_into(page, "Edit your message", "In a hole in the ground")?;
        page.press("Send again")?;
        page.see("In a hole in the ground", AT_ONCE)?;
        let other = last_answer(page)?;
        assert!(!page.conversation()?.contains("Once upon a time"));
        assert_ne!(other, long);

        // Both branches are kept, and which is shown.
        reload(page)?;
        see_answer(page, &other)?;
        page.press("Previous version")?;
        page.see("Once upon a time", AT_ONCE)?;
        see_anywhere(page, "2 of 3")?;
        see_answer(page, &long)?;
        reload(page)?;
        page.see("Once upon a time", AT_ONCE)?;
        see_answer(page, &long)?;
        let (_, body) = bodies(page)?.pop().ok_or("no chat is kept")?;
        assert_eq!((&body["version"], body["turns"].as_array().map(Vec::len)), (&json!(2), Some(6)));
        let alerts = page.alerts()?;
        assert!(alerts.is_empty(), "{alerts:?}");
        Ok(())
    });
}

#[test]
fn a_full_context_is_asked_about_and_a_template_is_told_what_a_chat_says() {
    in_page("keeping-context", Gpu::Missing, |page| {
        page.choose_setting("context", "512")?;
        prepare_with_context(page)?;
        // The template refuses what the chat's own settings tell it.
        page.choose_setting("thinking", "off")?;
        page.ask("Hi")?;
        let alert = page.see_alert(AT_ONCE)?;
        assert!(alert.contains("it must think"), "{alert}");
        assert_eq!(page.message()?, "Hi", "what was not answered comes back");
        page.clear_message()?;
        page.choose_setting("thinking", "")?;

        for number in 0..8 {
            page.ask(&format!("{number} {}", "a word ".repeat(30)))?;
            let asked = page.within(ANSWER, "an answer or a question", || {
                let is_answered = page.offers("Send")? && answers(page)?.len() > number;
                let asked = page.offers("Drop the oldest turns")?;
                Ok((asked || is_answered).then_some(asked))
            })?;
            if asked {
                break;
            }
        }
        see_anywhere(page, "The model's context is full")?;
        page.press("Stop here")?;
        page.within(AT_ONCE, "the message back in its box", || {
            Ok((!page.message()?.is_empty()).then_some(()))
        })?;
        page.press("Send")?;
        page.press("Drop the oldest turns")?;
        page.see("The model no longer sees what is above", AT_ONCE)?;
        last_answer(page)?;
        page.see("0 a word", AT_ONCE)?;
        page.ask("And now?")?;
        last_answer(page)?;
        assert!(!page.offers("Drop the oldest turns")?, "it was chosen for this chat");
        reload(page)?;
        page.see("The model no longer sees what is above", AT_ONCE)
    });
}

fn prepare_with_context(page: &Page) -> Result<(), String> {
    let script = "const kept = JSON.parse(localStorage.getItem('pagelm.preferences'));
        kept.options = { [arguments[0]]: { ignore_eos: true, max_tokens: 12, temperature: 0 } };
        localStorage.setItem('pagelm.preferences', JSON.stringify(kept))";
    page.session().run(script, json!([MODEL]))?;
    page.open_page()?;
    load(page)
}

/// Puts chats into the store as version 1 of the page kept them.
fn put_old_chats(page: &Page, n_chats: usize) -> Result<(), String> {
    let script = "const open = indexedDB.open('pagelm.chats');
        open.onsuccess = () => {
            const write = open.result.transaction(['heads', 'bodies'], 'readwrite');
            for (let i = 0; i < arguments[0]; i++) {
                const time = 1.7e12 + i * 6e4;
                const head = { version: 1, title: `Question ${i}`, created_ms: time, updated_ms: time };
                const usage = { prompt_tokens: 31, cached_tokens: 0, generated_tokens: 2, queue_ms: 0.5,
                    prefill_ms: 210.0, decode_ms: 40.25 };
                const turns = [
                    { speaker: 'user', text: `What is ${i}?`, end: 'stop' },
                    { speaker: 'assistant', text: `The number${' 1234567'.repeat(i === 42 ? 20 : 2000)} needle${i}`, end: 'stop', usage },
                    { speaker: 'user', text: 'Why?', end: 'stop' },
                    { speaker: 'assistant', text: 'Because', end: 'open' },
                ];
                write.objectStore('heads').put(JSON.stringify(head), `old${i}`);
                write.objectStore('bodies').put(JSON.stringify({ version: 1, turns }), `old${i}`);
            }
            write.oncomplete = () => { open.result.close(); window.isWritten = true; };
        };";
    page.session().run(script, json!([n_chats]))?;
    page.within(AT_ONCE, "chats in the store", || {
        Ok((run(page, "return !!window.isWritten")? == true).then_some(()))
    })
}

#[test]
fn two_hundred_chats_of_an_older_page_are_listed_found_named_and_gone_on_with() {
    in_page("keeping-list", Gpu::Missing, |page| {
        put_old_chats(page, 200)?;
        prepare(page, 6)?;
        page.session().set_view(1200, 800)?;
        page.press("Chats")?;
        assert_eq!(see_listed(page, 200)?[..2], ["Question 199", "Question 198"]);
        write_into(page, "Search in chats", "NEEDLE42 number")?;
        assert_eq!(see_listed(page, 1)?, ["Question 42"]);
        see_anywhere(page, "needle42")?;
        write_into(page, "Search in chats", "nothing says this")?;
        see_listed(page, 0)?;
        see_anywhere(page, "Nothing is found.")?;
        write_into(page, "Search in chats", "question needle7")?;
        see_listed(page, 11)?;
        write_into(page, "Search in chats", "needle42")?;
        see_listed(page, 1)?;

        // It is opened, named anew and gone on with.
        page.session().click(&page.session().find("#chats .chat a")?[0])?;
        page.see("What is 42?", AT_ONCE)?;
        page.press("Rename: Question 42")?;
        write_into(page, "Title", &format!("The answer{}", keys::ENTER))?;
        page.within(AT_ONCE, "its new name", || Ok((listed(page)? == ["The answer"]).then_some(())))?;
        write_into(page, "Search in chats", "answer")?;
        see_listed(page, 1)?;
        press_last(page, "Continue")?;
        page.within(ANSWER, "more of the answer", || {
            let text = last_answer(page)?;
            Ok((text.starts_with("Because") && text.len() > "Because".len()).then_some(()))
        })?;
        std::thread::sleep(Duration::from_millis(700));
        let kept = bodies(page)?;
        let body = kept.iter().find(|(id, _)| id == "old42").map(|(_, body)| body).ok_or("it is gone")?;
        assert_eq!((&body["version"], &body["turns"][3]["end"]), (&json!(2), &json!("length")));
        assert_eq!(kept.iter().filter(|(_, body)| body["version"] == 1).count(), 199);

        // Out as files, and in again: what is there stays.
        let folder = files_folder(page)?;
        let behavior = json!({ "behavior": "allow", "downloadPath": folder.display().to_string() });
        page.session().tool("Page.setDownloadBehavior", behavior)?;
        run(page, "document.querySelector('.chat-files summary').click()")?;
        page.press("This chat as Markdown")?;
        let markdown = downloaded(page, &folder.join("The-answer.md"))?;
        assert!(
            markdown.starts_with("# The answer\n\n## You\n\nWhat is 42?\n\n## Answer\n"),
            "{markdown:.99}"
        );
        page.press("This chat as JSON")?;
        let one = downloaded(page, &folder.join("The-answer.json"))?;
        page.drop_file("one.json", one.as_bytes())?;
        see_anywhere(page, "Imported: 1 chat.")?;
        assert_eq!(see_listed(page, 2)?, ["The answer", "The answer"]);
        page.press("All chats as JSON")?;
        let all: Value = serde_json::from_str(&downloaded(page, &folder.join("pagelm-chats.json"))?)
            .map_err(|error| error.to_string())?;
        assert_eq!(all["chats"].as_array().map(Vec::len), Some(201));
        page.drop_file("config.json", b"{\"architectures\": []}")?;
        let alert = page.see_alert(AT_ONCE)?;
        assert!(alert.contains("config.json holds no chats that this page exported"), "{alert}");
        assert_eq!(bodies(page)?.len(), 201);
        Ok(())
    });
}

/// What the browser downloaded, once it is whole.
fn downloaded(page: &Page, path: &Path) -> Result<String, String> {
    page.within(AT_ONCE, &format!("the download {}", path.display()), || {
        // A browser writes beside it until it is whole.
        Ok(std::fs::read_to_string(path).ok().filter(|text| !text.is_empty()))
    })
}
