//! What of a text may be read as Markdown, and how deep it may nest: so that no text takes long to read or to show.

use pulldown_cmark::{CowStr, Event, Tag, TagEnd};

use super::Block;

/// Quotes and lists inside one another are shown to this depth, and so is emphasis; deeper ones are flattened.
pub(super) const MAX_LEVELS: usize = 16;
/// A line that opens more quotes and lists than this, and all text after it, is shown as it was written.
pub(super) const MAX_MARKERS: usize = 32;
/// A list item that is indented by more columns than this counts as a line with too many marks.
const MAX_INDENT: usize = 128;
/// Only so much of a text is read as Markdown.
const MAX_MARKDOWN_BYTES: usize = 200_000;
/// Text shown as it was written is put in place in pieces of this length, so that its growth changes the last only.
pub(super) const PLAIN_PIECE_BYTES: usize = 16_384;

/// Where the part of a text ends that may be read as Markdown: at a line's start, save in a line of extreme length.
pub(super) fn markdown_end(text: &str) -> usize {
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
pub(super) fn after_marker(text: &str) -> Option<&str> {
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
pub(super) fn plain_pieces(mut text: &str) -> Vec<Block> {
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
pub(super) struct Levels {
    containers: usize,
    inlines: usize,
}

impl Levels {
    /// The event as it is shown; nothing where a mark is left out.
    pub(super) fn limit<'a>(&mut self, event: Event<'a>) -> Option<Event<'a>> {
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
