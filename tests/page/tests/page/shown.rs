//! How an answer is shown: what was thought folds, code has colours, formulas and tables are whole, nothing in it runs or
//! fetches, and nothing moves while it grows.

use crate::folders::{LOAD, fixture};
use page_tests::{Gpu, Page, in_page};
use serde_json::{Value, json};
use std::time::Duration;

/// What the page itself does comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
const ANSWER: Duration = Duration::from_secs(120);
/// Any tiny model.
const MODEL: &str = "llama-yarn-tiny";

/// An answer with all that answers are made of, and much that would attack the page. `ORIGIN` is the page's own server, which
/// hears of what is fetched.
const KINDS: &str = r#"<think>
The person asks for **everything**.
So be it.
</think>

# Everything

A *word*, `code` and [a link](https://example.org/a_(b)), then $a_1*b_1*c$ and \(x_2 * y_2\).

\[
\sum_{i=1}^{n} a_i^2
\]

```rust
// Adds one.
fn add(n: u32) -> u32 {
    let words = "a long line of words that is far wider than a small telephone is: it scrolls within itself";
    n + 1
}
```

```python
def add(n):
    return n + 1  # one more
```

| Name | A column | Another column | One more column | The last of the columns |
|------|---------:|----------------|-----------------|-------------------------|
| a    | 1        | Donaudampfschiffahrtsgesellschaft | Donaudampfschiffahrtsgesellschaft | z |

- [x] done
- [ ] open

> Said.[^1]

[^1]: Somewhere.

עברית היא שפה שנכתבת מימין לשמאל, עם `code` בתוכה.

Rindfleischetikettierungsüberwachungsaufgabenübertragungsgesetzundnochvielmehr

![a picture](ORIGINpicture.png) <img src="ORIGINimage.png" onerror="window.attacked = 1">

<script>window.attacked = 2</script>

[x](javascript:window.attacked=3) <svg onload="window.attacked = 4">

```html
<img src="ORIGINcode.png" onerror="window.attacked = 5">
```
"#;

/// Keeps a chat, as another tab does.
const KEEP: &str = "
    window.keepChat = (id, turns) => new Promise(resolve => {
        const open = indexedDB.open('pagelm.chats');
        open.onsuccess = () => {
            const head = { version: 1, title: id, created_ms: 1, updated_ms: 1 };
            const write = open.result.transaction(['heads', 'bodies'], 'readwrite');
            write.objectStore('heads').put(JSON.stringify(head), id);
            write.objectStore('bodies').put(JSON.stringify({ version: 1, turns }), id);
            write.oncomplete = () => { open.result.close(); resolve(); };
        };
    });";

/// Writes the answer of a chat piece by piece, as a tab does that answers in it, each piece once the one before it is shown.
const STREAM: &str = "
    const [id, before, opening, pieces] = arguments;
    const frame = () => new Promise(requestAnimationFrame);
    window.streamed = 0;
    navigator.locks.request('pagelm.chat.' + id, async () => {
        const channel = new BroadcastChannel('pagelm.chats');
        let text = opening;
        const keep = async end => {
            await keepChat(id, [...before, { speaker: 'assistant', text, end }]);
            channel.postMessage(JSON.stringify({ saved: id }));
        };
        await keep('open');
        while (!window.mayStream) await frame();
        for (const piece of pieces) {
            text += piece;
            await keep('open');
            const words = piece.includes('<') ? null : piece.match(/[a-z]\\w*/gi);
            const [word] = (words ?? ['']).sort((a, b) => b.length - a.length);
            while (!document.querySelector('.turn:last-of-type').textContent.includes(word)) await frame();
            await frame();
            window.streamed += 1;
        }
        await keep('stop');
        window.isStreamed = true;
    });";

fn user(text: &str) -> Value {
    json!({ "speaker": "user", "text": text, "end": "stop" })
}

fn answer(text: &str) -> Value {
    json!({ "speaker": "assistant", "text": text, "end": "stop" })
}

/// Puts a chat into the store.
fn keep(page: &Page, id: &str, turns: &[Value]) -> Result<(), String> {
    let script =
        format!("{KEEP} keepChat(arguments[0], arguments[1]).then(() => {{ window.isKept = true; }});");
    page.session().run(&script, json!([id, turns]))?;
    page.within(AT_ONCE, "a chat in the store", || is_true(page, "!!window.isKept"))
}

/// Opens a chat of the store, and a model, so that the conversation has its room.
fn open(page: &Page, id: &str) -> Result<(), String> {
    page.session().set_view(1000, 900)?;
    page.session().open(&format!("{}?{id}#chat={id}", page.server().url()))?;
    page.wait_for_page()?;
    page.choose_folder(&fixture(MODEL))?;
    page.wait_for_button(&format!("Model: {MODEL}"), LOAD)
}

fn ask(page: &Page, expression: &str) -> Result<Value, String> {
    page.session().run(&format!("return {expression}"), json!([]))
}

fn is_true(page: &Page, expression: &str) -> Result<Option<()>, String> {
    Ok((ask(page, expression)? == true).then_some(()))
}

fn wait_for(page: &Page, expression: &str) -> Result<(), String> {
    page.within(AT_ONCE, expression, || is_true(page, expression))
}

#[test]
fn everything_an_answer_is_made_of() {
    in_page("shown-kinds", Gpu::Missing, |page| {
        let text = KINDS.replace("ORIGIN", &page.server().url());
        keep(page, "kinds", &[user("שלום, show me everything"), answer(&text)])?;
        open(page, "kinds")?;
        page.see("Everything", AT_ONCE)?;
        thoughts_are_folded(page)?;
        for expression in [
            "document.querySelectorAll('.block .code').length === 3",
            "document.querySelector('.code .hk').textContent === 'fn'",
            "document.querySelector('.code .hc').textContent === '// Adds one.'",
            "[...document.querySelectorAll('.math')].map(e => e.textContent).join('|') \
             === 'a_1*b_1*c|x_2 * y_2|\\\\sum_{i=1}^{n} a_i^2'",
            "document.querySelectorAll('.block li.task').length === 2",
            "document.querySelector('.block blockquote').textContent.includes('Said.[^1]')",
            // Each text runs as its words do, and code from left to right.
            "getComputedStyle([...document.querySelectorAll('.block')].find(e => e.textContent.includes('עברית'))).direction === 'rtl'",
            "getComputedStyle(document.querySelector('.block')).direction === 'ltr'",
            "[...document.querySelectorAll('.block code')].every(e => getComputedStyle(e).direction === 'ltr')",
            "getComputedStyle(document.querySelector('.turn.user p')).direction === 'rtl'",
            // Links lead out of the page, safely, and nowhere else.
            "[...document.querySelectorAll('.block a[href]')].every(e => /^https?:/.test(e.href) && e.target === '_blank' \
             && e.relList.contains('noopener') && e.relList.contains('noreferrer'))",
            "document.querySelectorAll('.block a[href]').length === 2",
            "document.querySelectorAll('.log .block :is(img, script, svg, iframe, form, style)').length === 0",
            "window.attacked === undefined",
        ] {
            if ask(page, expression)? != true {
                return Err(format!("it is not so that {expression}"));
            }
        }
        let missing = page.server().missing();
        assert!(
            !missing.iter().any(|path| path.contains(".png")),
            "an answer made the page fetch {missing:?}"
        );
        code_is_copied(page)?;
        for width in [360, 1200] {
            for scheme in ["light", "dark"] {
                looks_right(page, width, scheme)?;
            }
        }
        Ok(())
    });
}

/// They are closed until a person opens them.
fn thoughts_are_folded(page: &Page) -> Result<(), String> {
    assert!(!page.conversation()?.contains("So be it."), "a thought is open");
    let summary = page.session().find(".thought summary")?.into_iter().next().ok_or("no thought")?;
    assert_eq!(page.session().text(&summary)?, "Thoughts");
    page.session().click(&summary)?;
    page.see("So be it.", AT_ONCE)?;
    assert_eq!(ask(page, "document.querySelector('.thought strong').textContent")?, "everything");
    page.session().click(&summary)?;
    wait_for(page, "!document.querySelector('.thought').open")
}

/// The button of a block copies that block as it was written.
fn code_is_copied(page: &Page) -> Result<(), String> {
    let allow = json!({ "permissions": ["clipboardReadWrite", "clipboardSanitizedWrite"] });
    page.session().tool("Browser.grantPermissions", allow)?;
    let button =
        page.session().find(".code-head button")?.into_iter().nth(1).ok_or("no button to copy code")?;
    assert_eq!(
        (page.session().role(&button)?.as_str(), page.session().label(&button)?.as_str()),
        ("button", "Copy code")
    );
    page.session().click(&button)?;
    page.within(AT_ONCE, "\"Copied\"", || Ok((page.session().text(&button)? == "Copied").then_some(())))?;
    let read = "navigator.clipboard.readText().then(text => { window.copied = text; })";
    page.session().run(read, json!([]))?;
    wait_for(page, "window.copied === 'def add(n):\\n    return n + 1  # one more\\n'")?;
    page.within(AT_ONCE, "\"Copy code\" again", || {
        Ok((page.session().text(&button)? == "Copy code").then_some(()))
    })
}

/// Nothing is wider than the page, and code is legible.
fn looks_right(page: &Page, width: u32, scheme: &str) -> Result<(), String> {
    page.session().set_view(width, 780)?;
    let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
    page.session().tool("Emulation.setEmulatedMedia", feature)?;
    let wide = ask(
        page,
        "[document.documentElement.scrollWidth - innerWidth, ...[...document.querySelectorAll('.log, .block, .block > p, .code, .table')]
            .map(e => e.getBoundingClientRect().right - innerWidth).filter(px => px > 0.5)]",
    )?;
    assert_eq!(wide, json!([0]), "{width} px, {scheme}: something is wider than the page");
    let contrasts = page.session().run(CONTRASTS, json!([]))?;
    let contrasts = contrasts.as_object().ok_or("no contrasts")?;
    assert!(contrasts.len() >= 6, "{contrasts:?}");
    for (class, contrast) in contrasts {
        let contrast = contrast.as_f64().unwrap_or_default();
        assert!(contrast >= 4.5, "{scheme}: {class} has a contrast of {contrast:.2}");
    }
    Ok(())
}

