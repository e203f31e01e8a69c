//! Where no worker can be shared: tabs elect a leader, which alone runs the engine in a worker of its own, and all tabs
//! reach that over a channel, the leader too.
//!
//! On the channel go `{to, from, message}`: `to` is "engine", "leader", "all" or a line's name. A line says ["knock"]
//! until it hears ["open", instance]; a worker says it to all when it starts, so no message is lost before it listens.
//! What ends an engine is told to all as ["fatal", sentence, instance].
//!
//! Invariant: the leader alone starts engines, each under a name of its own. A tab that misses one says to the leader
//! ["restart", instance]: that starts an engine where none runs or the one of that name does, so that many tabs may say it,
//! and late. Without a name, whichever runs is replaced.

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
    /// Knocks, and has the leader start an engine where none runs or still the one that was lost. The error is a sentence.
    pub(super) fn open(
        channel_name: &str,
        lost: &str,
        hear: impl Fn(Heard) + 'static,
    ) -> Result<Self, String> {
        let name = place::random_name("line");
        let names = vec![name.clone(), "all".to_owned()];
        let channel = Channel::open(channel_name, names, move |message| hear(envelope::open(&message)));
        let line = channel.map(|channel| Self { channel, name }).map_err(unreachable_tabs)?;
        line.say("engine", &["knock"]).map_err(unreachable_tabs)?;
        line.ask_to_restart(Some(lost));
        Ok(line)
    }

    /// Sends one message and its attachments. The error is the browser's own.
    pub(super) fn post(&self, message: &[u8], attachments: &[JsValue]) -> Result<(), JsValue> {
        self.channel.post("engine", &self.name, &envelope::pack(message, attachments))
    }

    /// Asks the leader for another engine in the place of that one, or of whichever there is.
    pub(super) fn ask_to_restart(&self, unwanted: Option<&str>) {
        // A leader that is not there has no engine that could be silent; the next one starts one anyway.
        let _ = match unwanted {
            Some(instance) => self.say("leader", &["restart", instance]),
            None => self.say("leader", &["restart"]),
        };
    }

    fn say(&self, to: &str, words: &[&str]) -> Result<(), JsValue> {
        let words: Array = words.iter().map(|word| JsValue::from_str(word)).collect();
        self.channel.post(to, &self.name, &words)
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
    instance: String,
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
        let lock = locks::hold(&place::name("leader")).await.held();
        let leader = Rc::new(Self {
            channel_name,
            worker: RefCell::new(None),
            channel: RefCell::new(None),
            _lock: lock,
        });
        let weak = Rc::downgrade(&leader);
        let names = vec!["leader".to_owned(), "all".to_owned()];
        let channel = Channel::open(&leader.channel_name, names, move |message| {
            if let (Some(leader), Some(words)) = (weak.upgrade(), message.dyn_ref::<Array>()) {
                leader.hear(words);
            }
        });
        leader.channel.replace(channel.ok());
        leader.start();
        leader
    }

    fn hear(&self, words: &Array) {
        let word = |index| words.get(index).as_string();
        let running = self.worker.borrow().as_ref().map(|worker| worker.instance.clone());
        match word(0).as_deref() {
            Some("restart") if is_unwanted(running.as_deref(), word(1).as_deref()) => self.start(),
            // It is gone already, or never came to be; who wants another one says so.
            Some("fatal") if running.is_some() && running == word(2) => _ = self.worker.take(),
            _ => {}
        }
    }

    /// Ends the engine there is, if any, and starts another. A failure is told to all tabs.
    fn start(&self) {
        self.worker.replace(None);
        let instance = place::random_name("instance");
        let options = WorkerOptions::new();
        options.set_type(WorkerType::Module);
        // The worker's script finds the channel by it, and its own name.
        options.set_name(&format!("{}\n{instance}", self.channel_name));
        let (channel_name, failed) = (self.channel_name.clone(), instance.clone());
        let fail = move |heard: Heard| {
            let (Heard::Fatal(sentence) | Heard::Broken(sentence)) = heard else { return };
            let words = Array::of3(&"fatal".into(), &sentence.into(), &failed.as_str().into());
            // A channel of its own: what a tab says on one does not come back by the same.
            let said = Channel::open(&channel_name, Vec::new(), |_| {})
                .and_then(|channel| channel.post("all", "leader", &words));
            // Without a channel the tab has said so already.
            drop(said);
        };
        match Worker::new_with_options(WORKER_SCRIPT, &options) {
            Ok(worker) => {
                let on_error = Closure::new(move |event: Event| fail(place::worker_error(&event)));
                worker.set_onerror(Some(on_error.as_ref().unchecked_ref()));
                self.worker.replace(Some(LedWorker { worker, instance, _on_error: on_error }));
            }
            Err(error) => fail(Heard::Broken(format!(
                "This browser did not start the engine's worker ({}); a current browser would.",
                words(&error)
            ))),
        }
    }
}

/// Whether an engine is to be started, where one tab wants that in the place of the `unwanted` one, or of any.
fn is_unwanted(running: Option<&str>, unwanted: Option<&str>) -> bool {
    running.is_none() || unwanted.is_none() || running == unwanted
}

#[cfg(test)]
mod tests {
    use super::is_unwanted;

    #[test]
    fn an_engine_is_replaced_once_however_many_miss_it() {
        // The first tab that misses it has another one started; those that come later miss what runs no more.
        assert!(is_unwanted(Some("one"), Some("one")));
        assert!(!is_unwanted(Some("two"), Some("one")));
        // A tab that has met none wants one, whichever it is.
        assert!(is_unwanted(None, Some("")));
        assert!(!is_unwanted(Some("one"), Some("")));
        // A person gives up on one that never said its name.
        assert!(is_unwanted(Some("one"), None));
        assert!(is_unwanted(None, Some("one")));
    }
}
