//! What is done in the laboratory, and what is asked for it.

use leptos::prelude::GetValue as _;

use super::{Screen, now_ms};
use crate::ui::state::lab::{Lab, Panel};

impl Screen {
    /// Changes a panel of the laboratory, and asks what is to be asked for it.
    pub(in crate::ui) fn change_lab(self, panel: Panel, change: impl FnOnce(&mut Lab)) {
        self.change(|state| state.change_lab(panel, change));
        self.drive_lab();
    }

    /// Sends what is due for the laboratory, which nobody pays for who has never opened it.
    pub(in crate::ui) fn drive_lab(self) {
        if !self.peek(|state| state.lab.is_open) {
            return;
        }
        let client = self.client.get_value();
        let due = self.change(|state| state.lab_due(now_ms(), || client.next_request()));
        due.into_iter().for_each(|request| self.send(Some(request)));
    }
}
