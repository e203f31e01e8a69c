//! What a chat has of its own: its system prompt, how tokens are chosen, what its template is told, and what happens when
//! the model's context is full. What a chat does not have, it takes from what the person set for all.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::protocol::GenerateOptions;

/// Longest name of a preset, characters.
pub(crate) const MAX_NAME_CHARS: usize = 40;
/// What a template is told to let the model think, or not.
pub(crate) const THINKING: &str = "enable_thinking";

/// The settings of one chat.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Own {
    /// Stands before the conversation, if not empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) system_prompt: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) sampling: Option<Sampling>,
    /// What the chat template is told beside the conversation.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub(crate) arguments: Map<String, Value>,
    pub(crate) when_full: WhenFull,
}

/// What happens when the conversation no longer fits in the model's context.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum WhenFull {
    /// The person is asked.
    #[default]
    Ask,
    /// The model no longer sees the oldest turns.
    Drop,
    /// Nothing more is sent.
    Stop,
}

/// How tokens are chosen: those of the options that a preset names.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Sampling {
    pub(crate) temperature: f32,
    top_p: f32,
    top_k: i32,
    min_p: f32,
    repetition_penalty: f32,
    presence_penalty: f32,
    frequency_penalty: f32,
}

/// Named values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Preset {
    pub(crate) name: String,
    pub(crate) sampling: Sampling,
}

impl WhenFull {
    pub(crate) const ALL: [Self; 3] = [Self::Ask, Self::Drop, Self::Stop];

    /// Its name in the page.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Drop => "drop",
            Self::Stop => "stop",
        }
    }
}

impl Default for Sampling {
    fn default() -> Self {
        Self::of(&GenerateOptions::default())
    }
}

impl Sampling {
    /// How those options choose.
    pub(crate) fn of(options: &GenerateOptions) -> Self {
        Self {
            temperature: options.temperature,
            top_p: options.top_p,
            top_k: options.top_k,
            min_p: options.min_p,
            repetition_penalty: options.repetition_penalty,
            presence_penalty: options.presence_penalty,
            frequency_penalty: options.frequency_penalty,
        }
    }

    /// Makes those options choose so.
    pub(crate) fn put_into(self, options: &mut GenerateOptions) {
        options.temperature = self.temperature;
        options.top_p = self.top_p;
        options.top_k = self.top_k;
        options.min_p = self.min_p;
        options.repetition_penalty = self.repetition_penalty;
        options.presence_penalty = self.presence_penalty;
        options.frequency_penalty = self.frequency_penalty;
    }
}

/// The presets that every page has, each with what it is for.
pub(crate) fn given_presets() -> [(Preset, &'static str); 3] {
    let preset = |name: &str, temperature: f32, top_p: f32, min_p: f32| Preset {
        name: name.to_owned(),
        sampling: Sampling { temperature, top_p, min_p, ..Sampling::default() },
    };
    [
        (preset("Precise", 0.2, 0.9, 0.0), "for facts, code and summaries: nearly the same answer each time"),
        (preset("Balanced", 0.7, 0.95, 0.0), "for talk: lively, and to the point"),
        (preset("Creative", 1.0, 1.0, 0.05), "for stories and ideas: surprising, and sometimes wrong"),
    ]
}

/// The lines of a box that hold what a template is told: `name = JSON value`.
pub(crate) fn lines_from_arguments(arguments: &Map<String, Value>) -> String {
    arguments.iter().map(|(name, value)| format!("{name} = {value}")).collect::<Vec<_>>().join("\n")
}

/// What a template is told, from the lines of a box. The error is a sentence.
pub(crate) fn arguments_from_lines(lines: &str) -> Result<Map<String, Value>, String> {
    let mut arguments = Map::new();
    for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once('=').ok_or_else(|| {
            format!("“{line}”: write a name, =, and a JSON value, as in {THINKING} = false.")
        })?;
        let (name, value) = (name.trim(), value.trim());
        let is_plain = |name: &str| name.chars().all(|letter| letter.is_alphanumeric() || letter == '_');
        if name.is_empty() || !is_plain(name) {
            return Err(format!("“{name}”: a name has letters, digits and _ only."));
        }
        let value = serde_json::from_str(value)
            .map_err(|_error| format!("{name}: a JSON value such as true, 3 or \"text\", not {value}."))?;
        arguments.insert(name.to_owned(), value);
    }
    Ok(arguments)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn sampling_is_a_part_of_the_options() {
        let options =
            GenerateOptions { temperature: 0.3, top_k: 7, seed: Some(1), ..GenerateOptions::default() };
        let mut other = GenerateOptions { seed: Some(2), ..GenerateOptions::default() };
        Sampling::of(&options).put_into(&mut other);
        assert_eq!(other, GenerateOptions { seed: Some(2), ..options });
    }

    #[test]
    fn what_a_chat_has_of_its_own_is_kept() {
        let own = Own {
            system_prompt: Some("Be brief.".to_owned()),
            sampling: Some(given_presets()[2].0.sampling),
            arguments: Map::from_iter([(THINKING.to_owned(), json!(false))]),
            when_full: WhenFull::Drop,
        };
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(serde_json::from_str::<Own>(&text).unwrap(), own);
        assert_eq!(serde_json::from_str::<Own>("{}").unwrap(), Own::default());
        assert_eq!(serde_json::to_string(&Own::default()).unwrap(), r#"{"when_full":"ask"}"#);
    }

    #[test]
    fn arguments_are_lines() {
        let arguments = arguments_from_lines(" enable_thinking=false \n\n n = [1, {\"a\": \"=\"}]").unwrap();
        let expected = json!({ "enable_thinking": false, "n": [1, { "a": "=" }] });
        assert_eq!(Value::from(arguments.clone()), expected);
        assert_eq!(arguments_from_lines(&lines_from_arguments(&arguments)), Ok(arguments));
        for (line, part) in
            [("a", "write a name"), ("a b = 1", "letters"), ("= 1", "letters"), ("a = b", "JSON")]
        {
            assert!(arguments_from_lines(line).unwrap_err().contains(part), "{line}");
        }
    }
}
