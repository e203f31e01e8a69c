//! Markdown of every kind, hostile texts among it: what is shown is right, harmless and bounded.

use super::{
    bounds::{MAX_LEVELS, MAX_MARKERS, PLAIN_PIECE_BYTES},
    shape::SANITIZER,
    *,
};

fn blocks(text: &str) -> Vec<Block> {
    Reader::default().read(text).blocks
}

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
            "<p><strong>bold</strong> <em>it</em> <del>no</del> <code dir=\"ltr\">x&lt;y</code></p>",
        ),
        ("one\ntwo", "<p>one<br>\ntwo</p>"),
        ("# Title\n\n## Part", "<h3>Title</h3><h4>Part</h4>"),
        ("3. c\n4. d", "<ol start=\"3\"><li>c</li><li>d</li></ol>"),
        ("- [x] done\n- [ ] open", "<ul><li class=\"task\">☑ done</li><li class=\"task\">☐ open</li></ul>"),
        (
            "```rust,ignore\nfn main() {}\n```",
            "<div class=\"code\" dir=\"ltr\"><div class=\"code-head\"><span>rust</span>\
             <button type=\"button\">Copy code</button></div><pre tabindex=\"0\"><code dir=\"ltr\">\
             <span class=\"hk\">fn</span> <span class=\"hf\">main</span>() {}\n</code></pre></div>",
        ),
        ("> said", "<blockquote><p>said</p></blockquote>"),
        (
            "|a|b|\n|-|-:|\n|1|2|",
            "<div class=\"table\" tabindex=\"0\"><table><thead><tr><th>a</th><th style=\"text-align:right\">b</th></tr></thead>\
             <tbody><tr><td>1</td><td style=\"text-align:right\">2</td></tr></tbody></table></div>",
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
        "```html\n<script>alert(1)</script><img src=x onerror=alert(1)>\n```",
        "```html\n<!-- --><script>alert(1)</script>\n```",
        "```rust\n\"</span></code><img src=x onerror=alert(1)>\"\n```",
        "```diff\n+<img src=x onerror=alert(1)>\n```",
        "```<img/src=x/onerror=alert(1)>\ncode\n```",
        "```\"><img/src=x/onerror=alert(1)>\ncode\n```",
        "    <script>alert(1)</script>",
        "$<img src=x onerror=alert(1)>$",
        "\\(<script>alert(1)</script>\\)",
        "$$\n</span><svg onload=alert(1)>\n$$",
        "[^<img src=x onerror=alert(1)>]\n\n[^<img src=x onerror=alert(1)>]: note",
        "- [x] <img src=x onerror=alert(1)>",
        "|<img src=x onerror=alert(1)>|\n|-|\n|<script>alert(1)</script>|",
        "![<img src=x onerror=alert(1)>](https://example.org/a.png)",
        "![](javascript:alert(1))",
        "[![a](https://example.org/a.png)](javascript:alert(1))",
        "<button type=\"submit\" formaction=\"https://example.org\">x</button>",
        "<div class=\"code\" tabindex=\"0\" onfocus=alert(1) autofocus>x</div>",
        "<https://example.org/\"onmouseover=alert(1)>",
        "[x](http://example.org/\"onmouseover=\"alert(1))",
        "[x](<https://example.org> 'a\" style=\"background:url(https://example.org)')",
        "<object data=\"data:text/html;base64,PHNjcmlwdD4=\"></object><embed src=x><link rel=stylesheet href=x>",
        "<details open ontoggle=alert(1)><summary>x</summary></details>",
        "<video src=x onerror=alert(1)></video><audio src=x></audio><source src=x>",
        "<input autofocus onfocus=alert(1)><textarea></textarea><select><option>",
        "<base href=\"https://example.org\"><template><img src=x></template>",
        "<span style=\"background-image:url(https://example.org)\">x</span>",
        "\u{0}<img src=x onerror=alert(1)>",
    ] {
        let shown = html(text);
        check_harmless(text, &shown);
        // A half of it is no worse.
        for (end, _) in text.char_indices() {
            check_harmless(text, &html(&text[..end]));
        }
    }
}

