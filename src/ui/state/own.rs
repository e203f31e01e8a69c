//! What applies in the chat on screen: what it has of its own, before what the person set for all.

use super::{Part, State};
use crate::{
    protocol::GenerateOptions,
    ui::own::{MAX_NAME_CHARS, Own, Preset, Sampling, given_presets},
};

impl State {
    /// The system prompt of the chat on screen; empty where it has none.
    pub(crate) fn system_prompt(&self) -> &str {
        self.own.system_prompt.as_deref().unwrap_or(&self.preferences.system_prompt)
    }

    /// The options of the chat on screen.
    pub(crate) fn options(&self) -> GenerateOptions {
        let mut options = self.preferences.options().clone();
        if let Some(sampling) = self.own.sampling {
            sampling.put_into(&mut options);
        }
        options
    }

    /// Changes the options in use where they come from: the chat's own sampling in the chat, all else for the model.
    pub(crate) fn edit_options(&mut self, edit: impl FnOnce(&mut GenerateOptions)) {
        let mut options = self.options();
        edit(&mut options);
        if let Some(before) = self.own.sampling {
            let sampling = Sampling::of(&options);
            Sampling::of(self.preferences.options()).put_into(&mut options);
            if sampling != before {
                self.edit_own(|own| own.sampling = Some(sampling));
            }
        }
        self.edit(|preferences| preferences.edit_options(|of_model| *of_model = options));
    }

    /// Changes what the chat on screen has of its own; it is kept with the chat.
    pub(crate) fn edit_own(&mut self, edit: impl FnOnce(&mut Own)) {
        let before = self.own.clone();
        edit(&mut self.own);
        if self.own != before {
            self.unsaved |= self.chat.is_kept();
            self.touch(Part::Preferences);
        }
    }

    /// A chat begins: what it begins with is its own from now on, whatever is set for others.
    pub(super) fn settle_own(&mut self) {
        if self.turns.is_empty() && self.own.system_prompt.is_none() {
            let system_prompt = self.preferences.system_prompt.clone();
            self.edit_own(|own| own.system_prompt = Some(system_prompt));
        }
    }

    /// The presets there are: given ones first.
    pub(crate) fn presets(&self) -> Vec<Preset> {
        let given = given_presets().into_iter().map(|(preset, _)| preset);
        given.chain(self.preferences.presets.iter().cloned()).collect()
    }

    /// The preset that the chat on screen uses, if its values are those of one.
    pub(crate) fn preset(&self) -> Option<Preset> {
        let sampling = self.own.sampling?;
        self.presets().into_iter().find(|preset| preset.sampling == sampling)
    }

    /// Keeps how the chat on screen chooses as a preset of that name; one of the person's own that has it is replaced. The
    /// error is a sentence.
    pub(crate) fn save_preset(&mut self, name: &str) -> Result<(), String> {
        let name = name.trim().to_owned();
        if name.is_empty() || name.chars().count() > MAX_NAME_CHARS {
            return Err(format!("A preset's name has 1 to {MAX_NAME_CHARS} characters."));
        }
        if given_presets().iter().any(|(preset, _)| preset.name == name) {
            return Err(format!("“{name}” is one of the page's own presets; choose another name."));
        }
        let sampling = Sampling::of(&self.options());
        self.edit(|preferences| {
            preferences.presets.retain(|preset| preset.name != name);
            preferences.presets.push(Preset { name, sampling });
        });
        self.edit_own(|own| own.sampling = Some(sampling));
        Ok(())
    }

    /// Forgets a preset of the person's own; chats that use its values go on with them.
    pub(crate) fn forget_preset(&mut self, name: &str) {
        self.edit(|preferences| preferences.presets.retain(|preset| preset.name != name));
    }
}
