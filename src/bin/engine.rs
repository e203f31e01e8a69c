//! The engine's worker: exports `attach`, which www/engine_worker.js calls once wasm is there.

#[cfg(target_arch = "wasm32")]
mod exports {
    use js_sys::Array;
    use pagelm::host::web::{Port, WebHost};
    use wasm_bindgen::prelude::wasm_bindgen;

    thread_local! {
        static HOST: WebHost = WebHost::start();
    }

    /// Serves a port; `early` are the messages that came before wasm was there.
    #[wasm_bindgen]
    #[expect(unreachable_pub, reason = "wasm-bindgen exports only what is pub")]
    pub fn attach(port: Port, early: &Array) {
        HOST.with(|host| host.attach(port, early));
    }

    pub(super) fn announce_panic(info: &std::panic::PanicHookInfo<'_>) {
        console_error_panic_hook::hook(info);
        HOST.with(|host| {
            host.announce_failure(&format!(
                "the engine stopped by a fault of its own ({info}); reload the page"
            ));
        });
    }
}

fn main() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(exports::announce_panic));
}
