//! Chats in IndexedDB, one store for all tabs of the origin, and the channel on which its changes are announced.
//!
//! A chat's head and body are two texts under one key, written in one transaction: there is never one without the other.

use js_sys::{Array, Function, Promise};
use leptos::prelude::*;
use serde::{Deserialize, Serialize};
use wasm_bindgen::{JsCast as _, JsValue, closure::Closure};
use wasm_bindgen_futures::JsFuture;
use web_sys::{
    BroadcastChannel, DomException, IdbDatabase, IdbObjectStore, IdbOpenDbRequest, IdbRequest,
    IdbTransaction, IdbTransactionMode, MessageEvent,
};

use super::chat::{Chat, ChatId, Head, Kept, Listed, Unreadable};

const DATABASE: &str = "pagelm.chats";
const DATABASE_VERSION: u32 = 1;
/// What lists show, by chat id.
const HEADS: &str = "heads";
/// The conversations, by chat id.
const BODIES: &str = "bodies";
/// Where tabs tell each other what they changed.
const CHANNEL: &str = "pagelm.chats";

/// What a tab did to the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Announcement {
    /// A chat was written.
    Saved(ChatId),
    /// A chat is gone.
    Deleted(ChatId),
}

/// The store, open.
pub(crate) struct ChatStore {
    database: IdbDatabase,
    channel: Option<BroadcastChannel>,
}

impl ChatStore {
    /// Opens the store, and calls `hear` with what other tabs do to it. The error is a sentence.
    pub(crate) async fn open(hear: impl Fn(Announcement) + 'static) -> Result<Self, String> {
        let database = open_database().await.map_err(|error| sentence(&error))?;
        // A newer page may need another form of the store: it must not wait for this tab.
        let closing = database.clone();
        let close = Closure::once_into_js(move || closing.close());
        database.set_onversionchange(Some(close.unchecked_ref()));
        // Without a channel, other tabs see what was kept when they are reloaded.
        let channel = BroadcastChannel::new(CHANNEL).ok();
        if let Some(channel) = &channel {
            let on_message = Closure::<dyn FnMut(MessageEvent)>::new(move |event: MessageEvent| {
                // What another build announces in other words is none of this one's business.
                let text = event.data().as_string().unwrap_or_default();
                if let Ok(announcement) = serde_json::from_str(&text) {
                    hear(announcement);
                }
            });
            channel.set_onmessage(Some(on_message.as_ref().unchecked_ref()));
            // The page hears for as long as it lives.
            on_message.forget();
        }
        Ok(Self { database, channel })
    }

    /// Keeps a chat. What is to be written is under way when this returns; the future tells when it is safe.
    pub(crate) fn save(&self, id: &str, chat: &Chat) -> impl Future<Output = Result<(), String>> + use<> {
        self.put(id, &chat.to_kept())
    }

    /// Keeps the texts of a chat, whatever they say.
    pub(crate) fn put(&self, id: &str, kept: &Kept) -> impl Future<Output = Result<(), String>> + use<> {
        self.put_all(&[(id, kept)])
    }

    /// Keeps the texts of chats: of all, or of none.
    pub(crate) fn put_all(
        &self,
        chats: &[(&str, &Kept)],
    ) -> impl Future<Output = Result<(), String>> + use<> {
        let written = self.write(|heads, bodies| {
            chats.iter().try_for_each(|(id, kept)| {
                let key = JsValue::from_str(id);
                heads.put_with_key(&kept.head.as_str().into(), &key)?;
                bodies.put_with_key(&kept.body.as_str().into(), &key).map(drop)
            })
        });
        let saved = chats.iter().map(|(id, _)| Announcement::Saved((*id).to_owned()));
        self.announce_after(written, saved.collect())
    }

