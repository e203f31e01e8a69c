//! A look at a chat template's source before Jinja's compiler, which recurses, sees it: what exceeds stated limits is
//! refused, and every place where a running template could grow a value past all bounds gets a filter that checks it.

/// Longest source, bytes; published templates have up to about 64 KiB.
const MAX_SOURCE: usize = 256 << 10;
/// Most lines, and most bytes in a line: the compiler counts both in 16 bits.
const MAX_LINES: usize = u16::MAX as usize - 1;
/// Most tags in a template.
const MAX_TAGS: usize = 4096;
/// Most `elif` and most `raw` tags: the compiler goes one level deeper for each.
const MAX_CHAINED: usize = 256;
/// Most operators, calls, lookups and brackets in a tag: each may be a level of the compiler's stack.
const MAX_OPERATORS: usize = 512;
/// Most filters in a tag, and deepest nesting of its brackets: each may wrap a value once more.
const MAX_WRAPPERS: usize = 32;
/// Most bytes in a tag outside string literals and white space.
const MAX_TAG_LEN: usize = 8192;

/// The filter that checks an operand of `+` and `*`, or what a variable gets.
pub(super) const CHECK_VALUE: &str = "_checked";
/// The filter that checks what a namespace gets.
pub(super) const CHECK_HELD: &str = "_checked_held";

/// The source with its checks; line numbers stay. Fails with a sentence that names the limit and what was found.
pub(super) fn with_checks(source: &str) -> Result<String, String> {
    limit("bytes", source.len(), MAX_SOURCE, None)?;
    limit("lines", source.split('\n').count(), MAX_LINES, None)?;
    limit("bytes in a line", longest_line(source), MAX_LINES, None)?;
    let mut out = String::with_capacity(source.len() + source.len() / 8);
    let (mut tags, mut chained) = (0, 0);
    let mut at = 0;
    while let Some(start) = next_marker(source, at) {
        out.push_str(&source[at..start]);
        let body = start + 2 + usize::from(source[start + 2..].starts_with(['-', '+']));
        let is_block = source[start..].starts_with("{%");
        if source[start..].starts_with("{#") {
            at = source[body..].find("#}").map_or(source.len(), |end| body + end + 2);
            out.push_str(&source[start..at]);
            continue;
        }
        tags += 1;
        limit("tags", tags, MAX_TAGS, None)?;
        if is_block && is_tag(&source[body..], "raw") {
            chained += 1;
            limit("elif and raw tags", chained, MAX_CHAINED, None)?;
            at = raw_end(source, body);
            out.push_str(&source[start..at]);
            continue;
        }
        let line = || 1 + source[..start].matches('\n').count();
        let mut tag = Tag::new(&source[body..], if is_block { "%}" } else { "}}" });
        let len = tag.read().map_err(|(what, found, max)| over(what, found, max, Some(line())))?;
        if is_block && tag.first_word == "elif" {
            chained += 1;
            limit("elif and raw tags", chained, MAX_CHAINED, None)?;
        }
        out.push_str(&source[start..body]);
        out.push_str(&tag.finish(is_block));
        at = body + len;
    }
    out.push_str(&source[at..]);
    // The checks make lines longer.
    limit("bytes in a line", longest_line(&out), MAX_LINES, None)?;
    Ok(out)
}

fn longest_line(source: &str) -> usize {
    source.split('\n').map(str::len).max().unwrap_or(0)
}

fn over(what: &str, found: usize, max: usize, line: Option<usize>) -> String {
    let place = line.map_or_else(String::new, |line| format!(" in the tag at line {line}"));
    format!("it has {found} {what}{place}, and at most {max} are compiled")
}

fn limit(what: &'static str, found: usize, max: usize, line: Option<usize>) -> Result<(), String> {
    if found > max { Err(over(what, found, max, line)) } else { Ok(()) }
}

