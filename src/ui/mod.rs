//! What a person sees. Components read the state through [`Screen`] and change it through nothing else.
#![allow(unreachable_pub, reason = "the component macro makes public what it expands to")]

mod address;
mod bench_plot;
mod bench_scale;
mod bench_table;
mod benchmark;
mod blocks;
mod browser;
mod catalogue;
mod chat;
mod chat_entry;
mod chat_file;
mod chat_store;
mod chats;
mod choice;
mod composer;
mod conversation;
mod drop_target;
mod fields;
mod fit;
mod full;
mod header;
mod in_use;
mod lab;
mod library;
mod live;
mod markdown;
mod message;
mod models;
mod new_version;
mod notices;
mod own;
mod own_turn;
mod pace;
mod panel;
mod patch;
mod preferences;
mod progress;
mod report;
mod screen;
mod search;
mod settings;
mod state;
mod status;
mod structure;
mod tally;
mod thinking;
mod thought;
mod this_chat;
mod turn;
mod turn_foot;
mod usage;
mod words;

use std::rc::Rc;

use js_sys::Promise;
use leptos::{ev, prelude::*};
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use self::{
    benchmark::Benchmark,
    chats::{Chats, ImportInput},
    composer::Composer,
    conversation::Conversation,
    drop_target::DropTarget,
    full::FullContext,
    header::Header,
    lab::Laboratory,
    models::Models,
    new_version::NewVersion,
    notices::Notices,
    screen::Screen,
    settings::Settings,
    state::Part,
    status::Status,
};
use crate::client::Client;

/// The element of `index.html` that holds the page, and until then what is painted first.
const ROOT_ID: &str = "app";

/// The end of a URL that opens the benchmark.
const BENCH_FRAGMENT: &str = "#bench";

/// The page, running.
pub struct Page {
    client: Rc<Client>,
}

impl Page {
    /// Puts the page in its place and starts its engine.
    pub fn mount() -> Self {
        let client = Client::new();
        let root = document()
            .get_element_by_id(ROOT_ID)
            .and_then(|element| element.dyn_into::<HtmlElement>().ok())
            .expect("index.html has the root element");
        root.set_inner_html("");
        let for_app = client.clone();
        mount_to(root, move || {
            Screen::provide(for_app);
            view! { <App /> }
        })
        .forget();
        Self { client }
    }

    /// Sends a request given as JSON and resolves with its events as JSON; see [`Client::exchange`].
    pub fn exchange(&self, json: &str) -> Promise {
        self.client.exchange(json)
    }
}

/// The whole page.
#[component]
fn App() -> impl IntoView {
    let screen = Screen::expect();
    let models_open = RwSignal::new(false);
    let settings_open = RwSignal::new(false);
    let chats_open = RwSignal::new(false);
    let bench_open = RwSignal::new(is_named(BENCH_FRAGMENT));
    let lab_open = RwSignal::new(is_named(lab::FRAGMENT));
    // Whoever chooses a chat wants to see it.
    let show_talk = move || {
        bench_open.set(false);
        lab_open.set(false);
    };
    let named = window_event_listener(ev::hashchange, move |_| {
        if is_named(BENCH_FRAGMENT) {
            bench_open.set(true);
        } else if is_named(lab::FRAGMENT) {
            lab_open.set(true);
        } else {
            show_talk();
        }
    });
    on_cleanup(move || named.remove());
    // They take the same place: the one opened last is there.
    for (opened, other) in [(bench_open, lab_open), (lab_open, bench_open)] {
        Effect::new(move |_| {
            if opened.get() {
                other.set(false);
            }
        });
    }

    // A model that has become ready is what the person was waiting for: make room for the conversation.
    Effect::new(move |was_loading: Option<bool>| {
        let (loading, ready) =
            screen.read(Part::Models, |state| (state.loading.is_some(), state.model.is_some()));
        if was_loading == Some(true) && !loading && ready {
            models_open.set(false);
        }
        loading
    });
    let escape = window_event_listener(ev::keydown, move |event| {
        if event.key() == "Escape" && !composer::composes(&event) {
            if screen.peek(|state| state.answering.is_some()) {
                screen.stop();
            } else {
                screen.cancel_load();
                settings_open.set(false);
                chats_open.set(false);
                models_open.set(false);
            }
        }
    });
    on_cleanup(move || escape.remove());
    // So that tabs are told apart.
    Effect::new(move |_| {
        let title = screen.read(Part::Chat, |state| state.chat.title.clone());
        document().set_title(&title.map_or_else(|| "pagelm".to_owned(), |title| format!("{title} · pagelm")));
    });
    // Without a model there is nothing else to do, and a question about one waits for an answer.
    let models_shown = Memo::new(move |_| {
        let needed = screen.read(Part::Models, |state| state.model.is_none() || state.in_use.is_some());
        models_open.get() || needed
    });

    panel::return_focus(settings_open.into(), "settings", "settings-button");
    panel::return_focus(models_shown.into(), "models", "model-button");

    view! {
        <div class="page">
            <Header models_open models_shown settings_open chats_open bench_open lab_open />
            <Notices />
            <NewVersion />
            <div class="body">
                <Chats open=chats_open show_talk />
                <main>
                    <Models shown=models_shown />
                    <Benchmark open=bench_open />
                    <Laboratory open=lab_open />
                    <div class="talk" hidden=move || bench_open.get() || lab_open.get()>
                        <Conversation />
                        <FullContext />
                        <Composer models_open />
                    </div>
                    <Status />
                </main>
                <Settings open=settings_open />
            </div>
            <DropTarget />
            <ImportInput />
        </div>
    }
}

/// Whether the page's URL names what takes the conversation's place, and so no chat.
fn is_view_named() -> bool {
    is_named(BENCH_FRAGMENT) || is_named(lab::FRAGMENT)
}

/// Whether the page's URL ends so.
fn is_named(fragment: &str) -> bool {
    window().location().hash().is_ok_and(|hash| hash == fragment)
}
