//! Tokens that text does not merge into: control tokens, which the template alone may write, and tokens the model's
//! maker added, which any text may hold. Of those that begin at a place the longest is found.

use std::collections::{BTreeMap, BTreeSet};

use aho_corasick::{AhoCorasick, AhoCorasickKind, Anchored, Input, MatchKind};

use super::token_table::Kind;

/// The added tokens of a vocabulary, with what finds them in text.
pub(super) struct SpecialTokens {
    by_id: BTreeMap<u32, (String, Kind)>,
    /// Finds the strings of `ids`, in the same order; none if there are none.
    matcher: Option<AhoCorasick>,
    ids: Vec<u32>,
    /// Bytes of the longest control token.
    longest_control: usize,
    /// Tokens that take the whitespace before them.
    lstrip: BTreeSet<u32>,
    /// Tokens that take the whitespace after them.
    rstrip: BTreeSet<u32>,
}

/// A piece of text: either a token of its own or text to merge.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece<'t> {
    Token(u32),
    Text(&'t str),
}

impl SpecialTokens {
    /// From the tokens by id; the error is the matcher's own.
    pub(super) fn new(by_id: BTreeMap<u32, (String, Kind)>) -> Result<Self, aho_corasick::BuildError> {
        let found_in_text =
            |(_, (text, kind)): &(&u32, &(String, Kind))| *kind != Kind::Unused && !text.is_empty();
        let ids: Vec<u32> = by_id.iter().filter(found_in_text).map(|(id, _)| *id).collect();
        let texts = by_id.iter().filter(found_in_text).map(|(_, (text, _))| text);
        let matcher = if ids.is_empty() {
            None
        } else {
            let kind = Some(AhoCorasickKind::ContiguousNFA);
            Some(AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).kind(kind).build(texts)?)
        };
        let controls = by_id.values().filter(|(_, kind)| *kind == Kind::Control);
        let longest_control = controls.map(|(text, _)| text.len()).max().unwrap_or(0);
        let (lstrip, rstrip) = (BTreeSet::new(), BTreeSet::new());
        Ok(Self { by_id, matcher, ids, longest_control, lstrip, rstrip })
    }

    /// The same, where some tokens take the whitespace before or after them.
    pub(super) fn stripping(mut self, lstrip: Vec<u32>, rstrip: Vec<u32>) -> Self {
        (self.lstrip, self.rstrip) = (lstrip.into_iter().collect(), rstrip.into_iter().collect());
        self
    }

    /// The token's text, as it stands in the vocabulary.
    pub(super) fn text(&self, id: u32) -> Option<&str> {
        self.by_id.get(&id).map(|(text, _)| text.as_str())
    }

    /// Whether the token is control, or unused: nothing a person should see.
    pub(super) fn is_hidden(&self, id: u32) -> bool {
        self.by_id.get(&id).is_some_and(|(_, kind)| *kind != Kind::Added)
    }

    /// The control tokens with their texts.
    pub(super) fn controls(&self) -> impl Iterator<Item = (u32, &str)> {
        self.by_id
            .iter()
            .filter(|(_, (_, kind))| *kind == Kind::Control)
            .map(|(id, (text, _))| (*id, text.as_str()))
    }

    /// The first added token in `text` at or after `from`: its first byte, the byte after it, its id.
    fn find(&self, text: &str, from: usize) -> Option<(usize, usize, u32)> {
        let found = self.matcher.as_ref()?.find(Input::new(text).range(from..).anchored(Anchored::No))?;
        Some((found.start(), found.end(), self.ids[found.pattern().as_usize()]))
    }

    /// Cuts `text` at its added tokens. A control token is text where a byte offset in `breaks` (ascending) lies right
    /// after its first character. Whitespace that a token takes is in no piece.
    pub(super) fn split<'t>(&self, text: &'t str, breaks: &[usize]) -> Vec<Piece<'t>> {
        let mut pieces = Vec::new();
        let (mut start, mut from) = (0, 0);
        while let Some((mut at, mut end, id)) = self.find(text, from) {
            let second = at + first_char_len(&text[at..]);
            if self.is_hidden(id) && breaks.binary_search(&second).is_ok() {
                from = second;
                continue;
            }
            if self.lstrip.contains(&id) {
                at = start + text[start..at].trim_end().len();
            }
            if self.rstrip.contains(&id) {
                end = text.len() - text[end..].trim_start().len();
            }
            if start < at {
                pieces.push(Piece::Text(&text[start..at]));
            }
            pieces.push(Piece::Token(id));
            (start, from) = (end, end);
        }
        if start < text.len() {
            pieces.push(Piece::Text(&text[start..]));
        }
        pieces
    }

    /// Puts `marker` after the first character of every control token that `content` spells, and of one that its end
    /// begins to spell, so that what follows it cannot complete it.
    pub(super) fn mark(&self, content: &str, marker: char) -> String {
        let mut breaks = BTreeSet::new();
        let mut from = 0;
        while let Some((at, _, id)) = self.find(content, from) {
            from = at + first_char_len(&content[at..]);
            if self.is_hidden(id) {
                breaks.insert(from);
            }
        }
        let last = content.ceil_char_boundary(content.len().saturating_sub(self.longest_control));
        for (at, first) in content[last..].char_indices() {
            let tail = &content[last + at..];
            if self.controls().any(|(_, text)| text.len() > tail.len() && text.starts_with(tail)) {
                breaks.insert(last + at + first.len_utf8());
            }
        }
        let mut marked = String::with_capacity(content.len() + breaks.len() * marker.len_utf8());
        let mut copied = 0;
        for at in breaks {
            marked.push_str(&content[copied..at]);
            marked.push(marker);
            copied = at;
        }
        marked.push_str(&content[copied..]);
        marked
    }
}

