//! Cuts text into the words that byte pairs may merge within: exact for each supported rule, in linear time, and
//! without a limit at which a long run would silently be cut differently.

use regex_automata::meta::Regex;
use regex_automata::{Anchored, Input, PatternID};

use super::TextError;

/// How every published list of words ends: of whitespace before a word the last character stays for that word. Here
/// this is done by hand, so that no look-ahead (and no backtracking) is needed.
const WHITESPACE_TAIL: &str = r"|\s+(?!\S)|\s+";
const WHITESPACE: &str = r"\s+";
const WHITESPACE_ID: PatternID = PatternID::new_unchecked(1);
/// Any number, for rules that let digits stand alone.
const NUMBER: &str = r"\p{N}";

/// Words of GPT-2's rule, except the whitespace that is left.
const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+";
/// The same for Llama 3 (and OpenAI's cl100k), which takes up to three digits at a time.
const LLAMA3: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
/// The same for Qwen 2 and 3, which take digits singly.
const QWEN2: &str =
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+";
/// The same for Mistral's Tekken, which also cuts where capitals begin.
const TEKKEN: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";
/// The same for OpenAI's o200k, which keeps contractions together.
const GPT4O: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+";
/// The same for DeepSeek V3; `\r` and `\n` are the characters themselves, as its file has them.
const DEEPSEEK_V3: &str = "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+";

/// What a name in `tokenizer.ggml.pre` stands for.
struct Rule {
    names: &'static [&'static str],
    /// What is cut out first, one pattern after another, each within what the one before left or cut out.
    isolated: &'static [&'static str],
    /// What the pieces are then cut into.
    words: &'static str,
    nfc: bool,
    ignore_merges: bool,
    adds_bos: bool,
}

/// A rule in which nothing is out of the ordinary.
const PLAIN: Rule =
    Rule { names: &[], isolated: &[], words: GPT2, nfc: false, ignore_merges: false, adds_bos: false };

/// The rules; where two cut alike, the first is the one that new files are given.
const RULES: &[Rule] = &[
    Rule { names: &["gpt-2", "phi-2"], ..PLAIN },
    Rule { names: &["smollm", "starcoder", "refact"], isolated: &[NUMBER], ..PLAIN },
    Rule {
        names: &["llama-bpe", "llama3", "llama-v3"],
        words: LLAMA3,
        ignore_merges: true,
        adds_bos: true,
        ..PLAIN
    },
    Rule { names: &["dbrx", "smaug-bpe"], words: LLAMA3, ..PLAIN },
    Rule { names: &["qwen2", "deepseek-r1-qwen"], words: QWEN2, nfc: true, ..PLAIN },
    Rule { names: &["tekken"], words: TEKKEN, ignore_merges: true, adds_bos: true, ..PLAIN },
    Rule { names: &["gpt-4o"], words: GPT4O, ..PLAIN },
    Rule {
        names: &["deepseek-v3"],
        isolated: &[r"\p{N}{1,3}", "[一-龥\u{3040}-ゟ゠-ヿ]+"],
        words: DEEPSEEK_V3,
        ..PLAIN
    },
];

/// What a tokenizer.json does to text before merging, one step after another.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Matches stand alone.
    Split(String),
    /// Every number stands alone.
    Digits,
    /// GPT-2's rule.
    Gpt2Words,
}

/// Where a vocabulary departs from what the name of its rule implies.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Exceptions {
    pub(super) nfc: Option<bool>,
    pub(super) ignore_merges: Option<bool>,
}

