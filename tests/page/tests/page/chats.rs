//! Chats outlive their page, are the same in every tab, and are never lost from the screen.

use crate::folders::{LOAD, fixture};
use page_tests::{Gpu, Page, in_page};
use serde_json::json;
use std::time::{Duration, Instant};

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
    page.choose_folder(&fixture(MODEL))?;
    page.wait_for_button(&format!("Model: {MODEL}"), LOAD)
}

/// The length of what stands below the last thing that was asked.
fn answer_length(page: &Page) -> Result<usize, String> {
    let conversation = page.conversation()?;
    Ok(conversation.rsplit_once(BEGINNING).map_or(0, |(_, answer)| answer.chars().count()))
}

fn wait_for_growth(page: &Page) -> Result<(), String> {
    let (start, before) = (Instant::now(), answer_length(page)?);
    while answer_length(page)? <= before {
        if start.elapsed() > ANSWER {
            return Err(format!("the answer does not grow beyond {before} characters"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The titles in the list of chats, once there are so many.
fn listed(page: &Page, n_chats: usize) -> Result<Vec<String>, String> {
    let start = Instant::now();
    loop {
        let script = "return [...document.querySelectorAll('#chats .chat-title')].map(e => e.textContent)";
        let titles = page.session().run(script, json!([]))?;
        let titles: Vec<String> = serde_json::from_value(titles).map_err(|error| error.to_string())?;
        if titles.len() == n_chats {
            return Ok(titles);
        }
        if start.elapsed() > AT_ONCE {
            return Err(format!("waited for {n_chats} chats, found {titles:?}"));
        }
        std::thread::sleep(Duration::from_millis(200));
    }
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
        let url = page.session().url()?;
        assert!(url.contains("#chat="), "{url} does not name the chat");
        // So long at most it takes until the last words are safe.
        std::thread::sleep(Duration::from_millis(600));
        let before = page.conversation()?;
        page.session().reload()?;
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
        let (first, url) = (page.session().tab()?, page.session().url()?);

        let second = page.session().open_tab()?;
        page.session().open(&url)?;
        page.see(BEGINNING, AT_ONCE)?;
        page.see_anywhere(ELSEWHERE, AT_ONCE)?;
        page.wait_for_button(&format!("Model: {MODEL}"), LOAD)?;
        page.see_anywhere("2 tabs", AT_ONCE)?;
        wait_for_growth(page)?;
        page.type_message("me too")?;
        page.press("Send")?;
        assert_eq!(page.message()?, "me too", "what cannot be sent stays in the box");

        page.session().show_tab(&first)?;
        page.press("Stop")?;
        page.see("Stopped.", AT_ONCE)?;
        page.session().show_tab(&second)?;
        page.see("Stopped.", AT_ONCE)?;
        page.press("Send")?;
        page.see("me too", AT_ONCE)?;

        page.session().show_tab(&first)?;
        page.see("me too", AT_ONCE)?;
        page.see_anywhere(ELSEWHERE, AT_ONCE)?;
        Ok(())
    });
}

#[test]
fn chats_are_listed_opened_and_deleted() {
    in_page("chat-list", Gpu::Software, |page| {
        prepare(page)?;
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

        page.session().reload()?;
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
        page.session()
            .run_before_pages("Object.defineProperty(window, 'indexedDB', { value: undefined })")?;
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
            const done = arguments[arguments.length - 1];
            const open = indexedDB.open('pagelm.chats');
            open.onsuccess = () => {
                const write = open.result.transaction(['heads', 'bodies'], 'readwrite');
                write.objectStore('heads').put('{\"version\": 99}', 'newer');
                write.objectStore('bodies').put('{\"version\": 99}', 'newer');
                write.objectStore('heads').put('{', 'damaged');
                write.objectStore('bodies').put(17, 'damaged');
                write.oncomplete = () => done(null);
            };";
        page.session().run_until_done(script)?;
        for (id, words) in [("newer", "newer version"), ("damaged", "damaged"), ("missing", "no such chat")] {
            page.session().open(&format!("{}?{id}#chat={id}", page.server().url()))?;
            page.see_anywhere(words, AT_ONCE)?;
            assert!(!page.session().url()?.contains('#'), "the URL still names a chat that is not shown");
        }
        page.press("Chats")?;
        assert_eq!(listed(page, 2)?.len(), 2);
        Ok(())
    });
}
