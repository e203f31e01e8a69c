//! The list of chats: looked through, taken out and in as files, and the way back for what was deleted.

use leptos::{html, prelude::*};
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

use super::{
    chat::{Listed, Unreadable},
    chat_entry::ChatEntry,
    screen::{Export, Screen},
    state::{Part, State},
    words,
};

/// Up to this width (CSS pixels) the list covers the conversation, and goes once a chat was chosen.
const NARROW_PX: f64 = 960.0;
const TITLE_ID: &str = "chats-title";
const IMPORT_ID: &str = "import-chats";

/// The chats beside the conversation, or above it where there is no room. Choosing one shows the conversation.
#[component]
pub(crate) fn Chats(
    open: RwSignal<bool>,
    show_talk: impl Fn() + Copy + Send + Sync + 'static,
) -> impl IntoView {
    let screen = Screen::expect();
    let title = NodeRef::<html::H2>::new();
    Effect::new(move |was_open: Option<bool>| {
        let is_open = open.get();
        if was_open != Some(is_open) {
            screen.show_list(is_open);
        }
        if is_open && was_open == Some(false) {
            // Only once it is no longer hidden can it have the focus.
            request_animation_frame(move || {
                if let Some(title) = title.get_untracked() {
                    let _ = title.focus();
                }
            });
        } else if !is_open && was_open == Some(true) {
            leave_panel();
        }
        is_open
    });
    let chosen = move || {
        show_talk();
        if window()
            .inner_width()
            .ok()
            .and_then(|width| width.as_f64())
            .is_some_and(|width| width <= NARROW_PX)
        {
            open.set(false);
        }
    };
    let shown = move || screen.read(Part::Chats, State::shown_chats);
    let note = move || {
        screen.read(Part::Chats, |state| match (state.chats.is_empty(), state.shown_chats().is_empty()) {
            (true, _) => Some("None yet. What you write stays in this browser, on this device."),
            (false, true) => Some("Nothing is found."),
            (false, false) => None,
        })
    };
    let imports = Memo::new(move |_| screen.read(Part::Chats, |state| state.imports));
    let imported = move || match imports.get() {
        (0, _) => None,
        (_, n_chats) => Some(format!("Imported: {}.", words::counted(n_chats, "chat", "chats"))),
    };
    // What came in is to be seen.
    Effect::new(move |before: Option<(u32, u32)>| {
        let now = imports.get();
        if before.is_some_and(|before| before != now) {
            open.set(true);
        }
        now
    });
    view! {
        <nav id="chats" class="panel chats" aria-labelledby=TITLE_ID hidden=move || !open.get()>
            <div class="panel-head">
                <h2 id=TITLE_ID tabindex="-1" node_ref=title>"Chats"</h2>
                <button type="button" class="quiet" on:click=move |_| open.set(false)>"Close"</button>
            </div>
            <Show when=move || open.get()>
                <button
                    type="button"
                    class="quiet new-chat"
                    on:click=move |_| {
                        screen.new_chat();
                        chosen();
                    }
                >
                    "New chat"
                </button>
                <Search />
                <Files />
                <p class="about" role="status">{imported}</p>
                <Undo />
                <ul class="chat-list">
                    <For
                        each=shown
                        key=|listed| (listed.id.clone(), listed.head.is_ok())
                        let:listed
                    >
                        <ChatEntry listed chosen />
                    </For>
                </ul>
                <p class="about" role="status">{note}</p>
            </Show>
        </nav>
    }
}

/// Where words are looked for in all chats.
#[component]
fn Search() -> impl IntoView {
    let screen = Screen::expect();
    let query = screen.peek(|state| state.query.clone());
    view! {
        <input
            type="search"
            class="search"
            aria-label="Search in chats"
            placeholder="Search in chats"
            autocomplete="off"
            prop:value=query
            on:input:target=move |event| screen.look_for(&event.target().value())
            on:keydown=move |event| {
                // Esc empties the box and does no more.
                if event.key() == "Escape" && !screen.peek(|state| state.query.is_empty()) {
                    event.stop_propagation();
                }
            }
        />
    }
}