/// The name under which a GGUF file asks for these steps, with what that name does not imply.
pub(super) fn recognise(
    steps: &[Step],
    nfc: bool,
    ignore_merges: bool,
) -> Option<(&'static str, Exceptions)> {
    let alike = |rule: &&Rule| {
        let Some((last, first)) = steps.split_last() else { return false };
        let words = match last {
            Step::Gpt2Words => rule.words == GPT2,
            Step::Split(pattern) => pattern.strip_suffix(WHITESPACE_TAIL) == Some(rule.words),
            Step::Digits => false,
        };
        let isolated = first.iter().map(|step| match step {
            Step::Split(pattern) => pattern.as_str(),
            Step::Digits => NUMBER,
            Step::Gpt2Words => GPT2,
        });
        words && isolated.eq(rule.isolated.iter().copied())
    };
    let fits = |rule: &&Rule| rule.nfc == nfc && rule.ignore_merges == ignore_merges;
    let all = || RULES.iter().filter(alike);
    let rule = all().find(fits).or_else(|| all().next())?;
    let exception = |implied: bool, wanted: bool| (implied != wanted).then_some(wanted);
    let exceptions = Exceptions {
        nfc: exception(rule.nfc, nfc),
        ignore_merges: exception(rule.ignore_merges, ignore_merges),
    };
    Some((rule.names[0], exceptions))
}

/// Every name of a rule, as `tokenizer.ggml.pre` has it.
pub fn pre_tokenizers() -> impl Iterator<Item = &'static str> {
    RULES.iter().flat_map(|rule| rule.names).copied()
}

/// A compiled rule.
pub(super) struct PreTokenizer {
    isolated: Vec<Regex>,
    words: Regex,
    /// Text is brought to Unicode's normal form C first.
    pub(super) nfc: bool,
    /// A word that is a token is taken whole, whatever the merges say.
    pub(super) ignore_merges: bool,
}

fn rule(name: Option<&str>) -> Result<&'static Rule, TextError> {
    let found = || name.map_or_else(|| "not named".into(), |name| format!("{name:?}"));
    RULES
        .iter()
        .find(|rule| name.is_some_and(|name| rule.names.contains(&name)))
        .ok_or_else(|| TextError::UnknownPreTokenizer { found: found(), known: known_names() })
}

/// The words of Qwen 2's rule, as its tokenizer.json spells them.
pub(super) fn qwen2_words() -> String {
    format!("{QWEN2}{WHITESPACE_TAIL}")
}

/// The names that work, for an error.
pub(super) fn known_names() -> String {
    RULES.iter().flat_map(|rule| rule.names).copied().collect::<Vec<_>>().join(", ")
}

/// Whether texts of this pre-tokenizer begin with BOS where the file does not say.
pub(super) fn adds_bos_by_default(name: Option<&str>) -> bool {
    rule(name).is_ok_and(|rule| rule.adds_bos)
}

impl PreTokenizer {
    /// The rule named in a file, with its exceptions; an unknown one is refused.
    pub(super) fn new(name: Option<&str>, exceptions: Exceptions) -> Result<Self, TextError> {
        let rule = rule(name)?;
        let compile = |patterns: &[&str]| {
            Regex::builder()
                .build_many(patterns)
                .expect("the patterns are constants, each compiled in a test")
        };
        Ok(Self {
            isolated: rule.isolated.iter().map(|pattern| compile(&[pattern])).collect(),
            words: compile(&[rule.words, WHITESPACE]),
            nfc: exceptions.nfc.unwrap_or(rule.nfc),
            ignore_merges: exceptions.ignore_merges.unwrap_or(rule.ignore_merges),
        })
    }

    /// Gives `each` the words of `text` in order; together they are `text`.
    pub(super) fn for_each_word<'t>(&self, text: &'t str, mut each: impl FnMut(&'t str)) {
        isolate(&self.isolated, text, &mut |piece| self.split(piece, &mut each));
    }

    /// Cuts a piece into words; what is none of them stands alone.
    fn split<'t>(&self, text: &'t str, each: &mut impl FnMut(&'t str)) {
        let mut start = 0;
        while start < text.len() {
            let rest = Input::new(text).range(start..);
            // Most rules take every character, so that the next word begins here.
            let here = self.words.search(&rest.clone().anchored(Anchored::Yes));
            let Some(found) = here.or_else(|| self.words.search(&rest)) else {
                return each(&text[start..]);
            };
            if start < found.start() {
                each(&text[start..found.start()]);
            }
            let mut end = found.end();
            if found.pattern() == WHITESPACE_ID && end < text.len() {
                let last = text[found.start()..end].chars().next_back().expect("a match of + is not empty");
                if last.len_utf8() < end - found.start() {
                    end -= last.len_utf8();
                }
            }
            each(&text[found.start()..end]);
            start = end;
        }
    }
}

