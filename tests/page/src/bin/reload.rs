//! Measures the first token after a reload in Chromium, with the default model's file in the browser's HTTP cache: all of it,
//! reading the file, prefill, and what the rest was. It should be at most 1.5 times (reading + prefill) + 1 s.

use page_tests::{Gpu, Page, in_page};
use serde_json::{Value, json};
use std::time::Duration;

const RUNS: usize = 3;
const LIMIT: Duration = Duration::from_secs(300);
const URL: &str = "models/SmolLM2-135M-Instruct.Q4_1.gguf";
const PROMPT: &str = "Write a short letter to a friend who has moved to another town. Tell what you did last week, \
    what you read, and whom you met at the market, and ask about the new house, the garden and the neighbours. \
    End with a wish for the winter and a promise to visit before the snow has gone.";

/// Loads the model and answers, as soon as the page can, and keeps when each was done, in ms from the navigation on.
const ANSWER: &str = "
    const [url, prompt] = arguments;
    const state = window.reloaded = {};
    const ask = request => window.wasmBindings.request(JSON.stringify(request)).then(JSON.parse);
    (async () => {
        while (!window.wasmBindings?.request || !document.querySelector('#message')) {
            await new Promise(resolve => setTimeout(resolve, 5));
        }
        state.page_ms = performance.now();
        const loaded = await ask({ Load: { source: { Url: { url } }, options: {}, if_full: 'Ask' } });
        if (!loaded.at(-1).Ready) throw new Error(JSON.stringify(loaded.at(-1)));
        state.ready_ms = performance.now();
        const options = { temperature: 0, ignore_eos: true, max_tokens: 1 };
        const events = await ask({ Generate: { prompts: [{ Text: prompt }], options } });
        state.first_ms = performance.now();
        state.usage = events.at(-1).Finished.usage;
    })().catch(error => { state.error = String(error); });";

/// Reads the whole file from the cache.
const READ: &str = "
    const state = window.read = {};
    (async () => {
        const start = performance.now();
        const response = await fetch(arguments[0], { headers: { Range: `bytes=0-${arguments[1] - 1}` } });
        const reader = response.body.getReader();
        let n_bytes = 0;
        for (let part; !(part = await reader.read()).done; n_bytes += part.value.length);
        state.n_bytes = n_bytes;
        state.read_ms = performance.now() - start;
    })().catch(error => { state.error = String(error); });";

fn main() {
    in_page("reload", Gpu::Software, |page| {
        page.server().keep_models();
        page.load_default_model()?;
        println!(
            "{:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  {:>8}  ms",
            "all", "reading", "prefill", "page", "load", "rest", "allowed"
        );
        for _ in 0..RUNS {
            measure(page)?;
        }
        Ok(())
    });
}

fn measure(page: &Page) -> Result<(), String> {
    // A worker may outlive its tab; this one is not to.
    page.session().open("about:blank")?;
    for worker in page.session().shared_workers()? {
        page.session().end_worker(&worker)?;
    }
    let sent = page.server().sent_bytes(".gguf");
    page.session().open(&page.server().url())?;
    page.session().run(ANSWER, json!([URL, PROMPT]))?;
    let answer = state(page, "reloaded", "usage")?;
    let file_bytes = 98_362_432_u64;
    page.session().run(READ, json!([URL, file_bytes]))?;
    let read = state(page, "read", "read_ms")?;
    let fetched = page.server().sent_bytes(".gguf") - sent;
    if read["n_bytes"] != file_bytes || fetched > file_bytes / 10 {
        return Err(format!("the file was not in the cache: {fetched} bytes of it were fetched, {read}"));
    }
    let ms = |from: &Value, name: &str| from[name].as_f64().ok_or_else(|| format!("no {name} in {from}"));
    let (page_ms, ready_ms, first_ms) =
        (ms(&answer, "page_ms")?, ms(&answer, "ready_ms")?, ms(&answer, "first_ms")?);
    let (read_ms, prefill_ms) = (ms(&read, "read_ms")?, ms(&answer["usage"], "prefill_ms")?);
    let allowed_ms = 1.5 * (read_ms + prefill_ms) + 1000.0;
    let load_ms = ready_ms - page_ms;
    println!(
        "{first_ms:8.0}  {read_ms:8.0}  {prefill_ms:8.0}  {page_ms:8.0}  {load_ms:8.0}  {:8.0}  {allowed_ms:8.0}  {}",
        first_ms - read_ms - prefill_ms,
        if first_ms <= allowed_ms { "within" } else { "ABOVE" }
    );
    Ok(())
}

/// What a script left, once `field` is there.
fn state(page: &Page, name: &str, field: &str) -> Result<Value, String> {
    page.within(LIMIT, field, || {
        let state = page.session().run("return window[arguments[0]]", json!([name]))?;
        match &state["error"] {
            Value::Null => Ok((!state[field].is_null()).then_some(state)),
            error => Err(format!("the page says {error}")),
        }
    })
}
