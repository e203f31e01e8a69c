//! Every view of the page, one after the other, as a person meets them: for pictures of all, and for rules that hold in all.

use crate::page::Page;
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// The model is called so while it answers.
const MODEL: &str = "Model: SmolLM2 135M Instruct";
/// A view as wide as panels need that cover nothing.
const WIDE: (u32, u32) = (1280, 800);

/// Shows each view and calls `look` with its name; the view is wide, and may be left narrow.
pub fn visit(page: &Page, mut look: impl FnMut(&str) -> Result<(), String>) -> Result<(), String> {
    for (id, title, question, answer) in CHATS {
        page.session().run(KEEP_CHAT, json!([id, title, question, answer]))?;
    }
    let mut look = |name: &str| {
        let looked = look(name);
        page.session().set_view(WIDE.0, WIDE.1)?;
        looked
    };
    page.session().set_view(WIDE.0, WIDE.1)?;
    page.open_page()?;
    page.wait_for_button("Load SmolLM2 135M Instruct", LIMIT)?;
    look("start")?;

    page.load_default_model()?;
    page.wait_for_button("New chat", LIMIT)?;
    look("ready")?;

    page.session().run("location.hash = '#chat=fibonacci'", json!([]))?;
    page.see("recursion", LIMIT)?;
    page.ask("What is the capital of France?")?;
    page.see("Paris", LIMIT)?;
    page.wait_for_button("Send", LIMIT)?;
    look("chat")?;

    // Panels close by the same buttons where they cover nothing.
    for (button, name) in [("Chats", "chats"), ("Settings", "settings"), (MODEL, "models")] {
        page.press(button)?;
        look(name)?;
        page.press(button)?;
    }
    page.press("Settings")?;
    page.press("Copy report")?;
    let script = "return document.querySelector('.report textarea').value.length > 0";
    page.within(LIMIT, "the report", || Ok((page.session().run(script, json!([]))? == true).then_some(())))?;
    look("report")?;
    page.press("Settings")?;
    page.press("Benchmark")?;
    look("benchmark")?;
    page.press("Benchmark")?;
    page.press("Laboratory")?;
    look("laboratory")?;
    page.press("Laboratory")?;
    page.drop_file("photo.png", b"\x89PNG\r\n\x1a\n and no model")?;
    page.see_alert(LIMIT)?;
    look("notice")?;
    page.press("Dismiss")
}

/// Keeps a chat as the first version of the page did: id, title, question and answer.
pub const KEEP_CHAT: &str = "
    const [id, title, question, text] = arguments;
    const now = Date.now();
    const head = { version: 1, title, created_ms: now, updated_ms: now };
    const turns = [{ speaker: 'user', text: question, end: 'stop' }, { speaker: 'assistant', text, end: 'stop' }];
    return new Promise((resolve, reject) => {
        const asked = indexedDB.open('pagelm.chats');
        asked.onerror = () => reject(asked.error);
        asked.onsuccess = () => {
            const written = asked.result.transaction(['heads', 'bodies'], 'readwrite');
            written.objectStore('heads').put(JSON.stringify(head), id);
            written.objectStore('bodies').put(JSON.stringify({ version: 1, turns }), id);
            written.oncomplete = () => { asked.result.close(); resolve(null); };
            written.onerror = () => reject(written.error);
        };
    });";

/// What is in the list of chats.
const CHATS: [(&str, &str, &str, &str); 3] = [
    ("bread", "Bread without kneading", "How do I bake bread without kneading?", "Let it rest overnight."),
    ("letter", "A letter to the landlord", "Write a letter about the heating.", "Dear Ms Doe, …"),
    (
        "fibonacci",
        "Fibonacci in Python",
        "Write a function for the n-th Fibonacci number, and compare ways to do it.",
        "A loop needs only the last two numbers:\n\n```python\ndef fibonacci(n: int) -> int:\n    a, b = 0, 1\n    \
         for _ in range(n):\n        a, b = b, a + b\n    return a\n```\n\n| way | steps | memory |\n|:--|--:|:-:|\n\
         | plain recursion | about 1.6ⁿ | n |\n| a loop | n | 2 numbers |\n| matrix powers | log n | 4 numbers |\n\n\
         - **Recursion** is the shortest to write, and hopeless beyond some forty.\n- The *loop* is fast enough for \
         most; see [the sequence](https://oeis.org/A000045).\n\n1. Test `fibonacci(0)`.\n2. Test `fibonacci(10)`, \
         which is 55.",
    ),
];
