//! A quiet line that says a new version of the page waits. www/start.js takes it where this tab is the only one.

use leptos::{ev, prelude::*};

/// The event by which www/start.js tells it.
const EVENT: &str = "pagelm-new-version";

/// The line, until it is put off.
#[component]
pub(crate) fn NewVersion() -> impl IntoView {
    let waits = RwSignal::new(false);
    let told = window_event_listener(ev::Custom::<web_sys::Event>::new(EVENT), move |_| waits.set(true));
    on_cleanup(move || told.remove());
    let reload = move |_| {
        // Where a page may not reload itself, the person can.
        let _ = window().location().reload();
    };
    view! {
        <div class="notices" role="status">
            <Show when=move || waits.get()>
                <div class="notice news">
                    <p>"A new version of this page is ready: reload once no other tab of it is open."</p>
                    <button type="button" class="quiet" on:click=reload>"Reload"</button>
                    <button type="button" class="quiet" on:click=move |_| waits.set(false)>"Later"</button>
                </div>
            </Show>
        </div>
    }
}
