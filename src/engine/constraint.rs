//! What may come next of a sequence whose output has a form.
//!
//! Invariant: a constraint knows the tokens of its own sequence and nothing else. Tokens are never taken back, so neither a
//! preemption nor a lost device touches it.

use std::fmt::Debug;

/// Decides which tokens may follow those of a sequence's output.
pub trait Constraint: Debug {
    /// A bit for each token that may come next, the lowest bit of a word first, at least one: (vocabulary / 32). Tokens
    /// beyond the last word may not.
    fn allowed(&mut self) -> Result<&[u32], Unmet>;

    /// The output grew by this token.
    fn push(&mut self, token: u32) -> Result<(), Unmet>;

    /// Whether the output is whole, and nothing may follow.
    fn is_complete(&self) -> bool;
}

/// No token may come next, though the output is not whole; or that cannot be found out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmet;

/// Whether a bit of a mask is set.
pub(super) fn is_allowed(mask: &[u32], token: u32) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}
