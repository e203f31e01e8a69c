//! What a person types to have a model that is elsewhere: its address, or a repository of Hugging Face and a file there.

/// Where such repositories are.
const HUGGING_FACE: &str = "https://huggingface.co/";
/// Stands for all files of a folder of Hugging Face's form.
const CONFIG: &str = "config.json";

/// A model that is elsewhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Address {
    /// What it is called until it says so itself.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) url: String,
}

impl Address {
    /// What a text means. The error is a sentence.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let without = |scheme: &str| {
            let start = text.get(..scheme.len())?;
            start.eq_ignore_ascii_case(scheme).then(|| &text[scheme.len()..])
        };
        let bare = ["https://", "http://"].into_iter().find_map(without).unwrap_or(text);
        let at_hugging_face = ["huggingface.co/", "www.huggingface.co/", "hf.co/"];
        if let Some(path) = at_hugging_face.iter().find_map(|host| bare.strip_prefix(host)) {
            return Self::in_repository(path).ok_or_else(|| not_understood(text));
        }
        if bare.len() < text.len() {
            return Ok(Self { name: file_name(text), url: text.to_owned() });
        }
        if text.contains("://") {
            return Err(format!("\u{201c}{text}\u{201d} is neither an http nor an https address."));
        }
        if text.starts_with(['/', '.']) {
            return Ok(Self { name: file_name(text), url: text.to_owned() });
        }
        Self::in_repository(text).ok_or_else(|| not_understood(text))
    }

    /// `owner/repository`, and a file there if it is one of several; as the site's own addresses have it too.
    fn in_repository(path: &str) -> Option<Self> {
        let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
        let parts: Vec<&str> = path.split('/').collect();
        let is_name = |part: &&str| {
            !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
        };
        let [owner, repository, rest @ ..] = &parts[..] else {
            return None;
        };
        if ![owner, repository].into_iter().all(is_name) || rest.iter().any(|part| part.is_empty()) {
            return None;
        }
        let (revision, file) = match rest {
            ["resolve" | "blob" | "raw" | "tree", revision, file @ ..] => (*revision, file.join("/")),
            file => ("main", file.join("/")),
        };
        let (name, file) = match &file[..] {
            "" => ((*repository).to_owned(), CONFIG.to_owned()),
            _ => (file_name(&file), file),
        };
        Some(Self { name, url: format!("{HUGGING_FACE}{owner}/{repository}/resolve/{revision}/{file}") })
    }
}

fn not_understood(text: &str) -> String {
    format!(
        "\u{201c}{text}\u{201d} is no address of a model: type a URL, or owner/repository/file.gguf as on Hugging Face."
    )
}

/// The last part of a path.
fn file_name(path: &str) -> String {
    let path = path.split(['?', '#']).next().unwrap_or(path).trim_end_matches('/');
    path.rsplit('/').next().unwrap_or(path).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_repositories_are_understood() {
        for (text, name, url) in [
            ("https://a.b/c/d.gguf?x=1", "d.gguf", "https://a.b/c/d.gguf?x=1"),
            ("HTTPS://a.b/d.gguf", "d.gguf", "HTTPS://a.b/d.gguf"),
            ("  http://a.b/d.gguf ", "d.gguf", "http://a.b/d.gguf"),
            ("/models/d.gguf", "d.gguf", "/models/d.gguf"),
            ("./d.gguf", "d.gguf", "./d.gguf"),
            (
                "Qwen/Qwen3-0.6B",
                "Qwen3-0.6B",
                "https://huggingface.co/Qwen/Qwen3-0.6B/resolve/main/config.json",
            ),
            (
                "Qwen/Qwen3-0.6B-GGUF/Qwen3-0.6B-Q8_0.gguf",
                "Qwen3-0.6B-Q8_0.gguf",
                "https://huggingface.co/Qwen/Qwen3-0.6B-GGUF/resolve/main/Qwen3-0.6B-Q8_0.gguf",
            ),
            (
                "https://huggingface.co/a/b/blob/v1/q/c.gguf?download=true",
                "c.gguf",
                "https://huggingface.co/a/b/resolve/v1/q/c.gguf",
            ),
            ("hf.co/a/b/", "b", "https://huggingface.co/a/b/resolve/main/config.json"),
            (
                "https://huggingface.co/a/b/tree/main",
                "b",
                "https://huggingface.co/a/b/resolve/main/config.json",
            ),
        ] {
            assert_eq!(Address::parse(text), Ok(Address { name: name.into(), url: url.into() }), "{text}");
        }
    }

    #[test]
    fn what_is_no_address_is_said() {
        for text in [
            "",
            "model.gguf",
            "a b/c",
            "a//c.gguf",
            "ftp://a.b/c.gguf",
            "https://huggingface.co/a",
            "blob:x/y",
        ] {
            let sentence = Address::parse(text).unwrap_err();
            assert!(sentence.contains(text.trim()) && sentence.ends_with('.'), "{text}: {sentence}");
        }
    }
}
