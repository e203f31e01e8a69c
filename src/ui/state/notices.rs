//! Sentences about what went wrong: few, none twice, and forgotten once the person tries anew.

use super::{Part, State};

/// A sentence about something that went wrong, until it is dismissed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Notice {
    pub(crate) id: u64,
    pub(crate) text: String,
    /// It is about nothing that trying anew changes.
    lasts: bool,
}

/// Notices beyond this push out the oldest.
const MAX_NOTICES: usize = 4;
/// Sentences that a report tells, dismissed ones too; more push out the oldest.
const MAX_TOLD: usize = 12;

impl State {
    /// Shows a sentence about something that went wrong; one that is shown already stays the only one.
    pub(crate) fn notify(&mut self, text: String) {
        let told = text.clone();
        self.push_notice(text, told, false);
    }

    /// The same where the text names what a person wrote, as a title, or files called after one: a report tells `told`
    /// instead.
    pub(crate) fn notify_naming(&mut self, text: String, told: &str) {
        self.push_notice(text, told.to_owned(), false);
    }

    /// The same about what stays so whatever the person tries.
    pub(super) fn notify_lastingly(&mut self, text: String) {
        let told = text.clone();
        self.push_notice(text, told, true);
    }

    fn push_notice(&mut self, text: String, told: String, lasts: bool) {
        if self.notices.iter().any(|notice| notice.text == text) {
            return;
        }
        self.told.push(told);
        if self.told.len() > MAX_TOLD {
            self.told.remove(0);
        }
        let id = self.next_id();
        self.notices.push(Notice { id, text, lasts });
        if self.notices.len() > MAX_NOTICES {
            self.notices.remove(0);
        }
        self.touch(Part::Notices);
    }

    /// The same about something the person tried anew: what went wrong before matters no more.
    pub(crate) fn refuse(&mut self, text: String) {
        self.forget_notices();
        self.notify(text);
    }

    /// The same where the text names what a person wrote; see [`State::notify_naming`].
    pub(crate) fn refuse_naming(&mut self, text: String, told: &str) {
        self.forget_notices();
        self.notify_naming(text, told);
    }

    /// The same about a change to what the chat has of its own: what shows that shows again what is so.
    pub(crate) fn refuse_change(&mut self, text: String) {
        self.refusals += 1;
        self.touch(Part::Preferences);
        self.refuse(text);
    }

    /// The person has read a notice.
    pub(crate) fn dismiss(&mut self, notice_id: u64) {
        self.notices.retain(|notice| notice.id != notice_id);
        self.touch(Part::Notices);
    }

    /// What a notice says is no longer so.
    pub(super) fn withdraw(&mut self, text: &str) {
        let n_before = self.notices.len();
        self.notices.retain(|notice| notice.text != text);
        if self.notices.len() != n_before {
            self.touch(Part::Notices);
        }
    }

    /// What went wrong before matters no more once the person tries anew.
    pub(super) fn forget_notices(&mut self) {
        let n_before = self.notices.len();
        self.notices.retain(|notice| notice.lasts);
        if self.notices.len() != n_before {
            self.touch(Part::Notices);
        }
    }
}
