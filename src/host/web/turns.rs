//! Turns of the worker's event loop, by messages that it sends itself: browsers slow timers down, and a promise lets nobody in.

use std::cell::RefCell;
use std::collections::VecDeque;

use futures_channel::oneshot::{Sender, channel};
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use wasm_bindgen::prelude::*;
use web_sys::{MessageChannel, MessagePort};

thread_local! {
    static TURNS: RefCell<Option<Turns>> = const { RefCell::new(None) };
}

/// Who waits for a turn.
struct Turns {
    waiting: VecDeque<Sender<()>>,
    port: MessagePort,
    _on_message: Closure<dyn Fn()>,
}

impl Turns {
    fn new() -> Self {
        let channel = MessageChannel::new().expect("every worker has message channels");
        let on_message = Closure::<dyn Fn()>::new(|| {
            let first =
                TURNS.with_borrow_mut(|turns| turns.as_mut().and_then(|turns| turns.waiting.pop_front()));
            // Whoever waited may have been dropped.
            first.map(|sender| sender.send(()));
        });
        channel.port1().set_onmessage(Some(on_message.as_ref().unchecked_ref()));
        Self { waiting: VecDeque::new(), port: channel.port2(), _on_message: on_message }
    }
}

/// Lets all that waits in the event loop run once.
pub(super) fn turn() -> LocalBoxFuture<'static, ()> {
    let (sender, receiver) = channel();
    TURNS.with_borrow_mut(|turns| {
        let turns = turns.get_or_insert_with(Turns::new);
        turns.waiting.push_back(sender);
        // A port of one's own takes every message.
        let _ = turns.port.post_message(&JsValue::NULL);
    });
    receiver.map(drop).boxed_local()
}
