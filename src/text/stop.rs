//! Stop strings in streamed text. What is given out never holds a stop string's beginning that later text completes,
//! and does not depend on how the text was cut into pieces.

use super::TextError;

/// Watches one sequence's text. The stop string that is complete first ends it, the longest if several are.
#[derive(Debug, Clone)]
pub struct StopStrings {
    stops: Vec<Matcher>,
    include_stop: bool,
    /// Text that may be the beginning of a stop string.
    held: String,
    stopped: bool,
}

/// What became of a piece of text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StopOutcome {
    /// Text that is certain now.
    pub text: String,
    /// A stop string was found: the text ends here.
    pub stopped: bool,
}

/// Knuth, Morris and Pratt's automaton of one stop string.
#[derive(Debug, Clone)]
struct Matcher {
    stop: Vec<u8>,
    /// For each beginning of `stop`, by its length − 1: length of its longest end that is a shorter beginning.
    borders: Vec<usize>,
    /// Bytes of `stop` that the text ends with.
    matched: usize,
}

impl Matcher {
    fn new(stop: String) -> Self {
        let mut matcher = Self { stop: stop.into_bytes(), borders: vec![0], matched: 0 };
        for at in 1..matcher.stop.len() {
            matcher.step(matcher.stop[at]);
            matcher.borders.push(matcher.matched);
        }
        matcher.matched = 0;
        matcher
    }

    /// Takes one byte of text; whether the stop string is complete with it. Not to be called again after that.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.stop[self.matched] != byte {
            self.matched = self.borders[self.matched - 1];
        }
        if self.stop[self.matched] == byte {
            self.matched += 1;
        }
        self.matched == self.stop.len()
    }
}

impl StopStrings {
    /// Watches for `stops`; with `include_stop` the one found stays in the text. An empty one is refused.
    pub fn new(stops: Vec<String>, include_stop: bool) -> Result<Self, TextError> {
        if let Some(index) = stops.iter().position(String::is_empty) {
            return Err(TextError::EmptyStopString { index });
        }
        let stops = stops.into_iter().map(Matcher::new).collect();
        Ok(Self { stops, include_stop, held: String::new(), stopped: false })
    }

    /// Takes the next text. After a stop there is no more.
    pub fn push(&mut self, text: &str) -> StopOutcome {
        if self.stopped {
            return StopOutcome { text: String::new(), stopped: true };
        }
        let n_held = self.held.len();
        self.held.push_str(text);
        for at in n_held..self.held.len() {
            let byte = self.held.as_bytes()[at];
            let complete = |longest: usize, matcher: &mut Matcher| {
                if matcher.step(byte) { longest.max(matcher.stop.len()) } else { longest }
            };
            let stop_len = self.stops.iter_mut().fold(0, complete);
            if stop_len > 0 {
                self.stopped = true;
                let mut text = std::mem::take(&mut self.held);
                text.truncate(if self.include_stop { at + 1 } else { at + 1 - stop_len });
                return StopOutcome { text, stopped: true };
            }
        }
        let n_kept = self.stops.iter().map(|matcher| matcher.matched).max().unwrap_or(0);
        let kept = self.held.split_off(self.held.len() - n_kept);
        StopOutcome { text: std::mem::replace(&mut self.held, kept), stopped: false }
    }

    /// The text that was held back, when no more comes.
    pub fn finish(&mut self) -> String {
        std::mem::take(&mut self.held)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], include: bool, pieces: &[&str]) -> (String, bool) {
        let mut watcher =
            StopStrings::new(stops.iter().map(|stop| (*stop).to_owned()).collect(), include).unwrap();
        let mut text = String::new();
        for piece in pieces {
            let outcome = watcher.push(piece);
            text += &outcome.text;
            if outcome.stopped {
                assert_eq!(watcher.push("more"), StopOutcome { text: String::new(), stopped: true });
                assert_eq!(watcher.finish(), "");
                return (text, true);
            }
        }
        (text + &watcher.finish(), false)
    }

    #[test]
    fn the_first_stop_string_ends_the_text_however_it_is_cut() {
        let table: &[(&[&str], &str, &str, bool)] = &[
            (&["END"], "some textEND more", "some text", true),
            (&["END"], "ENEND", "EN", true),
            (&["aab"], "aaab", "a", true),
            (&["abcd", "bc"], "xabcd", "xa", true),
            (&["c", "abc"], "xabc", "x", true),
            (&["🙂\n"], "é🙂🙂\n", "é🙂", true),
            (&["END"], "EN", "EN", false),
            (&["abab"], "abaabab!", "aba", true),
            (&[], "anything", "anything", false),
        ];
        for (stops, text, expected, stopped) in table {
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            for pieces in [vec![*text], letters] {
                assert_eq!(
                    run(stops, false, &pieces),
                    ((*expected).to_owned(), *stopped),
                    "{stops:?} in {pieces:?}"
                );
            }
        }
    }

    #[test]
    fn the_stop_string_stays_if_asked() {
        assert_eq!(run(&["END", "D"], true, &["a", "EN", "D!"]), ("aEND".into(), true));
    }

    #[test]
    fn only_what_may_become_a_stop_string_is_held() {
        let mut watcher = StopStrings::new(vec!["\n\nUser:".into()], false).unwrap();
        assert_eq!(watcher.push("Hi\n").text, "Hi");
        assert_eq!(watcher.push("\n\nUs").text, "\n");
        assert_eq!(watcher.push("a").text, "\n\nUsa");
        assert_eq!(watcher.push("\n").text, "");
        assert_eq!(watcher.finish(), "\n");
    }

    #[test]
    fn an_empty_stop_string_is_refused() {
        let error = StopStrings::new(vec!["a".into(), String::new()], false).unwrap_err();
        assert_eq!(error, TextError::EmptyStopString { index: 1 });
    }
}
