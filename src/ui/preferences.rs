//! What a person set: kept from visit to visit, as plain data. A model's options are kept only where they were changed.

use std::{collections::BTreeMap, mem};

use serde::{Deserialize, Serialize};

use super::{catalogue::default_options, own::Preset};
use crate::protocol::{GenerateOptions, LoadOptions};

/// The settings of the page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Preferences {
    /// Stands before every conversation that has no other of its own, if not empty.
    pub(crate) system_prompt: String,
    /// How the next model is run.
    pub(crate) load: LoadOptions,
    /// The person's own presets.
    pub(crate) presets: Vec<Preset>,
    /// The options of the models whose options were changed, by model name.
    options: BTreeMap<String, GenerateOptions>,
    /// The model whose options are shown and used.
    #[serde(skip)]
    model: String,
    /// What that model starts with.
    #[serde(skip)]
    defaults: GenerateOptions,
}

impl Default for Preferences {
    fn default() -> Self {
        Self {
            system_prompt: String::new(),
            load: LoadOptions::default(),
            presets: Vec::new(),
            options: BTreeMap::new(),
            model: String::new(),
            defaults: default_options(),
        }
    }
}

impl Preferences {
    /// Shows and uses the options of another model, which starts with `defaults`.
    pub(crate) fn use_model(&mut self, model: &str, defaults: GenerateOptions) {
        model.clone_into(&mut self.model);
        self.defaults = defaults;
    }

    /// The model whose options these are; empty before one is chosen.
    pub(crate) fn model(&self) -> &str {
        &self.model
    }

    /// The options in use.
    pub(crate) fn options(&self) -> &GenerateOptions {
        self.options.get(&self.model).unwrap_or(&self.defaults)
    }

    /// Changes the options in use.
    pub(crate) fn edit_options(&mut self, edit: impl FnOnce(&mut GenerateOptions)) {
        let mut options = self.options().clone();
        edit(&mut options);
        if options == self.defaults {
            self.options.remove(&self.model);
        } else {
            self.options.insert(self.model.clone(), options);
        }
    }

    /// Whether the options in use differ from what the model starts with.
    pub(crate) fn options_changed(&self) -> bool {
        self.options.contains_key(&self.model)
    }

    /// Goes back to what the model starts with.
    pub(crate) fn reset_options(&mut self) {
        self.options.remove(&self.model);
    }

    /// The text to keep.
    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(self).expect("settings have a JSON form")
    }

    /// Takes over what another tab kept; a text that cannot be read changes nothing. The model in use stays this tab's own.
    pub(crate) fn take_in(&mut self, text: &str) {
        if let Ok(kept) = serde_json::from_str::<Self>(text) {
            let (model, defaults) = (mem::take(&mut self.model), mem::take(&mut self.defaults));
            *self = Self { model, defaults, ..kept };
        }
    }

    /// The settings in a kept text. One that cannot be read, from another version, is as good as none.
    pub(crate) fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::KvType;

    #[test]
    fn each_model_keeps_its_changed_options() {
        let mut preferences = Preferences::default();
        let greedy = GenerateOptions { temperature: 0.0, ..default_options() };
        preferences.use_model("A", greedy.clone());
        preferences.edit_options(|options| options.top_k = 40);
        assert!(preferences.options_changed());
        preferences.use_model("B", default_options());
        assert_eq!(preferences.options(), &default_options());

        let mut kept = Preferences::from_json(&preferences.to_json());
        kept.use_model("A", greedy.clone());
        assert_eq!((kept.options().top_k, kept.options().temperature), (40, 0.0));
        kept.reset_options();
        assert_eq!(kept.options(), &greedy);
    }

    #[test]
    fn an_edit_that_changes_nothing_is_not_kept() {
        let mut preferences = Preferences::default();
        preferences.use_model("A", default_options());
        preferences.edit_options(|options| options.top_k = 40);
        preferences.edit_options(|options| options.top_k = default_options().top_k);
        assert!(!preferences.options_changed());
    }

    #[test]
    fn tabs_share_what_is_set() {
        let mut one = Preferences::default();
        one.use_model("A", default_options());
        let mut two = Preferences::default();
        two.use_model("B", default_options());
        two.edit_options(|options| options.top_k = 40);
        two.system_prompt = "Be brief.".to_owned();
        one.take_in(&two.to_json());
        assert_eq!((one.system_prompt.as_str(), one.model()), ("Be brief.", "A"));
        assert!(!one.options_changed());
        one.use_model("B", default_options());
        assert_eq!(one.options().top_k, 40);
        let before = one.clone();
        one.take_in(r#"{"load": 3}"#);
        assert_eq!(one, before, "what a newer page keeps is not understood");
    }

    #[test]
    fn unreadable_settings_are_as_good_as_none() {
        for text in ["", "{", "[]", r#"{"load": 3}"#, r#"{"options": {"A": {"heat": 1}}}"#] {
            let preferences = Preferences::from_json(text);
            assert_eq!(preferences.options(), &default_options(), "{text}");
        }
        let mut preferences = Preferences::from_json(r#"{"system_prompt": "Be brief."}"#);
        assert_eq!(preferences.system_prompt, "Be brief.");
        assert_eq!(preferences.options(), &default_options());
        preferences.load.kv = KvType::F32;
        assert_eq!(Preferences::from_json(&preferences.to_json()).load.kv, KvType::F32);
        // Kept before there was a choice of weights.
        let older = r#"{"load": {"context": 64, "kv": "F32", "precision": "Exact", "device": "Auto"}}"#;
        assert_eq!(Preferences::from_json(older).load.context, Some(64));
    }
}
