//! Markdown as HTML that is safe to show: nothing in an answer runs, and nothing in it makes the browser fetch.
//!
//! HTML in the text is shown as text, pictures become links, and what remains passes a sanitizer that knows only the
//! tags Markdown makes. Whatever the text, what is shown nests a few levels deep and has a bounded number of nodes: text
//! beyond that is shown as it was written.

use std::{
    collections::{HashMap, HashSet},
    iter,
    sync::LazyLock,
};

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CowStr, Event, HeadingLevel, LinkType, Options, Parser, Tag, TagEnd, html};

/// HTML that passed the sanitizer.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct SafeHtml(String);

impl SafeHtml {
    /// The HTML.
    pub(crate) fn into_string(self) -> String {
        self.0
    }
}

/// Quotes and lists inside one another are shown to this depth, and so is emphasis; deeper ones are flattened.
const MAX_LEVELS: usize = 16;
/// A line that opens more quotes and lists than this, and all text after it, is shown as it was written.
const MAX_MARKERS: usize = 32;
/// A list item that is indented by more columns than this counts as a line with too many marks.
const MAX_INDENT: usize = 128;
/// Only so much of a text is read as Markdown.
const MAX_MARKDOWN_BYTES: usize = 200_000;
/// Only so many parser events are shown as Markdown. Each makes one node at most.
const MAX_EVENTS: usize = 20_000;
/// Text shown as it was written is put in place in pieces of this length, so that its growth changes the last only.
const PLAIN_PIECE_BYTES: usize = 16_384;

/// One paragraph, list, table or other outermost block, not yet safe to show.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Block {
    /// HTML of Markdown.
    Marked(String),
    /// Text as it was written.
    Plain(String),
}

impl Block {
    /// The block's HTML, safe to show.
    pub(crate) fn sanitize(&self) -> SafeHtml {
        SafeHtml(match self {
            Self::Marked(html) => SANITIZER.clean(html).to_string(),
            Self::Plain(text) => {
                let mut html = "<p class=\"plain\">".to_owned();
                html::push_html(&mut html, iter::once(Event::Text(CowStr::Borrowed(text))));
                html + "</p>"
            }
        })
    }
}

/// The outermost blocks of a text, in order. Text appended later changes the last blocks only, save that a link
/// reference defined late changes those that name it.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut markdown_end = markdown_end(text);
    let mut blocks = Vec::new();
    let mut events = Vec::new();
    let mut n_events = 0_usize;
    let mut depth = 0_usize;
    let mut block_start = 0;
    let mut levels = Levels::default();
    for (event, range) in Parser::new_ext(&text[..markdown_end], options).into_offset_iter() {
        if depth == 0 {
            block_start = range.start;
        }
        n_events += 1;
        if n_events > MAX_EVENTS {
            markdown_end = block_start;
            break;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
        events.extend(levels.limit(harmless(event)));
        if depth == 0 {
            let mut html = String::new();
            html::push_html(&mut html, events.drain(..));
            blocks.push(Block::Marked(html));
        }
    }
    blocks.extend(plain_pieces(&text[markdown_end..]));
    blocks
}

/// Where the part of a text ends that may be read as Markdown: at a line's start, save in a line of extreme length.
fn markdown_end(text: &str) -> usize {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        if start + line.len() > MAX_MARKDOWN_BYTES {
            // A text of one endless line is at least begun as Markdown.
            return if start > 0 { start } else { text.floor_char_boundary(MAX_MARKDOWN_BYTES) };
        }
        if opens_too_many(line) {
            return start;
        }
        start += line.len();
    }
    text.len()
}

/// Whether a line begins with more marks of quotes and list items than [`MAX_MARKERS`], or may be one of many more
/// by its indent. For every line, the parser's time grows with the quotes and lists that are open.
fn opens_too_many(line: &str) -> bool {
    let mut rest = line.trim();
    if after_marker(rest).is_none() || is_rule(rest) {
        return false;
    }
    let indent = line.chars().take_while(|char| char.is_whitespace());
    let n_columns: usize = indent.map(|char| if char == '\t' { 4 } else { 1 }).sum();
    if n_columns > MAX_INDENT {
        return true;
    }
    for _ in 0..=MAX_MARKERS {
        match after_marker(rest) {
            Some(after) if !is_rule(rest) => rest = after.trim_start(),
            _ => return false,
        }
    }
    true
}

