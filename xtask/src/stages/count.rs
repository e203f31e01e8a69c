//! Counting what test runners report: a failed test is kept by name, so that the end of a long log says it again.

/// Tests that passed and failed, of one stage.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// How many passed.
    pub(super) passed: u64,
    /// One entry a failure: the test's name, or a sentence.
    pub(super) failures: Vec<String>,
    /// Names since the last summary line.
    pending: Vec<String>,
    /// The test that was named last; what it prints may stand between its name and its result.
    current: Option<String>,
}

impl Tally {
    /// Notes a failure that no runner reported.
    pub(super) fn fail(&mut self, sentence: String) {
        self.failures.push(sentence);
    }

    /// Reads a line of the output of libtest or of wasm-bindgen's runner.
    pub(super) fn read(&mut self, line: &str) {
        let line = line.trim();
        if let Some(rest) = line.strip_prefix("test result: ") {
            self.passed += number_before(rest, " passed").unwrap_or(0);
            let failed = usize::try_from(number_before(rest, " failed").unwrap_or(0)).unwrap_or(usize::MAX);
            let mut names = std::mem::take(&mut self.pending);
            names.truncate(failed);
            while names.len() < failed.min(1000) {
                names.push("a test whose name is in the output above".into());
            }
            self.failures.append(&mut names);
        } else if line.starts_with("FAIL") {
            self.pending.extend(self.current.take());
        } else if let Some((name, result)) =
            line.strip_prefix("test ").and_then(|rest| rest.split_once(" ... "))
        {
            if result.starts_with("FAIL") {
                self.pending.push(name.into());
            } else {
                self.current = Some(name.into());
            }
        }
    }

    /// The counts as a person reads them.
    pub(super) fn spoken(&self) -> String {
        format!("{} passed, {} failed", self.passed, self.failures.len())
    }
}

/// The number that stands before a word: 3 in `ok. 3 passed; 0 failed`.
fn number_before(text: &str, word: &str) -> Option<u64> {
    text.split_once(word)?.0.rsplit(|character: char| !character.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_runners_are_understood() {
        let mut tally = Tally::default();
        for line in [
            "test plan::tests::adds ... ok",
            "test gpu::tests::divides ... FAILED",
            "test page::stops ... the engine has 15 MiB",
            "FAILED",
            "test result: FAILED. 12 passed; 2 failed; 0 ignored; 0 measured; 3 filtered out; finished in 0.31s",
            "test kernels::matvec_f16 ... FAIL",
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 filtered out; finished in 2.01s",
            "test result: ok. 5 passed; 0 failed; 0 ignored; 0 filtered out; finished in 2.01s",
        ] {
            tally.read(line);
        }
        assert_eq!(tally.passed, 18);
        assert_eq!(tally.failures.len(), 4);
        assert_eq!(tally.failures[..3], ["gpu::tests::divides", "page::stops", "kernels::matvec_f16"]);
        assert_eq!(tally.spoken(), "18 passed, 4 failed");
    }
}
