//! Chats outlive their page, are the same in every tab, and are never lost from the screen.

use crate::folders::{LOAD, fixture};
use page_tests::{Gpu, Page, in_page};
use serde_json::json;
use std::time::Duration;

/// A tiny model whose context holds an answer of minutes.
const MODEL: &str = "llama-yarn-tiny";
const ANSWER: Duration = Duration::from_secs(120);
const BEGINNING: &str = "Once upon a time";
/// What the page itself does comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
const STOPPED_BY_RELOAD: &str = "Stopped: the page was reloaded or closed.";
const ELSEWHERE: &str = "An answer is on its way in another tab.";

/// Makes answers end with the context alone, and loads the model.
fn prepare(page: &Page) -> Result<(), String> {
    let options = json!({ "ignore_eos": true, "max_tokens": null, "temperature": 0.0 });
    let preferences = json!({ "options": { MODEL: options } }).to_string();
    page.session().run("localStorage.setItem('pagelm.preferences', arguments[0])", json!([preferences]))?;
    page.open_page()?;
    // The processor answers too fast to be met in the middle.
    page.choose_setting("device", "gpu")?;
    page.choose_folder(&fixture(MODEL))?;
    page.wait_for_button(&format!("Model: {MODEL}"), LOAD)
}

/// The length of what stands below the last thing that was asked.
fn answer_length(page: &Page) -> Result<usize, String> {
    let conversation = page.conversation()?;
    Ok(conversation.rsplit_once(BEGINNING).map_or(0, |(_, answer)| answer.chars().count()))
}

fn wait_for_growth(page: &Page) -> Result<(), String> {
    let before = answer_length(page)?;
    page.within(ANSWER, "an answer that grows", || Ok((answer_length(page)? > before).then_some(())))
}

/// Waits until the page says something, wherever that is.
fn see_anywhere(page: &Page, text: &str) -> Result<(), String> {
    page.within(AT_ONCE, &format!("{text:?}"), || Ok(page.shown()?.contains(text).then_some(())))
}

fn url(page: &Page) -> Result<String, String> {
    let url = page.session().run("return location.href", json!([]))?;
    url.as_str().map(str::to_string).ok_or_else(|| "the page has no URL".into())
}

fn reload(page: &Page) -> Result<(), String> {
    // Not within the call, which would not be answered.
    page.session().run("window.isOld = true; setTimeout(() => location.reload())", json!([]))?;
    page.within(AT_ONCE, "the page anew", || {
        Ok(page.session().run("return !window.isOld", json!([])).is_ok_and(|new| new == true).then_some(()))
    })?;
    page.wait_for_page()
}

/// The titles in the list of chats, once there are so many.
fn listed(page: &Page, n_chats: usize) -> Result<Vec<String>, String> {
    let script = "return [...document.querySelectorAll('#chats .chat-title')].map(e => e.textContent)";
    page.within(AT_ONCE, &format!("{n_chats} chats in the list"), || {
        let titles = page.session().run(script, json!([]))?;
        let titles: Vec<String> = serde_json::from_value(titles).map_err(|error| error.to_string())?;
        Ok(Some(titles).filter(|titles| titles.len() == n_chats))
    })
}

fn press_link(page: &Page, title: &str) -> Result<(), String> {
    for link in page.session().find("#chats a")? {
        if page.session().text(&link)?.starts_with(title) {
            return page.session().click(&link);
        }
    }
    Err(format!("there is no chat {title:?} in the list"))
}

#[test]
fn a_reload_keeps_what_came_of_an_answer() {
    in_page("chat-reload", Gpu::Software, |page| {
        prepare(page)?;
        page.ask(BEGINNING)?;
        page.see_answer_of(20, BEGINNING, ANSWER)?;
        let url = url(page)?;
        assert!(url.contains("#chat="), "{url} does not name the chat");
        // So long at most it takes until the last words are safe.
        std::thread::sleep(Duration::from_millis(600));
        let before = page.conversation()?;
        reload(page)?;
        page.see(STOPPED_BY_RELOAD, AT_ONCE)?;
        let after = page.conversation()?;
        let begins = |text: &str| text.chars().take(BEGINNING.len() + 15).collect::<String>();
        assert_eq!(begins(&after), begins(&before));

        // The chat goes on.
        if !page.offers(&format!("Model: {MODEL}"))? {
            page.choose_folder(&fixture(MODEL))?;
            page.wait_for_button(&format!("Model: {MODEL}"), LOAD)?;
        }
        page.ask("and then")?;
        page.see_answer_of(5, "and then", ANSWER)?;
        page.press("Stop")?;
        page.see("Stopped.", AT_ONCE)?;
        let alerts = page.alerts()?;
        assert!(alerts.is_empty(), "{alerts:?}");
        Ok(())
    });
}