/// Whether a text is stars or dashes alone, which draw a line across and open nothing.
fn is_rule(text: &str) -> bool {
    ['*', '-'].iter().any(|&mark| text.chars().all(|char| char == mark || char.is_whitespace()))
}

/// What follows the mark of a quote or list item that a text begins with.
fn after_marker(text: &str) -> Option<&str> {
    if let Some(after) = text.strip_prefix('>') {
        return Some(after);
    }
    let after = match text.strip_prefix(['-', '+', '*']) {
        Some(after) => after,
        None => {
            let number_end = text.find(|char: char| !char.is_ascii_digit()).filter(|&end| end > 0)?;
            text[number_end..].strip_prefix(['.', ')'])?
        }
    };
    (after.is_empty() || after.starts_with(char::is_whitespace)).then_some(after)
}

/// Text as it was written, in pieces that end with a line where there is one.
fn plain_pieces(mut text: &str) -> Vec<Block> {
    let mut pieces = Vec::new();
    while !text.is_empty() {
        let mut end = text.floor_char_boundary(PLAIN_PIECE_BYTES);
        if end < text.len() {
            end = text[..end].rfind('\n').map_or(end, |line_end| line_end + 1);
        }
        let (piece, rest) = text.split_at(end);
        pieces.push(Block::Plain(piece.to_owned()));
        text = rest;
    }
    pieces
}

/// Counts what is open, and leaves out quotes, lists and emphasis below [`MAX_LEVELS`]; their text stays.
#[derive(Debug, Default)]
struct Levels {
    containers: usize,
    inlines: usize,
}

impl Levels {
    /// The event as it is shown; nothing where a mark is left out.
    fn limit<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
        let open = match &event {
            Event::Start(Tag::BlockQuote(_) | Tag::List(_)) => {
                self.containers += 1;
                self.containers
            }
            Event::End(TagEnd::BlockQuote(_) | TagEnd::List(_)) => {
                self.containers -= 1;
                self.containers + 1
            }
            Event::Start(Tag::Item) if self.containers > MAX_LEVELS => {
                return Some(Event::Text(CowStr::Borrowed("- ")));
            }
            // Its text would run into that of the next.
            Event::End(TagEnd::Item) if self.containers > MAX_LEVELS => return Some(Event::HardBreak),
            Event::Start(Tag::Emphasis | Tag::Strong | Tag::Strikethrough | Tag::Link { .. }) => {
                self.inlines += 1;
                self.inlines
            }
            Event::End(TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough | TagEnd::Link) => {
                self.inlines -= 1;
                self.inlines + 1
            }
            _ => return Some(event),
        };
        (open <= MAX_LEVELS).then_some(event)
    }
}

/// The event as an answer may have it.
fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        // Tags that the model wrote are words of its answer.
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        // A picture would be fetched from wherever the answer says.
        Event::Start(Tag::Image { dest_url, title, id, .. }) => {
            Event::Start(Tag::Link { link_type: LinkType::Inline, dest_url, title, id })
        }
        Event::End(TagEnd::Image) => Event::End(TagEnd::Link),
        // Models break lines where they mean it, in verses and addresses.
        Event::SoftBreak => Event::HardBreak,
        Event::TaskListMarker(done) => Event::Text(CowStr::Borrowed(if done { "☑ " } else { "☐ " })),
        // The page's own headings are 1 and 2.
        Event::Start(Tag::Heading { level, .. }) => {
            Event::Start(Tag::Heading { level: lowered(level), id: None, classes: vec![], attrs: vec![] })
        }
        Event::End(TagEnd::Heading(level)) => Event::End(TagEnd::Heading(lowered(level))),
        other => other,
    }
}

