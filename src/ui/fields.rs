//! The options a person may set, as a table: what each is called, what it does, its range, and where it lives.
//!
//! A text that is out of range never reaches the options; the sentence says what would.

use crate::protocol::GenerateOptions;

/// A number among the options.
pub(crate) struct NumberField {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) explanation: &'static str,
    /// The numbers allowed.
    pub(crate) range: Range,
    /// What an empty box means, shown in it; an empty box is refused where absent.
    pub(crate) when_empty: Option<&'static str>,
    /// The box's text.
    pub(crate) get: fn(&GenerateOptions) -> String,
    /// Takes a number in range, or nothing where the box may be empty.
    pub(crate) set: fn(&mut GenerateOptions, Option<f64>),
}

/// Which numbers an option takes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Range {
    /// Whole numbers from the first to the second.
    Whole(f64, f64),
    /// Numbers from the first to the second.
    Real(f64, f64),
    /// Numbers above 0 and up to this.
    Positive(f64),
}

/// Lines of text among the options.
pub(crate) struct LinesField {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) explanation: &'static str,
    pub(crate) get: fn(&GenerateOptions) -> &[String],
    pub(crate) set: fn(&mut GenerateOptions, Vec<String>),
}

/// A yes or no among the options.
pub(crate) struct SwitchField {
    pub(crate) id: &'static str,
    pub(crate) label: &'static str,
    pub(crate) explanation: &'static str,
    pub(crate) get: fn(&GenerateOptions) -> bool,
    pub(crate) set: fn(&mut GenerateOptions, bool),
}

/// Whole numbers up to here are exact in JavaScript and in f64.
const MAX_EXACT: f64 = 9_007_199_254_740_991.0;
const MAX_U32: f64 = u32::MAX as f64;

/// Which token comes next.
pub(crate) const CHOICE: &[NumberField] = &[
    NumberField {
        id: "temperature",
        label: "Temperature",
        explanation: "How freely it chooses: 0 always takes the likeliest token, 1 follows the model, up to 2 is wild.",
        range: Range::Real(0.0, f32::MAX as f64),
        when_empty: None,
        get: |options| options.temperature.to_string(),
        set: |options, value| options.temperature = f32_or(value, 0.0),
    },
    NumberField {
        id: "top_p",
        label: "Top p",
        explanation: "Chooses among the likeliest tokens whose probabilities add up to this; 1 keeps all.",
        range: Range::Positive(1.0),
        when_empty: None,
        get: |options| options.top_p.to_string(),
        set: |options, value| options.top_p = f32_or(value, 1.0),
    },
    NumberField {
        id: "top_k",
        label: "Top k",
        explanation: "Chooses among so many of the likeliest tokens; 0 keeps all.",
        range: Range::Whole(-1.0, i32::MAX as f64),
        when_empty: None,
        get: |options| options.top_k.to_string(),
        set: |options, value| options.top_k = value.unwrap_or(0.0) as i32,
    },
    NumberField {
        id: "min_p",
        label: "Min p",
        explanation: "Drops tokens less likely than this part of the likeliest one; 0 drops none.",
        range: Range::Real(0.0, 1.0),
        when_empty: None,
        get: |options| options.min_p.to_string(),
        set: |options, value| options.min_p = f32_or(value, 0.0),
    },
    NumberField {
        id: "seed",
        label: "Seed",
        explanation: "The same number gives the same answer again on this device.",
        range: Range::Whole(0.0, MAX_EXACT),
        when_empty: Some("random"),
        get: |options| options.seed.map_or_else(String::new, |seed| seed.to_string()),
        set: |options, value| options.seed = value.map(|seed| seed as u64),
    },
];

/// How repetition is held down.
pub(crate) const REPETITION: &[NumberField] = &[
    NumberField {
        id: "repetition_penalty",
        label: "Repetition penalty",
        explanation: "Above 1 makes tokens of the conversation less likely; 1 does nothing.",
        range: Range::Positive(f32::MAX as f64),
        when_empty: None,
        get: |options| options.repetition_penalty.to_string(),
        set: |options, value| options.repetition_penalty = f32_or(value, 1.0),
    },
    NumberField {
        id: "presence_penalty",
        label: "Presence penalty",
        explanation: "Above 0 makes tokens less likely once they are in the answer, from −2 to 2.",
        range: Range::Real(-2.0, 2.0),
        when_empty: None,
        get: |options| options.presence_penalty.to_string(),
        set: |options, value| options.presence_penalty = f32_or(value, 0.0),
    },
    NumberField {
        id: "frequency_penalty",
        label: "Frequency penalty",
        explanation: "The same for every time they are in the answer, from −2 to 2.",
        range: Range::Real(-2.0, 2.0),
        when_empty: None,
        get: |options| options.frequency_penalty.to_string(),
        set: |options, value| options.frequency_penalty = f32_or(value, 0.0),
    },
];

