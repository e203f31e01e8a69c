//! The engine's worker: exports what www/engine_worker.js calls once wasm is there.

#[cfg(target_arch = "wasm32")]
mod exports {
    use js_sys::Set;
    use pagelm::host::web::{Port, WebHost, fatal};
    use std::cell::OnceCell;
    use wasm_bindgen::prelude::wasm_bindgen;

    thread_local! {
        static HOST: OnceCell<WebHost> = const { OnceCell::new() };
    }

    /// Starts the engine of the page under the path `base`. It takes a port out of `ports` when its tab is gone.
    #[wasm_bindgen]
    #[expect(unreachable_pub, reason = "wasm-bindgen exports only what is pub")]
    pub fn start(base: &str, ports: Set) {
        HOST.with(|host| _ = host.get_or_init(|| WebHost::start(base, ports)));
    }

    /// Serves a port. What came by it before waits in it.
    #[wasm_bindgen]
    #[expect(unreachable_pub, reason = "wasm-bindgen exports only what is pub")]
    pub fn attach(port: Port) {
        HOST.with(|host| host.get().expect("the engine was started first").attach(port));
    }

    pub(super) fn announce_panic(info: &std::panic::PanicHookInfo<'_>) {
        console_error_panic_hook::hook(info);
        fatal(&format!("The engine stopped by a fault of its own ({info})."));
    }
}

fn main() {
    #[cfg(target_arch = "wasm32")]
    std::panic::set_hook(Box::new(exports::announce_panic));
}