    /// Calls a chat otherwise, if it is kept. Its head is read and written in one transaction, so that nothing is undone that
    /// is written of it at the same time.
    pub(crate) fn rename(&self, id: &str, title: &str) -> impl Future<Output = Result<(), String>> + use<> {
        let (key, title) = (JsValue::from_str(id), title.to_owned());
        let written = self.write(|heads, _| {
            let asked = heads.get(&key)?;
            let (heads, read) = (heads.clone(), asked.clone());
            let rename = Closure::once_into_js(move || -> Result<(), JsValue> {
                let text = read.result()?.as_string().unwrap_or_default();
                if let Ok(head) = Head::from_json(&text) {
                    heads.put_with_key(&head.renamed(&title).to_json().into(), &key)?;
                }
                Ok(())
            });
            asked.set_onsuccess(Some(rename.unchecked_ref()));
            Ok(())
        });
        self.announce_after(written, vec![Announcement::Saved(id.to_owned())])
    }

    /// Removes a chat.
    pub(crate) fn delete(&self, id: &str) -> impl Future<Output = Result<(), String>> + use<> {
        let key = JsValue::from_str(id);
        let written = self.write(|heads, bodies| {
            heads.delete(&key)?;
            bodies.delete(&key).map(drop)
        });
        self.announce_after(written, vec![Announcement::Deleted(id.to_owned())])
    }

    /// The texts of a chat, if it is kept.
    pub(crate) async fn kept(&self, id: &str) -> Result<Option<Kept>, String> {
        let read = async {
            let (heads, bodies) = stores(&self.begin(IdbTransactionMode::Readonly)?)?;
            let key = JsValue::from_str(id);
            let (head, body) = (heads.get(&key)?, bodies.get(&key)?);
            // Both wait at once: a transaction ends when nothing waits.
            let both = Promise::all(&Array::of2(&settled(&head), &settled(&body)));
            JsFuture::from(both).await?;
            Ok((head.result()?, body.result()?))
        };
        let (head, body) = read.await.map_err(|error: JsValue| sentence(&error))?;
        if head.is_undefined() && body.is_undefined() {
            return Ok(None);
        }
        // What is no text is damaged, as an empty one is.
        let text = |value: JsValue| value.as_string().unwrap_or_default();
        Ok(Some(Kept { head: text(head), body: text(body) }))
    }

    /// The texts of those of the chats that are kept.
    pub(crate) async fn all_kept(&self, ids: &[ChatId]) -> Result<Vec<(ChatId, Kept)>, String> {
        let read = async {
            let (heads, bodies) = stores(&self.begin(IdbTransactionMode::Readonly)?)?;
            let asked = |id: &ChatId| Ok((heads.get(&id.into())?, bodies.get(&id.into())?));
            let asked = ids.iter().map(asked).collect::<Result<Vec<_>, JsValue>>()?;
            let all: Array = asked.iter().flat_map(|(head, body)| [settled(head), settled(body)]).collect();
            JsFuture::from(Promise::all(&all)).await?;
            let texts = asked.iter().map(|(head, body)| Ok((head.result()?, body.result()?)));
            texts.collect::<Result<Vec<_>, JsValue>>()
        };
        let texts = read.await.map_err(|error: JsValue| sentence(&error))?;
        let kept = |(id, (head, body)): (&ChatId, (JsValue, JsValue))| {
            Some((id.clone(), Kept { head: head.as_string()?, body: body.as_string()? }))
        };
        Ok(ids.iter().zip(texts).filter_map(kept).collect())
    }

    /// A chat, if it is kept.
    pub(crate) async fn read(&self, id: &str) -> Result<Result<Option<Chat>, Unreadable>, String> {
        let kept = self.kept(id).await?;
        Ok(kept.map(|kept| Chat::from_kept(&kept)).transpose())
    }

    /// All chats, in no order.
    pub(crate) async fn list(&self) -> Result<Vec<Listed>, String> {
        let read = async {
            let (heads, _) = stores(&self.begin(IdbTransactionMode::Readonly)?)?;
            let (keys, texts) = (heads.get_all_keys()?, heads.get_all()?);
            JsFuture::from(Promise::all(&Array::of2(&settled(&keys), &settled(&texts)))).await?;
            Ok((Array::from(&keys.result()?), Array::from(&texts.result()?)))
        };
        let (keys, texts): (Array, Array) = read.await.map_err(|error: JsValue| sentence(&error))?;
        let listed = |(key, text): (JsValue, JsValue)| {
            let head = Head::from_json(&text.as_string().unwrap_or_default());
            Some(Listed { id: key.as_string()?, head })
        };
        Ok(keys.iter().zip(texts.iter()).filter_map(listed).collect())
    }