/// How long an answer is.
pub(crate) const LENGTH: &[NumberField] = &[
    NumberField {
        id: "max_tokens",
        label: "Longest answer",
        explanation: "Tokens after which an answer ends.",
        range: Range::Whole(1.0, MAX_U32),
        when_empty: Some("context"),
        get: |options| options.max_tokens.map_or_else(String::new, |n_tokens| n_tokens.to_string()),
        set: |options, value| options.max_tokens = value.map(|n_tokens| n_tokens as u32),
    },
    NumberField {
        id: "min_tokens",
        label: "Shortest answer",
        explanation: "Tokens before which nothing ends an answer.",
        range: Range::Whole(0.0, MAX_U32),
        when_empty: None,
        get: |options| options.min_tokens.to_string(),
        set: |options, value| options.min_tokens = value.unwrap_or(0.0) as u32,
    },
];

/// Texts that end an answer or must not be in it.
pub(crate) const WORDS: &[LinesField] = &[
    LinesField {
        id: "stop",
        label: "Stop at",
        explanation: "Texts that end the answer, one a line; \\n stands for a line break.",
        get: |options| &options.stop,
        set: |options, lines| options.stop = lines,
    },
    LinesField {
        id: "bad_words",
        label: "Never say",
        explanation: "Texts that are never generated, one a line.",
        get: |options| &options.bad_words,
        set: |options, lines| options.bad_words = lines,
    },
];

/// What happens at an answer's end.
pub(crate) const SWITCHES: &[SwitchField] = &[
    SwitchField {
        id: "include_stop_str_in_output",
        label: "Show the text it stopped at",
        explanation: "Otherwise it is left out of the answer.",
        get: |options| options.include_stop_str_in_output,
        set: |options, on| options.include_stop_str_in_output = on,
    },
    SwitchField {
        id: "ignore_eos",
        label: "Go on past the end",
        explanation: "Ignores the model's own sign that the answer is complete.",
        get: |options| options.ignore_eos,
        set: |options, on| options.ignore_eos = on,
    },
];

fn f32_or(value: Option<f64>, when_empty: f32) -> f32 {
    value.map_or(when_empty, |value| value as f32)
}

impl Range {
    /// The number in the text of the box with that label, if it is in range. The error is a sentence that names both.
    pub(crate) fn parse(self, label: &str, text: &str) -> Result<f64, String> {
        let refused = || format!("{label}: {}", self.sentence());
        let Ok(number) = text.trim().replace(',', ".").parse::<f64>() else { return Err(refused()) };
        let inside = match self {
            Self::Whole(min, max) => number.fract() == 0.0 && (min..=max).contains(&number),
            Self::Real(min, max) => (min..=max).contains(&number),
            Self::Positive(max) => number > 0.0 && number <= max,
        };
        // A positive number that is 0 as f32 would be refused by the engine.
        let kept = !matches!(self, Self::Positive(_)) || number as f32 > 0.0;
        if inside && kept { Ok(number) } else { Err(refused()) }
    }

    /// What is allowed, in words.
    fn sentence(self) -> String {
        match self {
            Self::Whole(min, max) => format!("a whole number from {min} to {max}."),
            Self::Real(min, max) => format!("a number from {min} to {}.", bound(max)),
            Self::Positive(max) => format!("a number above 0, up to {}.", bound(max)),
        }
    }
}

/// An upper bound as a person would type it: of a huge one not every digit, and none too many.
fn bound(max: f64) -> String {
    if max < 1e9 {
        return max.to_string();
    }
    let exponent = max.log10().floor();
    let digits = (max / 10_f64.powf(exponent) * 10.0).floor() / 10.0;
    format!("{digits}e{exponent}")
}

impl NumberField {
    /// Puts a box's text into the options. The error is a sentence, and the options are as they were.
    pub(crate) fn apply(&self, options: &mut GenerateOptions, text: &str) -> Result<(), String> {
        let value = match (text.trim(), self.when_empty) {
            ("", Some(_)) => None,
            (text, _) => Some(self.range.parse(self.label, text)?),
        };
        (self.set)(options, value);
        Ok(())
    }
}

/// The texts in the lines of a box: `\n`, `\t` and `\\` stand for a line break, a tab and a backslash.
pub(crate) fn texts_from_lines(lines: &str) -> Vec<String> {
    lines.lines().filter(|line| !line.is_empty()).map(unescape).collect()
}

/// The lines of a box that hold these texts.
pub(crate) fn lines_from_texts(texts: &[String]) -> String {
    let escape = |text: &String| {
        text.replace('\\', "\\\\").replace('\n', "\\n").replace('\r', "\\r").replace('\t', "\\t")
    };
    texts.iter().map(escape).collect::<Vec<_>>().join("\n")
}

