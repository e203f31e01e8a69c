//! A tokenizer's tokens as the bytes that a grammar is matched with.
//!
//! Invariant: a token that is not text (control, unused, one that ends an answer) never stands for text.

use llguidance::toktrie::{TokRxInfo, TokTrie, TokenId, TokenizerEnv};

use super::StructureError;
use crate::text::Tokenizer;

/// Tokens and nodes are counted in 24 and 22 bits.
const MAX_TOKENS: usize = 1 << 20;
const MAX_TEXT_BYTES: usize = 4_000_000;
/// So many bytes deep the tree is at most; a longer token is never chosen.
const MAX_TOKEN_BYTES: usize = 1000;
/// The token that a vocabulary does not have.
const NO_TOKEN: TokenId = u32::MAX;

/// The tokens in a tree.
pub(super) struct Words(TokTrie);

impl Words {
    /// The tokens of a tokenizer, and up to so many logits those that have no text.
    pub(super) fn new(tokenizer: &Tokenizer, n_logits: usize) -> Result<Self, StructureError> {
        let eog: Vec<u32> =
            tokenizer.eog().iter().copied().filter(|token| (*token as usize) < n_logits).collect();
        let words: Vec<Vec<u8>> = (0..n_logits as u32).map(|token| word(tokenizer, token)).collect();
        let n_bytes: usize = words.iter().map(Vec::len).sum();
        if n_logits > MAX_TOKENS || n_bytes > MAX_TEXT_BYTES {
            let detail = format!(
                "it has {n_logits} tokens of {n_bytes} bytes, but {MAX_TOKENS} of {MAX_TEXT_BYTES} are the most"
            );
            return Err(StructureError::Vocabulary { detail });
        }
        let tok_eos = eog.first().copied().unwrap_or(NO_TOKEN);
        let trie = TokTrie::from(&TokRxInfo::new(n_logits as u32, tok_eos), &words);
        Ok(Self(if eog.is_empty() { trie } else { trie.with_eos_tokens(&eog) }))
    }
}

/// The bytes of a token as text, its name behind a byte that text does not have, or nothing.
fn word(tokenizer: &Tokenizer, token: u32) -> Vec<u8> {
    let mut word = tokenizer.token_bytes(token);
    if word.len() > MAX_TOKEN_BYTES || word.contains(&TokTrie::SPECIAL_TOKEN_MARKER) {
        return Vec::new();
    }
    if !word.is_empty() && (tokenizer.is_special(token) || tokenizer.eog().contains(&token)) {
        word.insert(0, TokTrie::SPECIAL_TOKEN_MARKER);
    }
    word
}

impl TokenizerEnv for Words {
    fn tok_trie(&self) -> &TokTrie {
        &self.0
    }

    fn tokenize_bytes(&self, bytes: &[u8]) -> Vec<TokenId> {
        self.0.greedy_tokenize(bytes)
    }

    /// Nothing is forced: the model chooses how it spells what it must write.
    fn tokenize_is_canonical(&self) -> bool {
        false
    }
}
