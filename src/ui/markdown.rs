//! Markdown as HTML that is safe to show: nothing in an answer runs, and nothing in it makes the browser fetch.
//!
//! HTML in the text is shown as text, pictures become links, and what remains passes a sanitizer that knows only the
//! tags Markdown makes. Whatever the text, what is shown nests a few levels deep and has a bounded number of nodes: text
//! beyond that is shown as it was written.

use pulldown_cmark::{Event, Options, Parser};

use self::{
    bounds::{markdown_end, plain_pieces},
    math::with_dollars,
    shape::Shaper,
};

pub(crate) use code::COPY_LABEL;

mod bounds;
mod code;
mod highlight;
mod languages;
mod math;
mod shape;
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

/// Only so many parser events are shown as Markdown. Each makes one node at most, or two around a table.
const MAX_EVENTS: usize = 20_000;

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
            Self::Marked(html) => shape::sanitize(html),
            Self::Plain(text) => shape::plain(text),
        })
    }
}

/// Reads a text that grows. What comes later changes its last blocks only, so that no others are read again, save where
/// a definition, as of a link, may concern any of them.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// The text of the blocks that are complete.
    done: String,
    n_done_blocks: usize,
    n_done_events: usize,
}

/// The blocks of a text from one of them on.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    /// How many blocks are as they were.
    pub(crate) n_before: usize,
    /// All after them.
    pub(crate) blocks: Vec<Block>,
}

impl Reader {
    /// The outermost blocks of a text that may have changed since the last call, in order.
    pub(crate) fn read(&mut self, text: &str) -> Tail {
        let may_go_on = text.strip_prefix(&self.done).is_some_and(|tail| !may_define(tail));
        if !may_go_on {
            *self = Self::default();
        }
        let start = self.done.len();
        let end = markdown_end(text).max(start);
        let text_read = &text[start..end];
        let read = with_dollars(text_read);
        let options = Options::ENABLE_TABLES
            | Options::ENABLE_STRIKETHROUGH
            | Options::ENABLE_TASKLISTS
            | Options::ENABLE_MATH
            | Options::ENABLE_FOOTNOTES;
        let mut blocks = Vec::new();
        let mut shaper = Shaper::default();
        let mut n_events = self.n_done_events;
        // A line that has only begun may yet belong to the block before: `|` alone is no row of a table.
        let last_line = line_start(text_read, text_read.len());
        let mut done = (0, 0, n_events);
        let (mut depth, mut block_start, mut plain_start) = (0_usize, 0, text_read.len());
        for (event, range) in Parser::new_ext(&read, options).into_offset_iter() {
            if depth == 0 {
                block_start = line_start(text_read, range.start);
                if block_start < last_line {
                    done = (block_start, blocks.len(), n_events + shaper.n_spans);
                }
            }
            n_events += 1;
            if n_events + shaper.n_spans > MAX_EVENTS {
                plain_start = block_start;
                break;
            }
            match event {
                Event::Start(_) => depth += 1,
                Event::End(_) => depth -= 1,
                _ => {}
            }
            shaper.push(event, range, text_read);
            if depth == 0 {
                blocks.push(Block::Marked(shaper.take()));
            }
        }
        let n_before = self.n_done_blocks;
        if !may_define(text_read) && plain_start == text_read.len() {
            let (done_bytes, n_blocks, n_events) = done;
            self.done.push_str(&text_read[..done_bytes]);
            self.n_done_blocks += n_blocks;
            self.n_done_events = n_events;
        }
        blocks.extend(plain_pieces(&text[start + plain_start..]));
        Tail { n_before, blocks }
    }
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |line_end| line_end + 1)
}

/// Whether a line may define what other lines name, as `[here]: https://example.org` does.
fn may_define(text: &str) -> bool {
    text.lines().any(|line| {
        let line = line
            .trim_start_matches(|char: char| char.is_whitespace() || matches!(char, '>' | '-' | '*' | '+'));
        line.starts_with('[') && line.contains("]:")
    })
}