fn lowered(level: HeadingLevel) -> HeadingLevel {
    match level {
        HeadingLevel::H1 => HeadingLevel::H3,
        HeadingLevel::H2 => HeadingLevel::H4,
        HeadingLevel::H3 => HeadingLevel::H5,
        HeadingLevel::H4 | HeadingLevel::H5 | HeadingLevel::H6 => HeadingLevel::H6,
    }
}

static SANITIZER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    builder
        .tags(HashSet::from([
            "a",
            "blockquote",
            "br",
            "code",
            "del",
            "em",
            "h3",
            "h4",
            "h5",
            "h6",
            "hr",
            "li",
            "ol",
            "p",
            "pre",
            "strong",
            "table",
            "tbody",
            "td",
            "th",
            "thead",
            "tr",
            "ul",
        ]))
        .clean_content_tags(HashSet::from(["script", "style"]))
        .tag_attributes(HashMap::from([
            ("a", HashSet::from(["href", "title"])),
            ("ol", HashSet::from(["start"])),
            ("td", HashSet::from(["style"])),
            ("th", HashSet::from(["style"])),
        ]))
        .filter_style_properties(HashSet::from(["text-align"]))
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"))
        .set_tag_attribute_value("a", "target", "_blank");
    builder
});

#[cfg(test)]
mod tests {
    use super::*;

    fn html(text: &str) -> String {
        blocks(text).iter().map(|block| block.sanitize().into_string()).collect()
    }

    #[test]
    fn markdown_becomes_html() {
        for (text, expected) in [
            ("", ""),
            ("Paris", "<p>Paris</p>"),
            (
                "**bold** _it_ ~~no~~ `x<y`",
                "<p><strong>bold</strong> <em>it</em> <del>no</del> <code>x&lt;y</code></p>",
            ),
            ("one\ntwo", "<p>one<br>\ntwo</p>"),
            ("# Title\n\n## Part", "<h3>Title</h3><h4>Part</h4>"),
            ("3. c\n4. d", "<ol start=\"3\"><li>c</li><li>d</li></ol>"),
            ("- [x] done\n- [ ] open", "<ul><li>☑ done</li><li>☐ open</li></ul>"),
            ("```rust\nfn main() {}\n```", "<pre><code>fn main() {}\n</code></pre>"),
            ("> said", "<blockquote><p>said</p></blockquote>"),
            (
                "|a|b|\n|-|-:|\n|1|2|",
                "<table><thead><tr><th>a</th><th style=\"text-align:right\">b</th></tr></thead>\
                 <tbody><tr><td>1</td><td style=\"text-align:right\">2</td></tr></tbody></table>",
            ),
            (
                "[here](https://example.org \"t\")",
                "<p><a href=\"https://example.org\" title=\"t\" target=\"_blank\" \
                 rel=\"noopener noreferrer nofollow\">here</a></p>",
            ),
            ("a & b < c", "<p>a &amp; b &lt; c</p>"),
        ] {
            let tight = html(text).replace(">\n<", "><");
            assert_eq!(tight.trim_end(), expected, "{text}");
        }
    }

    #[test]
    fn nothing_runs_and_nothing_is_fetched() {
        for text in [
            "<script>alert(1)</script>",
            "a <script>alert(1)</script> b",
            "<img src=x onerror=alert(1)>",
            "text <img src=x onerror=\"alert(1)\"> text",
            "![picture](https://example.org/track.png)",
            "![picture](x \"t\" onerror=alert(1))",
            "<svg onload=alert(1)>",
            "<iframe src=\"javascript:alert(1)\"></iframe>",
            "<a href=\"javascript:alert(1)\">x</a>",
            "[x](javascript:alert(1))",
            "[x](JaVaScRiPt:alert(1))",
            "[x](&#106;avascript:alert(1))",
            "[x](data:text/html,<script>alert(1)</script>)",
            "[x](vbscript:msgbox(1))",
            "[x](file:///etc/passwd)",
            "[x](//example.org/relative)",
            "[x](relative)",
            "<javascript:alert(1)>",
            "[x]\n\n[x]: javascript:alert(1)",
            "```\"onload=alert(1) x=\"\ncode\n```",
            "# t {onclick=alert(1)}",
            "[x](https://example.org \"\\\" onmouseover=alert(1) x=\\\"\")",
            "<style>body{display:none}</style>",
            "<form action=x><input type=submit></form>",
            "<math><mtext></mtext><mglyph><style><img src=x onerror=alert(1)></style></math>",
            "<noscript><p title=\"</noscript><img src=x onerror=alert(1)>\">",
            "<!-- --!><img src=x onerror=alert(1)> -->",
            "<meta http-equiv=refresh content=0>",
            "<td style=\"background:url(https://example.org)\">",
        ] {
            let shown = html(text);
            check_harmless(text, &shown);
        }
    }

