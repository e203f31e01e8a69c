//! Answers that have a form: JSON, JSON of a schema, or a grammar, kept by masking tokens (the parser is llguidance's).
//!
//! Invariant: what is compiled here bounds itself. No form, however large, nested or ambiguous, takes more than some fuel to
//! compile or for a token; one that cannot be met is refused with a sentence, at once where that shows at once.

mod chain;
mod error;
mod locate;
mod words;

use std::fmt;
use std::sync::Arc;

use llguidance::api::{GrammarInit, ParserLimits, StopReason, TopLevelGrammar};
use llguidance::toktrie::{InferenceCapabilities, SimpleVob, TokEnv};
use llguidance::{JsonCompileOptions, Matcher, ParserFactory};
use serde_json::{Value, json};

use crate::engine::constraint::{Constraint, Unmet};
use crate::text::Tokenizer;

pub use error::StructureError;

/// Longest text of a schema or grammar: a large one has a few thousand bytes.
pub const MAX_BYTES: usize = 64 << 10;
/// How deep a schema or grammar may nest: each level is a call within a call, and wasm's stack is short.
pub const MAX_DEPTH: usize = 48;
/// How deep it may nest where its names are followed, which are calls within calls too.
pub const MAX_CHAIN: usize = 128;
/// Between the parts of JSON there is at most a space or a new line, indented: without an end a model that has lost its way
/// would write spaces for ever.
const WHITESPACE: &str = r" |\n {0,32}|\n\t{0,16}";

/// What most tokens are, and what nearly all of JSON's strings are made of: these tokens are then looked at together. The tree
/// of a vocabulary is kept a second time for it; for more such classes it would be once more each, and hardly faster.
const WITHIN_STRING: &str = r#"[^"\\\x00-\x1F\x7F]+"#;

/// The form of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form<'a> {
    /// A JSON object.
    Json,
    /// What a JSON Schema describes.
    JsonSchema(&'a str),
    /// What a grammar describes, in llguidance's Lark.
    Grammar(&'a str),
}

/// Makes constraints for the tokens of one model.
pub struct Forms {
    factory: ParserFactory,
}

/// The limits of every form, in steps of work and not in time: the same form fails or not on every machine.
fn limits() -> ParserLimits {
    ParserLimits {
        initial_lexer_fuel: 500_000,
        // Two kilobytes each.
        max_lexer_states: 50_000,
        max_grammar_size: 200_000,
        step_max_items: 20_000,
        verbose_errors: false,
        ..ParserLimits::default()
    }
}

impl Forms {
    /// For a tokenizer and so many logits.
    ///
    /// # Errors
    /// A vocabulary that is too large.
    pub fn new(tokenizer: &Tokenizer, n_logits: usize) -> Result<Self, StructureError> {
        let words: TokEnv = Arc::new(words::Words::new(tokenizer, n_logits)?);
        let mut factory =
            ParserFactory::new(&words, InferenceCapabilities::default(), &[WITHIN_STRING.into()])
                .map_err(|error| StructureError::Vocabulary { detail: error.to_string() })?;
        factory.quiet();
        *factory.limits_mut() = limits();
        Ok(Self { factory })
    }

    /// A form, ready for the beginning of any number of answers.
    ///
    /// # Errors
    /// One that cannot be read, is not supported, too complex, or that no token begins.
    pub fn compile(&self, form: Form<'_>) -> Result<Compiled, StructureError> {
        let (what, text) = match form {
            Form::Json => ("JSON", ""),
            Form::JsonSchema(text) => (error::SCHEMA, text),
            Form::Grammar(text) => (error::GRAMMAR, text),
        };
        if text.len() > MAX_BYTES {
            return Err(StructureError::TooLong { what, n_bytes: text.len() });
        }
        let depth = locate::depth(text);
        if depth > MAX_DEPTH {
            return Err(StructureError::TooDeep { what, depth });
        }
        match form {
            Form::Json => self.begin(what, schema_grammar(json!({ "type": "object" }))),
            Form::JsonSchema(text) => {
                let schema = read_schema(text)?;
                check_chain(what, chain::of_schema(&schema))?;
                self.begin(what, schema_grammar(schema.clone())).map_err(|error| match error {
                    StructureError::Refused { what, verb, detail, .. } => {
                        let place = locate::fault(&schema, |part| self.has_fault(part, &detail));
                        StructureError::Refused { what, verb, detail, place }
                    }
                    other => other,
                })
            }
            Form::Grammar(text) => {
                check_chain(what, chain::of_grammar(text))?;
                self.begin(what, TopLevelGrammar::from_lark(text.to_owned()))
            }
        }
    }

    /// Compiles, and finds the first mask, which all answers share.
    fn begin(&self, what: &'static str, grammar: TopLevelGrammar) -> Result<Compiled, StructureError> {
        let refused = |detail: String| StructureError::refused(what, &detail);
        let parser = self.factory.create_parser(grammar).map_err(|error| refused(error.to_string()))?;
        let mut compiled = Compiled { matcher: Matcher::new(Ok(parser)), mask: None };
        if let Some(error) = compiled.matcher.get_error() {
            return Err(refused(error));
        }
        let Ok(mask) = compiled.allowed() else {
            let detail = compiled.matcher.get_error().unwrap_or_default();
            let is_dead_end = detail.contains(&StopReason::NoExtensionBias.to_string());
            return Err(if is_dead_end { StructureError::Unmeetable { what } } else { refused(detail) });
        };
        let first = (0..).zip(mask).find(|(_, word)| **word != 0);
        let first = first.map(|(index, word): (u32, _)| 32 * index + word.trailing_zeros());
        // Too many ways on from the first token on are found out here, and not in an answer.
        let mut second = compiled.fork();
        match first.map(|token| second.push(token)) {
            Some(Err(Unmet)) => Err(refused(second.matcher.get_error().unwrap_or_default())),
            _ => Ok(compiled),
        }
    }

    /// Whether a schema is refused for a reason.
    fn has_fault(&self, schema: Value, reason: &str) -> bool {
        let init = GrammarInit::Serialized(schema_grammar(schema));
        let outcome = init.validate(Some(self.factory.tok_env().clone()), limits());
        outcome.into_error().is_some_and(|message| error::cleaned(&message).ends_with(reason))
    }
}

/// Refuses names that lead deeper than the stack goes.
fn check_chain(what: &'static str, depth: usize) -> Result<(), StructureError> {
    if depth > MAX_CHAIN { Err(StructureError::ChainTooLong { what, depth }) } else { Ok(()) }
}

/// A schema as JSON.
fn read_schema(text: &str) -> Result<Value, StructureError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(schema)) => Ok(Value::Object(schema)),
        Ok(Value::Bool(true)) => Ok(json!({})),
        Ok(other) => Err(StructureError::NoSchema { found: error::kind_of(&other) }),
        Err(error) => Err(StructureError::NoJson { detail: error.to_string() }),
    }
}

