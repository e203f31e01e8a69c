//! Code as HTML with coloured words: one pass over the text, whatever it says. All of the text is in the HTML, once and in
//! order, and every character of it is escaped.

use super::languages::{Language, Quote, Shape};

/// A string that must end with its line is none if it is longer than this.
const MAX_LINE_STRING_BYTES: usize = 1000;

/// What a piece of code is; each has its colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Comment,
    Text,
    Number,
    Keyword,
    /// A function that is called or defined, a key, an attribute.
    Name,
    /// A type, a variable with its mark, a decorator.
    Type,
    Added,
    Removed,
}

/// The classes that the HTML names.
pub(super) const CLASSES: [&str; 8] = ["hc", "hs", "hn", "hk", "hf", "ht", "ha", "hd"];

/// Code as HTML, and how many elements that has: at most `max_spans`, the rest is not coloured.
pub(super) fn highlight(code: &str, language: &Language, max_spans: usize) -> (String, usize) {
    let mut lexer =
        Lexer { code, language, at: 0, html: String::new(), plain_from: 0, n_spans: 0, max_spans };
    while lexer.at < code.len() && lexer.n_spans < max_spans {
        match language.shape {
            Shape::Code => lexer.code_piece(),
            Shape::Markup => lexer.markup_piece(),
            Shape::Diff => lexer.diff_line(),
        }
    }
    lexer.at = code.len();
    lexer.flush();
    (lexer.html, lexer.n_spans)
}

/// Code as HTML without colours.
pub(super) fn escape(code: &str, html: &mut String) {
    for char in code.chars() {
        match char {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            other => html.push(other),
        }
    }
}

struct Lexer<'a> {
    code: &'a str,
    language: &'a Language,
    at: usize,
    html: String,
    /// What lies between here and `at` has no class.
    plain_from: usize,
    n_spans: usize,
    max_spans: usize,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        &self.code[self.at..]
    }

    /// Goes on by a piece without a class.
    fn skip(&mut self, n_bytes: usize) {
        self.at += n_bytes;
    }

    fn flush(&mut self) {
        escape(&self.code[self.plain_from..self.at], &mut self.html);
        self.plain_from = self.at;
    }

    /// Goes on by a piece of a class.
    fn push(&mut self, class: Class, n_bytes: usize) {
        self.flush();
        self.html.extend(["<span class=\"", CLASSES[class as usize], "\">"]);
        self.at += n_bytes;
        self.flush();
        self.html.push_str("</span>");
        self.n_spans += 1;
    }

    fn code_piece(&mut self) {
        let rest = self.rest();
        let Some(first) = rest.chars().next() else { return };
        let before = self.code[..self.at].chars().next_back();
        if let Some(n_bytes) = self.comment() {
            self.push(Class::Comment, n_bytes);
        } else if self.language.is_rust && is_lifetime(rest) {
            self.push(Class::Type, 1 + word(&rest[1..], false).len());
        } else if let Some(n_bytes) = self.text() {
            let class = if self.is_key(n_bytes) { Class::Name } else { Class::Text };
            self.push(class, n_bytes);
        } else if self.language.has_directives && first == '#' && self.begins_line() {
            self.push(Class::Keyword, 1 + word(&rest[1..], false).len());
        } else if self.language.sigils.contains(&first) && !before.is_some_and(is_word) {
            self.sigil(first);
        } else if first.is_ascii_digit() {
            self.push(Class::Number, number(rest).len());
        } else if is_word(first) {
            self.word();
        } else {
            self.skip(first.len_utf8());
        }
    }

    fn word(&mut self) {
        let rest = self.rest();
        let word = word(rest, self.language.has_dashes);
        let after = &rest[word.len()..];
        let is_macro = self.language.is_rust && after.starts_with('!') && !after.starts_with("!=");
        if self.is_key(word.len()) {
            self.push(Class::Name, word.len());
        } else if self.language.is_keyword(word) {
            self.push(Class::Keyword, word.len());
        } else if is_macro || (after.starts_with('(') && self.language.after_key.is_none()) {
            self.push(Class::Name, word.len());
        } else if word.starts_with(char::is_uppercase) && self.language.after_key.is_none() {
            self.push(Class::Type, word.len());
        } else {
            self.skip(word.len());
        }
    }

    /// A variable, a decorator, an attribute: its mark and its name.
    fn sigil(&mut self, mark: char) {
        let name = word(&self.rest()[mark.len_utf8()..], self.language.has_dashes);
        match name.is_empty() {
            true => self.skip(mark.len_utf8()),
            false => self.push(Class::Type, mark.len_utf8() + name.len()),
        }
    }

    /// Whether the piece of that length is followed by what makes it a key.
    fn is_key(&self, n_bytes: usize) -> bool {
        let Some(mark) = self.language.after_key else { return false };
        let after = self.rest()[n_bytes..].trim_start_matches([' ', '\t']);
        after.strip_prefix(mark).is_some_and(|after| !after.starts_with(mark))
    }

    fn begins_line(&self) -> bool {
        let before = self.code[..self.at].trim_end_matches([' ', '\t']);
        before.is_empty() || before.ends_with('\n')
    }

    /// The length of the comment that begins here.
    fn comment(&self) -> Option<usize> {
        let rest = self.rest();
        if let Some((open, close)) = self.language.block_comment
            && let Some(inside) = rest.strip_prefix(open)
        {
            return Some(inside.find(close).map_or(rest.len(), |end| open.len() + end + close.len()));
        }
        let mark = self.language.line_comments.iter().find(|mark| rest.starts_with(**mark))?;
        // In shells and YAML it is one among the letters of a word.
        let is_apart = *mark != "#" || !self.code[..self.at].ends_with(|char: char| !char.is_whitespace());
        is_apart.then(|| line(rest).len())
    }

    /// The length of the string that begins here.
    fn text(&self) -> Option<usize> {
        let rest = self.rest();
        let quote = self.language.quotes.iter().find(|quote| rest.starts_with(quote.open))?;
        // In raw strings the mark is no end of a name.
        let is_apart = !quote.open.starts_with(is_word) || !self.code[..self.at].ends_with(is_word);
        // An apostrophe is no string without its end.
        is_apart.then(|| closed(rest, quote)).flatten()
    }

    fn markup_piece(&mut self) {
        let rest = self.rest();
        if let Some(n_bytes) = self.comment() {
            self.push(Class::Comment, n_bytes);
        } else if let Some(inside) = rest.strip_prefix('<') {
            let name_at = 1 + inside.len() - inside.trim_start_matches(['/', '!', '?']).len();
            let name = word(&rest[name_at..], true);
            if name.is_empty() {
                return self.skip(1);
            }
            self.skip(name_at);
            self.push(Class::Keyword, name.len());
            self.attributes();
        } else {
            self.skip(rest.find('<').unwrap_or(rest.len()));
        }
    }

    /// What a tag says after its name.
    fn attributes(&mut self) {
        while let Some(first) = self.rest().chars().next() {
            if first == '>' || first == '<' || self.n_spans == self.max_spans {
                return;
            }
            if let Some(n_bytes) = self.text() {
                self.push(Class::Text, n_bytes);
            } else if is_word(first) {
                self.push(Class::Name, word(self.rest(), true).len());
            } else {
                self.skip(first.len_utf8());
            }
        }
    }

    fn diff_line(&mut self) {
        let line = line(self.rest());
        let class = match line.as_bytes().first() {
            _ if line.starts_with("+++") || line.starts_with("---") => Some(Class::Comment),
            Some(b'+') => Some(Class::Added),
            Some(b'-') => Some(Class::Removed),
            Some(b'@') => Some(Class::Type),
            _ if line.starts_with("diff ") || line.starts_with("index ") => Some(Class::Comment),
            _ => None,
        };
        match class {
            Some(class) => self.push(class, line.len()),
            None => self.skip(line.len()),
        }
        self.skip(self.rest().starts_with('\n').into());
    }
}