/// Where the next tag or comment begins.
fn next_marker(source: &str, from: usize) -> Option<usize> {
    let pairs = source.as_bytes()[from..].windows(2);
    pairs.enumerate().find(|(_, pair)| matches!(*pair, b"{{" | b"{%" | b"{#")).map(|(at, _)| from + at)
}

/// Whether the tag whose inside begins here is just `name`.
fn is_tag(inside: &str, name: &str) -> bool {
    let rest = inside.trim_ascii_start().strip_prefix(name).map(str::trim_ascii_start);
    rest.is_some_and(|rest| rest.strip_prefix(['-', '+']).unwrap_or(rest).starts_with("%}"))
}

/// Where the raw block, whose opening tag's inside begins at `from`, ends.
fn raw_end(source: &str, from: usize) -> usize {
    let mut at = from;
    while let Some(start) = source[at..].find("{%") {
        at += start + 2;
        let inside = &source[at..];
        if is_tag(inside.strip_prefix(['-', '+']).unwrap_or(inside), "endraw") {
            return at + inside.find("%}").map_or(inside.len(), |end| end + 2);
        }
    }
    source.len()
}

/// The inside of a tag, read token by token as Jinja's lexer does.
struct Tag<'s> {
    inside: &'s str,
    end: &'static str,
    /// What was read, with checks.
    out: String,
    /// The closing marker with its white space control.
    closing: &'s str,
    first_word: &'s str,
    /// Open brackets.
    depth: i32,
    /// Where in `out` the assigned expression begins.
    assigned: Option<usize>,
    operators: usize,
    filters: usize,
    /// Bytes outside strings.
    len: usize,
}