/// Gives `each` the matches of the first pattern and what is between, each cut by the other patterns. Recursion is as
/// deep as a rule has patterns.
fn isolate<'t>(patterns: &[Regex], text: &'t str, each: &mut dyn FnMut(&'t str)) {
    let Some((first, others)) = patterns.split_first() else { return each(text) };
    let mut start = 0;
    for found in first.find_iter(text) {
        if start < found.start() {
            isolate(others, &text[start..found.start()], each);
        }
        isolate(others, &text[found.range()], each);
        start = found.end();
    }
    if start < text.len() {
        isolate(others, &text[start..], each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words<'t>(name: &str, text: &'t str) -> Vec<&'t str> {
        let mut words = Vec::new();
        let rule = PreTokenizer::new(Some(name), Exceptions::default()).unwrap();
        rule.for_each_word(text, |word| words.push(word));
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
            ("dbrx", "1234 DON'T", &["123", "4", " DON", "'T"]),
            ("tekken", "HTTPServer don't 12", &["HTTPServer", " don", "'t", " ", "1", "2"]),
            ("tekken", "fooBar a//\n\nb", &["foo", "Bar", " a", "//\n\n", "b"]),
            ("gpt-4o", "don't DON'T 1234", &["don't", " DON'T", " ", "123", "4"]),
            ("gpt-4o", "e\u{301}\u{301}a", &["e\u{301}\u{301}a"]),
            ("deepseek-v3", "a1234漢字かなb.c \0\0", &["a", "123", "4", "漢字かな", "b", ".c", " ", "\0\0"]),
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
        for name in RULES.iter().map(|rule| rule.names[0]) {
            let words = words(name, &text);
            assert_eq!(words.iter().map(|word| word.len()).collect::<Vec<_>>(), [N - 1, 2], "{name}");
        }
    }

    #[test]
    fn an_unknown_rule_is_refused_by_name() {
        let refused = |name| PreTokenizer::new(name, Exceptions::default()).err().unwrap().to_string();
        let error = refused(Some("falcon"));
        assert!(error.contains("\"falcon\"") && error.contains("smollm, starcoder"), "{error}");
        let error = refused(None);
        assert!(error.contains("not named"), "{error}");
    }

    #[test]
    fn steps_are_recognised_exactly_or_not_at_all() {
        let split = |words: &str| Step::Split(format!("{words}{WHITESPACE_TAIL}"));
        let name = |steps: &[Step], nfc, ignore| {
            recognise(steps, nfc, ignore).map(|(name, but)| (name, but.nfc, but.ignore_merges))
        };
        assert_eq!(name(&[Step::Gpt2Words], false, false), Some(("gpt-2", None, None)));
        assert_eq!(name(&[split(GPT2)], false, false), Some(("gpt-2", None, None)));
        assert_eq!(name(&[Step::Digits, Step::Gpt2Words], false, false), Some(("smollm", None, None)));
        assert_eq!(name(&[split(LLAMA3)], false, true), Some(("llama-bpe", None, None)));
        assert_eq!(name(&[split(LLAMA3)], false, false), Some(("dbrx", None, None)));
        assert_eq!(name(&[split(QWEN2)], true, false), Some(("qwen2", None, None)));
        assert_eq!(name(&[split(QWEN2)], false, true), Some(("qwen2", Some(false), Some(true))));
        for rule in RULES {
            let isolated = rule.isolated.iter().map(|pattern| Step::Split((*pattern).into()));
            let steps: Vec<Step> = isolated.chain([split(rule.words)]).collect();
            assert_eq!(name(&steps, rule.nfc, rule.ignore_merges), Some((rule.names[0], None, None)));
        }
        for steps in [vec![], vec![Step::Digits], vec![split("x")], vec![Step::Split(GPT2.into())]] {
            assert_eq!(name(&steps, false, false), None, "{steps:?}");
        }
    }
}
