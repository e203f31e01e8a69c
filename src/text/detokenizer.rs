//! Tokens → text as they come: whole characters only, and in the end exactly what decoding all bytes at once gives.

use std::rc::Rc;

use super::Tokenizer;

/// The text of one sequence. A character whose bytes are not all there is held back.
pub struct Detokenizer {
    tokenizer: Rc<Tokenizer>,
    skip_special: bool,
    /// The beginning of a character, at most 3 bytes between calls.
    pending: Vec<u8>,
    /// A space that comes next was put there by the tokenizer.
    drop_space: bool,
}

impl Detokenizer {
    /// At the beginning of a text; `skip_special` leaves out control and unused tokens.
    pub fn new(tokenizer: Rc<Tokenizer>, skip_special: bool) -> Self {
        let drop_space = tokenizer.adds_space();
        Self { tokenizer, skip_special, pending: Vec::new(), drop_space }
    }

    /// Within a text, after other tokens: a space at the beginning is the text's own.
    pub fn continuing(tokenizer: Rc<Tokenizer>, skip_special: bool) -> Self {
        Self { drop_space: false, ..Self::new(tokenizer, skip_special) }
    }

    /// The text that became certain with this token. Bytes that can belong to no character become U+FFFD.
    pub fn push(&mut self, id: u32) -> String {
        if self.skip_special && self.tokenizer.is_special(id) {
            return String::new();
        }
        let bytes = self.tokenizer.token_bytes(id);
        let mut bytes = bytes.as_slice();
        if !bytes.is_empty() && std::mem::take(&mut self.drop_space) {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
        }
        self.push_bytes(bytes)
    }

    /// What is left at the end: U+FFFD for a character that was cut off, else nothing.
    pub fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.pending)).into_owned()
    }

    fn push_bytes(&mut self, bytes: &[u8]) -> String {
        self.pending.extend_from_slice(bytes);
        let mut text = String::with_capacity(self.pending.len());
        let mut rest = self.pending.as_slice();
        let kept = loop {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    break 0;
                }
                Err(error) => {
                    let (valid, broken) = rest.split_at(error.valid_up_to());
                    text.push_str(std::str::from_utf8(valid).expect("valid up to here"));
                    let Some(n_bytes) = error.error_len() else { break broken.len() };
                    text.push(char::REPLACEMENT_CHARACTER);
                    rest = &broken[n_bytes..];
                }
            }
        };
        self.pending.drain(..self.pending.len() - kept);
        text
    }
}
