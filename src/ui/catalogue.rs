//! The models the page offers, from `models.json` beside it, each with the options it starts with.

use serde::Deserialize;
use serde_json::{Map, Value};

use super::fit::Need;
use crate::protocol::GenerateOptions;
use crate::store::whole::{BEFORE_HASH, split_hash};

/// Where the offers lie, relative to the page.
pub(crate) const CATALOGUE_URL: &str = "models.json";

/// A model that the page offers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Offer {
    /// What it is called; names its settings too.
    pub(crate) name: String,
    /// Where it lies, relative to the page, with its hash behind it if that is known.
    pub(crate) url: String,
    /// Size of the file in bytes.
    pub(crate) n_bytes: u64,
    /// Block type of most weights, such as `Q4_1`.
    pub(crate) quantization: String,
    /// SPDX name of its licence.
    pub(crate) license: String,
    /// What it takes to run it.
    pub(crate) need: Need,
    /// The options it starts with.
    pub(crate) options: GenerateOptions,
}

/// What a model starts with that says nothing of its own: lively, and an end within reach.
pub(crate) fn default_options() -> GenerateOptions {
    GenerateOptions { temperature: 0.7, top_p: 0.95, max_tokens: Some(1024), ..GenerateOptions::default() }
}

#[derive(Deserialize)]
struct CatalogueFile {
    models: Vec<OfferEntry>,
}

#[derive(Deserialize)]
struct OfferEntry {
    name: String,
    url: String,
    bytes: u64,
    quantization: String,
    license: String,
    sha256: Option<String>,
    kv_bytes_per_token: Option<u64>,
    context: Option<u32>,
    /// Those options that differ from [`default_options`].
    #[serde(default)]
    options: Map<String, Value>,
}

/// The offers in the text of a `models.json`. The error is a sentence.
pub(crate) fn parse(text: &str) -> Result<Vec<Offer>, String> {
    let file: CatalogueFile = serde_json::from_str(text)
        .map_err(|error| format!("The list of models, {CATALOGUE_URL}, is unreadable: {error}."))?;
    file.models.into_iter().map(offer_from_entry).collect()
}

fn offer_from_entry(entry: OfferEntry) -> Result<Offer, String> {
    let OfferEntry { name, mut url, bytes: n_bytes, quantization, license, options, .. } = entry;
    if let Some(hash) = &entry.sha256 {
        url = format!("{url}{BEFORE_HASH}{hash}");
        split_hash(&url).map_err(|problem| format!("In {CATALOGUE_URL}: {problem}."))?;
    }
    let need =
        Need { weight_bytes: n_bytes, kv_bytes_per_token: entry.kv_bytes_per_token, context: entry.context };
    let options = options_from_overrides(options).map_err(|error| {
        format!("In {CATALOGUE_URL} the options of \u{201c}{name}\u{201d} are wrong: {error}.")
    })?;
    Ok(Offer { name, url, n_bytes, quantization, license, need, options })
}

fn options_from_overrides(overrides: Map<String, Value>) -> Result<GenerateOptions, serde_json::Error> {
    let mut options = serde_json::to_value(default_options())?;
    options.as_object_mut().expect("a struct is a JSON object").extend(overrides);
    serde_json::from_value(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_list_is_readable() {
        let offers = parse(include_str!("../../www/models.json")).unwrap();
        let first = &offers[0];
        assert_eq!((first.options.temperature, first.options.max_tokens), (0.0, Some(512)));
        assert_eq!(first.options.top_p, 0.95, "what it does not name is the page's own");
        assert!(first.url.starts_with("models/") && first.n_bytes > 0);
    }

    #[test]
    fn what_is_wrong_is_named() {
        let entry = |options: &str| {
            format!(
                r#"{{"models": [{{"name": "Tiny", "url": "t.gguf", "bytes": 1, "quantization": "F32",
                "license": "MIT", "options": {options}}}]}}"#
            )
        };
        assert_eq!(parse(&entry("{}")).unwrap()[0].options, default_options());
        for (text, part) in [
            ("<!doctype html>".to_owned(), "models.json"),
            (r#"{"models": [{"name": "Tiny"}]}"#.to_owned(), "url"),
            (entry(r#"{"heat": 1}"#), "heat"),
            (entry(r#"{}, "sha256": "beef""#), "64 hexadecimal digits"),
            (entry(r#"{"temperature": "hot"}"#), "Tiny"),
        ] {
            let error = parse(&text).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