/// Reads the tags of what is shown: every tag and attribute must be of the few that are known.
fn check_harmless(text: &str, shown: &str) {
    let attributes = ["href", "title", "target", "rel", "start", "style", "class", "dir", "tabindex", "type"];
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

/// A text with all that blocks may be made of.
const MANY_KINDS: &str = "# Title\n\nFirst *paragraph*\nof two lines.\n\n- one\n- two\n\n  more\n\n1. a\n   - b\n\nHead\n---\n\n\
    |a|b|\n|-|-|\n|1|2|\n\n> said\nlazily\n\n    indented\n\n```rust\nlet x = \\(1\\);\n\n```\nafter\n\n<b>html</b>\n\n\
    - [ ] task\n- [x] done\n\n$$\na_1\n$$\n\nSo \\(a_1*b_1*c\\) and $x$.\n***\nLast words";

#[test]
fn growing_text_changes_the_last_blocks_only() {
    let whole = blocks(MANY_KINDS);
    for (end, _) in MANY_KINDS.char_indices() {
        let part = blocks(&MANY_KINDS[..end]);
        // While a line has only begun, it may yet belong to the block before.
        let n_open = if MANY_KINDS[..end].ends_with('\n') { 1 } else { 2 };
        let n_kept = part.len().saturating_sub(n_open);
        assert_eq!(part[..n_kept], whole[..n_kept], "{:?}", &MANY_KINDS[..end]);
    }
}

/// What is shown of a text that grows character by character.
fn grown(text: &str, reader: &mut Reader) -> Vec<Block> {
    let mut shown = Vec::new();
    let ends = text.char_indices().map(|(end, _)| end).chain([text.len()]);
    for end in ends {
        let tail = reader.read(&text[..end]);
        shown.truncate(tail.n_before);
        assert_eq!(shown.len(), tail.n_before);
        shown.extend(tail.blocks);
    }
    shown
}

#[test]
fn a_growing_text_is_shown_as_a_whole_one_is() {
    let definitions = "See [here] and [^1].\n\nMore.\n\n[here]: https://example.org\n\n[^1]: A note.\n\nEnd";
    let code = "```python\n".to_owned() + &"if a[1]:\n    pass\n\n".repeat(20) + "```\n\nEnd";
    for text in [MANY_KINDS, definitions, &code, &(MANY_KINDS.to_owned() + "\n\n" + definitions)] {
        let mut reader = Reader::default();
        let shown = grown(text, &mut reader);
        let html =
            |blocks: &[Block]| blocks.iter().map(|block| block.sanitize().into_string()).collect::<String>();
        assert_eq!(html(&shown), html(&blocks(text)), "{text}");
        // Another text in its place is no continuation.
        assert_eq!(reader.read("Other *words*"), Tail { n_before: 0, blocks: blocks("Other *words*") });
    }
}

#[test]
fn only_the_end_of_a_growing_text_is_read_again() {
    let text = "Some *words* of `code`.\n\n- one\n- two\n\n".repeat(100);
    let mut reader = Reader::default();
    let n_before = reader.read(&text).n_before;
    assert_eq!(n_before, 0);
    for more in ["A", "A b", "A b\n\nc"] {
        let tail = reader.read(&(text.clone() + more));
        assert!(tail.n_before >= 199 && tail.blocks.len() <= 3, "{more}: {}", tail.n_before);
    }
}

#[test]
fn formulas_are_kept_as_they_are() {
    let formula = |text: &str| format!("<span class=\"math\" dir=\"ltr\">{text}</span>");
    let display = |text: &str| format!("<span class=\"math display\" dir=\"ltr\">{text}</span>");
    let paragraph = |text: &str| format!("<p>{text}</p>\n");
    for (text, expected) in [
        ("So $a_1*b_1*c$ is.", paragraph(&format!("So {} is.", formula("a_1*b_1*c")))),
        ("So \\(a_1 * b_1 * c\\) is.", paragraph(&format!("So {} is.", formula("a_1 * b_1 * c")))),
        ("\\( x < \\frac{1}{2} \\)", paragraph(&formula("x &lt; \\frac{1}{2}"))),
        ("$$\na_1*b_1*\n$$", paragraph(&display("a_1*b_1*"))),
        ("\\[\n\\sum_{i} *a_i*\n\\]", paragraph(&display("\\sum_{i} *a_i*"))),
        // Prices are none, and neither is what never ends.
        ("It is $5 or $10.", paragraph("It is $5 or $10.")),
        ("It is $5-$10 *now*.", paragraph("It is $5-$10 <em>now</em>.")),
        ("So \\(a *b*", paragraph("So (a <em>b</em>")),
        ("\\(a\n\nb\\)", paragraph("(a") + &paragraph("b)")),
        (
            "`\\(a\\)` and \\(b\\)",
            paragraph(&format!("<code dir=\"ltr\">\\(a\\)</code> and {}", formula("b"))),
        ),
    ] {
        assert_eq!(html(text), expected, "{text}");
    }
    // Code is no formula, wherever it lies.
    for text in
        ["```\n\\(a\\)\n```", "- ```\n  \\(a\\)\n  ```", "    \\(a\\)", "~~~tex\n\\[a\\]\n\n\\(a\\)\n~~~"]
    {
        let shown = html(text);
        assert!(shown.contains("\\(a\\)") && !shown.contains("$$"), "{text}: {shown}");
    }
}

#[test]
fn pictures_are_links_with_their_words() {
    let shown = html("![a *cat*](https://example.org/cat.png)");
    assert!(
        shown.contains("href=\"https://example.org/cat.png\"") && shown.contains("a <em>cat</em></a>"),
        "{shown}"
    );
    let shown = html("![](https://example.org/cat.png)");
    assert!(shown.contains(">https://example.org/cat.png</a>"), "{shown}");
}

#[test]
fn footnotes_are_text() {
    let shown = html("So it is.[^1]\n\n[^1]: Somewhere.");
    assert!(shown.contains("So it is.[^1]") && shown.contains("<span>[^1]</span>"), "{shown}");
    assert!(shown.contains("<p>Somewhere.</p>"), "{shown}");
    assert!(html("[^a]: word").contains("word"));
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
    let steep_list: String = (0..50).map(|line| " ".repeat(64 * line) + &"- ".repeat(32) + "x\n").collect();
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
