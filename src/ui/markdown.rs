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

#[cfg(test)]
mod tests;

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