/// A schema as a grammar. A schema's own settings for llguidance are left out: with some the answer is no JSON.
fn schema_grammar(mut schema: Value) -> TopLevelGrammar {
    let options =
        JsonCompileOptions { whitespace_pattern: Some(WHITESPACE.into()), ..JsonCompileOptions::default() };
    if schema.is_object() {
        options.apply_to(&mut schema);
    }
    TopLevelGrammar::from_json_schema(schema)
}

/// A form at the beginning of an answer, or on its way.
pub struct Compiled {
    matcher: Matcher,
    /// What may come next, once that was asked.
    mask: Option<SimpleVob>,
}

impl Compiled {
    /// The same for another answer. Nothing is shared, not even what was found out so far: whether an answer stays within
    /// the limits depends on itself alone.
    pub fn fork(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), mask: self.mask.clone() }
    }
}

impl fmt::Debug for Compiled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compiled").field("state", &self.matcher.stop_reason().to_string()).finish()
    }
}

impl Constraint for Compiled {
    fn allowed(&mut self) -> Result<&[u32], Unmet> {
        let mask = match self.mask.take() {
            Some(mask) => mask,
            None => self.matcher.compute_mask().map_err(|_detail| Unmet)?,
        };
        Ok(self.mask.insert(mask).as_slice())
    }

    fn push(&mut self, token: u32) -> Result<(), Unmet> {
        self.mask = None;
        self.matcher.consume_token(token).map_err(|_detail| Unmet)
    }

    fn is_complete(&self) -> bool {
        self.matcher.is_stopped() && !self.matcher.is_error()
    }
}

/// Takes a panic's message back: llguidance puts a hook before the one that is there when it is first used, which keeps
/// quiet about what goes wrong within it. Where a panic ends everything, as in wasm, somebody must be told. To be called
/// before the program sets its own hook.
pub fn leave_panics_alone() {
    let _ = llguidance::panic_utils::catch_unwind(|| Ok(()));
}

#[cfg(test)]
mod tests;
