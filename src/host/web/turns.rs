//! Turns of the event loop, by messages that the worker sends itself: browsers slow timers down, and a promise lets nobody in.
//! Where there is `setImmediate`, by that: a port that listens would keep a process alive.

use std::cell::RefCell;
use std::collections::VecDeque;

use futures_channel::oneshot::{Sender, channel};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use js_sys::{Function, Reflect};
use wasm_bindgen::prelude::*;
use web_sys::{MessageChannel, MessagePort};

thread_local! {
    static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
}

/// Who waits for a turn.
struct Turns {
    waiting: VecDeque<Sender<()>>,
    ask: Ask,
    on_turn: Closure<dyn Fn()>,
}

/// How a turn is asked for.
enum Ask {
    /// By `setImmediate`.
    Immediate(Function),
    /// By a message to oneself.
    Message(MessagePort),
}

impl Turns {
    fn new() -> Self {
        let on_turn = Closure::<dyn Fn()>::new(|| {
            let first =
                TURNS.with_borrow_mut(|turns| turns.as_mut().and_then(|turns| turns.waiting.pop_front()));
            // Whoever waited may have been dropped.
            first.map(|sender| sender.send(()));
        });
        let immediate = Reflect::get(&js_sys::global(), &"setImmediate".into()).unwrap_or_default();
        let ask = match immediate.dyn_into() {
            Ok(immediate) => Ask::Immediate(immediate),
            Err(_) => {
                let channel = MessageChannel::new().expect("every worker has message channels");
                channel.port1().set_onmessage(Some(on_turn.as_ref().unchecked_ref()));
                Ask::Message(channel.port2())
            }
        };
        Self { waiting: VecDeque::new(), ask, on_turn }
    }

    /// Has `on_turn` called in a turn of its own.
    fn ask(&self) {
        // Neither is ever refused.
        let _ = match &self.ask {
            Ask::Immediate(immediate) => {
                immediate.call1(&JsValue::UNDEFINED, self.on_turn.as_ref()).map(drop)
            }
            Ask::Message(port) => port.post_message(&JsValue::NULL),
        };
    }
}

/// Lets all that waits in the event loop run once.
pub(super) fn turn() -> LocalBoxFuture<'static, ()> {
    let (sender, receiver) = channel();
    TURNS.with_borrow_mut(|turns| {
        let turns = turns.get_or_insert_with(Turns::new);
        turns.waiting.push_back(sender);
        turns.ask();
    });
    receiver.map(drop).boxed_local()
}
