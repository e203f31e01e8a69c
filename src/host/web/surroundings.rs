//! What a JavaScript runtime gives the engine's loop: clocks, chance, timers and turns, in a worker, a page or elsewhere.

use js_sys::{Function, Promise, Reflect};
use wasm_bindgen::prelude::*;
use wasm_bindgen_futures::JsFuture;

use super::turns;
use crate::host::Surroundings;

/// Of the 4 GiB that WebAssembly addresses: a range is never given back, and what holds one model must hold the next.
const PROCESSOR_BYTES: u64 = 2 << 30;

#[wasm_bindgen]
extern "C" {
    #[wasm_bindgen(js_namespace = performance, js_name = now)]
    fn performance_now() -> f64;

    #[wasm_bindgen(js_name = setTimeout)]
    fn set_timeout(then: &Function, ms: f64) -> JsValue;
}

/// All that the loop cannot know by itself.
pub(super) fn surroundings() -> Surroundings {
    Surroundings {
        now_ms: performance_now,
        unix_secs,
        entropy,
        memory_bytes,
        turn: turns::turn,
        n_threads: 1,
        processor_bytes: || Some(PROCESSOR_BYTES),
    }
}

/// Waits for so many milliseconds. No process lives longer for it: what is waited for like this is never all there is.
pub(super) async fn sleep(ms: f64) {
    let promise = Promise::new(&mut |resolve, _| {
        let timer = set_timeout(&resolve, ms);
        // A browser's is a number.
        let unref =
            Reflect::get(&timer, &"unref".into()).ok().and_then(|unref| unref.dyn_into::<Function>().ok());
        unref.map(|unref| unref.call0(&timer));
    });
    // A timer does not fail.
    let _ = JsFuture::from(promise).await;
}

fn unix_secs() -> i64 {
    (js_sys::Date::now() / 1000.0) as i64
}

pub(super) fn entropy() -> u64 {
    let halves = [js_sys::Math::random(), js_sys::Math::random()].map(|half| (half * 4294967296.0) as u64);
    halves[0] << 32 | halves[1]
}

fn memory_bytes() -> Option<u64> {
    let memory: js_sys::WebAssembly::Memory = wasm_bindgen::memory().dyn_into().ok()?;
    let buffer: js_sys::ArrayBuffer = memory.buffer().dyn_into().ok()?;
    Some(u64::from(buffer.byte_length()))
}
