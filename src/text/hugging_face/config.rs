//! What the files beside the vocabulary say: special tokens, what is added to raw text, end tokens, the chat template.
//! Where two files speak of the same, the one that Hugging Face's library reads last wins.

use serde_json::{Map, Value as Json, json};

use super::file::{AddedToken, read_json};
use super::{NamedFile, TokenizerFiles, refuse};
use crate::text::TextError;
use crate::text::pre_tokenizer::qwen2_words;

/// The small files, as far as a tokenizer needs them.
pub(super) struct Config {
    tokenizer: Object,
    special_tokens: Object,
    model: Object,
    generation: Object,
    /// The chat template's source.
    pub(super) chat_template: Option<String>,
}

/// A JSON object with the file it is from; empty where the file is absent.
#[derive(Default)]
struct Object {
    name: String,
    fields: Map<String, Json>,
}

/// Longest list of end tokens; published models have up to four.
const MAX_END_TOKENS: usize = 1000;

impl Config {
    /// Reads the files that are there.
    pub(super) fn read(files: &TokenizerFiles<'_>) -> Result<Self, TextError> {
        let tokenizer = Object::read(files.tokenizer_config_json)?;
        let chat_template = match files.chat_template_jinja {
            Some(file) => Some(
                std::str::from_utf8(file.bytes)
                    .map_err(|error| refuse(file.name, format!("is not UTF-8: {error}; download it again")))?
                    .to_owned(),
            ),
            None => tokenizer.chat_template()?,
        };
        Ok(Self {
            tokenizer,
            special_tokens: Object::read(files.special_tokens_map_json)?,
            model: Object::read(files.config_json)?,
            generation: Object::read(files.generation_config_json)?,
            chat_template,
        })
    }

    /// The text of a special token such as `eos_token`.
    pub(super) fn special_token(&self, name: &str) -> Result<Option<&str>, TextError> {
        for object in [&self.tokenizer, &self.special_tokens] {
            if let Some(text) = object.token_text(name)? {
                return Ok(Some(text));
            }
        }
        Ok(None)
    }

    /// A switch of tokenizer_config.json such as `add_bos_token`.
    pub(super) fn flag(&self, name: &str) -> Result<Option<bool>, TextError> {
        match self.tokenizer.get(name) {
            None => Ok(None),
            Some(Json::Bool(flag)) => Ok(Some(*flag)),
            Some(other) => Err(self.tokenizer.wrong(name, other, "true or false")),
        }
    }

    /// The first id that config.json, then generation_config.json, gives under a name such as `eos_token_id`.
    pub(super) fn first_id(&self, name: &str) -> Result<Option<u64>, TextError> {
        for object in [&self.model, &self.generation] {
            if let Some(id) = object.ids(name)?.first() {
                return Ok(Some(*id));
            }
        }
        Ok(None)
    }

    /// Every id that ends an answer, with the file that says so.
    pub(super) fn end_ids(&self) -> Result<Vec<(u64, &str)>, TextError> {
        let mut found = Vec::new();
        for object in [&self.model, &self.generation] {
            found.extend(object.ids("eos_token_id")?.into_iter().map(|id| (id, object.name.as_str())));
        }
        Ok(found)
    }

    /// The added tokens of tokenizer_config.json, which stands in for tokenizer.json's where there is none.
    pub(super) fn added_tokens(&self) -> Result<Vec<AddedToken>, TextError> {
        const NAME: &str = "added_tokens_decoder";
        let Some(tokens) = self.tokenizer.get(NAME) else { return Ok(Vec::new()) };
        let wrong = || self.tokenizer.wrong(NAME, tokens, "an object of added tokens by id");
        let mut added = Vec::new();
        for (id, token) in tokens.as_object().ok_or_else(wrong)? {
            let mut token = token.as_object().ok_or_else(wrong)?.clone();
            token.insert("id".into(), id.parse::<u64>().ok().ok_or_else(wrong)?.into());
            added.push(serde_json::from_value(Json::Object(token)).ok().ok_or_else(wrong)?);
        }
        Ok(added)
    }

