//! A chat in the list: a link, so that it opens in another tab as any page does, and buttons that rename and delete it.

use js_sys::Date;
use leptos::{ev, html, prelude::*};
use wasm_bindgen::JsValue;

use super::{
    chat::{self, ChatId, Listed},
    chats::title_of,
    composer::composes,
    screen::Screen,
    state::Part,
    words,
};

/// One chat; `chosen` is called once it was opened. Its title may change.
#[component]
pub(crate) fn ChatEntry(listed: Listed, chosen: impl Fn() + Copy + Send + Sync + 'static) -> impl IntoView {
    let screen = Screen::expect();
    let can_rename = listed.head.is_ok();
    let first_title = title_of(&listed);
    let id = StoredValue::new(listed.id);
    let title = Memo::new(move |before: Option<&String>| {
        screen.read(Part::Chats, |state| {
            let own = state.chats.iter().find(|listed| id.with_value(|id| listed.id == *id));
            own.map(title_of).unwrap_or_else(|| before.unwrap_or(&first_title).clone())
        })
    });
    let current =
        Memo::new(move |_| screen.read(Part::Chat, |state| id.with_value(|id| state.chat.id == *id)));
    let renaming = RwSignal::new(false);
    let rename_button = NodeRef::<html::Button>::new();
    let commit = move |title: Option<String>, by_key: bool| {
        renaming.set(false);
        if let Some(title) = title {
            screen.rename_chat(id.get_value(), title);
        }
        // The box had the focus; whoever left it by the pointer or Tab is elsewhere already.
        if let Some(button) = rename_button.get_untracked().filter(|_| by_key) {
            let _ = button.focus();
        }
    };
    view! {
        <li class="chat">
            <Show
                when=move || renaming.get()
                fallback=move || {
                    view! {
                        <a
                            href=id.with_value(|id| chat::fragment(id))
                            aria-current=move || current.get().then_some("page")
                            on:click=move |_| chosen()
                        >
                            <span class="chat-title">{move || title.get()}</span>
                            <Below id=id.get_value() />
                        </a>
                    }
                }
            >
                <TitleBox
                    title=title.get_untracked()
                    commit
                />
            </Show>
            {can_rename
                .then(|| {
                    view! {
                        <button
                            type="button"
                            class="delete rename"
                            aria-label=move || format!("Rename: {}", title.get())
                            title="Rename"
                            node_ref=rename_button
                            on:click=move |_| renaming.set(true)
                        >
                            <svg viewBox="0 0 24 24" aria-hidden="true">
                                <path d="M4 20h4L19 9l-4-4L4 16zM13 7l4 4" />
                            </svg>
                        </button>
                    }
                })}
            <button
                type="button"
                class="delete"
                aria-label=move || format!("Delete: {}", title.get())
                title="Delete"
                on:click=move |_| screen.delete_chat(id.get_value(), title.get_untracked())
            >
                <svg viewBox="0 0 24 24" aria-hidden="true">
                    <path d="M5 7h14M10 4h4M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5" />
                </svg>
            </button>
        </li>
    }
}

/// Below the title: how old the chat is, or what was found in it.
#[component]
fn Below(id: ChatId) -> impl IntoView {
    let screen = Screen::expect();
    let below = {
        let id = id.clone();
        Memo::new(move |_| {
            screen.read(Part::Chats, |state| {
                let listed = state.chats.iter().find(|listed| listed.id == id);
                let updated_ms = listed.and_then(|listed| Some(listed.head.as_ref().ok()?.updated_ms));
                (state.excerpt(&id), updated_ms)
            })
        })
    };
    move || match below.get() {
        (Some(excerpt), _) => Some(view! { <span class="chat-age">{excerpt}</span> }.into_any()),
        (None, Some(updated_ms)) => {
            let date = Date::new(&JsValue::from_f64(updated_ms));
            let full = date.to_locale_string("default", &JsValue::UNDEFINED);
            let words = words::age((Date::now() - updated_ms) / 1000.0);
            Some(view! { <span class="chat-age" title=String::from(full)>{words}</span> }.into_any())
        }
        (None, None) => None,
    }
}

/// The box in which a chat's title is written; commits nothing where it was left by Esc, and whether it was left by a key.
#[component]
fn TitleBox(
    title: String,
    commit: impl Fn(Option<String>, bool) + Copy + Send + Sync + 'static,
) -> impl IntoView {
    let title_box = NodeRef::<html::Input>::new();
    let done = StoredValue::new(false);
    // Leaving the box commits, and to take it away is to leave it: only the first time counts.
    let end = move |title: Option<String>, by_key: bool| {
        if !done.try_get_value().unwrap_or(true) {
            done.set_value(true);
            commit(title, by_key);
        }
    };
    Effect::new(move |_| {
        if let Some(title_box) = title_box.get() {
            request_animation_frame(move || {
                let _ = title_box.focus();
                title_box.select();
            });
        }
    });
    let on_key = move |event: ev::KeyboardEvent| match event.key().as_str() {
        "Enter" if !composes(&event) => {
            event.prevent_default();
            let title = title_box.get_untracked().map(|title_box| title_box.value());
            end(Some(title.unwrap_or_default()), true);
        }
        "Escape" if !composes(&event) => {
            event.stop_propagation();
            end(None, true);
        }
        _ => {}
    };
    view! {
        <input
            type="text"
            class="title-box"
            aria-label="Title"
            autocomplete="off"
            prop:value=title
            node_ref=title_box
            on:keydown=on_key
            on:blur:target=move |event| end(Some(event.target().value()), false)
        />
    }
}
