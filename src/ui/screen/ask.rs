//! What a person does with the chat on screen: asks in it, or changes it.
//!
//! Invariant: nothing is changed before this tab has the chat's lock and has read what other tabs wrote.

use leptos::{prelude::*, task::spawn_local};

use super::{
    Screen,
    chats::{Storage, lock_name, show_fragment, strike},
};
use crate::{
    client::locks::{self, Claim},
    protocol::GenerateOptions,
    ui::{
        chat::ChatId,
        state::{Intent, State},
    },
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
                let claim = self.claim_in_turn(&id).await;
                // What is changed and kept meanwhile does not give the lock back.
                self.keeping.update_value(|keeping| keeping.asking.push(id.clone()));
                let claimed = self.take_claim(claim, &id).await;
                let client = self.client.get_value();
                let request = self.change(|state| match claimed {
                    Ok(()) if state.chat.id == id => state.ask_for(&intent, client.next_request()),
                    Ok(()) => None,
                    Err(sentence) => {
                        state.refuse(sentence);
                        None
                    }
                });
                self.keeping.update_value(|keeping| strike(&mut keeping.asking, &id));
                if request.is_none() {
                    self.change(|state| state.give_back_intent(intent));
                    return self.let_go(&id);
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
        let id = self.peek(|state| state.chat.id.clone());
        let is_first =
            self.keeping.with_value(|keeping| keeping.changes.iter().all(|(other, _)| *other != id));
        if (is_first && self.has_lock(&id)) || self.peek(|state| !state.chat.is_kept()) {
            return self.edit_state(change);
        }
        self.keeping.update_value(|keeping| keeping.changes.push((id.clone(), Box::new(change))));
        if is_first {
            spawn_local(self.amend_all(id));
        }
    }

    /// Changes the options in use where they come from, the chat or the model, and keeps them.
    pub(crate) fn edit_options(self, edit: impl FnOnce(&mut GenerateOptions) + 'static) {
        if self.peek(|state| state.own.sampling.is_none()) {
            return self.edit_state(|state| state.edit_options(edit));
        }
        self.amend(move |state| state.edit_options(edit));
    }

    /// Makes the changes to a chat that wait, once its lock is had.
    async fn amend_all(self, id: ChatId) {
        let claim = self.claim_in_turn(&id).await;
        let claimed = self.take_claim(claim, &id).await;
        let mut changes = Vec::new();
        self.keeping.update_value(|keeping| {
            changes.extend(keeping.changes.extract_if(.., |(other, _)| *other == id));
        });
        // Those meant for a chat that left the screen meanwhile go with it.
        if self.peek(|state| state.chat.id == id) {
            match claimed {
                Ok(()) => self.edit_state(|state| changes.into_iter().for_each(|(_, change)| change(state))),
                Err(sentence) => self.change(|state| state.refuse_change(sentence)),
            }
        }
        self.let_go(&id);
    }

    /// Whether this tab has the chat's lock at hand.
    pub(super) fn has_lock(self, id: &str) -> bool {
        let name = lock_name(id);
        self.keeping.with_value(|keeping| keeping.lock.as_ref().is_some_and(|lock| lock.name() == name))
    }

    /// Gives the chat's lock back, unless it is still needed: for an answer, or until a save that is under way or due is done.
    fn let_go(self, id: &str) {
        let is_due = |state: &State| state.chat.id == id && (state.answering.is_some() || state.is_unsaved());
        if self.has_lock(id) && !self.peek(is_due) {
            self.keeping.update_value(|keeping| {
                if !keeping.asking.iter().any(|asking| asking == id) {
                    keeping.lock = None;
                }
            });
        }
    }

    /// Takes a chat's lock as [`Screen::claim`] does. What this tab does meanwhile waits for the lock, and is not told that
    /// another tab has it.
    async fn claim_in_turn(self, id: &str) -> Claim {
        let claim = self.claim(id);
        let name = lock_name(id);
        self.keeping.update_value(|keeping| keeping.returning.push(name.clone()));
        let claim = claim.await;
        self.keeping.update_value(|keeping| strike(&mut keeping.returning, &name));
        claim
    }

    /// Makes sure that nobody else answers in the chat, and that all of it is on screen, if it is still the one there. The
    /// error is a sentence.
    async fn take_claim(self, claim: Claim, id: &str) -> Result<(), String> {
        if self.peek(|state| state.chat.id != id) {
            // The lock at hand may be another chat's by now.
            return Ok(());
        }
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
