//! The forms that answers of a model may have, made ready when the first is asked for.
//!
//! Invariant: a model whose answers are all free pays nothing.

use crate::engine::constraint::Constraint;
use crate::protocol::Structure;
pub(crate) use crate::structure::StructureError;
use crate::structure::{Compiled, Form, Forms};
use crate::text::Tokenizer;

/// What was made ready for one model.
#[derive(Default)]
pub(crate) struct FormStore {
    /// The model's tokens as grammars see them: several bytes for each byte of text.
    forms: Option<Forms>,
    /// The last form asked for: many requests ask for the same.
    last: Option<(Structure, Compiled)>,
}

impl FormStore {
    /// What begins an answer in a form.
    pub(crate) fn compile(
        &mut self,
        structure: &Structure,
        tokenizer: &Tokenizer,
        n_logits: usize,
    ) -> Result<impl Fn() -> Box<dyn Constraint>, StructureError> {
        let forms = match self.forms.take() {
            Some(forms) => forms,
            None => Forms::new(tokenizer, n_logits)?,
        };
        let forms = self.forms.insert(forms);
        let last = match self.last.take() {
            Some((of, compiled)) if of == *structure => compiled,
            _ => forms.compile(match structure {
                Structure::Json => Form::Json,
                Structure::JsonSchema(text) => Form::JsonSchema(text),
                Structure::Grammar(text) => Form::Grammar(text),
            })?,
        };
        let (_, compiled) = self.last.insert((structure.clone(), last));
        Ok(|| Box::new(compiled.fork()) as Box<dyn Constraint>)
    }
}
