//! Recognises what a tokenizer.json does to text before and after merging. Every step is one of those listed here, in
//! an order that is understood, or the file is refused by that step's name: a guess would give wrong tokens.

use serde_json::Value as Json;

use super::file::TokenizerFile;
use super::refuse;
use crate::text::TextError;
use crate::text::pre_tokenizer::{Exceptions, Step, known_names, recognise as recognise_words};
use crate::text::sentence_piece::SpacePrefix;

/// What happens to text around the merges.
pub(super) struct Pipeline {
    pub(super) method: Method,
    /// The special token that raw text begins with.
    pub(super) first: Option<String>,
    /// The special token that raw text ends with.
    pub(super) last: Option<String>,
}

/// The two kinds of BPE.
pub(super) enum Method {
    /// GPT-2's: the name of the pre-tokenizer in GGUF, and where this one departs from it.
    ByteLevel { pre: &'static str, exceptions: Exceptions, add_space_prefix: bool },
    /// SentencePiece's.
    SentencePiece(SpacePrefix),
}

/// Which kind of tokenizer this is.
pub(super) fn recognise(file: &TokenizerFile) -> Result<Pipeline, TextError> {
    check_model(file)?;
    let normalizers = flatten(file.normalizer.as_ref(), "normalizers");
    let pre_tokenizers = flatten(file.pre_tokenizer.as_ref(), "pretokenizers");
    let method = if pre_tokenizers.iter().any(|step| kind(step) == "ByteLevel") {
        byte_level(file, &normalizers, &pre_tokenizers)?
    } else {
        Method::SentencePiece(sentence_piece(file, &normalizers, &pre_tokenizers)?)
    };
    check_decoder(file, &method)?;
    let (first, last) = added_to_text(file)?;
    Ok(Pipeline { method, first, last })
}

fn check_model(file: &TokenizerFile) -> Result<(), TextError> {
    let model = &file.model;
    let kind = model.kind.as_deref().unwrap_or("BPE");
    if kind != "BPE" {
        return Err(refuse(
            &file.name,
            format!("has a tokenizer of type {kind:?}, but only \"BPE\" is supported; use a model with one"),
        ));
    }
    let unusual = [
        ("dropout", model.dropout.is_some_and(|dropout| dropout != 0.0)),
        (
            "continuing_subword_prefix",
            model.continuing_subword_prefix.as_ref().is_some_and(|it| !it.is_empty()),
        ),
        ("end_of_word_suffix", model.end_of_word_suffix.as_ref().is_some_and(|it| !it.is_empty())),
    ];
    match unusual.iter().find(|(_, set)| *set) {
        Some((name, _)) => Err(refuse(
            &file.name,
            format!("sets model.{name}, which is not supported; use a model without it"),
        )),
        None => Ok(()),
    }
}

/// The steps of a sequence, or the one step, in order. Empty and absent ones are none.
fn flatten<'a>(step: Option<&'a Json>, list: &str) -> Vec<&'a Json> {
    let mut steps = Vec::new();
    let mut rest: Vec<&Json> = step.into_iter().collect();
    while let Some(step) = rest.pop() {
        match step.get(list).and_then(Json::as_array) {
            Some(parts) if kind(step) == "Sequence" => rest.extend(parts.iter().rev()),
            _ if step.is_null() => {}
            _ => steps.push(step),
        }
    }
    steps
}

fn kind(step: &Json) -> &str {
    step.get("type").and_then(Json::as_str).unwrap_or_default()
}

/// A switch of a step; where absent, as Hugging Face's tokenizer has it.
fn flag(step: &Json, name: &str, absent: bool) -> bool {
    step.get(name).and_then(Json::as_bool).unwrap_or(absent)
}

fn text<'a>(step: &'a Json, name: &str) -> Option<&'a str> {
    step.get(name)?.as_str()
}

/// The error that a step is not supported; long ones are cut.
fn unsupported(file: &TokenizerFile, part: &str, step: &Json) -> TextError {
    let shown: String = step.to_string().chars().take(400).collect();
    refuse(
        &file.name,
        format!(
            "has the {part} {shown}, which is not supported here: the pre-tokenizers of {} and SentencePiece's are; use a model with one of these",
            known_names()
        ),
    )
}

fn byte_level(
    file: &TokenizerFile,
    normalizers: &[&Json],
    pre_tokenizers: &[&Json],
) -> Result<Method, TextError> {
    if let Some(other) = normalizers.iter().find(|step| kind(step) != "NFC") {
        return Err(unsupported(file, "normalizer", other));
    }
    let mut steps = Vec::new();
    let mut add_space_prefix = false;
    for (index, step) in pre_tokenizers.iter().enumerate() {
        let last = index + 1 == pre_tokenizers.len();
        match kind(step) {
            "ByteLevel" if last => {
                add_space_prefix = flag(step, "add_prefix_space", true);
                if flag(step, "use_regex", true) {
                    steps.push(Step::Gpt2Words);
                }
            }
            "Digits" if flag(step, "individual_digits", false) => steps.push(Step::Digits),
            "Split" => match isolating_pattern(step) {
                Some(pattern) => steps.push(Step::Split(pattern.into())),
                None => return Err(unsupported(file, "pre-tokenizer", step)),
            },
            _ => return Err(unsupported(file, "pre-tokenizer", step)),
        }
    }
    let (nfc, ignore_merges) = (!normalizers.is_empty(), file.model.ignore_merges);
    let whole = || unsupported(file, "pre-tokenizer", file.pre_tokenizer.as_ref().unwrap_or(&Json::Null));
    let (pre, exceptions) = recognise_words(&steps, nfc, ignore_merges).ok_or_else(whole)?;
    if add_space_prefix && steps.len() > 1 {
        // The prefix would come after the cuts, before each piece.
        return Err(whole());
    }
    Ok(Method::ByteLevel { pre, exceptions, add_space_prefix })
}