/// Chats as files, out and in.
#[component]
fn Files() -> impl IntoView {
    let screen = Screen::expect();
    let has_chats = move || screen.read(Part::Chats, |state| !state.chats.is_empty());
    let is_kept = move || screen.read(Part::Chat, |state| state.chat.is_kept());
    let export = move |name: &'static str, what: Export, is_there: Signal<bool>| {
        view! {
            <button
                type="button"
                class="quiet small"
                disabled=move || !is_there.get()
                on:click=move |_| screen.export(what)
            >
                {name}
            </button>
        }
    };
    view! {
        <details class="chat-files">
            <summary>"Export and import"</summary>
            {export("This chat as Markdown", Export::Markdown, Signal::derive(is_kept))}
            {export("This chat as JSON", Export::Json, Signal::derive(is_kept))}
            {export("All chats as JSON", Export::All, Signal::derive(has_chats))}
            <button type="button" class="quiet small" on:click=move |_| choose_files()>"Import chats"</button>
            <p class="about">"A JSON file of this page can also be dropped on it."</p>
        </details>
    }
}

/// The input that the button "Import chats" presses: at the end of the page, after those for models.
#[component]
pub(crate) fn ImportInput() -> impl IntoView {
    let screen = Screen::expect();
    view! {
        <input
            id=IMPORT_ID
            class="visually-hidden"
            type="file"
            accept=".json,application/json"
            multiple
            tabindex="-1"
            aria-label="Files of chats"
            on:change:target=move |event| {
                let input = event.target();
                let files = input.files();
                let files = files
                    .iter()
                    .flat_map(|files| (0..files.length()).filter_map(|place| files.get(place)))
                    .collect();
                screen.import(files);
                // So that the same file can be chosen again.
                input.set_value("");
            }
        />
    }
}

fn choose_files() {
    if let Some(input) = document().get_element_by_id(IMPORT_ID) {
        input.unchecked_into::<HtmlElement>().click();
    }
}

/// The focus does not stay in what is hidden: it goes back to the button that showed it.
fn leave_panel() {
    let within = document().active_element().and_then(|element| element.closest("#chats").ok().flatten());
    let button = document().get_element_by_id("chats-button").filter(|_| within.is_some());
    if let Some(button) = button {
        let _ = button.unchecked_into::<HtmlElement>().focus();
    }
}

fn focus(id: &str) {
    if let Some(element) = document().get_element_by_id(id) {
        let _ = element.unchecked_into::<HtmlElement>().focus();
    }
}

/// What a chat is called in the list.
pub(crate) fn title_of(listed: &Listed) -> String {
    match &listed.head {
        Ok(head) => head.title.clone(),
        Err(Unreadable::Newer) => "Written by a newer version".to_owned(),
        Err(Unreadable::Damaged) => "Damaged chat".to_owned(),
    }
}

/// The way back for the chat deleted last.
#[component]
fn Undo() -> impl IntoView {
    let screen = Screen::expect();
    let deleted = Memo::new(move |_| {
        let named =
            |state: &State| state.deleted.as_ref().map(|deleted| (deleted.id.clone(), deleted.title.clone()));
        screen.read(Part::Chats, named)
    });
    let button = NodeRef::<html::Button>::new();
    // The entry is about to go, and the button in it that has the focus.
    Effect::new(move |was: Option<()>| {
        let is_news = deleted.with(Option::is_some) && was.is_some();
        let in_entry =
            document().active_element().and_then(|element| element.closest(".chat").ok().flatten());
        if is_news && in_entry.is_some() {
            request_animation_frame(move || {
                if let Some(button) = button.try_get_untracked().flatten() {
                    let _ = button.focus();
                }
            });
        }
    });
    let undo = move |_| {
        screen.undo_delete();
        // The button goes, too.
        focus(TITLE_ID);
    };
    view! {
        <div role="status">
            {move || {
                deleted
                    .get()
                    .map(|(_, title)| {
                        view! {
                            <p class="undo">
                                <span>{format!("“{title}” is deleted.")}</span>
                                <button
                                    type="button"
                                    class="quiet"
                                    node_ref=button
                                    on:click=undo
                                >
                                    "Undo"
                                </button>
                            </p>
                        }
                    })
            }}
        </div>
    }
}
