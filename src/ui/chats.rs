//! The list of chats: each a link, so that it opens in another tab as any page does, and a button that deletes it.

use js_sys::Date;
use leptos::{html, prelude::*};
use wasm_bindgen::{JsCast as _, JsValue};
use web_sys::HtmlElement;

use super::{
    chat::{self, Listed, Unreadable},
    screen::Screen,
    state::Part,
    words,
};

/// Up to this width (CSS pixels) the list covers the conversation, and goes once a chat was chosen.
const NARROW_PX: f64 = 960.0;

/// The chats beside the conversation, or above it where there is no room.
#[component]
pub(crate) fn Chats(open: RwSignal<bool>) -> impl IntoView {
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
        if window()
            .inner_width()
            .ok()
            .and_then(|width| width.as_f64())
            .is_some_and(|width| width <= NARROW_PX)
        {
            open.set(false);
        }
    };
    let chats = move || screen.read(Part::Chats, |state| state.chats.clone());
    let empty = move || screen.read(Part::Chats, |state| state.chats.is_empty());
    view! {
        <nav id="chats" class="panel chats" aria-labelledby="chats-title" hidden=move || !open.get()>
            <div class="panel-head">
                <h2 id="chats-title" tabindex="-1" node_ref=title>"Chats"</h2>
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
                <Undo />
                <ul class="chat-list" on:click=move |_| chosen()>
                    <For
                        each=chats
                        key=|listed| (listed.id.clone(), title_of(listed))
                        let:listed
                    >
                        <Entry listed />
                    </For>
                </ul>
                <p class="about" hidden=move || !empty()>
                    "None yet. What you write stays in this browser, on this device."
                </p>
            </Show>
        </nav>
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

/// One chat.
#[component]
fn Entry(listed: Listed) -> impl IntoView {
    let screen = Screen::expect();
    let title = title_of(&listed);
    let id = listed.id;
    let (own_id, listed_id, link) = (id.clone(), id.clone(), chat::fragment(&id));
    let current = Memo::new(move |_| screen.read(Part::Chat, |state| state.chat.id == own_id));
    let updated_ms = Memo::new(move |_| {
        screen.read(Part::Chats, |state| {
            let listed = state.chats.iter().find(|listed| listed.id == listed_id);
            listed.and_then(|listed| Some(listed.head.as_ref().ok()?.updated_ms))
        })
    });
    let age = move || {
        updated_ms.get().map(|updated_ms| {
            let date = Date::new(&JsValue::from_f64(updated_ms));
            let full = date.to_locale_string("default", &JsValue::UNDEFINED);
            let words = words::age((Date::now() - updated_ms) / 1000.0);
            view! { <span class="chat-age" title=String::from(full)>{words}</span> }
        })
    };
    let delete_label = format!("Delete: {title}");
    let to_delete = title.clone();
    view! {
        <li class="chat">
            <a href=link aria-current=move || current.get().then_some("page")>
                <span class="chat-title">{title}</span>
                {age}
            </a>
            <button
                type="button"
                class="delete"
                aria-label=delete_label
                title="Delete"
                on:click=move |event| {
                    event.stop_propagation();
                    screen.delete_chat(id.clone(), to_delete.clone());
                }
            >
                <svg viewBox="0 0 24 24" aria-hidden="true">
                    <path d="M5 7h14M10 4h4M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5" />
                </svg>
            </button>
        </li>
    }
}

/// What a chat is called in the list.
fn title_of(listed: &Listed) -> String {
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
    let title = Memo::new(move |_| {
        screen.read(Part::Chats, |state| state.deleted.as_ref().map(|deleted| deleted.title.clone()))
    });
    view! {
        <div role="status">
            {move || {
                title
                    .get()
                    .map(|title| {
                        view! {
                            <p class="undo">
                                <span>{format!("“{title}” is deleted.")}</span>
                                <button type="button" class="quiet" on:click=move |_| screen.undo_delete()>
                                    "Undo"
                                </button>
                            </p>
                        }
                    })
            }}
        </div>
    }
}