/// The contrast of each colour of code with what lies behind it.
const CONTRASTS: &str = "
    const luminance = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).map(Number)
            .map(c => c / 255).map(c => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const code = document.querySelector('.block .code');
    const behind = luminance(getComputedStyle(code).backgroundColor);
    const contrasts = {};
    for (const name of ['hc', 'hs', 'hn', 'hk', 'hf', 'ht', 'ha', 'hd']) {
        const piece = code.querySelector('code').appendChild(document.createElement('span'));
        piece.className = name;
        const [dark, light] = [behind, luminance(getComputedStyle(piece).color)].sort((a, b) => a - b);
        contrasts[name] = (light + 0.05) / (dark + 0.05);
        piece.remove();
    }
    return contrasts;";

/// Counts what an answer's growth does to the page: what shifts, and what is changed, where, by each piece.
const OBSERVE: &str = "
    window.seen = { shifted: [], above: 0, most: 0 };
    const place = ({ x, y, width, height }) => [x, y, width, height].map(Math.round).join(' ');
    // The caret alone has no node of its own, and is to move.
    new PerformanceObserver(list => list.getEntries().filter(entry => !entry.hadRecentInput).forEach(entry =>
        entry.sources.filter(({ node }) => node).forEach(({ node, previousRect, currentRect }) => seen.shifted.push(
            `${(node.outerHTML ?? node.textContent).slice(0, 80)}: ${place(previousRect)} to ${place(currentRect)}`))
    )).observe({ type: 'layout-shift' });
    const log = document.querySelector('.log');
    let [changed, at] = [0, 0];
    new MutationObserver(records => {
        if (at !== window.streamed) [changed, at] = [0, window.streamed];
        for (const { type, target, addedNodes, removedNodes } of records) {
            const turn = (target.nodeType === 1 ? target : target.parentElement)?.closest('.turn');
            if (turn && turn !== log.querySelector('.turn:last-of-type')) seen.above += 1;
            changed += type === 'childList' ? addedNodes.length + removedNodes.length : 1;
        }
        seen.most = Math.max(seen.most, changed);
    }).observe(log, { subtree: true, childList: true, characterData: true });";

/// Whether the conversation's end is in sight.
const AT_END: &str =
    "(log => log.scrollHeight - log.scrollTop - log.clientHeight < 2)(document.querySelector('.log'))";

/// A conversation of some ten thousand tokens.
fn long_chat() -> Vec<Value> {
    let answer_text = "Some *words* of an answer, which is long, as answers are.\n\n```rust\nlet n = 1; // one\n```\n\n- one\n- two\n\n";
    (0..10).flat_map(|n| [user(&format!("Question {n}")), answer(&answer_text.repeat(30))]).collect()
}

#[test]
fn a_growing_answer_moves_nothing_and_changes_little() {
    in_page("shown-growing", Gpu::Missing, |page| {
        let mut turns = long_chat();
        turns.push(user("And now?"));
        keep(page, "long", &turns)?;
        open(page, "long")?;
        page.see("And now?", AT_ONCE)?;
        wait_for(page, AT_END)?;
        page.session().run(KEEP, json!([]))?;

        let words = |of: &str, n: usize| -> Vec<String> { (0..n).map(|i| format!(" {of}{i}")).collect() };
        let mut pieces = words("thought", 30);
        pieces.extend(["\n".to_owned(), "</think>".to_owned(), "\n\nIt".to_owned()]);
        for n in 0..3 {
            pieces.extend(words(&format!("said{n}"), 25));
            pieces.push(format!("\n\n```rust\nfn f{n}() {{"));
            pieces.extend((0..15).map(|line| format!("\n    let line{n}x{line} = \"text\";")));
            pieces.push(format!("\n}}\n```\n\n| head{n} | b |\n|---|---|"));
            pieces.extend((0..5).map(|row| format!("\n| cell{n}x{row} | 2 |")));
            pieces.push(format!("\n\nEnd{n}"));
        }
        let n_pieces = pieces.len();
        page.session().run(STREAM, json!(["long", turns, "<think>\nFirst of all,", pieces]))?;
        page.within(AT_ONCE, "a thought that goes on", || {
            Ok(page.conversation()?.contains("Thinking…").then_some(()))
        })?;
        // A person opens it, and it stays open.
        let summary = page.session().find(".thought summary")?.into_iter().next().ok_or("no thought")?;
        page.session().click(&summary)?;
        page.see("First of all,", AT_ONCE)?;
        // Shifts soon after an input are the person's own.
        std::thread::sleep(Duration::from_millis(700));
        page.session().run(OBSERVE, json!([]))?;
        page.session().run("window.mayStream = true", json!([]))?;
        page.within(ANSWER, "an answer that ended", || is_true(page, "!!window.isStreamed"))?;
        page.within(AT_ONCE, "its end on screen", || is_true(page, "!document.querySelector('.turn.busy')"))?;

        let seen = ask(page, "window.seen")?;
        assert_eq!(ask(page, "window.streamed")?, json!(n_pieces));
        assert_eq!(seen["shifted"], json!([]));
        assert_eq!(seen["above"], json!(0), "turns above the answer were changed");
        let most = seen["most"].as_u64().ok_or("nothing was counted")?;
        assert!((1..=12).contains(&most), "a piece changed {most} nodes");
        assert_eq!(ask(page, "document.querySelector('.thought').open")?, true);
        assert!(page.session().text(&summary)?.starts_with("Thought for "));
        // Its end is in sight.
        wait_for(page, AT_END)
    });
}

#[test]
fn a_template_may_open_the_thought() {
    in_page("shown-opened", Gpu::Software, |page| {
        let folder = fixture(MODEL);
        for name in ["config.json", "tokenizer.json", "model.safetensors"] {
            let bytes = std::fs::read(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
            page.write_file(&format!("thinker/{name}"), &bytes)?;
        }
        let template = "{% for m in messages %}{{ m.content }}{% endfor %}{% if add_generation_prompt %}<think>\n{% endif %}";
        let config = json!({ "chat_template": template }).to_string();
        let path = page.write_file("thinker/tokenizer_config.json", config.as_bytes())?;
        let options = json!({ "ignore_eos": true, "max_tokens": null, "temperature": 0.0 });
        let preferences = json!({ "options": { "thinker": options } }).to_string();
        page.session()
            .run("localStorage.setItem('pagelm.preferences', arguments[0])", json!([preferences]))?;
        page.open_page()?;
        // The processor answers too fast to be met in the middle.
        page.choose_setting("device", "gpu")?;
        page.choose_folder(path.parent().ok_or("a file in a folder")?)?;
        page.wait_for_button("Model: thinker", LOAD)?;
        page.ask("Once upon a time")?;
        page.see("Thinking…", ANSWER)?;
        page.press("Stop")?;
        page.see("Stopped.", AT_ONCE)?;
        page.see("Thought for", AT_ONCE)?;
        // What was thought is no answer.
        assert_eq!(ask(page, "document.querySelectorAll('.assistant > .block').length")?, json!(0));
        let text = "document.querySelector('.thought summary').click()";
        page.session().run(text, json!([]))?;
        wait_for(page, "document.querySelector('.thought-text')?.textContent.length > 0")
    });
}
