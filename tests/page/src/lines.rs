//! Lines to the engine that a script of the page opens for itself, as any script of the origin may: what they say is no
//! matter of the page's client, and they read only if told to.

use crate::page::Page;
use pagelm::protocol::{self, Event, FinishReason, Request, Usage};
use serde_json::{Value, json};
use std::time::Duration;

/// The engine listens within this, or answers what needs no model.
const ANSWER: Duration = Duration::from_secs(60);

/// Open lines, numbered from 0.
pub struct Lines<'a> {
    page: &'a Page,
}

/// A request of a soak: its id is below 128, and it is cancelled after so many events with tokens, if at all.
pub struct Planned {
    /// What is asked.
    pub request: Request,
    /// The same request's id.
    pub id: u64,
    /// 0 cancels at once.
    pub cancel_after: Option<u32>,
}

/// What came of a soak.
#[derive(Debug)]
pub struct Soaked {
    /// Requests that ended.
    pub n_finished: u64,
    /// Events that tell of failures.
    pub failures: Vec<Event>,
}

impl<'a> Lines<'a> {
    /// Opens so many, and waits until the engine listens. One that does not read never says that it did.
    pub fn open(page: &'a Page, n_lines: usize, reads: bool) -> Result<Self, String> {
        let receipt = reads.then(|| protocol::encode(&Request::Received { n_events: 16 }));
        page.session().run(OPEN, json!([n_lines, receipt]))?;
        let lines = Self { page };
        page.within(ANSWER, "open lines", || {
            let are_open = page.session().run("return window.lines.every(line => line.open)", json!([]))?;
            Ok((are_open == Value::Bool(true)).then_some(()))
        })?;
        Ok(lines)
    }

    /// Says a request on a line.
    pub fn say(&self, line: usize, request: &Request) -> Result<(), String> {
        self.say_bytes(line, &protocol::encode(request))
    }

    /// Says bytes on a line, whatever they are.
    pub fn say_bytes(&self, line: usize, bytes: &[u8]) -> Result<(), String> {
        let script = "window.lines[arguments[0]].post([new Uint8Array(arguments[1])])";
        self.page.session().run(script, json!([line, bytes])).map(drop)
    }

    /// Says what is no envelope on a line.
    pub fn say_value(&self, line: usize, value: &Value) -> Result<(), String> {
        self.page
            .session()
            .run("window.lines[arguments[0]].post(arguments[1])", json!([line, value]))
            .map(drop)
    }

    /// Waits for the first event on a line that is wanted, and returns it; those before it are forgotten.
    pub fn hear(&self, line: usize, is_wanted: impl Fn(&Event) -> bool) -> Result<Event, String> {
        let mut others = Vec::new();
        let found = self.page.within(ANSWER, "an event on a line", || {
            let script = "return window.lines[arguments[0]].heard.splice(0)";
            let heard = self.page.session().run(script, json!([line]))?;
            for bytes in heard.as_array().into_iter().flatten() {
                let event = event(bytes)?;
                if is_wanted(&event) {
                    return Ok(Some(event));
                }
                others.push(event);
            }
            Ok(None)
        });
        found.map_err(|sentence| format!("{sentence}\nheard instead: {others:?}"))
    }

    /// Has each line ask its requests, a few at a time, and waits until all have ended.
    pub fn soak(&self, plans: &[Vec<Planned>], limit: Duration) -> Result<Soaked, String> {
        let item = |planned: &Planned| {
            json!({
                "id": planned.id,
                "ask": protocol::encode(&planned.request),
                "cancel": protocol::encode(&Request::Cancel { request: planned.id }),
                "after": planned.cancel_after,
            })
        };
        let plans: Vec<Vec<Value>> = plans.iter().map(|plan| plan.iter().map(item).collect()).collect();
        self.page.session().run(SOAK, json!([plans, kinds()]))?;
        self.page.within(limit, "the end of the soak", || {
            let soaked = self.page.session().run("return window.soaked", json!([]))?;
            if soaked["left"] != 0 {
                return Ok(None);
            }
            let failures = soaked["failures"].as_array().into_iter().flatten().map(event);
            Ok(Some(Soaked {
                n_finished: soaked["finished"].as_u64().unwrap_or_default(),
                failures: failures.collect::<Result<_, _>>()?,
            }))
        })
    }
}

fn event(bytes: &Value) -> Result<Event, String> {
    let bytes: Vec<u8> =
        serde_json::from_value(bytes.clone()).map_err(|error| format!("the worker said {bytes}: {error}"))?;
    protocol::decode(&bytes).map_err(|error| error.to_string())
}

/// The first byte of the events that the soak's script tells apart.
fn kinds() -> Value {
    let tokens =
        Event::Tokens { request: 0, output: 0, text: String::new(), ids: Vec::new(), logprobs: Vec::new() };
    let (reason, usage) = (FinishReason::Stop, Usage::default());
    let finished = Event::Finished { request: 0, output: 0, reason, usage, n_left: 0 };
    let failed = Event::Failed { request: None, error: String::new() };
    let kind = |event: &Event| protocol::encode(event)[0];
    json!({ "tokens": kind(&tokens), "finished": kind(&finished), "failed": kind(&failed) })
}

const OPEN: &str = "
    const [n_lines, receipt] = arguments;
    const open = () => {
        const line = { heard: [], open: false, n: 0, keeps: true, hear: null, post: null };
        const hear = (data) => {
            if (data[0] === 'open') { line.open = true; return; }
            const bytes = data[0] instanceof Uint8Array ? [...data[0]] : data;
            if (line.keeps) line.heard.push(bytes);
            line.hear?.(bytes);
            if (receipt && ++line.n % 16 === 0) line.post([new Uint8Array(receipt)]);
        };
        if (window.SharedWorker) {
            const name = 'pagelm engine 0';
            const { port } = new SharedWorker('engine_worker.js', { type: 'module', name, extendedLifetime: true });
            port.onmessage = ({ data }) => hear(data);
            line.post = (message) => port.postMessage(message);
        } else {
            const channel = new BroadcastChannel(`pagelm tabs ${new URL('.', location.href).pathname}`);
            const from = String(Math.random());
            channel.onmessage = ({ data }) => data.to === from && hear(data.message);
            line.post = (message) => channel.postMessage({ to: 'engine', from, message });
            line.post(['knock']);
        }
        return line;
    };
    window.lines = Array.from({ length: n_lines }, open);";

const SOAK: &str = "
    const [plans, kinds] = arguments;
    const soaked = { left: plans.flat().length, finished: 0, failures: [] };
    window.soaked = soaked;
    plans.forEach((plan, index) => {
        const line = window.lines[index];
        const running = new Map();
        let next = 0;
        const cancel = (item) => line.post([new Uint8Array(item.cancel)]);
        const more = () => {
            while (running.size < 3 && next < plan.length) {
                const item = plan[next++];
                running.set(item.id, { item, n_tokens: 0 });
                line.post([new Uint8Array(item.ask)]);
                if (item.after === 0) cancel(item);
            }
        };
        line.keeps = false;
        line.hear = ([kind, id, ...rest]) => {
            const request = running.get(id);
            if (kind === kinds.tokens && request) {
                request.n_tokens += 1;
                if (request.n_tokens === request.item.after) cancel(request.item);
            } else if (kind === kinds.finished && running.delete(id)) {
                soaked.finished += 1;
                soaked.left -= 1;
                more();
            } else if (kind === kinds.failed) {
                soaked.failures.push([kind, id, ...rest]);
                if (running.delete(rest[0])) { soaked.left -= 1; more(); }
            }
        };
        more();
    });";
