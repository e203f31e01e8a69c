//! The chat on screen and the one in the store, kept the same: saved while it grows, and read again when another tab
//! wrote to it.
//!
//! Only the tab that holds a chat's lock writes to it, and reads it first. A lock ends with its tab, so a chat whose tab
//! died can be gone on with.

use std::{rc::Rc, time::Duration};

use js_sys::{Date, Math};
use leptos::{ev, prelude::*, task::spawn_local};
use wasm_bindgen::JsValue;

use super::Screen;
use crate::{
    client::locks::{self, Claim, Held},
    ui::{
        chat::{self, ChatId},
        chat_store::{Announcement, ChatStore},
        state::{Deleted, Save, State},
    },
};

/// How often a growing answer is saved.
const SAVE_PERIOD: Duration = Duration::from_millis(500);

/// What the browser holds of chats, beside the state.
#[derive(Default)]
pub(super) struct Keeping {
    storage: Storage,
    /// Held while this tab answers in the chat on screen.
    pub(super) lock: Option<Held>,
    /// Names of this tab's own locks that are taken just now, or given back once a save is done.
    pub(super) returning: Vec<String>,
    /// A save is planned.
    save_due: bool,
    /// Chats whose lock is waited for.
    watched: Vec<ChatId>,
    /// Whether the list of chats is shown.
    listing: bool,
    /// Changes to chats that wait for the chat's lock.
    pub(super) changes: Vec<(ChatId, Change)>,
    /// Chats whose lock was taken to ask in them, which is about to be done.
    pub(super) asking: Vec<ChatId>,
}

/// Takes a name off a list once, where several of the kind may stand for as many that are under way.
pub(super) fn strike(names: &mut Vec<String>, name: &str) {
    if let Some(place) = names.iter().position(|other| other == name) {
        names.swap_remove(place);
    }
}

/// A change to a chat while it is on screen.
pub(super) type Change = Box<dyn FnOnce(&mut State)>;

/// Where chats are kept.
#[derive(Default, Clone)]
pub(super) enum Storage {
    /// Not known yet.
    #[default]
    Opening,
    /// In this store.
    Open(Rc<ChatStore>),
    /// Nowhere but on screen.
    Missing,
}

impl Screen {
    /// Opens the store, and the chat that the page's URL names, or a new one.
    pub(super) fn start_chats(self) {
        match named_chat() {
            Some(id) => self.change(|state| state.open_chat(id)),
            None => self.change(|state| state.new_chat(fresh_id())),
        }
        let fragments = window_event_listener(ev::hashchange, move |_| self.follow_fragment());
        // What is under way when the page is hidden is still written.
        let hiding = window_event_listener(ev::pagehide, move |_| self.save());
        on_cleanup(move || [fragments, hiding].into_iter().for_each(|listener| listener.remove()));
        spawn_local(async move {
            let opened = ChatStore::open(move |announcement| self.hear_of_chat(announcement)).await;
            let (storage, result) = match opened {
                Ok(store) => (Storage::Open(Rc::new(store)), Ok(())),
                Err(sentence) => (Storage::Missing, Err(sentence)),
            };
            self.keeping.update_value(|keeping| keeping.storage = storage);
            self.change(|state| state.stored(result));
            let (id, opening) = self.peek(|state| (state.chat.id.clone(), state.chat.opening));
            if opening {
                self.read_chat(id).await;
            }
            self.list_chats();
            self.keep();
        });
    }

    /// Puts an empty chat on screen. An answer on its way ends; the chat before stays as it is.
    pub(crate) fn new_chat(self) {
        self.leave_chat();
        self.change(|state| state.new_chat(fresh_id()));
        push_no_fragment();
    }

    fn leave_chat(self) {
        self.send(self.change(State::leave_chat));
        // What could not be kept before gets another chance.
        self.save();
    }

    /// Puts the chat on screen that the page's URL names now.
    fn follow_fragment(self) {
        if super::super::is_view_named() {
            return;
        }
        match named_chat() {
            Some(id) if self.peek(|state| state.chat.id != id) => {
                self.leave_chat();
                self.change(|state| state.open_chat(id.clone()));
                spawn_local(self.read_chat(id));
            }
            None if self.peek(|state| state.chat.is_kept()) => {
                self.leave_chat();
                self.change(|state| state.new_chat(fresh_id()));
            }
            Some(_) | None => {}
        }
    }

