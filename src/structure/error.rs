//! Why the form of an answer is refused: one sentence each, with what would help.

use serde_json::Value;

/// What a schema is called.
pub(super) const SCHEMA: &str = "the JSON Schema";
/// What a grammar is called.
pub(super) const GRAMMAR: &str = "the grammar";
/// How llguidance says that nothing fits.
const UNSATISFIABLE: &str = "Unsatisfiable schema: ";
/// Longest part of another's message that is told.
const MAX_DETAIL_CHARS: usize = 300;

/// Why a form is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StructureError {
    /// More text than one form may have.
    #[error(
        "{what} has {n_bytes} bytes, but {} are allowed; leave out what the answer does not need",
        super::MAX_BYTES
    )]
    TooLong {
        /// Schema or grammar.
        what: &'static str,
        /// Bytes found.
        n_bytes: usize,
    },
    /// Brackets in brackets.
    #[error(
        "{what} nests {depth} levels deep, but {} are allowed; name its inner parts ($defs in a schema, rules in a grammar)",
        super::MAX_DEPTH
    )]
    TooDeep {
        /// Schema or grammar.
        what: &'static str,
        /// Levels found.
        depth: usize,
    },
    /// Names that lead too deep.
    #[error(
        "{what} leads {depth} levels deep where its names are followed, but {} are allowed; let fewer of its parts name each other in a row",
        super::MAX_CHAIN
    )]
    ChainTooLong {
        /// Schema or grammar.
        what: &'static str,
        /// Levels found.
        depth: usize,
    },
    /// Not JSON.
    #[error("the JSON Schema is no JSON: {detail}")]
    NoJson {
        /// What is wrong, and where.
        detail: String,
    },
    /// JSON, but no schema.
    #[error("the JSON Schema must be an object such as {{\"type\": \"object\"}}; found {found}")]
    NoSchema {
        /// What it is.
        found: &'static str,
    },
    /// Not understood, not supported or too complex; or such that nothing fits.
    #[error("{what} cannot be {verb}{}: {detail}", at(place.as_ref()))]
    Refused {
        /// Schema or grammar.
        what: &'static str,
        /// `met` where nothing fits, else `kept`.
        verb: &'static str,
        /// Why.
        detail: String,
        /// Where in the schema, as a JSON pointer.
        place: Option<String>,
    },
    /// Nothing fits.
    #[error("{what} cannot be met: no token of this model begins an answer that fits; loosen it")]
    Unmeetable {
        /// Schema or grammar.
        what: &'static str,
    },
    /// The model's tokens.
    #[error("the answer can have no form with this model's vocabulary: {detail}; ask without one")]
    Vocabulary {
        /// Why.
        detail: String,
    },
}

impl StructureError {
    /// From llguidance's message.
    pub(super) fn refused(what: &'static str, message: &str) -> Self {
        let detail = cleaned(message);
        match detail.strip_prefix(UNSATISFIABLE) {
            Some(reason) => Self::Refused { what, verb: "met", detail: reason.into(), place: None },
            None => Self::Refused { what, verb: "kept", detail, place: None },
        }
    }
}

fn at(place: Option<&String>) -> String {
    place.map_or_else(String::new, |place| format!(" at {place}"))
}

/// Another's message within a sentence of ours: a line, and in our words where it names what nobody here can do.
pub(super) fn cleaned(message: &str) -> String {
    let message = message.trim_end_matches("<non-verbose/>").trim();
    if message.contains("coerce_one_of") {
        return "its `oneOf` has options that one value may fit both; write `anyOf`, or give each a `const` that differs"
            .into();
    }
    if message.contains("panic:") {
        return "it breaks the parser; write it more simply".into();
    }
    if let Some(keywords) = message.strip_prefix("Unimplemented keys: ") {
        return format!("it has keywords that are not supported: {}", keywords.trim_matches(['[', ']']));
    }
    if let Some((_, reference)) = message.split_once("'referencing' feature; ref ") {
        return format!("a `$ref` must begin with #/ and stay within the schema; found {reference}");
    }
    // The lines of the grammar and the marks below them, which mean nothing in a sentence.
    let is_words = |line: &&str| !line.trim_matches(['^', '-']).is_empty() && !line.contains(" | ");
    let lines: Vec<&str> = message.lines().map(str::trim).filter(is_words).collect();
    let line = in_words(&lines.join(" "));
    match line.char_indices().nth(MAX_DETAIL_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// A place that stands in front as `at 3(14): `, in words.
fn in_words(line: &str) -> String {
    let place = line.strip_prefix("at ").unwrap_or(line).split_once("): ");
    let place = place.and_then(|(place, rest)| Some((place.split_once('(')?, rest)));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    match place {
        Some(((row, column), rest)) if is_number(row) && is_number(column) => {
            format!("line {row}, column {column}: {rest}")
        }
        _ => line.to_owned(),
    }
}

/// What JSON is, in a word.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "false, which nothing fits",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}