type Over = (&'static str, usize, usize);

impl<'s> Tag<'s> {
    fn new(inside: &'s str, end: &'static str) -> Self {
        Self {
            inside,
            end,
            out: String::new(),
            closing: "",
            first_word: "",
            depth: 0,
            assigned: None,
            operators: 0,
            filters: 0,
            len: 0,
        }
    }

    /// Reads to the tag's end, or the source's; gives how many bytes that were.
    fn read(&mut self) -> Result<usize, Over> {
        let mut at = 0;
        let mut is_operand = false;
        while let Some(first) = self.inside[at..].chars().next() {
            let rest = &self.inside[at..];
            if self.depth == 0 {
                let marker = rest.strip_prefix(['-', '+']).unwrap_or(rest);
                let control = rest.len() - marker.len();
                let both = [(control, marker), (0, rest)];
                if let Some((control, _)) = both.iter().find(|(_, text)| text.starts_with(self.end)) {
                    self.closing = &rest[..control + self.end.len()];
                    return Ok(at + self.closing.len());
                }
            }
            let token = &rest[..token_len(rest, first)];
            at += token.len();
            if first.is_ascii_whitespace() {
                self.out.push_str(token);
                continue;
            }
            self.count(token, first)?;
            if is_operand && matches!(token, "+" | "*") {
                self.out.push('|');
                self.out.push_str(CHECK_VALUE);
            }
            self.out.push_str(token);
            if token == "=" && self.depth == 0 && self.assigned.is_none() {
                self.assigned = Some(self.out.len());
            }
            is_operand =
                is_word(first) && !is_operator_word(token) || matches!(first, '"' | '\'' | ')' | ']' | '}');
        }
        Ok(at)
    }

    fn count(&mut self, token: &'s str, first: char) -> Result<(), Over> {
        if matches!(first, '"' | '\'') {
            return Ok(());
        }
        self.len += token.len();
        if is_word(first) && self.first_word.is_empty() {
            self.first_word = token;
        }
        match token {
            "(" | "[" | "{" => self.depth += 1,
            ")" | "]" | "}" => self.depth -= 1,
            "|" => self.filters += 1,
            _ => {}
        }
        let flat = matches!(token, "," | ":" | ")" | "]" | "}");
        if !flat && (!is_word(first) || is_operator_word(token)) {
            self.operators += 1;
        }
        let depth = usize::try_from(self.depth).unwrap_or(0);
        let table = [
            ("operators", self.operators, MAX_OPERATORS),
            ("filters", self.filters, MAX_WRAPPERS),
            ("brackets in each other", depth, MAX_WRAPPERS),
            ("bytes outside strings", self.len, MAX_TAG_LEN),
        ];
        table.into_iter().find(|(_, found, max)| found > max).map_or(Ok(()), Err)
    }

    /// The tag with its end; what a `set` assigns is checked.
    fn finish(self, is_block: bool) -> String {
        let Self { mut out, assigned, filters, .. } = self;
        if is_block && self.first_word == "set" && !self.closing.is_empty() {
            let target = &out[..assigned.unwrap_or(out.len())];
            // `set ns.x | filter` has its dot before the first `|`.
            let target = target.split('|').next().unwrap_or_default();
            let check = if target.contains('.') { CHECK_HELD } else { CHECK_VALUE };
            match assigned {
                Some(at) if !out[at..].trim().is_empty() => {
                    out.insert_str(at, " (");
                    out.push_str(")|");
                    out.push_str(check);
                }
                None if filters > 0 => {
                    out.push('|');
                    out.push_str(check);
                }
                _ => {}
            }
            out.push(' ');
        }
        out + self.closing
    }
}

fn is_word(first: char) -> bool {
    first.is_alphanumeric() || first == '_'
}

fn is_operator_word(token: &str) -> bool {
    matches!(token, "and" | "or" | "not" | "in" | "is" | "if" | "else" | "elif")
}

/// Bytes of the token that `rest` begins with.
fn token_len(rest: &str, first: char) -> usize {
    let run = |is_in: fn(char) -> bool| rest.find(|letter| !is_in(letter)).unwrap_or(rest.len());
    match first {
        '"' | '\'' => string_len(rest, first),
        _ if first.is_ascii_whitespace() => run(|letter| letter.is_ascii_whitespace()),
        _ if is_word(first) => {
            let len = run(is_word);
            let word = &rest[..len];
            let is_exponent = first.is_ascii_digit() && !word.starts_with("0x") && word.ends_with(['e', 'E']);
            let sign = rest[len..].strip_prefix(['-', '+']);
            let digits = sign.map_or(0, |sign| sign.len() - sign.trim_start_matches(is_word).len());
            if is_exponent && digits > 0 { len + 1 + digits } else { len }
        }
        _ if ["//", "**", "==", "!=", ">=", "<="].iter().any(|token| rest.starts_with(token)) => 2,
        _ => first.len_utf8(),
    }
}

/// Bytes of the string literal that `rest` begins with, or all of it if it does not end.
fn string_len(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, letter) in rest.char_indices().skip(1) {
        match letter {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            _ if letter == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_are_put_where_values_grow() {
        let table = [
            ("a {# {% set x = 1 %} #} {{ x }}", None),
            ("{% raw %}{{ a + b }}{%- endraw %}{{ '}} + ' ~ 1e+5 ~ -2 ~ f(*x) ~ 2 ** 3 }}", None),
            ("{{- a + b -}}", Some("{{- a |_checked+ b -}}")),
            ("{% set x = {'a': {}}-%}", Some("{% set x = ( {'a': {}})|_checked -%}")),
            ("{%- set ns.x = ns.x + [1] %}", Some("{%- set ns.x = ( ns.x |_checked+ [1] )|_checked_held %}")),
            ("{% set x %}{% set ns.x | trim %}", Some("{% set x  %}{% set ns.x | trim |_checked_held %}")),
            ("{{ 'é' * 2", Some("{{ 'é' |_checked* 2")),
        ];
        for (source, expected) in table {
            assert_eq!(with_checks(source).as_deref(), Ok(expected.unwrap_or(source)));
        }
    }
}
