//! The laboratory: a text's tokens, its likeliest next ones, a run, its tints and times, and the batch of two tabs, as a
//! person sees them; held against what is known of the default model (tests/fixtures/smollm2-135m).

use crate::expectations::{check_top, expected, ids, list};
use page_tests::page::keys;
use page_tests::{Gpu, Page, in_page};
use pagelm::protocol::TokenLogprob;
use serde_json::{Value, json};
use std::time::Duration;

/// A few tokens of a small model on a busy processor.
const SOON: Duration = Duration::from_secs(120);
/// Where the two best logits lie closer, either may be chosen.
const NEAR_TIE: f64 = 0.05;

#[test]
fn the_laboratory_shows_how_the_model_writes() {
    in_page("laboratory", Gpu::Software, |page| {
        let expected = expected()?;
        page.choose_setting("device", "cpu")?;
        page.choose_setting("precision", "exact")?;
        page.load_default_model()?;
        page.press("Laboratory")?;
        tokens_are_seen(page, &expected)?;
        tokens_are_taken(page, &expected)?;
        a_run_is_tinted_and_timed(page, &expected)?;
        the_cache_saves_time(page)?;
        two_tabs_see_one_batch(page)?;
        page.press("Back to the chat")?;
        page.type_message("a")
    });
}

fn tokens_are_seen(page: &Page, expected: &Value) -> Result<(), String> {
    for case in list(expected, "tokenize").iter().take(4).chain([prompt(expected)]) {
        write(page, case["text"].as_str().or(case["prompt"].as_str()).unwrap_or_default())?;
        see(page, "[id=lab-tokens] .lab-id", &ids(case, "ids"))?;
    }
    // The token that the keyboard leads to is the one that is told of: " is".
    focus(page, "#lab-token-0")?;
    key(page, "#lab-token-0", keys::END)?;
    see_text(page, ".lab-details", "20 69 73")?;
    let details = text(page, ".lab-details")?;
    assert!(details.contains("␣is") && details.contains("Ġis"), "{details}");
    assert!(text(page, "#lab-tokens [role=status]")?.contains("5 tokens · 24 characters"));

    let chat = &list(expected, "chats")[0];
    write(page, list(chat, "messages")[0]["content"].as_str().unwrap_or_default())?;
    run(page, "document.querySelectorAll('[name=lab-as]')[1].click()")?;
    see(page, "[id=lab-tokens] .lab-id", &ids(chat, "ids"))?;
    let template = run(page, "return document.querySelector('.lab-template').textContent")?;
    assert_eq!(template, chat["rendered"]);
    run(page, "document.querySelectorAll('[name=lab-as]')[0].click()")?;
    write(page, prompt(expected)["prompt"].as_str().unwrap_or_default())?;
    see(page, "[id=lab-tokens] .lab-id", &ids(prompt(expected), "ids"))
}

fn tokens_are_taken(page: &Page, expected: &Value) -> Result<(), String> {
    let case = prompt(expected);
    let greedy = ids(case, "greedy");
    page.press("Predict the next token")?;
    let bars = page.within(SOON, "ten bars", || Ok(Some(bars(page)?).filter(|bars| bars.len() == 10)))?;
    let mut wrong = Vec::new();
    check_top(&bars, case, |sentence| wrong.push(sentence));
    assert!(wrong.is_empty(), "{wrong:?}");
    let shares = run(
        page,
        "return [...document.querySelectorAll('.lab-bar-share')].slice(0, 10).map(e => e.textContent)",
    )?;
    let percent = |token: &TokenLogprob| format!("{:.1} %", f64::from(token.logprob).exp() * 100.0);
    assert_eq!(shares, json!(bars.iter().map(percent).collect::<Vec<_>>()));

    // The first by a click, the second by a key; what is taken back can be taken again.
    run(page, "document.querySelector('.lab-bar').click()")?;
    see(page, ".lab-answer .lab-token", &greedy[..1])?;
    rest(page)?;
    key(page, ".lab-bar", "1")?;
    see(page, ".lab-answer .lab-token", &greedy[..2])?;
    rest(page)?;
    page.press("Undo")?;
    see(page, ".lab-answer .lab-token", &greedy[..1])?;
    key(page, ".lab-bar", "2")?;
    page.within(SOON, "two tokens", || Ok((taken(page)?.len() == 2).then_some(())))?;
    rest(page)?;
    page.press("Undo")?;
    see(page, ".lab-answer .lab-token", &greedy[..1])?;

    // Without a temperature the likeliest is certain.
    slide(page, "lab-temperature", "0")?;
    page.within(SOON, "certainty", || {
        let script =
            "return [...document.querySelectorAll('.lab-bar-share')].slice(0, 2).map(e => e.textContent)";
        Ok((run(page, script)? == json!(["100.0 %", "0 %"])).then_some(()))
    })?;
    let about = |part| see_text(page, ".lab-bars-box .about", part);
    slide(page, "lab-temperature", "0.5")?;
    about("among these ten alone")?;
    slide(page, "lab-top-k", "3")?;
    about("Exactly what the sampler draws from")?;
    slide(page, "lab-temperature", "1")?;
    slide(page, "lab-top-k", "11")?;
    about("The rest of the vocabulary has")
}