/// The pattern of a split after which matches stand alone. To remove what does not match is the same where everything
/// matches, as in every published list of words.
fn isolating_pattern(step: &Json) -> Option<&str> {
    let isolates = match (text(step, "behavior")?, flag(step, "invert", false)) {
        ("Isolated", _) => true,
        ("Removed", invert) => invert,
        _ => false,
    };
    step.get("pattern").filter(|_| isolates)?.get("Regex")?.as_str()
}

fn sentence_piece(
    file: &TokenizerFile,
    normalizers: &[&Json],
    pre_tokenizers: &[&Json],
) -> Result<SpacePrefix, TextError> {
    let mut prefix = SpacePrefix::Nowhere;
    let mut writes_spaces = false;
    for step in normalizers {
        let replaces = || step.get("pattern")?.get("String")?.as_str();
        match kind(step) {
            "Prepend" if text(step, "prepend") == Some("▁") => prefix = SpacePrefix::EverySegment,
            "Replace" if replaces() == Some(" ") && text(step, "content") == Some("▁") => {
                writes_spaces = true;
            }
            _ => return Err(unsupported(file, "normalizer", step)),
        }
    }
    for step in pre_tokenizers {
        let splits = || step.get("pattern")?.get("String")?.as_str();
        match kind(step) {
            // Gemma's: it splits at spaces, of which none is left.
            "Split" if splits() == Some(" ") && writes_spaces => {}
            "Metaspace" if is_whole_metaspace(step) && normalizers.is_empty() && !writes_spaces => {
                prefix = match text(step, "prepend_scheme") {
                    Some("first") => SpacePrefix::Once,
                    Some("never") => SpacePrefix::Nowhere,
                    _ => return Err(unsupported(file, "pre-tokenizer", step)),
                };
                writes_spaces = true;
            }
            _ => return Err(unsupported(file, "pre-tokenizer", step)),
        }
    }
    if !writes_spaces || file.model.ignore_merges {
        let none = Json::String("none".into());
        return Err(unsupported(file, "pre-tokenizer", file.pre_tokenizer.as_ref().unwrap_or(&none)));
    }
    Ok(prefix)
}

/// Whether a Metaspace writes `▁` for a space and leaves the text whole.
fn is_whole_metaspace(step: &Json) -> bool {
    text(step, "replacement") == Some("▁") && !flag(step, "split", true)
}

/// Whether tokens become text again as the method has it.
fn check_decoder(file: &TokenizerFile, method: &Method) -> Result<(), TextError> {
    let decoders = flatten(file.decoder.as_ref(), "decoders");
    let Some(decoder) = file.decoder.as_ref().filter(|_| !decoders.is_empty()) else { return Ok(()) };
    let fits = match method {
        Method::ByteLevel { .. } => decoders.iter().all(|step| kind(step) == "ByteLevel"),
        Method::SentencePiece(prefix) => {
            let known = |step: &&Json| match kind(step) {
                "Replace" => text(step, "content") == Some(" "),
                "Strip" => text(step, "content") == Some(" ") && step.get("start") == Some(&1.into()),
                "ByteFallback" | "Fuse" | "Metaspace" => true,
                _ => false,
            };
            let strips = |step: &&Json| match kind(step) {
                "Strip" => true,
                "Metaspace" => text(step, "prepend_scheme") != Some("never"),
                _ => false,
            };
            decoders.iter().all(known) && decoders.iter().any(strips) == (*prefix != SpacePrefix::Nowhere)
        }
    };
    if fits { Ok(()) } else { Err(unsupported(file, "decoder", decoder)) }
}

/// The special tokens that raw text begins and ends with.
fn added_to_text(file: &TokenizerFile) -> Result<(Option<String>, Option<String>), TextError> {
    let mut added = (None, None);
    for step in flatten(file.post_processor.as_ref(), "processors") {
        match kind(step) {
            // It moves offsets only.
            "ByteLevel" => {}
            "TemplateProcessing" => {
                added = around_text(step).ok_or_else(|| unsupported(file, "post-processor", step))?;
            }
            _ => return Err(unsupported(file, "post-processor", step)),
        }
    }
    Ok(added)
}

/// The tokens of a template: at most one before the text and one after it.
fn around_text(step: &Json) -> Option<(Option<String>, Option<String>)> {
    let token = |part: &Json| Some(part.get("SpecialToken")?.get("id")?.as_str()?.to_owned());
    let is_text = |part: &Json| part.get("Sequence").is_some();
    match step.get("single")?.as_array()?.as_slice() {
        [only] if is_text(only) => Some((None, None)),
        [first, middle] if is_text(middle) => Some((Some(token(first)?), None)),
        [middle, last] if is_text(middle) => Some((None, Some(token(last)?))),
        [first, middle, last] if is_text(middle) => Some((Some(token(first)?), Some(token(last)?))),
        _ => None,
    }
}