    /// Shows what is kept of a chat, if it is the one on screen and this tab is not itself writing to it.
    pub(super) async fn read_chat(self, id: ChatId) {
        let is_passive = || !self.has_lock(&id) && self.peek(|state| state.chat.id == id);
        let read = match self.storage() {
            Storage::Opening => return,
            Storage::Missing => Err(None),
            Storage::Open(store) => store.read(&id).await.map_err(Some),
        };
        if !is_passive() {
            return;
        }
        let opening = self.peek(|state| state.chat.opening);
        let read = match read {
            Ok(read) => read,
            Err(sentence) => {
                return self.change(|state| {
                    if opening {
                        state.new_chat(fresh_id());
                    }
                    sentence.into_iter().for_each(|sentence| state.stored(Err(sentence)));
                });
            }
        };
        let is_open = matches!(&read, Ok(Some(chat)) if chat.is_open());
        let elsewhere = is_open && locks::is_taken(&lock_name(&id)).await;
        if !is_passive() {
            return;
        }
        self.change(|state| match read {
            read if opening => state.opened(&id, read, elsewhere, fresh_id()),
            Ok(Some(chat)) => state.take_in(chat, elsewhere),
            Ok(None) => {}
            Err(unreadable) => state.notify(unreadable.sentence().to_owned()),
        });
        if elsewhere {
            self.watch_chat(id);
        }
        self.drop_fragment_of_none();
    }

    /// Reads a chat again when the tab that answers in it has ended, or the answer.
    fn watch_chat(self, id: ChatId) {
        let mut is_new = false;
        self.keeping.update_value(|keeping| {
            is_new = !keeping.watched.contains(&id);
            if is_new {
                keeping.watched.push(id.clone());
            }
        });
        if is_new {
            spawn_local(async move {
                locks::until_free(&lock_name(&id)).await;
                self.keeping.update_value(|keeping| keeping.watched.retain(|watched| *watched != id));
                self.read_chat(id).await;
            });
        }
    }

    fn hear_of_chat(self, announcement: Announcement) {
        match announcement {
            Announcement::Saved(id) => {
                if self.peek(|state| state.chat.id == id) {
                    spawn_local(self.read_chat(id));
                }
            }
            Announcement::Deleted(id) => self.change(|state| state.deleted_elsewhere(&id, fresh_id())),
        }
        self.list_chats();
        self.drop_fragment_of_none();
    }

    /// A chat that turned out not to be there is not named in the URL.
    fn drop_fragment_of_none(self) {
        if self.peek(|state| !state.chat.is_kept() && !state.chat.opening) {
            show_fragment(None);
        }
    }

    /// Saves what changed: soon while an answer grows, else at once.
    pub(super) fn keep(self) {
        if !self.peek(State::is_unsaved) {
            return;
        }
        if self.peek(|state| state.answering.is_none()) {
            return self.save();
        }
        let mut is_new = false;
        self.keeping.update_value(|keeping| {
            is_new = !keeping.save_due;
            keeping.save_due = true;
        });
        if is_new {
            let save = move || {
                self.keeping.update_value(|keeping| keeping.save_due = false);
                self.save();
            };
            set_timeout(save, SAVE_PERIOD);
        }
    }

    /// Saves what changed at once. The lock is given back when the last words of an answer are safe.
    pub(super) fn save(self) {
        let storage = self.storage();
        if matches!(storage, Storage::Opening) {
            return;
        }
        let Some(save) = self.change(|state| state.take_unsaved(Date::now())) else { return };
        let (id, ended) = self.peek(|state| (state.chat.id.clone(), state.answering.is_none()));
        let name = lock_name(&id);
        let mut lock = None;
        self.keeping.update_value(|keeping| {
            let ended = ended && !keeping.asking.contains(&id);
            lock = keeping.lock.take_if(|lock| ended && lock.name() == name);
        });
        let Storage::Open(store) = storage else { return };
        let name = lock.as_ref().map(|lock| lock.name().to_owned());
        self.keeping.update_value(|keeping| keeping.returning.extend(name.clone()));
        let done = move |result| {
            self.change(|state| state.wrote(&id, result));
            drop(lock);
            self.keeping.update_value(|keeping| {
                if let Some(name) = &name {
                    strike(&mut keeping.returning, name);
                }
            });
            self.list_chats();
        };
        match save {
            Save::Write(id, chat) => {
                let saved = store.save(&id, &chat);
                spawn_local(async move { done(saved.await) });
            }
            Save::Remove(id) => {
                let deleted = store.delete(&id);
                show_fragment(None);
                spawn_local(async move { done(deleted.await) });
            }
        }
    }

    /// Shows or hides the list of chats.
    pub(crate) fn show_list(self, shown: bool) {
        self.keeping.update_value(|keeping| keeping.listing = shown);
        if !shown {
            self.change(State::forget_texts);
        }
        self.list_chats();
    }

