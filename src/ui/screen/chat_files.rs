//! What is done with chats in the store beside the one on screen: renamed, looked through, taken out and in as files.
//!
//! Invariant: a chat that is answered elsewhere is not written to. A file is imported whole or not at all, and over nothing.

use std::collections::HashSet;

use js_sys::Array;
use leptos::{prelude::*, task::spawn_local};
use wasm_bindgen::{JsCast as _, JsValue};
use wasm_bindgen_futures::JsFuture;
use web_sys::{Blob, File, HtmlElement, Url};

use super::{Screen, chats::fresh_id};
use crate::{
    client::locks::Claim,
    ui::{
        chat::{Chat, ChatId, Kept, is_id},
        chat_file::{self, Imported},
        words,
    },
};

/// A larger file is none of chats: people do not write so much.
const MAX_FILE_BYTES: f64 = 256e6;

/// What to take out as a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Export {
    /// The chat on screen, for people.
    Markdown,
    /// The same, for this page.
    Json,
    /// All chats, for this page.
    All,
}

impl Screen {
    /// Calls a chat otherwise. Its place in the list stays.
    pub(crate) fn rename_chat(self, id: ChatId, title: String) {
        let Some(store) = self.store().filter(|_| !title.trim().is_empty()) else { return };
        let is_answering = self.peek(|state| state.chat.id == id && state.answering.is_some());
        let is_own = is_answering || self.has_lock(&id);
        spawn_local(async move {
            let claim = if is_own { None } else { Some(self.claim(&id).await) };
            if matches!(claim, Some(Claim::Taken)) {
                return self.change(|state| {
                    state.refuse(
                        "This chat cannot be renamed while it is answered in another tab; wait until it is complete."
                            .to_owned(),
                    );
                });
            }
            // On screen first: whatever is saved from there after this is called so.
            self.change(|state| state.rename_chat(&id, &title));
            let renamed = store.rename(&id, &title).await;
            drop(claim);
            if let Err(sentence) = renamed {
                self.change(|state| state.stored(Err(sentence)));
            }
            self.list_chats();
        });
    }

    /// Looks for words in all chats.
    pub(crate) fn look_for(self, query: &str) {
        self.change(|state| state.look_for(query));
        spawn_local(self.learn_chats());
    }

    /// Reads the chats that must be read before all is found that is looked for.
    pub(super) async fn learn_chats(self) {
        let unread = self.peek(|state| state.unread());
        let Some(store) = self.store().filter(|_| !unread.is_empty()) else { return };
        match store.all_kept(&unread).await {
            Ok(all) => self.change(|state| {
                state.learn(all.into_iter().map(|(id, kept)| (id, Chat::from_kept(&kept).ok())).collect());
            }),
            Err(sentence) => self.change(|state| state.stored(Err(sentence))),
        }
    }

    /// Hands the person a file of chats.
    pub(crate) fn export(self, what: Export) {
        let Some(store) = self.store() else { return };
        self.save();
        spawn_local(async move {
            let own_id = self.peek(|state| state.chat.id.clone());
            let ids = match what {
                Export::Markdown | Export::Json => Ok(vec![own_id]),
                Export::All => {
                    store.list().await.map(|all| all.into_iter().map(|listed| listed.id).collect())
                }
            };
            let exported = async {
                let ids = ids?;
                Ok::<_, String>((ids.len(), store.all_kept(&ids).await?))
            };
            let mut n_left_out = 0;
            let file = exported.await.map(|(n_chats, chats)| {
                let own = chats.first().and_then(|(_, kept)| Chat::from_kept(kept).ok());
                match (what, own) {
                    (Export::Markdown, Some(chat)) => {
                        Some((chat_file::file_name(&chat.head, "md"), chat_file::to_markdown(&chat)))
                    }
                    (Export::Json, Some(chat)) => {
                        Some((chat_file::file_name(&chat.head, "json"), chat_file::to_json(&chats).0))
                    }
                    (Export::All, _) => {
                        let (text, n_written) = chat_file::to_json(&chats);
                        n_left_out = n_chats - n_written;
                        Some(("pagelm-chats.json".to_owned(), text))
                    }
                    (Export::Markdown | Export::Json, None) => None,
                }
            });
            match file {
                Ok(Some((name, text))) => {
                    if hand_out(&name, &text).is_err() {
                        let sentence = format!("{name} could not be made; this browser has no room for it.");
                        let told = "A file of chats could not be made; this browser has no room for it.";
                        self.change(|state| state.notify_naming(sentence, told));
                    }
                }
                Ok(None) => {
                    let sentence = "This chat is not kept yet; write something first.".to_owned();
                    self.change(|state| state.refuse(sentence));
                }
                Err(sentence) => self.change(|state| state.stored(Err(sentence))),
            }
            if n_left_out > 0 {
                let chats = words::counted(n_left_out as u32, "chat is", "chats are");
                self.change(|state| {
                    state.notify(format!(
                        "{chats} not in the file: what this browser keeps of them is damaged."
                    ));
                });
            }
        });
    }

