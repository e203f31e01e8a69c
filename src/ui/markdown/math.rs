//! Formulas in `\(…\)` and `\[…\]`, put so that the Markdown parser knows them: as long as before, and nothing else differs.

use std::borrow::Cow;

use super::bounds::after_marker;

/// A formula is no longer than this.
const MAX_FORMULA_BYTES: usize = 4000;

/// The text with `$$` in place of each bracket of a formula; the parser keeps what lies between as it is.
pub(super) fn with_dollars(text: &str) -> Cow<'_, str> {
    if !text.contains("\\(") && !text.contains("\\[") {
        return Cow::Borrowed(text);
    }
    let mut changed = String::with_capacity(text.len());
    let mut fence = None;
    // Formulas, like code within a line, end with their paragraph.
    let mut paragraph_start = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let mark = fence_mark(line);
        let ends_paragraph = line.trim().is_empty() || mark.is_some();
        if fence.is_none() && ends_paragraph {
            push_paragraph(&text[paragraph_start..at], &mut changed);
            paragraph_start = at;
        }
        at += line.len();
        if fence.is_some() || ends_paragraph {
            changed.push_str(&text[paragraph_start..at]);
            paragraph_start = at;
        }
        fence = match (fence, mark) {
            (None, opening) => opening,
            (Some((char, n_opening)), Some((closing, n_closing)))
                if char == closing && n_closing >= n_opening =>
            {
                None
            }
            (open, _) => open,
        };
    }
    push_paragraph(&text[paragraph_start..], &mut changed);
    Cow::Owned(changed)
}

/// The character of a code fence in this line, and how many there are.
fn fence_mark(line: &str) -> Option<(char, usize)> {
    let mut line = line.trim_start();
    while let Some(after) = after_marker(line) {
        line = after.trim_start();
    }
    let mark = line.chars().next().filter(|char| matches!(char, '`' | '~'))?;
    let n_marks = line.chars().take_while(|char| *char == mark).count();
    let is_fence = n_marks >= 3 && !(mark == '`' && line[n_marks..].contains('`'));
    is_fence.then_some((mark, n_marks))
}

fn push_paragraph(text: &str, changed: &mut String) {
    let mut at = 0;
    // Where the ends are that were looked for in vain.
    let mut in_vain = [false; 2];
    let mut ticks_in_vain = Vec::new();
    while let Some(n_bytes) = text[at..].find(['\\', '`']) {
        changed.push_str(&text[at..at + n_bytes]);
        at += n_bytes;
        let rest = &text[at..];
        if rest.starts_with('`') {
            let n_ticks = rest.len() - rest.trim_start_matches('`').len();
            let end = if ticks_in_vain.contains(&n_ticks) { None } else { code_end(rest, n_ticks) };
            if end.is_none() {
                ticks_in_vain.push(n_ticks);
            }
            let n_bytes = end.unwrap_or(n_ticks);
            changed.push_str(&rest[..n_bytes]);
            at += n_bytes;
            continue;
        }
        let kind = match rest.as_bytes().get(1) {
            Some(b'(') => Some((0, "\\)")),
            Some(b'[') => Some((1, "\\]")),
            _ => None,
        };
        let formula = kind.filter(|(kind, _)| !in_vain[*kind]).and_then(|(kind, close)| {
            let inside = &rest[2..];
            let end = inside[..inside.floor_char_boundary(MAX_FORMULA_BYTES)].find(close);
            in_vain[kind] = end.is_none() && inside.len() <= MAX_FORMULA_BYTES;
            end.map(|end| &inside[..end])
        });
        match formula {
            Some(formula) if !formula.contains('$') && !formula.trim().is_empty() => {
                changed.extend(["$$", formula, "$$"]);
                at += formula.len() + 4;
            }
            _ => {
                let n_bytes = 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
                changed.push_str(&rest[..n_bytes]);
                at += n_bytes;
            }
        }
    }
    changed.push_str(&text[at..]);
}

/// Where the code within a line ends that so many ticks begin.
fn code_end(text: &str, n_ticks: usize) -> Option<usize> {
    let mut at = n_ticks;
    while let Some(n_bytes) = text[at..].find('`') {
        at += n_bytes;
        let n_closing = text[at..].len() - text[at..].trim_start_matches('`').len();
        at += n_closing;
        if n_closing == n_ticks {
            return Some(at);
        }
    }
    None
}