fn a_run_is_tinted_and_timed(page: &Page, expected: &Value) -> Result<(), String> {
    let case = prompt(expected);
    let (greedy, gaps) = (ids(case, "greedy"), list(case, "greedy_gap"));
    let n_certain = gaps.iter().take_while(|gap| gap.as_f64().is_some_and(|gap| gap > NEAR_TIE)).count();
    page.press("Run greedily")?;
    page.within(SOON, "a few tokens", || Ok((taken(page)?.len() > n_certain.min(8)).then_some(())))?;
    // It may have come to its end by itself.
    if page.offers("Stop the run")? {
        run(page, "document.querySelector('#lab-next .stop')?.click()")?;
    }
    rest(page)?;
    let found = taken(page)?;
    let n = n_certain.min(found.len());
    assert_eq!(found[..n], greedy[..n]);

    let script = "
        const tints = [0.9, 0.5, 0.2, 0.05, 0];
        return [...document.querySelectorAll('.lab-answer .lab-token')].map(token => {
            const share = Math.exp(Number(token.dataset.logprob));
            return token.classList.contains('tint-' + tints.findIndex(from => share >= from));
        })";
    let tinted = run(page, script)?;
    assert!(
        tinted
            .as_array()
            .is_some_and(|all| all.len() == found.len() && all.iter().all(|right| right == true)),
        "{tinted}"
    );
    focus(page, ".lab-answer .lab-token")?;
    let alternatives = run(page, "return document.querySelectorAll('.lab-popover li').length")?;
    assert_eq!(alternatives, json!(10));
    let chosen = text(page, ".lab-popover .chosen")?;
    assert!(text(page, ".lab-popover")?.starts_with(&chosen), "the greedy one is the likeliest");
    key(page, ".lab-answer .lab-token", keys::ESCAPE)?;
    assert_eq!(run(page, "return document.querySelector('.lab-popover')")?, Value::Null);

    let label = run(page, "return document.querySelector('.lab-timeline svg').getAttribute('aria-label')")?;
    let label = label.as_str().unwrap_or_default();
    assert!(["queue ", "prefill of ", "decode of "].iter().all(|part| label.contains(part)), "{label}");
    let spans = run(page, "return document.querySelectorAll('.lab-timeline .work-decode').length")?;
    assert!(spans.as_u64().is_some_and(|n| n >= 2), "{spans}");
    Ok(())
}

fn the_cache_saves_time(page: &Page) -> Result<(), String> {
    run(
        page,
        "const box = document.getElementById('lab-length');
         box.value = '8';
         box.dispatchEvent(new Event('change', { bubbles: true }));",
    )?;
    page.press("Run both")?;
    see_text(page, "#lab-race [role=status]", "times as long")?;
    let points = run(page, "return document.querySelectorAll('#lab-race .bench-plot circle').length")?;
    assert_eq!(points, json!(16), "a point for each token of both");
    Ok(())
}

