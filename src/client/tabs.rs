//! Where no worker can be shared: tabs elect a leader, which alone runs the engine in a worker of its own, and all tabs
//! reach that over a channel, the leader too.
//!
//! On the channel go `{to, from, message}`: `to` is "engine", "leader", "all" or a line's name. A line says ["knock"]
//! until it hears ["open", instance]; a worker says it to all when it starts, so no message is lost before it listens.

use std::{cell::RefCell, rc::Rc};

use js_sys::{Array, Object, Reflect};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure, prelude::wasm_bindgen};
use web_sys::{Event, MessageEvent, Worker, WorkerOptions, WorkerType};

use super::{
    envelope::{self, Heard, words},
    locks,
    place::{self, WORKER_SCRIPT},
};

#[wasm_bindgen]
extern "C" {
    type BroadcastChannel;

    #[wasm_bindgen(constructor, catch)]
    fn new(name: &str) -> Result<BroadcastChannel, JsValue>;

    #[wasm_bindgen(method, catch, js_name = postMessage)]
    fn post_message(this: &BroadcastChannel, message: &Object) -> Result<(), JsValue>;

    #[wasm_bindgen(method, setter, js_name = onmessage)]
    fn set_onmessage(this: &BroadcastChannel, handler: &JsValue);

    #[wasm_bindgen(method)]
    fn close(this: &BroadcastChannel);
}

/// The channel's name. Without locks there is no election, and every tab is on its own.
pub(super) fn channel_name() -> String {
    if locks::exist() { place::name("tabs") } else { place::random_name("tab") }
}

/// One end of the channel; dropping it closes it.
struct Channel {
    channel: BroadcastChannel,
    _on_message: Closure<dyn FnMut(MessageEvent)>,
}

impl Channel {
    /// Hears what is said to `names`. The error is the browser's own.
    fn open(name: &str, names: Vec<String>, hear: impl Fn(JsValue) + 'static) -> Result<Self, JsValue> {
        let channel = BroadcastChannel::new(name)?;
        let on_message = Closure::new(move |event: MessageEvent| {
            let field = |name: &str| Reflect::get(&event.data(), &name.into()).unwrap_or_default();
            if field("to").as_string().is_some_and(|to| names.contains(&to)) {
                hear(field("message"));
            }
        });
        channel.set_onmessage(on_message.as_ref());
        Ok(Self { channel, _on_message: on_message })
    }

    fn post(&self, to: &str, from: &str, message: &JsValue) -> Result<(), JsValue> {
        let data = Object::new();
        for (name, value) in [("to", &to.into()), ("from", &from.into()), ("message", message)] {
            // A plain object takes every property.
            let _ = Reflect::set(&data, &name.into(), value);
        }
        self.channel.post_message(&data)
    }
}

impl Drop for Channel {
    fn drop(&mut self) {
        self.channel.set_onmessage(&JsValue::NULL);
        self.channel.close();
    }
}

/// A line to the engine of whichever tab leads.
pub(super) struct TabsLine {
    channel: Channel,
    name: String,
}

impl TabsLine {
    /// Knocks. The error is a sentence.
    pub(super) fn open(channel_name: &str, hear: impl Fn(Heard) + 'static) -> Result<Self, String> {
        let name = place::random_name("line");
        let names = vec![name.clone(), "all".to_owned()];
        let channel = Channel::open(channel_name, names, move |message| hear(envelope::open(&message)));
        let line = channel.map(|channel| Self { channel, name }).map_err(unreachable_tabs)?;
        line.say("engine", "knock").map_err(unreachable_tabs)?;
        Ok(line)
    }

    /// Sends one message and its attachments. The error is the browser's own.
    pub(super) fn post(&self, message: &[u8], attachments: &[JsValue]) -> Result<(), JsValue> {
        self.channel.post("engine", &self.name, &envelope::pack(message, attachments))
    }

    /// Asks the leader for another engine.
    pub(super) fn ask_to_restart(&self) {
        // A leader that is not there has no engine that could be silent.
        let _ = self.say("leader", "restart");
    }

    fn say(&self, to: &str, word: &str) -> Result<(), JsValue> {
        self.channel.post(to, &self.name, &Array::of1(&word.into()))
    }
}

fn unreachable_tabs(error: JsValue) -> String {
    format!("The tabs of this page cannot reach each other ({}); a current browser would do.", words(&error))
}

/// The tab that runs the engine. Dropping it ends the engine, and the next tab in line leads.
pub(super) struct Leader {
    channel_name: String,
    worker: RefCell<Option<LedWorker>>,
    channel: RefCell<Option<Channel>>,
    _lock: Option<locks::Held>,
}

struct LedWorker {
    worker: Worker,
    _on_error: Closure<dyn FnMut(Event)>,
}

impl Drop for LedWorker {
    fn drop(&mut self) {
        self.worker.set_onerror(None);
        self.worker.terminate();
    }
}

impl Leader {
    /// Waits for this tab's turn, then starts an engine.
    pub(super) async fn elected(channel_name: String) -> Rc<Self> {
        let lock = if locks::exist() { locks::hold(&place::name("leader")).await } else { None };
        let leader = Rc::new(Self {
            channel_name,
            worker: RefCell::new(None),
            channel: RefCell::new(None),
            _lock: lock,
        });
        let weak = Rc::downgrade(&leader);
        let channel = Channel::open(&leader.channel_name, vec!["leader".to_owned()], move |_restart| {
            if let Some(leader) = weak.upgrade() {
                leader.start();
            }
        });
        leader.channel.replace(channel.ok());
        leader.start();
        leader
    }

    /// Ends the engine there is, if any, and starts another. A failure is told to all tabs.
    pub(super) fn start(&self) {
        self.worker.replace(None);
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        // The worker's script finds the channel by it.
        options.set_name(&self.channel_name);
        let channel_name = self.channel_name.clone();
        let fail = move |heard: Heard| {
            let (Heard::Fatal(sentence) | Heard::Broken(sentence)) = heard else { return };
            // A channel of its own: what a tab says on one does not come back by the same.
            let said = Channel::open(&channel_name, Vec::new(), |_| {}).and_then(|channel| {
                channel.post("all", "leader", &Array::of2(&"fatal".into(), &sentence.into()))
            });
            // Without a channel the tab has said so already.
            drop(said);
        };
        match Worker::new_with_options(WORKER_SCRIPT, &options) {
            Ok(worker) => {
                let on_error = Closure::new(move |event: Event| fail(place::worker_error(&event)));
                worker.set_onerror(Some(on_error.as_ref().unchecked_ref()));
                self.worker.replace(Some(LedWorker { worker, _on_error: on_error }));
            }
            Err(error) => fail(Heard::Broken(format!(
                "This browser did not start the engine's worker ({}); a current browser would.",
                words(&error)
            ))),
        }
    }
}