    /// The normalizer and pre-tokenizer of the class that tokenizer_config.json names, as tokenizer.json would spell
    /// them: for folders that have vocab.json and merges.txt only.
    pub(super) fn steps_by_class(&self) -> Result<(Option<Json>, Json), TextError> {
        const NAME: &str = "tokenizer_class";
        let class = match self.tokenizer.get(NAME) {
            None => "GPT2Tokenizer",
            Some(Json::String(class)) => class,
            Some(other) => return Err(self.tokenizer.wrong(NAME, other, "a text")),
        };
        match class.strip_suffix("Fast").unwrap_or(class) {
            "GPT2Tokenizer" => {
                let prefix = self.flag("add_prefix_space")?.unwrap_or(false);
                Ok((None, json!({"type": "ByteLevel", "add_prefix_space": prefix, "use_regex": true})))
            }
            "Qwen2Tokenizer" => {
                let split = json!({
                    "type": "Split", "behavior": "Isolated", "invert": false,
                    "pattern": {"Regex": qwen2_words()},
                });
                let bytes = json!({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false});
                let steps = json!({"type": "Sequence", "pretokenizers": [split, bytes]});
                Ok((Some(json!({"type": "NFC"})), steps))
            }
            _ => Err(refuse(
                &self.tokenizer.name,
                format!(
                    "names the tokenizer class {class:?}, of which vocab.json and merges.txt tell only a part; add tokenizer.json to the folder"
                ),
            )),
        }
    }
}

impl Object {
    fn read(file: Option<NamedFile<'_>>) -> Result<Self, TextError> {
        let Some(file) = file else { return Ok(Self::default()) };
        Ok(Self { name: file.name.into(), fields: read_json(file)? })
    }

    /// A field that is there and not null.
    fn get(&self, name: &str) -> Option<&Json> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    /// The error that a field is not what it should be.
    fn wrong(&self, field: &str, found: &Json, wanted: &str) -> TextError {
        let shown: String = found.to_string().chars().take(100).collect();
        refuse(&self.name, format!("has {field} {shown}, but {wanted} was expected; download it again"))
    }

    /// A special token: its text, or an object with its content.
    fn token_text(&self, name: &str) -> Result<Option<&str>, TextError> {
        let Some(token) = self.get(name) else { return Ok(None) };
        let text = token.as_str().or_else(|| token.get("content")?.as_str());
        text.map(Some).ok_or_else(|| self.wrong(name, token, "a token's text"))
    }

    /// An id or a list of ids. A negative one stands for none, as in Llama 2's config.json.
    fn ids(&self, name: &str) -> Result<Vec<u64>, TextError> {
        let Some(value) = self.get(name) else { return Ok(Vec::new()) };
        let wrong = || self.wrong(name, value, "a token id or a list of them");
        let list = match value {
            Json::Array(list) if list.len() <= MAX_END_TOKENS => list.as_slice(),
            Json::Number(_) => std::slice::from_ref(value),
            _ => return Err(wrong()),
        };
        let mut ids = Vec::with_capacity(list.len());
        for id in list {
            match (id.as_u64(), id.as_i64()) {
                (Some(id), _) => ids.push(id),
                (None, Some(_negative)) => {}
                (None, None) => return Err(wrong()),
            }
        }
        Ok(ids)
    }

    /// The template: a text, or a list of named ones of which `default` is for conversations; without that there is none.
    fn chat_template(&self) -> Result<Option<String>, TextError> {
        const NAME: &str = "chat_template";
        let Some(template) = self.get(NAME) else { return Ok(None) };
        if let Some(source) = template.as_str() {
            return Ok(Some(source.to_owned()));
        }
        let named = |entry: &&Json| entry.get("name").and_then(Json::as_str) == Some("default");
        let list = template.as_array().ok_or_else(|| self.wrong(NAME, template, "a text or a list"))?;
        let default = list.iter().find(named).and_then(|entry| entry.get("template")?.as_str());
        Ok(default.map(str::to_owned))
    }
}
