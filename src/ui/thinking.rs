//! What a model thought before it answered, told apart from the answer by the tags around it. Both are slices of one text,
//! which stays whole wherever it is kept or sent.

use std::borrow::Cow;

use crate::protocol::THINKING_TAGS as TAGS;

/// An answer in its two parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    /// What was thought, if the text has it.
    pub(crate) thought: Option<&'a str>,
    /// The thought goes on.
    pub(crate) is_thinking: bool,
    /// What is said.
    pub(crate) said: &'a str,
}

/// The parts of an answer; one that `grows` may end within a tag, which is then not shown.
pub(crate) fn parts(text: &str, grows: bool) -> Parts<'_> {
    let begun = text.trim_start();
    for (open, close) in TAGS {
        let Some(inside) = begun.strip_prefix(open) else { continue };
        return match inside.split_once(close) {
            Some((thought, said)) => over(thought, said),
            None if grows => {
                Parts { thought: Some(without_begun(inside, close)), is_thinking: true, said: "" }
            }
            None => over(inside, ""),
        };
    }
    if grows && !begun.is_empty() && TAGS.iter().any(|(open, _)| open.starts_with(begun)) {
        return Parts { thought: None, is_thinking: false, said: "" };
    }
    match end_alone(text) {
        Some((thought, said)) => over(thought, said),
        None => Parts { thought: None, is_thinking: false, said: text },
    }
}

/// What a text says, without what was thought.
pub(crate) fn said(text: &str) -> &str {
    parts(text, false).said
}

/// What of an answer's text is not in its prompt yet, which may end with the `opening` of a thought that the answer's text
/// begins with.
pub(crate) fn after_opening<'a>(text: &'a str, opening: &str) -> &'a str {
    let tag = opening.trim_end();
    if tag.is_empty() {
        return text;
    }
    text.strip_prefix(opening)
        .or_else(|| text.trim_start().strip_prefix(tag).map(str::trim_start))
        .unwrap_or(text)
}

/// An answer as a later one is to read it: where it was stopped within a thought, that is ended. Templates leave out what was
/// thought, up to its end.
pub(crate) fn ended(text: &str) -> Cow<'_, str> {
    let begun = text.trim_start();
    let open =
        |(open, close): &(&str, &str)| begun.strip_prefix(open).is_some_and(|inside| !inside.contains(close));
    match TAGS.iter().find(|tags| open(tags)) {
        Some((_, close)) => format!("{}\n{close}\n\n", without_begun(text, close)).into(),
        None => text.into(),
    }
}

/// A text without the beginning of a tag that it ends with.
fn without_begun<'a>(text: &'a str, tag: &str) -> &'a str {
    let n_begun = (1..tag.len()).rev().find(|n| text.ends_with(&tag[..*n])).unwrap_or(0);
    &text[..text.len() - n_begun]
}

/// The last line of a thought with words in it.
pub(crate) fn last_line(thought: &str) -> &str {
    thought.lines().map(str::trim).rfind(|line| !line.is_empty()).unwrap_or_default()
}

fn over<'a>(thought: &'a str, said: &'a str) -> Parts<'a> {
    let thought = Some(thought).filter(|thought| !thought.trim().is_empty());
    Parts { thought, is_thinking: false, said: said.trim_start_matches(['\n', '\r']) }
}

/// A thought whose beginning lies in the prompt: its end stands in a line of its own, and not within code.
fn end_alone(text: &str) -> Option<(&str, &str)> {
    let (_, close) = *TAGS.iter().find(|(_, close)| text.contains(close))?;
    let mut in_code = false;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
        }
        if line.trim() == close && !in_code {
            return Some((&text[..at], &text[at + line.len()..]));
        }
        at += line.len();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thought_that_was_stopped_is_ended() {
        for (text, expected) in [
            ("Paris", "Paris"),
            ("<think>a</think>b", "<think>a</think>b"),
            ("<think>\nFrance", "<think>\nFrance\n</think>\n\n"),
            ("<thinking>a</think", "<thinking>a\n</thinking>\n\n"),
            ("Say <think>", "Say <think>"),
        ] {
            assert_eq!(ended(text), expected, "{text}");
            assert_eq!(said(&ended(text)), said(text), "{text}");
        }
    }

    #[test]
    fn thoughts_are_told_from_answers() {
        for (text, thought, said) in [
            ("Paris", None, "Paris"),
            ("<think>\nFrance.\n</think>\n\nParis", Some("\nFrance.\n"), "Paris"),
            ("\n<think>France.</think>Paris", Some("France."), "Paris"),
            ("<thinking>a</thinking> b", Some("a"), " b"),
            ("[THINK]a[/THINK]b", Some("a"), "b"),
            // Nothing was thought.
            ("<think>\n\n</think>\n\nParis", None, "Paris"),
            // It was stopped.
            ("<think>\nFrance", Some("\nFrance"), ""),
            // The prompt began it.
            ("France.\n</think>\n\nParis", Some("France.\n"), "Paris"),
            // Words about tags are words.
            ("The tag `</think>` ends it.", None, "The tag `</think>` ends it."),
            ("So:\n```\n<think>\n</think>\n```\n", None, "So:\n```\n<think>\n</think>\n```\n"),
            ("Use <think> here", None, "Use <think> here"),
            ("<thin", None, "<thin"),
            ("", None, ""),
        ] {
            let expected = Parts { thought, is_thinking: false, said };
            assert_eq!(parts(text, false), expected, "{text}");
        }
    }

    #[test]
    fn a_growing_answer_shows_no_halves_of_tags() {
        let text = "<think>\nSo <b> it is.\n</think>\n\nParis <b>";
        let mut shown = Vec::new();
        for (end, _) in text.char_indices() {
            let parts = parts(&text[..end], true);
            shown.push((parts.thought.unwrap_or_default(), parts.said));
            assert_eq!(parts.is_thinking, (7..text.find("\n\n").unwrap()).contains(&end), "{end}");
        }
        assert!(shown.iter().all(|(thought, said)| {
            "\nSo <b> it is.\n".starts_with(thought) && "Paris <b>".starts_with(said)
        }));
        assert_eq!(parts("<", true).said, "");
        assert_eq!(parts("< 3", true).said, "< 3");
    }

    #[test]
    fn a_thought_is_opened_once() {
        for (text, opening, expected) in [
            ("<think>\nSo", "<think>\n", "So"),
            ("<think>So", "<think>\n", "So"),
            ("\n<think>\n\nSo", "<think>\n", "So"),
            ("<think>\nSo", "<think>", "\nSo"),
            ("<think>\n", "<think>\n", ""),
            ("<think>\nSo", "", "<think>\nSo"),
            ("<think>\nSo", "[THINK]", "<think>\nSo"),
            ("<thinking>So", "<think>\n", "<thinking>So"),
            ("Paris", "<think>\n", "Paris"),
        ] {
            assert_eq!(after_opening(text, opening), expected, "{text:?} after {opening:?}");
        }
    }

    #[test]
    fn the_last_line_says_something() {
        assert_eq!(last_line("one\n two \n\n"), "two");
        assert_eq!(last_line(" \n"), "");
    }
}
