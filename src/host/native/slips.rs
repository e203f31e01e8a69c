//! What a mistyped name was meant to be.

/// The candidate that differs by the fewest edits, if those are few.
pub(super) fn nearest(name: &str, candidates: impl Iterator<Item = &'static str>) -> Option<&'static str> {
    let measured = candidates.map(|candidate| (edits(name, candidate), candidate));
    measured
        .min_by_key(|(n_edits, _)| *n_edits)
        .filter(|(n_edits, found)| *n_edits <= found.len() / 3 + 1)
        .map(|(_, found)| found)
}

/// Insertions, removals and replacements of characters that make `from` into `to` (Levenshtein 1966).
fn edits(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let replaced = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted() {
        for (from, to, expected) in
            [("", "", 0), ("", "abc", 3), ("abc", "abc", 0), ("promt", "prompt", 1), ("kitten", "sitting", 3)]
        {
            assert_eq!((edits(from, to), edits(to, from)), (expected, expected), "{from} {to}");
        }
    }
}
