//! The forms of answers in the build of the page, which asks for them and never answers: nothing of the parser is in what
//! it downloads.

use crate::engine::constraint::Constraint;
use crate::protocol::Structure;
use crate::text::Tokenizer;

/// There is no parser.
#[derive(Debug, Clone, thiserror::Error)]
#[error("this build keeps no form of an answer; build it with the feature `grammar`")]
pub struct StructureError;

/// Nothing.
#[derive(Default)]
pub(crate) struct FormStore;

impl FormStore {
    /// Refuses every form.
    #[expect(clippy::unused_self, reason = "as where there are forms")]
    pub(crate) fn compile(
        &mut self,
        _: &Structure,
        _: &Tokenizer,
        _: usize,
    ) -> Result<Box<dyn Fn() -> Box<dyn Constraint>>, StructureError> {
        Err(StructureError)
    }
}
