//! Markdown as HTML that is safe to show: nothing in an answer runs, and nothing in it makes the browser fetch.
//!
//! HTML in the text is shown as text, pictures become links, and what remains passes a sanitizer that knows only the
//! tags Markdown makes.

use std::{
    collections::{HashMap, HashSet},
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

/// HTML of one paragraph, list, table or other outermost block, not yet sanitized.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Block(String);

impl Block {
    /// The block's HTML, safe to show.
    pub(crate) fn sanitize(&self) -> SafeHtml {
        SafeHtml(SANITIZER.clean(&self.0).to_string())
    }
}

/// The outermost blocks of a text, in order. Text appended later changes the last blocks only, save that a link
/// reference defined late changes those that name it.
pub(crate) fn blocks(text: &str) -> Vec<Block> {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let mut blocks = Vec::new();
    let mut events = Vec::new();
    let mut depth = 0_usize;
    for event in Parser::new_ext(text, options) {
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
        events.push(harmless(event));
        if depth == 0 {
            let mut html = String::new();
            html::push_html(&mut html, events.drain(..));
            blocks.push(Block(html));
        }
    }
    blocks
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

    #[test]
    fn deep_nesting_is_survived() {
        let quotes = "> ".repeat(5000) + "deep";
        assert!(html(&quotes).contains("deep"));
        let stars = "*".repeat(20_000);
        assert!(!html(&stars).is_empty());
    }
}