    /// Reads the tags of what is shown: every tag and attribute must be of the few that are known.
    fn check_harmless(text: &str, shown: &str) {
        let attributes = ["href", "title", "target", "rel", "start", "style"];
        for tag in shown.split('<').skip(1) {
            let (tag, _) = tag.split_once('>').unwrap_or_else(|| panic!("{text}: unclosed tag in {shown}"));
            let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
            assert!(SANITIZER.clone_tags().contains(&name), "{text}: tag {name} in {shown}");
            // Values are quoted and hold no bare quote, so every odd piece is a value.
            for (piece_idx, piece) in tag.split('"').enumerate() {
                if piece_idx % 2 == 1 {
                    continue;
                }
                if let Some(attribute) = piece.trim().strip_suffix('=') {
                    let attribute = attribute.split(' ').next_back().unwrap_or_default();
                    assert!(attributes.contains(&attribute), "{text}: attribute {attribute} in {shown}");
                }
            }
            for scheme in tag.split("href=\"").skip(1) {
                let safe = ["http://", "https://", "mailto:"].iter().any(|safe| scheme.starts_with(safe));
                assert!(safe, "{text}: link in {shown}");
            }
        }
    }

    #[test]
    fn tags_in_an_answer_are_readable() {
        assert!(html("Use <b>bold</b>.").contains("Use &lt;b&gt;bold&lt;/b&gt;."));
        assert!(html("<script>alert(1)</script>").contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
    }

    #[test]
    fn growing_text_changes_the_last_block_only() {
        let text = "# Title\n\nFirst *paragraph*.\n\n- one\n- two\n\n```\ncode\n```\n\nLast words";
        let whole = blocks(text);
        for (end, _) in text.char_indices() {
            let part = blocks(&text[..end]);
            let n_kept = part.len().saturating_sub(1);
            assert_eq!(part[..n_kept], whole[..n_kept], "{:?}", &text[..end]);
        }
    }

    /// How deep the tags of what is shown nest, and how many are opened.
    fn depth_and_tags(shown: &str) -> (usize, usize) {
        let (mut depth, mut deepest, mut n_tags) = (0_usize, 0, 0);
        for tag in shown.split('<').skip(1) {
            if tag.starts_with('/') {
                depth -= 1;
            } else {
                n_tags += 1;
                if !tag.starts_with("br") && !tag.starts_with("hr") {
                    depth += 1;
                }
                deepest = deepest.max(depth);
            }
        }
        (deepest, n_tags)
    }

    #[test]
    fn what_is_shown_is_bounded() {
        let nested_list: String = (0..400).map(|level| " ".repeat(2 * level) + "- x\n").collect();
        let steep_list: String =
            (0..50).map(|line| " ".repeat(64 * line) + &"- ".repeat(32) + "x\n").collect();
        let nested_quote: String = (1..30).map(|level| "> ".repeat(level) + "x\n").collect();
        let wide_table = "|a".repeat(1000) + "|\n" + &"|-".repeat(1000) + "|\n" + &"|x\n".repeat(60_000);
        for (name, text) in [
            ("quotes", ">".repeat(100_000) + " deep"),
            ("quotes and lists", "> - ".repeat(50_000) + "deep"),
            ("numbers", "1. ".repeat(50_000) + "deep"),
            ("lists, then blanks", "- ".repeat(50_000) + "deep" + &"\n".repeat(100_000)),
            ("quotes, many lines", (">".repeat(5000) + " deep\n").repeat(20)),
            ("quotes in the middle", "Well: deep\n\n".to_owned() + &"> ".repeat(50_000)),
            ("indented lists", nested_list + "deep"),
            ("indented lists, then blanks", steep_list + "deep" + &"\n".repeat(100_000)),
            ("quotes below the limit", nested_quote + "deep"),
            ("stars", "*".repeat(100_000) + "deep"),
            ("emphasis", "*a **b ".repeat(3000) + "deep" + &" b** a*".repeat(3000)),
            ("pictures", "![".repeat(3000) + "deep" + &"](https://example.org)".repeat(3000)),
            ("brackets", "[".repeat(100_000) + "deep"),
            ("paragraphs", "deep\n\n".repeat(50_000)),
            ("lines", "deep\n".repeat(50_000)),
            ("a wide table", wide_table + "deep"),
            ("one line", "deep ".repeat(100_000)),
            ("ticks", "`deep ``".repeat(20_000)),
            ("wide letters", "ä€𝄞".repeat(60_000) + "deep"),
        ] {
            let shown = html(&text);
            let (deepest, n_tags) = depth_and_tags(&shown);
            assert!(deepest <= 2 * MAX_LEVELS + MAX_LEVELS + 5, "{name}: {deepest} levels");
            assert!(n_tags <= MAX_EVENTS + text.len() / PLAIN_PIECE_BYTES + 1000, "{name}: {n_tags} tags");
            assert!(shown.contains("deep"), "{name}");
        }
    }

    #[test]
    fn too_many_marks_are_shown_as_written() {
        for (text, plain_from) in [
            (">".repeat(40), Some(0)),
            ("a\n\n".to_owned() + &"> - ".repeat(20) + "b\n\nc", Some(3)),
            (">".repeat(MAX_MARKERS) + " said", None),
            ("* ".repeat(40), None),
            ("> ".to_owned() + &"* ".repeat(40), None),
            ("```\n".to_owned() + &"* ".repeat(40) + "\n```", None),
            ("-".repeat(80), None),
            (" ".repeat(200) + "- x", Some(0)),
            ("    ".repeat(50) + "x - y", None),
            ("+ ".repeat(40), Some(0)),
            ("- ".repeat(40) + "x", Some(0)),
            ("7. ".repeat(40), Some(0)),
        ] {
            let plain: String = blocks(&text)
                .iter()
                .filter_map(|block| match block {
                    Block::Plain(plain) => Some(plain.as_str()),
                    Block::Marked(_) => None,
                })
                .collect();
            assert_eq!(plain, plain_from.map_or("", |start| &text[start..]), "{text}");
        }
    }

    #[test]
    fn a_long_text_is_begun_as_markdown_and_loses_nothing() {
        let text = "Some *words*.\n\n".repeat(30_000);
        let shown = blocks(&text);
        assert!(matches!(shown.first(), Some(Block::Marked(_))));
        let n_words: usize =
            shown.iter().map(|block| block.sanitize().into_string().matches("words").count()).sum();
        assert_eq!(n_words, 30_000);
        assert!(shown.iter().all(|block| match block {
            Block::Plain(piece) => piece.len() <= PLAIN_PIECE_BYTES,
            Block::Marked(html) => !html.is_empty(),
        }));
    }

    #[test]
    fn plain_text_is_harmless_and_growing() {
        let hostile = ">".repeat(40) + "<img src=x onerror=alert(1)> & \"quotes\"\n";
        let text = hostile.repeat(1000);
        let whole = blocks(&text);
        assert!(whole.iter().all(|block| !block.sanitize().into_string().contains("<img")));
        let part = blocks(&text[..text.len() / 2]);
        let n_kept = part.len() - 1;
        assert_eq!(part[..n_kept], whole[..n_kept]);
    }
}