fn unescape(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        if char != '\\' {
            text.push(char);
            continue;
        }
        match chars.next() {
            Some('n') => text.push('\n'),
            Some('r') => text.push('\r'),
            Some('t') => text.push('\t'),
            Some('\\') | None => text.push('\\'),
            Some(other) => text.extend(['\\', other]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers() -> impl Iterator<Item = &'static NumberField> {
        [CHOICE, REPETITION, LENGTH].into_iter().flatten()
    }

    #[test]
    fn every_number_round_trips_its_default() {
        for defaults in [GenerateOptions::default(), super::super::catalogue::default_options()] {
            for field in numbers() {
                let mut options = defaults.clone();
                assert_eq!(field.apply(&mut options, &(field.get)(&defaults)), Ok(()), "{}", field.id);
                assert_eq!(options, defaults, "{}", field.id);
            }
        }
    }

    #[test]
    fn ranges_are_those_of_the_protocol() {
        for (id, good, bad) in [
            (
                "temperature",
                &["0", "0.7", "0,7", "2", " 1 "][..],
                &["-0.1", "", "hot", "inf", "NaN", "1e99"][..],
            ),
            ("top_p", &["0.01", "1"], &["0", "1.1", "-1", "1e-60"]),
            ("top_k", &["-1", "0", "40"], &["-2", "1.5", "3000000000"]),
            ("min_p", &["0", "1", "0.05"], &["-0.1", "1.01"]),
            ("seed", &["0", "42", ""], &["-1", "1.5", "1e300"]),
            ("repetition_penalty", &["0.1", "1.3"], &["0", "-1", "1e-60"]),
            ("presence_penalty", &["-2", "2"], &["-2.1", "2.1"]),
            ("frequency_penalty", &["-2", "2"], &["-2.1", "2.1"]),
            ("max_tokens", &["1", "512", ""], &["0", "-1", "1.5", "5000000000"]),
            ("min_tokens", &["0", "3"], &["-1", "0.5", ""]),
        ] {
            let field = numbers().find(|field| field.id == id).unwrap();
            for text in good {
                let mut options = GenerateOptions::default();
                assert_eq!(field.apply(&mut options, text), Ok(()), "{id}: {text}");
            }
            for text in bad {
                let mut options = GenerateOptions::default();
                let sentence = field.apply(&mut options, text).unwrap_err();
                assert!(sentence.starts_with(&format!("{}: a ", field.label)), "{sentence}");
                let (_, range) = sentence.trim_end_matches('.').split_once(": ").unwrap();
                let max = range.rsplit(' ').next().unwrap();
                assert_eq!(field.apply(&mut options, max), Ok(()), "{id}: the bound named is allowed");
                options = GenerateOptions::default();
                assert!(field.apply(&mut options, text).is_err());
                assert_eq!(options, GenerateOptions::default(), "{id}: {text}");
            }
        }
    }

    #[test]
    fn a_refusal_names_the_field_and_its_range() {
        for (id, text, sentence) in [
            ("seed", "9007199254740993000", "Seed: a whole number from 0 to 9007199254740991."),
            ("top_k", "2147483648", "Top k: a whole number from -1 to 2147483647."),
            ("max_tokens", "0", "Longest answer: a whole number from 1 to 4294967295."),
            ("temperature", "1e39", "Temperature: a number from 0 to 3.4e38."),
            ("repetition_penalty", "0", "Repetition penalty: a number above 0, up to 3.4e38."),
            ("top_p", "2", "Top p: a number above 0, up to 1."),
            ("presence_penalty", "x", "Presence penalty: a number from -2 to 2."),
        ] {
            let field = numbers().find(|field| field.id == id).unwrap();
            assert_eq!(field.apply(&mut GenerateOptions::default(), text), Err(sentence.to_owned()));
        }
    }

    #[test]
    fn an_empty_box_is_an_absent_option() {
        let mut options =
            GenerateOptions { seed: Some(3), max_tokens: Some(3), ..GenerateOptions::default() };
        for field in numbers().filter(|field| field.when_empty.is_some()) {
            assert_eq!(field.apply(&mut options, "  "), Ok(()));
        }
        assert_eq!((options.seed, options.max_tokens), (None, None));
    }

    #[test]
    fn lines_round_trip() {
        for (lines, texts) in [
            ("", &[][..]),
            ("a\n\nb", &["a", "b"]),
            (r"\n\nUser:", &["\n\nUser:"]),
            (r"a\tb\\n", &["a\tb\\n"]),
            (r"\d\", &["\\d\\"]),
        ] {
            assert_eq!(texts_from_lines(lines), texts, "{lines}");
            let texts: Vec<String> = texts.iter().map(|&text| text.to_owned()).collect();
            assert_eq!(texts_from_lines(&lines_from_texts(&texts)), texts);
        }
    }
}
