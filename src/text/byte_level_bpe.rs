//! Byte-level BPE, as GPT-2 introduced it: text is cut into words, and the bytes of each merge. No byte is unknown to a
//! whole vocabulary.

use std::borrow::Cow;

use unicode_normalization_alignments::UnicodeNormalization as _;

use super::bpe::Merger;
use super::byte_level;
use super::merges::MergeTable;
use super::pre_tokenizer::PreTokenizer;
use super::sentence_piece::Place;
use super::token_table::{NO_TOKEN, TokenTable};

/// `tokenizer.ggml.model` of such a vocabulary.
pub(super) const BYTE_LEVEL: &str = "gpt2";

/// What byte-level BPE needs beside the tokens.
pub(super) struct ByteLevelBpe {
    pre_tokenizer: PreTokenizer,
    merges: MergeTable,
    /// The token of each byte, or `NO_TOKEN`.
    byte_ids: [u32; 256],
    add_space_prefix: bool,
}

impl ByteLevelBpe {
    /// For a vocabulary's rules.
    pub(super) fn new(
        tokens: &TokenTable,
        pre_tokenizer: PreTokenizer,
        merges: MergeTable,
        add_space_prefix: bool,
    ) -> Self {
        let byte_ids = byte_level::BYTE_TO_CHAR
            .map(|letter| tokens.find(letter.encode_utf8(&mut [0; 4])).unwrap_or(NO_TOKEN));
        Self { pre_tokenizer, merges, byte_ids, add_space_prefix }
    }

    /// Appends the tokens of text without added tokens. A byte without token is left out, as in Hugging Face's
    /// tokenizer.
    pub(super) fn encode_into(
        &self,
        tokens: &TokenTable,
        text: &str,
        place: Place,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) {
        let mut text = Cow::Borrowed(text);
        if self.pre_tokenizer.nfc && !text.is_ascii() {
            text = Cow::Owned(text.nfc().map(|(letter, _)| letter).collect());
        }
        if self.add_space_prefix && place != Place::Within && !text.starts_with(' ') {
            text.to_mut().insert(0, ' ');
        }
        let mut spelled = String::new();
        self.pre_tokenizer.for_each_word(&text, |word| {
            if self.pre_tokenizer.ignore_merges {
                spelled.clear();
                byte_level::encode_into(word, &mut spelled);
                if let Some(id) = tokens.find(&spelled) {
                    return ids.push(id);
                }
            }
            merger.clear();
            for (at, byte) in (0..).zip(word.bytes()) {
                let id = self.byte_ids[usize::from(byte)];
                if id != NO_TOKEN {
                    merger.push(id, at, 1);
                }
            }
            let merged = merger.merge(|left, right| self.merges.find(left.id, right.id));
            ids.extend(merged.map(|symbol| symbol.id));
        });
    }

    /// The bytes of a token.
    pub(super) fn token_bytes(tokens: &TokenTable, id: u32) -> Vec<u8> {
        byte_level::decode(tokens.text(id))
    }
}
