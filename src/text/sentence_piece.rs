//! SentencePiece's BPE, as Llama 1 and 2, Mistral, Gemma and Phi-3 use it: spaces are written `▁`, whole texts merge
//! without being cut into words, and what has no token is spelled in bytes. No text is lost.

use super::bpe::{Merger, Symbol};
use super::merges::MergeTable;
use super::token_table::{Kind, NO_TOKEN, TokenTable};

/// `tokenizer.ggml.model` of such a vocabulary.
pub(super) const SENTENCE_PIECE: &str = "llama";
/// What a space is written as.
pub(super) const SPACE: char = '▁';

/// Which pair merges first.
pub(super) enum Ranking {
    /// The one that comes first in the model's list, as in tokenizer.json; others never merge.
    Merges(MergeTable),
    /// The one whose whole has the highest score, as in SentencePiece and llama.cpp; any two that spell a token merge.
    Scores(Vec<f32>),
}

/// Where text is read as if a space stood before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SpacePrefix {
    Nowhere,
    /// At the beginning and after each special token, even before a space.
    EverySegment,
    /// At the beginning, except before a space.
    Once,
}

/// Where a stretch of ordinary text, which is not empty, stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Nothing is before it.
    Start,
    /// A special token is before it.
    AfterSpecial,
    /// Other text is before it.
    Within,
}

/// What SentencePiece's BPE needs beside the tokens.
pub(super) struct SentencePiece {
    ranking: Ranking,
    pub(super) space_prefix: SpacePrefix,
    /// The token of each byte, or `NO_TOKEN`.
    byte_ids: [u32; 256],
    unk: Option<u32>,
}

impl SentencePiece {
    /// For a vocabulary's rules.
    pub(super) fn new(
        tokens: &TokenTable,
        ranking: Ranking,
        space_prefix: SpacePrefix,
        unk: Option<u32>,
    ) -> Self {
        let mut byte_ids = [NO_TOKEN; 256];
        for id in (0..NO_TOKEN).take(tokens.len()).filter(|id| tokens.kind(*id) == Kind::Byte) {
            if let Some(byte) = byte_of(tokens.text(id)) {
                byte_ids[usize::from(byte)] = id;
            }
        }
        Self { ranking, space_prefix, byte_ids, unk }
    }

    /// Appends the tokens of text without added tokens.
    pub(super) fn encode_into(
        &self,
        tokens: &TokenTable,
        text: &str,
        place: Place,
        merger: &mut Merger,
        ids: &mut Vec<u32>,
    ) {
        let prefix = match self.space_prefix {
            SpacePrefix::Nowhere => false,
            SpacePrefix::EverySegment => place != Place::Within,
            SpacePrefix::Once => place == Place::Start && !text.starts_with([' ', SPACE]),
        };
        let letters = prefix.then_some(SPACE).into_iter().chain(text.chars());
        let text: String = letters.map(|letter| if letter == ' ' { SPACE } else { letter }).collect();
        merger.clear();
        match &self.ranking {
            Ranking::Merges(merges) => {
                self.push_with_bytes(tokens, &text, merger);
                let merged = merger.merge(|left, right| merges.find(left.id, right.id));
                ids.extend(merged.map(|symbol| symbol.id));
            }
            Ranking::Scores(scores) => {
                for (at, letter) in text.char_indices() {
                    let id = tokens.find(&text[at..at + letter.len_utf8()]).unwrap_or(NO_TOKEN);
                    merger.push(id, at as u32, letter.len_utf8() as u32);
                }
                let find = |left: &Symbol, right: &Symbol| {
                    let id = tokens.find(&text[left.range_with(right)])?;
                    Some((rank_of(scores[id as usize]), id))
                };
                for symbol in merger.merge(find) {
                    let start = symbol.start as usize;
                    match symbol.id {
                        NO_TOKEN => self.spell(&text[start..start + symbol.len as usize], ids),
                        id => ids.push(id),
                    }
                }
            }
        }
    }

    /// Appends a symbol a character; those without token become bytes, or the unknown token, which takes in those
    /// beside it.
    fn push_with_bytes(&self, tokens: &TokenTable, text: &str, merger: &mut Merger) {
        for (at, letter) in text.char_indices() {
            let (start, len) = (at as u32, letter.len_utf8() as u32);
            let spelled = &text[at..at + letter.len_utf8()];
            if let Some(id) = tokens.find(spelled) {
                merger.push(id, start, len);
            } else if self.has_bytes(spelled) {
                for (offset, byte) in (0..).zip(spelled.bytes()) {
                    merger.push(self.byte_ids[usize::from(byte)], start + offset, 1);
                }
            } else if let Some(unk) = self.unk {
                match merger.last() {
                    Some(last) if last.id == unk => last.len += len,
                    _ => merger.push(unk, start, len),
                }
            }
        }
    }

    /// Appends the tokens of a character that has none of its own.
    fn spell(&self, letter: &str, ids: &mut Vec<u32>) {
        if self.has_bytes(letter) {
            ids.extend(letter.bytes().map(|byte| self.byte_ids[usize::from(byte)]));
        } else if self.unk.is_some() && ids.last().copied() != self.unk {
            ids.extend(self.unk);
        }
    }

    fn has_bytes(&self, text: &str) -> bool {
        text.bytes().all(|byte| self.byte_ids[usize::from(byte)] != NO_TOKEN)
    }

    /// The bytes of a token.
    pub(super) fn token_bytes(tokens: &TokenTable, id: u32) -> Vec<u8> {
        let text = tokens.text(id);
        match (tokens.kind(id), byte_of(text)) {
            (Kind::Byte, Some(byte)) => vec![byte],
            (Kind::Control | Kind::Unused, _) => text.as_bytes().to_vec(),
            _ => text.replace(SPACE, " ").into_bytes(),
        }
    }
}

/// The byte that a token such as `<0x0A>` stands for.
pub(super) fn byte_of(token: &str) -> Option<u8> {
    let digits = token.strip_prefix("<0x")?.strip_suffix('>')?;
    let hexadecimal = digits.len() == 2 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    hexadecimal.then(|| u8::from_str_radix(digits, 16).ok())?
}

/// A rank that is the lower the higher the score is; equal scores, 0 and −0 among them, have equal ranks.
fn rank_of(score: f32) -> u32 {
    let bits = (score + 0.0).to_bits();
    let ascending = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    !ascending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_scores_have_lower_ranks() {
        let scores = [f32::INFINITY, 7.5, 0.0, -0.5, -1.0, -1e9, f32::NEG_INFINITY];
        for pair in scores.windows(2) {
            assert!(rank_of(pair[0]) < rank_of(pair[1]), "{pair:?}");
        }
        assert_eq!(rank_of(0.0), rank_of(-0.0));
    }

    #[test]
    fn byte_tokens_are_read() {
        let table =
            [("<0x0A>", Some(10)), ("<0xfF>", Some(255)), ("<0x+1>", None), ("<0x100>", None), ("<s>", None)];
        for (token, byte) in table {
            assert_eq!(byte_of(token), byte, "{token}");
        }
    }
}
