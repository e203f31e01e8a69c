//! Cuts text into the words that byte pairs may merge within: exact for each supported rule, in linear time, and
//! without a limit at which a long run would silently be cut differently.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, PatternID};

use super::TextError;

/// Words of GPT-2's rule, except the whitespace that is left.
const GPT2_WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
/// The same for Llama 3, which takes up to three digits at a time.
const LLAMA3_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
/// The same for Qwen 2 and 3, which take digits singly.
const QWEN2_WORDS: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";

/// Whitespace that no word took. The published rules end in `\s+(?!\S)|\s+`: of a run before a word the last character
/// stays for that word. Here this is done by hand, so that no look-ahead (and no backtracking) is needed.
const WHITESPACE: &str = r"\s+";
const WHITESPACE_ID: PatternID = PatternID::new_unchecked(1);

/// What a name in `tokenizer.ggml.pre` stands for.
struct Rule {
    names: &'static [&'static str],
    words: &'static str,
    digits_alone: bool,
    nfc: bool,
    ignore_merges: bool,
    adds_bos: bool,
}

const RULES: &[Rule] = &[
    Rule {
        names: &["gpt-2"],
        words: GPT2_WORDS,
        digits_alone: false,
        nfc: false,
        ignore_merges: false,
        adds_bos: false,
    },
    Rule {
        names: &["smollm"],
        words: GPT2_WORDS,
        digits_alone: true,
        nfc: false,
        ignore_merges: false,
        adds_bos: false,
    },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        words: LLAMA3_WORDS,
        digits_alone: false,
        nfc: false,
        ignore_merges: true,
        adds_bos: true,
    },
    Rule {
        names: &["qwen2"],
        words: QWEN2_WORDS,
        digits_alone: false,
        nfc: true,
        ignore_merges: false,
        adds_bos: false,
    },
];

/// A compiled rule.
pub(super) struct PreTokenizer {
    words: Regex,
    digits_alone: bool,
    /// Text is brought to Unicode's normal form C first.
    pub(super) nfc: bool,
    /// A word that is a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
}

fn rule(name: Option<&str>) -> Result<&'static Rule, TextError> {
    let found = || name.map_or_else(|| "not named".into(), |name| format!("{name:?}"));
    let known = || RULES.iter().flat_map(|rule| rule.names).copied().collect::<Vec<_>>().join(", ");
    RULES
        .iter()
        .find(|rule| name.is_some_and(|name| rule.names.contains(&name)))
        .ok_or_else(|| TextError::UnknownPreTokenizer { found: found(), known: known() })
}

/// Whether texts of this pre-tokenizer begin with BOS where the file does not say.
pub(super) fn adds_bos_by_default(name: Option<&str>) -> bool {
    rule(name).is_ok_and(|rule| rule.adds_bos)
}

impl PreTokenizer {
    /// The rule named in a file; an unknown one is refused.
    pub(super) fn new(name: Option<&str>) -> Result<Self, TextError> {
        let rule = rule(name)?;
        let words = Regex::builder()
            .build_many(&[rule.words, WHITESPACE])
            .expect("the patterns are constants, each compiled in a test");
        Ok(Self { words, digits_alone: rule.digits_alone, nfc: rule.nfc, ignore_merges: rule.ignore_merges })
    }

    /// Gives `each` the words of `text` in order; together they are `text`.
    pub(super) fn for_each_word<'t, E>(
        &self,
        text: &'t str,
        mut each: impl FnMut(&'t str) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.digits_alone {
            return self.split(text, &mut each);
        }
        let mut start = 0;
        for (at, digit) in text.match_indices(char::is_numeric) {
            self.split(&text[start..at], &mut each)?;
            self.split(digit, &mut each)?;
            start = at + digit.len();
        }
        self.split(&text[start..], &mut each)
    }

    fn split<'t, E>(&self, text: &'t str, each: &mut impl FnMut(&'t str) -> Result<(), E>) -> Result<(), E> {
        let mut start = 0;
        while start < text.len() {
            let found = self
                .words
                .search(&Input::new(text).range(start..).anchored(Anchored::Yes))
                .expect("letters, numbers, whitespace and all others make every character");
            let mut end = found.end();
            if found.pattern() == WHITESPACE_ID && end < text.len() {
                let last = text[start..end].chars().next_back().expect("a match of + is not empty");
                if last.len_utf8() < end - start {
                    end -= last.len_utf8();
                }
            }
            each(&text[start..end])?;
            start = end;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        let done: Result<(), ()> = PreTokenizer::new(Some(name)).unwrap().for_each_word(text, |word| {
            words.push(word);
            Ok(())
        });
        done.unwrap();
        words
    }

    #[test]
    fn each_rule_cuts_as_published() {
        let table: &[(&str, &str, &[&str])] = &[
            ("gpt-2", "Hello  big world", &["Hello", " ", " big", " world"]),
            ("gpt-2", "it's 1234!\n\n\nx ", &["it", "'s", " 1234", "!", "\n\n", "\n", "x", " "]),
            ("gpt-2", "DON'T", &["DON", "'", "T"]),
            ("smollm", "a 123", &["a", " ", "1", "2", "3"]),
            ("smollm", "x  ½²", &["x", "  ", "½", "²"]),
            ("llama-bpe", "1234567 DON'T", &["123", "456", "7", " DON", "'T"]),
            ("llama-bpe", "a \n\n  b!\r\n", &["a", " \n\n", " ", " b", "!\r\n"]),
            ("qwen2", "12 (x)", &["1", "2", " (", "x", ")"]),
            ("qwen2", "\t\tfn", &["\t", "\tfn"]),
            ("gpt-2", "", &[]),
            ("gpt-2", " ", &[" "]),
            ("gpt-2", "\0\u{1}é\u{301}", &["\0\u{1}", "é", "\u{301}"]),
        ];
        for (name, text, expected) in table {
            assert_eq!(words(name, text), *expected, "{name}: {text:?}");
        }
    }

    #[test]
    fn every_rule_gives_back_the_text() {
        let text: String = (0..0x3000u32)
            .filter_map(char::from_u32)
            .flat_map(|letter| [letter, ' ', '\n', letter])
            .collect();
        for name in RULES.iter().flat_map(|rule| rule.names) {
            assert_eq!(words(name, &text).concat(), text, "{name}");
        }
    }

    #[test]
    fn a_very_long_run_is_cut_by_the_same_rule() {
        const N: usize = 3_000_000;
        let text = " ".repeat(N) + "x";
        for name in ["gpt-2", "smollm", "llama-bpe", "qwen2"] {
            let words = words(name, &text);
            assert_eq!(words.iter().map(|word| word.len()).collect::<Vec<_>>(), [N - 1, 2], "{name}");
        }
    }

    #[test]
    fn an_unknown_rule_is_refused_by_name() {
        let error = PreTokenizer::new(Some("tekken")).err().unwrap().to_string();
        assert!(error.contains("\"tekken\"") && error.contains("smollm, llama-bpe"), "{error}");
        let error = PreTokenizer::new(None).err().unwrap().to_string();
        assert!(error.contains("not named"), "{error}");
    }
}
