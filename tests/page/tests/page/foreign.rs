//! Whoever is no tab of this page: scripts that say nonsense, never read, or are of another origin.

use crate::answers::{Answer, LOAD, TEXTS, alone, generate, load};
use crate::soak;
use page_tests::{Lines, Page, in_tabs};
use pagelm::protocol::{self, BUILD, Event, Request, RequestId, VERSION};
use serde_json::{Value, json};

fn hello(version: u32, build: &str) -> Request {
    Request::Hello { version, build: build.into(), lock: String::new() }
}

#[test]
fn scripts_that_speak_for_themselves() {
    // One after another in one browser: what takes longest is loading a model.
    in_tabs("scripts", |page| {
        load(page)?;
        let expected = alone(page, TEXTS[0], 400)?;
        another_origin_does_not_reach_the_engine(page)?;
        nonsense_is_answered(page)?;
        one_that_never_reads_stalls_nobody(page, &expected)?;
        soak::five_hundred_requests_leave_nothing_behind(page)?;
        alone(page, TEXTS[0], 400)?.is(&expected)
    });
}

fn nonsense_is_answered(page: &Page) -> Result<(), String> {
    let lines = Lines::open(page, 2, true)?;
    let failed = |event: &Event| matches!(event, Event::Failed { request: None, .. });
    // Before a greeting, nothing is done.
    lines.say(0, &generate(TEXTS[0], 8))?;
    lines.hear(0, |event| *event == Event::Unacquainted)?;
    for value in [json!("hello"), json!({}), json!([]), json!([1, 2, 3]), json!(["fatal", "no"]), Value::Null]
    {
        lines.say_value(0, &value)?;
        lines.hear(0, failed).map_err(|sentence| format!("{value}: {sentence}"))?;
    }
    for bytes in [&[][..], &[255; 9], &[1, 2, 3], &[7]] {
        lines.say_bytes(0, bytes)?;
        lines
            .hear(0, |event| failed(event) || *event == Event::Unacquainted)
            .map_err(|sentence| format!("{bytes:?}: {sentence}"))?;
    }
    // Another version and another build are told apart, and served nothing.
    for (line, greeting) in [(0, hello(VERSION + 1, BUILD)), (1, hello(VERSION, "another"))] {
        lines.say(line, &greeting)?;
        let welcome = lines.hear(line, |event| matches!(event, Event::Welcome { .. }))?;
        assert!(
            matches!(&welcome, Event::Welcome { version: VERSION, build, .. } if build == BUILD),
            "{welcome:?}"
        );
        let mut long = protocol::encode(&generate(TEXTS[0], 8));
        lines.say_bytes(line, &long)?;
        long.push(0);
        lines.say_bytes(line, &long)?;
        lines
            .hear(line, |event| !matches!(event, Event::Ready { .. } | Event::Status { .. }))
            .map(|event| assert!(!matches!(event, Event::Started { .. }), "it is served: {event:?}"))?;
    }
    lines.say(0, &Request::Bye)?;
    lines.say(1, &Request::Bye)?;
    let status = page.engine_status()?;
    assert_eq!((status.running, status.free_blocks), (0, status.n_blocks), "{status:?}");
    Ok(())
}

fn one_that_never_reads_stalls_nobody(page: &Page, expected: &Answer) -> Result<(), String> {
    let lines = Lines::open(page, 1, false)?;
    lines.say(0, &hello(VERSION, BUILD))?;
    lines.hear(0, |event| matches!(event, Event::Ready { .. }))?;
    for id in 0..4 {
        lines.say(0, &numbered(id, generate(TEXTS[1], 400)))?;
    }
    // So many long answers do not fit beside each other: who is preempted is computed again.
    alone(page, TEXTS[0], 400)?.recovers(expected)?;
    lines.say(0, &Request::Bye)?;
    page.wait_for_status(LOAD, "an engine at rest", |status| {
        status.running + status.waiting == 0 && status.n_tabs == 1
    })?;
    Ok(())
}

fn another_origin_does_not_reach_the_engine(page: &Page) -> Result<(), String> {
    let foreign = page.open_window()?;
    foreign.session().open(&page.server().url_of_another_origin())?;
    let said = foreign.session().run(CONNECT, json!([page.server().url()]))?;
    assert_eq!(said, json!([]), "the engine, or what stands for it, answered another origin");
    // The same script of this origin is answered, so it is not the script that fails.
    let said = page.session().run(CONNECT, json!([page.server().url()]))?;
    assert!(said.as_array().is_some_and(|said| !said.is_empty()), "nobody answered this origin");
    let n_tabs = page.engine_status()?.n_tabs;
    assert_eq!(n_tabs, 1, "the other origin's page is a tab of this engine");
    foreign.close()
}

/// The same request under another number.
pub(crate) fn numbered(id: RequestId, mut request: Request) -> Request {
    if let Request::Generate { request, .. } = &mut request {
        *request = id;
    }
    request
}

/// Tries to reach the engine of a page in every way there is; returns what was said to that.
const CONNECT: &str = "
    const [page] = arguments;
    const said = [];
    try {
        const options = { type: 'module', name: 'pagelm engine 0', extendedLifetime: true };
        const worker = new SharedWorker(`${page}engine_worker.js`, options);
        worker.port.onmessage = ({ data }) => said.push(data[0]);
        worker.onerror = () => {};
    } catch { }
    const channel = new BroadcastChannel(`pagelm tabs ${new URL(page).pathname}`);
    channel.onmessage = ({ data }) => said.push(data.message[0]);
    channel.postMessage({ to: 'engine', from: 'foreign', message: ['knock'] });
    return new Promise((resolve) => setTimeout(() => resolve(said), 2000));";