    fn begin(&self, mode: IdbTransactionMode) -> Result<IdbTransaction, JsValue> {
        let names = Array::of2(&HEADS.into(), &BODIES.into());
        self.database.transaction_with_str_sequence_and_mode(&names, mode)
    }

    fn write(
        &self,
        write: impl FnOnce(&IdbObjectStore, &IdbObjectStore) -> Result<(), JsValue>,
    ) -> Result<Promise, JsValue> {
        let transaction = self.begin(IdbTransactionMode::Readwrite)?;
        let (heads, bodies) = stores(&transaction)?;
        if let Err(error) = write(&heads, &bodies) {
            // What was written before that is not kept either.
            let _ = transaction.abort();
            return Err(error);
        }
        Ok(Promise::new(&mut |resolve, reject| {
            transaction.set_oncomplete(Some(&resolve));
            transaction.set_onabort(Some(&reject));
        }))
    }

    fn announce_after(
        &self,
        written: Result<Promise, JsValue>,
        announcements: Vec<Announcement>,
    ) -> impl Future<Output = Result<(), String>> + use<> {
        let channel = self.channel.clone();
        async move {
            let written = match written {
                Ok(written) => JsFuture::from(written).await.map(drop),
                Err(error) => Err(error),
            };
            written.map_err(|error| sentence(&error))?;
            for announcement in announcements {
                let text = serde_json::to_string(&announcement).expect("plain data has a JSON form");
                // A tab that does not hear it reads it when it is reloaded.
                channel.as_ref().map(|channel| channel.post_message(&text.into()));
            }
            Ok(())
        }
    }
}

async fn open_database() -> Result<IdbDatabase, JsValue> {
    let factory = window().indexed_db()?.ok_or_else(|| JsValue::from_str("it has no IndexedDB"))?;
    let request = factory.open_with_u32(DATABASE, DATABASE_VERSION)?;
    let upgrading: IdbOpenDbRequest = request.clone();
    let upgrade = Closure::once_into_js(move || -> Result<(), JsValue> {
        let database: IdbDatabase = upgrading.result()?.dyn_into()?;
        for store in [HEADS, BODIES] {
            database.create_object_store(store)?;
        }
        Ok(())
    });
    request.set_onupgradeneeded(Some(upgrade.unchecked_ref()));
    let opened = Promise::new(&mut |resolve, reject: Function| {
        let refuse = reject.clone();
        let on_blocked = Closure::once_into_js(move || {
            let cause = "a tab with an older version of this page keeps them closed; close that tab";
            refuse.call1(&JsValue::UNDEFINED, &cause.into())
        });
        request.set_onblocked(Some(on_blocked.unchecked_ref()));
        request.set_onsuccess(Some(&resolve));
        request.set_onerror(Some(&reject));
    });
    JsFuture::from(opened).await?;
    request.result()?.dyn_into()
}

fn stores(transaction: &IdbTransaction) -> Result<(IdbObjectStore, IdbObjectStore), JsValue> {
    Ok((transaction.object_store(HEADS)?, transaction.object_store(BODIES)?))
}

/// Resolves when the request has its result.
fn settled(request: &IdbRequest) -> Promise {
    Promise::new(&mut |resolve, reject| {
        request.set_onsuccess(Some(&resolve));
        request.set_onerror(Some(&reject));
    })
}

/// What went wrong, in a sentence: thrown, or told by an event of a request or a transaction.
fn sentence(error: &JsValue) -> String {
    let thrown = |value: &JsValue| value.dyn_ref::<DomException>().map(DomException::message);
    let of_target = || {
        let target = js_sys::Reflect::get(error, &"target".into()).ok()?;
        thrown(&js_sys::Reflect::get(&target, &"error".into()).ok()?)
    };
    let cause = error.as_string().or_else(|| thrown(error)).or_else(of_target);
    let cause = cause.filter(|cause| !cause.is_empty()).unwrap_or_else(|| "no reason given".to_owned());
    let cause = cause.trim_end_matches('.');
    format!(
        "This browser does not keep chats now ({cause}); what is on screen stays until the tab is closed or reloaded."
    )
}