#[test]
fn a_chat_in_two_tabs_is_the_same_chat() {
    in_page("chat-two-tabs", Gpu::Software, |page| {
        prepare(page)?;
        page.ask(BEGINNING)?;
        page.see_answer_of(5, BEGINNING, ANSWER)?;
        let url = url(page)?;
        let second = page.open_window()?;
        second.session().open(&url)?;
        second.see(BEGINNING, AT_ONCE)?;
        see_anywhere(&second, ELSEWHERE)?;
        second.wait_for_button(&format!("Model: {MODEL}"), LOAD)?;
        see_anywhere(&second, "2 tabs")?;
        wait_for_growth(&second)?;
        second.type_message("me too")?;
        second.press("Send")?;
        assert_eq!(second.message()?, "me too", "what cannot be sent stays in the box");

        page.press("Stop")?;
        page.see("Stopped.", AT_ONCE)?;
        second.see("Stopped.", AT_ONCE)?;
        second.press("Send")?;
        second.see("me too", AT_ONCE)?;

        page.see("me too", AT_ONCE)?;
        see_anywhere(page, ELSEWHERE)?;
        // A tab that is gone answers no more; what came of its answer stays.
        second.see_answer_of(5, "me too", ANSWER)?;
        second.close()?;
        page.see(STOPPED_BY_RELOAD, AT_ONCE)?;
        page.wait_for_button("Send", AT_ONCE)
    });
}

#[test]
fn chats_are_listed_opened_and_deleted() {
    in_page("chat-list", Gpu::Software, |page| {
        prepare(page)?;
        // Wide enough for the list to stay beside the conversation.
        page.session().set_view(1200, 800)?;
        for text in ["The first", "The second"] {
            page.press("New chat")?;
            page.ask(text)?;
            page.see_answer_of(1, text, ANSWER)?;
            page.press("Stop")?;
            page.see("Stopped.", AT_ONCE)?;
        }
        page.press("Chats")?;
        assert_eq!(listed(page, 2)?, ["The second", "The first"]);
        press_link(page, "The first")?;
        page.see("The first", AT_ONCE)?;
        assert!(!page.conversation()?.contains("The second"));

        page.press("Delete: The first")?;
        assert_eq!(listed(page, 1)?, ["The second"]);
        assert_eq!(page.conversation()?, "", "the deleted chat is still on screen");
        page.press("Undo")?;
        listed(page, 2)?;
        page.press("Delete: The second")?;
        assert_eq!(listed(page, 1)?, ["The first"]);

        reload(page)?;
        page.press("Chats")?;
        assert_eq!(listed(page, 1)?, ["The first"], "what was deleted came back");
        press_link(page, "The first")?;
        page.see("Stopped.", AT_ONCE)?;
        let alerts = page.alerts()?;
        assert!(alerts.is_empty(), "{alerts:?}");
        Ok(())
    });
}

#[test]
fn a_browser_that_keeps_nothing_is_told_of_once() {
    in_page("chat-no-storage", Gpu::Software, |page| {
        let hide = "Object.defineProperty(window, 'indexedDB', { value: undefined })";
        page.session().tool("Page.addScriptToEvaluateOnNewDocument", json!({ "source": hide }))?;
        prepare(page)?;
        let alert = page.see_alert(AT_ONCE)?;
        assert!(alert.contains("does not keep chats"), "{alert}");
        page.press("Dismiss")?;
        page.ask(BEGINNING)?;
        page.see_answer_of(20, BEGINNING, ANSWER)?;
        page.press("Stop")?;
        page.see("Stopped.", AT_ONCE)?;
        page.ask("and then")?;
        page.see_answer_of(1, "and then", ANSWER)?;
        assert!(page.conversation()?.contains(BEGINNING), "the conversation is lost");
        let alerts = page.alerts()?;
        assert!(alerts.is_empty(), "{alerts:?}");
        Ok(())
    });
}

#[test]
fn a_chat_that_cannot_be_read_is_left_alone() {
    in_page("chat-unreadable", Gpu::Missing, |page| {
        let script = "
            const open = indexedDB.open('pagelm.chats');
            open.onsuccess = () => {
                const write = open.result.transaction(['heads', 'bodies'], 'readwrite');
                write.objectStore('heads').put('{\"version\": 99}', 'newer');
                write.objectStore('bodies').put('{\"version\": 99}', 'newer');
                write.objectStore('heads').put('{', 'damaged');
                write.objectStore('bodies').put(17, 'damaged');
                write.oncomplete = () => { window.isWritten = true; };
            };";
        page.session().run(script, json!([]))?;
        page.within(AT_ONCE, "chats in the store", || {
            let is_written = page.session().run("return !!window.isWritten", json!([]))?;
            Ok((is_written == true).then_some(()))
        })?;
        for (id, words) in [("newer", "newer version"), ("damaged", "damaged"), ("missing", "no such chat")] {
            page.session().open(&format!("{}?{id}#chat={id}", page.server().url()))?;
            see_anywhere(page, words)?;
            assert!(!url(page)?.contains('#'), "the URL still names a chat that is not shown");
        }
        page.press("Chats")?;
        assert_eq!(listed(page, 2)?.len(), 2);
        Ok(())
    });
}
