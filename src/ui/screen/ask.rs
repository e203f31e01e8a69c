//! What a person does with the chat on screen: asks in it, or changes it.
//!
//! Invariant: nothing is changed before this tab has the chat's lock and has read what other tabs wrote.

use leptos::{prelude::*, task::spawn_local};

use super::{
    Screen,
    chats::{Change, Storage, lock_name, show_fragment},
};
use crate::{
    client::locks::{self, Claim},
    protocol::GenerateOptions,
    ui::state::{Intent, State},
};

/// Another tab has the chat's lock.
const ELSEWHERE: &str =
    "An answer is on its way in another tab; this can be done once it is complete. Nothing was changed.";

impl Screen {
    /// Sends the person's text; says whether it was taken. It comes back where another tab turns out to answer.
    pub(crate) fn submit(self, text: &str) -> bool {
        self.ask(Intent::Send(text.to_owned()))
    }

    /// Asks the model for something; says whether it was taken.
    pub(crate) fn ask(self, intent: Intent) -> bool {
        let taken = self.change(|state| state.begin_intent(&intent));
        if taken {
            spawn_local(async move {
                let id = self.peek(|state| state.chat.id.clone());
                let claimed = self.claim_chat(&id).await;
                let client = self.client.get_value();
                let request = self.change(|state| match claimed {
                    Ok(()) if state.chat.id == id => state.ask_for(&intent, client.next_request()),
                    Ok(()) => None,
                    Err(sentence) => {
                        state.refuse(sentence);
                        None
                    }
                });
                if request.is_none() {
                    self.keeping.update_value(|keeping| keeping.lock = None);
                    return self.change(|state| state.give_back_intent(intent));
                }
                self.send(request);
                self.save();
                if !matches!(self.storage(), Storage::Missing) {
                    show_fragment(Some(&id));
                }
            });
        }
        taken
    }

    /// The person chose that the oldest turns are dropped.
    pub(crate) fn drop_oldest(self) {
        self.change(State::drop_from_now_on);
        self.send_due();
    }

    /// Changes the chat on screen: at once where it is this tab's alone, else once its lock is had.
    pub(crate) fn amend(self, change: impl FnOnce(&mut State) + 'static) {
        let is_own = self.keeping.with_value(|keeping| keeping.lock.is_some() && keeping.changes.is_empty());
        if is_own || self.peek(|state| !state.chat.is_kept()) {
            return self.edit_state(change);
        }
        let mut is_first = false;
        self.keeping.update_value(|keeping| {
            is_first = keeping.changes.is_empty();
            keeping.changes.push(Box::new(change));
        });
        if is_first {
            spawn_local(self.amend_all());
        }
    }

    /// Changes the options in use where they come from, the chat or the model, and keeps them.
    pub(crate) fn edit_options(self, edit: impl FnOnce(&mut GenerateOptions) + 'static) {
        if self.peek(|state| state.own.sampling.is_none()) {
            return self.edit_state(|state| state.edit_options(edit));
        }
        self.amend(move |state| state.edit_options(edit));
    }

    /// Makes the changes that wait, once the chat's lock is had.
    async fn amend_all(self) {
        let id = self.peek(|state| state.chat.id.clone());
        let name = lock_name(&id);
        // What this tab does meanwhile waits for the lock.
        let claim = self.claim(&id);
        self.keeping.update_value(|keeping| keeping.returning.push(name.clone()));
        let claim = claim.await;
        self.keeping.update_value(|keeping| {
            if let Some(place) = keeping.returning.iter().position(|other| *other == name) {
                keeping.returning.swap_remove(place);
            }
        });
        let claimed = self.take_claim(claim, &id).await;
        let mut changes: Vec<Change> = Vec::new();
        self.keeping.update_value(|keeping| changes.append(&mut keeping.changes));
        if self.peek(|state| state.chat.id != id) {
            // They were meant for a chat that left the screen meanwhile.
            self.keeping.update_value(|keeping| keeping.lock = None);
            return;
        }
        match claimed {
            Ok(()) => self.edit_state(|state| changes.into_iter().for_each(|change| change(state))),
            Err(sentence) => self.change(|state| state.refuse(sentence)),
        }
        if self.peek(|state| state.answering.is_none() && !state.is_unsaved()) {
            self.keeping.update_value(|keeping| keeping.lock = None);
        }
    }

    /// Makes sure that nobody else answers in the chat, and that all of it is on screen. The error is a sentence.
    async fn claim_chat(self, id: &str) -> Result<(), String> {
        let claim = self.claim(id).await;
        self.take_claim(claim, id).await
    }

    async fn take_claim(self, claim: Claim, id: &str) -> Result<(), String> {
        match claim {
            Claim::Held(lock) => self.keeping.update_value(|keeping| keeping.lock = Some(lock)),
            Claim::Taken => {
                self.read_chat(id.to_owned()).await;
                return Err(ELSEWHERE.to_owned());
            }
            Claim::Unavailable => {}
        }
        let Some(store) = self.store() else { return Ok(()) };
        match store.read(id).await {
            Ok(Ok(Some(chat))) => self.change(|state| {
                if state.chat.id == id {
                    state.take_in(chat, false);
                }
            }),
            Ok(Ok(None)) => {}
            Ok(Err(unreadable)) => return Err(unreadable.sentence().to_owned()),
            Err(sentence) => self.change(|state| state.stored(Err(sentence))),
        }
        Ok(())
    }

    /// Takes a chat's lock, unless another tab has it. Where this tab has it itself, or is about to give it back, that
    /// keeps nobody out.
    pub(super) fn claim(self, id: &str) -> impl Future<Output = Claim> + use<> {
        let name = lock_name(id);
        let (mut own, mut is_returning) = (None, false);
        self.keeping.update_value(|keeping| {
            own = keeping.lock.take_if(|lock| lock.name() == name);
            is_returning = keeping.returning.contains(&name);
        });
        async move {
            match own {
                Some(lock) => Claim::Held(lock),
                None if is_returning => locks::hold(&name).await,
                None => locks::try_hold(&name).await,
            }
        }
    }
}
