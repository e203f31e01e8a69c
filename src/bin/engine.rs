//! The engine's worker: exports what www/engine_worker.js calls once wasm is there, and what www/package/index.js does.

#[cfg(target_arch = "wasm32")]
mod exports {
    use js_sys::{Array, Function, Set};
    use pagelm::host::web::package::{self, PackageHost};
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

    /// An engine of one's own.
    #[wasm_bindgen]
    pub struct PackagedEngine(PackageHost);

    #[wasm_bindgen]
    impl PackagedEngine {
        /// Starts one. `tell` is called with each encoded event, or with a sentence where the engine cannot go on; `fetch` is
        /// asked for the URLs of models.
        #[wasm_bindgen(constructor)]
        pub fn new(tell: Function, fetch: Function) -> Self {
            Self(PackageHost::start(tell, fetch))
        }

        /// Asks by an encoded request and what belongs to it.
        pub fn send(&self, request: Vec<u8>, attachments: &Array) {
            self.0.send(request, attachments);
        }
    }

    pub(super) fn announce_panic(info: &std::panic::PanicHookInfo<'_>) {
        console_error_panic_hook::hook(info);
        let sentence = format!("The engine stopped by a fault of its own ({info}).");
        if !package::fatal(&sentence) {
            fatal(&sentence);
        }
    }
}

fn main() {
    #[cfg(target_arch = "wasm32")]
    {
        pagelm::structure::leave_panics_alone();
        std::panic::set_hook(Box::new(exports::announce_panic));
    }
}