    pub(super) fn list_chats(self) {
        let Some(store) = self.store().filter(|_| self.keeping.with_value(|keeping| keeping.listing)) else {
            return;
        };
        spawn_local(async move {
            match store.list().await {
                Ok(chats) => self.change(|state| state.list_chats(chats)),
                Err(sentence) => self.change(|state| state.stored(Err(sentence))),
            }
            self.learn_chats().await;
        });
    }

    /// Deletes a chat, which can come back until another one is deleted.
    pub(crate) fn delete_chat(self, id: ChatId, title: String) {
        let Some(store) = self.store() else { return };
        if self.peek(|state| state.chat.id == id) {
            self.leave_chat();
        }
        spawn_local(async move {
            let claim = self.claim(&id).await;
            if matches!(claim, Claim::Taken) {
                return self.change(|state| {
                    let why = "cannot be deleted while it is answered in another tab; stop it there first.";
                    state.notify_naming(format!("“{title}” {why}"), &format!("A chat {why}"));
                });
            }
            let deleted = async {
                let kept = store.kept(&id).await?;
                store.delete(&id).await?;
                Ok(kept)
            };
            match deleted.await {
                Ok(kept) => self.change(|state| {
                    state.remember_deleted(kept.map(|kept| Deleted { id: id.clone(), title, kept }));
                    if state.chat.id == id {
                        state.new_chat(fresh_id());
                        show_fragment(None);
                    }
                }),
                Err(sentence) => self.change(|state| state.stored(Err(sentence))),
            }
            drop(claim);
            self.list_chats();
        });
    }

    /// Brings the chat back that was deleted last. Where its id was taken meanwhile, as by an import, it gets another.
    pub(crate) fn undo_delete(self) {
        let deleted = self.peek(|state| state.deleted.clone());
        let (Some(store), Some(deleted)) = (self.store(), deleted) else { return };
        // Once is enough.
        self.change(|state| state.remember_deleted(None));
        spawn_local(async move {
            let id = &deleted.id;
            let is_shown = self.peek(|state| state.chat.id == *id);
            let claim = if is_shown { Claim::Taken } else { self.claim(id).await };
            let put = async {
                let is_free = !matches!(claim, Claim::Taken) && store.kept(id).await?.is_none();
                let id = if is_free { id.clone() } else { fresh_id() };
                store.put(&id, &deleted.kept).await
            };
            let result = put.await;
            drop(claim);
            self.change(|state| {
                if result.is_err() && state.deleted.is_none() {
                    state.remember_deleted(Some(deleted));
                }
                state.stored(result);
            });
            self.list_chats();
        });
    }

    pub(super) fn storage(self) -> Storage {
        self.keeping.with_value(|keeping| keeping.storage.clone())
    }

    pub(super) fn store(self) -> Option<Rc<ChatStore>> {
        match self.storage() {
            Storage::Open(store) => Some(store),
            Storage::Opening | Storage::Missing => None,
        }
    }
}

/// The Web Lock of a chat, held while a tab answers in it.
pub(super) fn lock_name(chat_id: &str) -> String {
    format!("pagelm.chat.{chat_id}")
}

/// The chat that the page's URL names.
fn named_chat() -> Option<ChatId> {
    chat::id_in_fragment(&window().location().hash().ok()?)
}

/// An id that no chat has.
pub(super) fn fresh_id() -> ChatId {
    let word = || (Math::random() * 4_294_967_296.0) as u32;
    format!("{:08x}{:08x}", word(), word())
}

/// Names the chat in the page's URL, so that it can be opened in another tab; or none. Nothing is opened by that.
pub(super) fn show_fragment(chat_id: Option<&str>) {
    if let (Some(url), Ok(history)) = (url_to_show(chat_id), window().history()) {
        // A history that cannot be written to only means that the URL does not follow.
        let _ = history.replace_state_with_url(&JsValue::NULL, "", Some(&url));
    }
}

/// The same for a new chat, from which the browser's back button leads to the one before.
fn push_no_fragment() {
    if let (Some(url), Ok(history)) = (url_to_show(None), window().history()) {
        let _ = history.push_state_with_url(&JsValue::NULL, "", Some(&url));
    }
}

/// The URL that names that chat, or none; nothing where it does already.
fn url_to_show(chat_id: Option<&str>) -> Option<String> {
    let location = window().location();
    let wanted = chat_id.map_or_else(String::new, chat::fragment);
    let path = [location.pathname().ok()?, location.search().ok()?].concat();
    (location.hash().ok()? != wanted).then(|| path + &wanted)
}