/// The length of the string that a text begins with. One that may span lines is one until its end comes.
fn closed(text: &str, quote: &Quote) -> Option<usize> {
    let mut at = quote.open.len();
    while let Some(first) = text[at..].chars().next() {
        if text[at..].starts_with(quote.close) {
            return Some(at + quote.close.len());
        }
        if !quote.spans_lines && (first == '\n' || at > MAX_LINE_STRING_BYTES) {
            return None;
        }
        at += first.len_utf8();
        if first == '\\' && quote.escapes {
            at += text[at..].chars().next().map_or(0, char::len_utf8);
        }
    }
    quote.spans_lines.then_some(text.len())
}

/// Whether a text begins with a lifetime and not with a character.
fn is_lifetime(text: &str) -> bool {
    text.strip_prefix('\'').is_some_and(|name| {
        let name_bytes = word(name, false).len();
        name_bytes > 0 && !name[name_bytes..].starts_with('\'')
    })
}

fn is_word(char: char) -> bool {
    char == '_' || char.is_alphanumeric()
}

fn word(text: &str, has_dashes: bool) -> &str {
    let end = text.find(|char: char| !(is_word(char) || (has_dashes && char == '-')));
    &text[..end.unwrap_or(text.len())]
}

/// Digits, and the letters and points among them.
fn number(text: &str) -> &str {
    let mut after_point = false;
    let end = text.find(|char: char| {
        // Two points are a range.
        let ends = if char == '.' { after_point } else { !is_word(char) };
        after_point = char == '.';
        ends
    });
    text[..end.unwrap_or(text.len())].trim_end_matches('.')
}