    /// Takes the chats in files in. One whose id is taken gets another.
    pub(crate) fn import(self, files: Vec<File>) {
        let Some(store) = self.store() else {
            let sentence = "This browser keeps no chats, so none can be imported.".to_owned();
            return self.change(|state| state.refuse(sentence));
        };
        spawn_local(async move {
            let (mut n_chats, mut n_newer) = (0_u32, 0_u32);
            let imported = async {
                for file in files {
                    let Imported { chats, n_newer: newer } = read_file(&file).await?;
                    let mut taken: HashSet<ChatId> =
                        store.list().await?.into_iter().map(|listed| listed.id).collect();
                    let named = chats.into_iter().map(|(id, chat)| {
                        let is_usable = is_id(&id) && !taken.contains(&id);
                        let id = if is_usable { id } else { fresh_id() };
                        taken.insert(id.clone());
                        (id, chat.to_kept())
                    });
                    let named: Vec<(ChatId, Kept)> = named.collect();
                    let texts: Vec<(&str, &Kept)> =
                        named.iter().map(|(id, kept)| (id.as_str(), kept)).collect();
                    store
                        .put_all(&texts)
                        .await
                        .map_err(|cause| format!("Nothing of {} was imported. {cause}", file.name()))?;
                    n_chats += named.len() as u32;
                    n_newer += newer as u32;
                }
                Ok::<(), String>(())
            };
            let result = imported.await;
            self.change(|state| {
                if let Err(sentence) = result {
                    // A file may be called after what is in it, and what is wrong with it may quote that.
                    state.refuse_naming(sentence, "Chats could not be imported from a file.");
                }
                if n_newer > 0 {
                    let chats = words::counted(n_newer, "chat was", "chats were");
                    state.notify(format!(
                        "{chats} left out: a newer version of this page wrote them; reload the page and import again."
                    ));
                }
                state.imported(n_chats);
            });
            self.list_chats();
        });
    }
}

async fn read_file(file: &File) -> Result<Imported, String> {
    let name = file.name();
    if file.size() > MAX_FILE_BYTES {
        return Err(format!("{name} is too large to be a file of chats; nothing of it was imported."));
    }
    let text = JsFuture::from(file.text()).await.ok().and_then(|text| text.as_string());
    let text = text.ok_or_else(|| format!("{name} could not be read; choose it again."))?;
    chat_file::from_json(&name, &text)
}

/// Lets the browser download a text as a file of that name.
fn hand_out(name: &str, text: &str) -> Result<(), JsValue> {
    let blob = Blob::new_with_str_sequence(&Array::of1(&text.into()))?;
    let url = Url::create_object_url_with_blob(&blob)?;
    let link: HtmlElement = document().create_element("a")?.unchecked_into();
    link.set_attribute("href", &url)?;
    link.set_attribute("download", name)?;
    link.click();
    // The download has begun; what it reads is held until the next task at least.
    set_timeout(move || _ = Url::revoke_object_url(&url), std::time::Duration::from_secs(10));
    Ok(())
}
