//! Whoever is no tab of this page: scripts that say nonsense, never read, or are of another origin.

use crate::answers::{LOAD, TEXTS, alone, generate, load};
use page_tests::{Hosting, Lines, in_tabs};
use pagelm::protocol::{self, BUILD, Event, Request, VERSION};
use serde_json::{Value, json};

fn hello(version: u32, build: &str) -> Request {
    Request::Hello { version, build: build.into(), lock: String::new() }
}

#[test]
fn nonsense_is_answered_and_harms_nobody() {
    in_tabs("nonsense", |page| {
        load(page)?;
        let expected = alone(page, TEXTS[0], 40)?;
        let lines = Lines::open(page, 2, true)?;
        let failed = |event: &Event| matches!(event, Event::Failed { request: None, .. });
        // Before a greeting, nothing is done.
        lines.say(0, &generate(TEXTS[0], 8))?;
        lines.hear(0, |event| *event == Event::Unacquainted)?;
        for value in
            [json!("hello"), json!({}), json!([]), json!([1, 2, 3]), json!(["fatal", "no"]), Value::Null]
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
        alone(page, TEXTS[0], 40)?.is(&expected)?;
        let status = page.engine_status()?;
        assert_eq!((status.running, status.free_blocks), (0, status.n_blocks), "{status:?}");
        Ok(())
    });
}

#[test]
fn one_that_never_reads_stalls_nobody() {
    in_tabs("never-reads", |page| {
        load(page)?;
        let expected = alone(page, TEXTS[0], 400)?;
        let lines = Lines::open(page, 1, false)?;
        lines.say(0, &hello(VERSION, BUILD))?;
        lines.hear(0, |event| matches!(event, Event::Ready { .. }))?;
        for _ in 0..4 {
            lines.say(0, &generate(TEXTS[1], 400))?;
        }
        alone(page, TEXTS[0], 400)?.is(&expected)?;
        lines.say(0, &Request::Bye)?;
        page.wait_for_status(LOAD, "an engine at rest", |status| {
            status.running + status.waiting == 0 && status.n_tabs == 1
        })?;
        Ok(())
    });
}

#[test]
fn another_origin_does_not_reach_the_engine() {
    in_tabs("another-origin", |page| {
        load(page)?;
        let foreign = page.open_window()?;
        foreign.session().open(&page.server().url_of_another_origin())?;
        let said = foreign.session().run(CONNECT, json!([page.server().url()]))?;
        assert_eq!(said, json!([]), "the engine, or what stands for it, answered another origin");
        // The same script of this origin is answered, so it is not the script that fails.
        let said = page.session().run(CONNECT, json!([page.server().url()]))?;
        assert!(said.as_array().is_some_and(|said| !said.is_empty()), "nobody answered this origin");
        let n_tabs = page.engine_status()?.n_tabs;
        assert_eq!(n_tabs, 1, "the other origin's page is a tab of this engine");
        if page.hosting() == Hosting::Shared {
            assert!(!page.session().shared_workers()?.is_empty());
        }
        Ok(())
    });
}

/// Tries to reach the engine of a page in every way there is; returns what was said to that.
const CONNECT: &str = "
    const [page] = arguments;
    const said = [];
    try {
        const worker = new SharedWorker(`${page}engine_worker.js`, { type: 'module', name: 'pagelm engine 0' });
        worker.port.onmessage = ({ data }) => said.push(data[0]);
        worker.onerror = () => {};
    } catch { }
    const channel = new BroadcastChannel(`pagelm tabs ${new URL(page).pathname}`);
    channel.onmessage = ({ data }) => said.push(data.message[0]);
    channel.postMessage({ to: 'engine', from: 'foreign', message: ['knock'] });
    return new Promise((resolve) => setTimeout(() => resolve(said), 2000));";
