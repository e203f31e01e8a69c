//! A block of code as HTML: its language's name, a button that copies it, and the code with colours.

use super::{
    highlight::{escape, highlight},
    languages::{self, Language},
};

/// No more elements colour one block.
const MAX_SPANS: usize = 4000;
/// What the button says; the page's own code hears of it.
pub(crate) const COPY_LABEL: &str = "Copy code";
/// Names of languages are cut here.
const MAX_NAME_CHARS: usize = 20;

/// A block of code as HTML, and how many elements colour it.
pub(super) fn code_block(info: &str, code: &str) -> (String, usize) {
    let (coloured, n_spans) = match Language::of(info) {
        Some(language) => highlight(code, language, MAX_SPANS),
        None => {
            let mut html = String::new();
            escape(code, &mut html);
            (html, 0)
        }
    };
    let mut name = String::new();
    escape(
        &languages::name(info).unwrap_or("code").chars().take(MAX_NAME_CHARS).collect::<String>(),
        &mut name,
    );
    let html = format!(
        "<div class=\"code\" dir=\"ltr\"><div class=\"code-head\"><span>{name}</span>\
         <button type=\"button\">{COPY_LABEL}</button></div><pre tabindex=\"0\"><code>{coloured}</code></pre></div>\n"
    );
    (html, n_spans)
}