fn two_tabs_see_one_batch(page: &Page) -> Result<(), String> {
    let other = page.open_tab()?;
    other.wait_for_model()?;
    run(&other, "location.hash = '#lab'")?;
    write(&other, "A text that nobody else reads, of a tab of its own,")?;
    other.within(SOON, "its tokens", || {
        Ok((run(&other, "return document.querySelectorAll('.lab-chip').length")? != json!(5)).then_some(()))
    })?;
    other.press("Answer the text four times at once")?;
    let whose = |page: &Page, wanted: &[&str]| {
        let script = "return [...document.querySelectorAll('.lab-sequences tbody tr')].map(row => row.children[1].textContent)";
        page.within(SOON, "the four answers", || Ok((run(page, script)? == json!(wanted)).then_some(())))
    };
    whose(&other, &["2 (this)"; 4])?;
    whose(page, &["2"; 4])?;
    let seen = text(page, "#lab-batch")?;
    assert!(seen.contains("4 running") && !seen.contains("nobody else"), "{seen}");
    see_text(page, "#lab-batch", "4 rows of decode")?;
    let blocks =
        run(page, "return document.querySelector('.lab-strip[aria-label*=KV]').getAttribute('aria-label')")?;
    let numbers: Vec<u32> = blocks
        .as_str()
        .unwrap_or_default()
        .replace('\u{202f}', "")
        .split(|c: char| !c.is_ascii_digit())
        .filter_map(|digits| digits.parse().ok())
        .collect();
    let [n_blocks, own, shared, cached, free] = numbers[..] else { return Err(format!("{blocks}")) };
    assert_eq!((own + shared + cached + free, own >= 4), (n_blocks, true), "{blocks}");
    let cells = "return document.querySelectorAll('.lab-strip[aria-label*=KV] .lab-cell').length";
    assert_eq!(run(page, cells)?, json!(n_blocks), "few enough for a cell each");
    // Stopped or at their end, nothing is left of them.
    run(
        &other,
        "[...document.querySelectorAll('button')].find(b => b.textContent === 'Stop the four answers')?.click()",
    )?;
    see_text(page, ".lab-sequences", "No answer")?;
    other.close()
}

/// The prompt whose next tokens are known: that which stands there first.
fn prompt(expected: &Value) -> &Value {
    &list(expected, "prompts")[1]
}

/// The likeliest next tokens, once they are computed.
fn bars(page: &Page) -> Result<Vec<TokenLogprob>, String> {
    let script =
        "return [...document.querySelectorAll('.lab-bars:not([aria-busy=true]) li:not([hidden]) .lab-bar')]
        .map(bar => [Number(bar.dataset.id), Number(bar.dataset.logprob)])";
    let found: Vec<(u32, f32)> =
        serde_json::from_value(run(page, script)?).map_err(|error| error.to_string())?;
    let token = |(id, logprob)| TokenLogprob { id, text: String::new(), logprob, top: Vec::new() };
    Ok(found.into_iter().map(token).collect())
}

/// Waits until the next tokens are computed, after what was taken before is shown.
fn rest(page: &Page) -> Result<(), String> {
    page.within(SOON, "the next tokens", || Ok((!bars(page)?.is_empty()).then_some(())))
}

fn taken(page: &Page) -> Result<Vec<u32>, String> {
    let script = "return [...document.querySelectorAll('.lab-answer .lab-token')].map(token => Number(token.dataset.id))";
    serde_json::from_value(run(page, script)?).map_err(|error| error.to_string())
}

/// Waits until an element holds a text.
fn see_text(page: &Page, selector: &str, part: &str) -> Result<(), String> {
    page.within(SOON, &format!("{part:?} in {selector}"), || {
        Ok(text(page, selector)?.contains(part).then_some(()))
    })
}

/// Waits until the elements have these ids: in their data, or as their text.
fn see(page: &Page, selector: &str, ids: &[u32]) -> Result<(), String> {
    let script =
        "return [...document.querySelectorAll(arguments[0])].map(e => Number(e.dataset.id ?? e.textContent))";
    page.within(SOON, &format!("{selector} {ids:?}"), || {
        Ok((page.session().run(script, json!([selector]))? == json!(ids)).then_some(()))
    })
}

fn run(page: &Page, script: &str) -> Result<Value, String> {
    page.session().run(script, json!([]))
}

fn text(page: &Page, selector: &str) -> Result<String, String> {
    let script = "return document.querySelector(arguments[0])?.innerText ?? ''";
    Ok(page.session().run(script, json!([selector]))?.as_str().unwrap_or_default().to_owned())
}

fn focus(page: &Page, selector: &str) -> Result<(), String> {
    page.session().run("document.querySelector(arguments[0]).focus()", json!([selector])).map(drop)
}

/// Presses a key with an element in focus.
fn key(page: &Page, selector: &str, key: &str) -> Result<(), String> {
    let element = page.session().find(selector)?.into_iter().next().ok_or("nothing to press a key on")?;
    page.session().type_into(&element, key)
}

fn write(page: &Page, text: &str) -> Result<(), String> {
    let script = "const box = document.getElementById('lab-text');
        box.value = arguments[0];
        box.dispatchEvent(new Event('input', { bubbles: true }));";
    page.session().run(script, json!([text])).map(drop)
}

fn slide(page: &Page, id: &str, value: &str) -> Result<(), String> {
    let script = "const [id, value] = arguments;
        const box = document.getElementById(id);
        box.value = value;
        box.dispatchEvent(new Event('input', { bubbles: true }));";
    page.session().run(script, json!([id, value])).map(drop)
}