fn line(text: &str) -> &str {
    &text[..text.find('\n').unwrap_or(text.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The coloured pieces with their classes.
    fn pieces(name: &str, code: &str) -> Vec<(String, String)> {
        let language = Language::of(name).unwrap_or_else(|| panic!("no language {name}"));
        let (html, n_spans) = highlight(code, language, 1000);
        let pieces: Vec<(String, String)> = html
            .split("<span class=\"")
            .skip(1)
            .map(|span| {
                let (class, rest) = span.split_once("\">").unwrap();
                (class.to_owned(), unescape(rest.split_once("</span>").unwrap().0))
            })
            .collect();
        assert_eq!(pieces.len(), n_spans);
        pieces
    }

    fn unescape(html: &str) -> String {
        html.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
    }

    #[test]
    fn words_have_their_colours() {
        for (name, code, expected) in [
            ("rust", "let s: &'a str = \"x\\\"\"; // c", "hk:let ht:'a hk:str hs:\"x\\\"\" hc:// c"),
            ("rs", "println!('x', r#\"a\"b\"#, 0..1_0u8)", "hf:println hs:'x' hs:r#\"a\"b\"# hn:0 hn:1_0u8"),
            ("Python", "@f\ndef g(x): # c\n  '''a\nb'''", "ht:@f hk:def hf:g hc:# c hs:'''a\nb'''"),
            ("tsx", "const a = `x\n${b}`", "hk:const hs:`x\n${b}`"),
            ("c++", "#include <a>\nint x = 0x1F; /* c */", "hk:#include hk:int hn:0x1F hc:/* c */"),
            ("go", "func F(x T) { don't }", "hk:func hf:F ht:T"),
            ("bash", "echo \"$a\" $b#c # d", "hk:echo hs:\"$a\" ht:$b hc:# d"),
            (
                "sql",
                "SELECT a FROM t WHERE b = 'it''s' -- c",
                "hk:SELECT hk:FROM hk:WHERE hs:'it' hs:'s' hc:-- c",
            ),
            ("json", "{\"a\": \"b\", \"c\": [1.5e3, true]}", "hf:\"a\" hs:\"b\" hf:\"c\" hn:1.5e3 hk:true"),
            ("yaml", "a-b: c # d\ne: 'f'", "hf:a-b hc:# d hf:e hs:'f'"),
            ("toml", "a = 1\n", "hf:a hn:1"),
            ("html", "<!-- c --><a href=\"x\">1 < 2</a>", "hc:<!-- c --> hk:a hf:href hs:\"x\" hk:a"),
            ("css", ".a { color: #fff; }", "ht:.a hf:color ht:#fff"),
            ("diff", "--- a\n+++ b\n@@ 1\n-x\n+y\n z", "hc:--- a hc:+++ b ht:@@ 1 hd:-x ha:+y"),
        ] {
            let shown: Vec<String> =
                pieces(name, code).iter().map(|(class, piece)| format!("{class}:{piece}")).collect();
            assert_eq!(shown.join(" "), expected, "{name}");
        }
        for name in ["", "nonsense", "text"] {
            assert!(Language::of(name).is_none(), "{name}");
        }
    }

    /// What is left of HTML without its tags.
    fn text_of(html: &str) -> String {
        let texts = html.split('<').enumerate().map(|(index, part)| match index {
            0 => part,
            _ => part.split_once('>').map_or("", |(_, text)| text),
        });
        unescape(&texts.collect::<String>())
    }

    #[test]
    fn no_character_is_lost_whatever_the_text() {
        let hostile = [
            "\"'`<>&\\\"'''\"\"\"/*//#--<!--r#\"é𝄞\n\t @$:1..2 'a b!c -x+",
            "\\'\\'\\'",
            "<a <b \"",
            "<",
            "'",
            "é'é",
        ];
        for language in [
            "rust", "python", "js", "c", "java", "go", "php", "ruby", "lua", "sh", "sql", "json", "yaml",
            "toml", "html", "css", "diff", "r", "swift", "cs",
        ] {
            let known = Language::of(language).unwrap();
            for text in hostile {
                for (end, _) in text.char_indices() {
                    let (html, _) = highlight(&text[..end], known, 1000);
                    assert_eq!(text_of(&html), text[..end], "{language}");
                }
            }
        }
    }

    #[test]
    fn colours_are_bounded() {
        for text in [
            "1 ".repeat(100_000),
            "\\'".repeat(50_000),
            "'".repeat(100_000),
            "/*".repeat(50_000),
            "\"\n".repeat(50_000),
            "<a ".to_owned() + &"b ".repeat(100_000),
            "<a>".repeat(50_000),
        ] {
            for name in ["rust", "js", "python", "html"] {
                let (html, n_spans) = highlight(&text, Language::of(name).unwrap(), 100);
                assert!(n_spans <= 100 && html.len() < 7 * text.len());
                assert_eq!(text_of(&html), text);
            }
        }
    }
}