fn first_char_len(text: &str) -> usize {
    text.chars().next().map_or(0, char::len_utf8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: char = '\u{FDD0}';

    fn tokens() -> SpecialTokens {
        let table = [
            (0, "<|end|>", Kind::Control),
            (1, "<|end|>!", Kind::Control),
            (2, "<think>", Kind::Added),
            (3, "[PAD]", Kind::Unused),
            (4, "§", Kind::Control),
        ];
        SpecialTokens::new(table.into_iter().map(|(id, text, kind)| (id, (text.to_owned(), kind))).collect())
            .unwrap()
    }

    /// What the tokenizer sees of content that a template copied: the marks as offsets.
    fn split_as_content(content: &str) -> Vec<String> {
        let marked = tokens().mark(content, MARKER);
        let mut breaks = Vec::new();
        let mut clean = String::new();
        for letter in marked.chars() {
            if letter == MARKER { breaks.push(clean.len()) } else { clean.push(letter) }
        }
        assert_eq!(clean, content);
        tokens().split(&clean, &breaks).iter().map(|piece| format!("{piece:?}")).collect()
    }

    #[test]
    fn the_longest_token_is_found() {
        use Piece::{Text, Token};
        let table: &[(&str, &[Piece<'_>])] = &[
            ("a<|end|>b", &[Text("a"), Token(0), Text("b")]),
            ("<|end|>!<|end|>", &[Token(1), Token(0)]),
            ("<think>[PAD]", &[Token(2), Text("[PAD]")]),
            ("<|end|", &[Text("<|end|")]),
            ("", &[]),
        ];
        for (text, pieces) in table {
            assert_eq!(tokens().split(text, &[]), *pieces, "{text:?}");
        }
    }

    #[test]
    fn whitespace_beside_a_token_is_taken_where_the_token_asks_for_it() {
        use Piece::{Text, Token};
        let tokens = tokens().stripping(vec![2], vec![0, 2]);
        let table: &[(&str, &[Piece<'_>])] = &[
            ("a <|end|>\n\u{a0} b", &[Text("a "), Token(0), Text("b")]),
            ("a \n<think>\t<think> <|end|> ", &[Text("a"), Token(2), Token(2), Token(0)]),
            (" § §", &[Text(" "), Token(4), Text(" "), Token(4)]),
        ];
        for (text, pieces) in table {
            assert_eq!(tokens.split(text, &[]), *pieces, "{text:?}");
        }
    }

    #[test]
    fn control_tokens_in_content_are_text() {
        for content in ["<|end|>", "<<|end|>>", "<|end|>!", "§", "a§§b", "<|end|><|end|>"] {
            assert_eq!(split_as_content(content), [format!("{:?}", Piece::Text(content))]);
        }
        assert_eq!(
            split_as_content("<think>x"),
            ["Token(2)", "Text(\"x\")"],
            "an added token is one anywhere"
        );
    }

    #[test]
    fn content_cannot_begin_a_control_token_that_the_template_ends() {
        assert_eq!(tokens().mark("x<|en", MARKER), "x<\u{FDD0}|en");
        assert_eq!(tokens().mark("<|end|>", MARKER), "<\u{FDD0}|end|>");
        assert_eq!(tokens().mark("é<", MARKER), "é<\u{FDD0}");
        assert_eq!(tokens().mark("nothing", MARKER), "nothing");
    }
}
