//! The parser's events as an answer may have them, and the sanitizer that what they become must pass.

use std::{
    collections::{HashMap, HashSet},
    ops::Range,
    sync::LazyLock,
};

use ammonia::{Builder, UrlRelative};
use pulldown_cmark::{CodeBlockKind, CowStr, Event, HeadingLevel, LinkType, Tag, TagEnd, html};

use super::{
    bounds::Levels,
    code::code_block,
    highlight::{self, escape},
};

/// Turns the events of a block into its HTML.
#[derive(Debug, Default)]
pub(super) struct Shaper<'a> {
    events: Vec<Event<'a>>,
    levels: Levels,
    /// The block of code that is being read: its fence's words, and the code.
    code: Option<(CowStr<'a>, String)>,
    /// Pictures that are open: where each is, and how many events came before it.
    pictures: Vec<(CowStr<'a>, usize)>,
    /// Elements that colour code, in all.
    pub(super) n_spans: usize,
}

impl<'a> Shaper<'a> {
    /// The HTML of the events since the last call.
    pub(super) fn take(&mut self) -> String {
        let mut html = String::new();
        html::push_html(&mut html, self.events.drain(..));
        html
    }

    /// Takes an event of the parser, which read something that differs from `text` in its formulas.
    pub(super) fn push(&mut self, event: Event<'a>, range: Range<usize>, text: &str) {
        // What was no formula after all is shown as it was written.
        let event = match event {
            Event::Text(read) if range.len() == read.len() && *read != text[range.clone()] => {
                Event::Text(CowStr::from(text[range.clone()].to_owned()))
            }
            other => other,
        };
        if let Some((info, code)) = &mut self.code {
            match event {
                Event::Text(line) => code.push_str(&line),
                Event::End(TagEnd::CodeBlock) => {
                    let (html, n_spans) = code_block(info, code);
                    self.n_spans += n_spans;
                    self.code = None;
                    self.events.push(Event::Html(html.into()));
                }
                _ => {}
            }
            return;
        }
        match event {
            Event::Start(Tag::CodeBlock(kind)) => {
                let info = match kind {
                    CodeBlockKind::Fenced(info) => info,
                    CodeBlockKind::Indented => CowStr::Borrowed(""),
                };
                self.code = Some((info, String::new()));
            }
            Event::InlineMath(_) if text[range.end..].starts_with(|char: char| char.is_ascii_digit()) => {
                // Two prices.
                self.events.push(Event::Text(text[range].to_owned().into()));
            }
            Event::InlineMath(formula) => self.push_formula(&formula, "math"),
            Event::DisplayMath(formula) => {
                let is_inline = text[range].starts_with("\\(");
                self.push_formula(&formula, if is_inline { "math" } else { "math display" });
            }
            Event::TaskListMarker(done) => {
                if let Some(item) =
                    self.events.iter_mut().rev().take(2).find(|event| **event == Event::Start(Tag::Item))
                {
                    *item = Event::Html(CowStr::Borrowed("<li class=\"task\">"));
                }
                self.events.push(Event::Text(CowStr::Borrowed(if done { "☑ " } else { "☐ " })));
            }
            // What is too wide scrolls within itself.
            Event::Start(Tag::Table(_)) => {
                self.events.push(Event::Html(CowStr::Borrowed("<div class=\"table\" tabindex=\"0\">")));
                self.events.push(event);
            }
            Event::End(TagEnd::Table) => {
                self.events.push(event);
                self.events.push(Event::Html(CowStr::Borrowed("</div>")));
            }
            Event::FootnoteReference(label) => {
                self.events.push(Event::Text(format!("[^{label}]").into()));
            }
            Event::Start(Tag::FootnoteDefinition(label)) => {
                let mut html = String::from("<div class=\"footnote\"><span>[^");
                escape(&label, &mut html);
                self.events.push(Event::Html((html + "]</span><div>").into()));
            }
            Event::End(TagEnd::FootnoteDefinition) => {
                self.events.push(Event::Html(CowStr::Borrowed("</div></div>")));
            }
            // A picture would be fetched from wherever the answer says.
            Event::Start(Tag::Image { dest_url, title, id, .. }) => {
                self.push_limited(Event::Start(Tag::Link {
                    link_type: LinkType::Inline,
                    dest_url: dest_url.clone(),
                    title,
                    id,
                }));
                self.pictures.push((dest_url, self.events.len()));
            }
            Event::End(TagEnd::Image) => {
                if let Some((url, n_before)) = self.pictures.pop()
                    && n_before == self.events.len()
                {
                    self.events.push(Event::Text(url));
                }
                self.push_limited(Event::End(TagEnd::Link));
            }
            other => self.push_limited(harmless(other)),
        }
    }

    fn push_limited(&mut self, event: Event<'a>) {
        self.events.extend(self.levels.limit(event));
    }

    fn push_formula(&mut self, formula: &str, class: &str) {
        let mut html = format!("<span class=\"{class}\" dir=\"ltr\">");
        escape(formula.trim(), &mut html);
        self.events.push(Event::InlineHtml((html + "</span>").into()));
    }
}

/// HTML that shows the same and has nothing in it but what an answer may have.
pub(super) fn sanitize(html: &str) -> String {
    SANITIZER.clean(html).to_string()
}

/// Text as it was written.
pub(super) fn plain(text: &str) -> String {
    let mut html = "<p class=\"plain\">".to_owned();
    escape(text, &mut html);
    html + "</p>"
}

/// The event as an answer may have it.
fn harmless(event: Event<'_>) -> Event<'_> {
    match event {
        // Tags that the model wrote are words of its answer.
        Event::Html(text) | Event::InlineHtml(text) => Event::Text(text),
        Event::Start(Tag::HtmlBlock) => Event::Start(Tag::Paragraph),
        Event::End(TagEnd::HtmlBlock) => Event::End(TagEnd::Paragraph),
        // Models break lines where they mean it, in verses and addresses.
        Event::SoftBreak => Event::HardBreak,
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

pub(super) static SANITIZER: LazyLock<Builder<'static>> = LazyLock::new(|| {
    let mut builder = Builder::empty();
    builder
        .tags(HashSet::from([
            "a",
            "blockquote",
            "br",
            "button",
            "code",
            "del",
            "div",
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
            "span",
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
            ("button", HashSet::from(["type"])),
            ("div", HashSet::from(["dir", "tabindex"])),
            ("ol", HashSet::from(["start"])),
            ("pre", HashSet::from(["tabindex"])),
            ("span", HashSet::from(["dir"])),
            ("td", HashSet::from(["style"])),
            ("th", HashSet::from(["style"])),
        ]))
        .allowed_classes(HashMap::from([
            ("div", HashSet::from(["code", "code-head", "footnote", "table"])),
            ("li", HashSet::from(["task"])),
            ("span", highlight::CLASSES.into_iter().chain(["math", "display"]).collect()),
        ]))
        // In a text from right to left, code is none of its words.
        .set_tag_attribute_value("code", "dir", "ltr")
        .filter_style_properties(HashSet::from(["text-align"]))
        .url_schemes(HashSet::from(["http", "https", "mailto"]))
        .url_relative(UrlRelative::Deny)
        .link_rel(Some("noopener noreferrer nofollow"))
        .set_tag_attribute_value("a", "target", "_blank");
    builder
});
