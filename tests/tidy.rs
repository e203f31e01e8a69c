//! The source keeps the shape that the design gives it: arrows between folders, openings, lengths, and what must not be there.
//!
//! All faults are collected before the test fails, each with its file and line.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Longest source file.
const MAX_LINES: usize = 500;
/// Where the target, and not a feature, may decide what is compiled.
const TARGET_FOLDERS: [&str; 4] = ["src/gpu/", "src/cpu/", "src/host/", "src/bin/"];
/// Which folder or file of src/ may name which others. `bin` may name all: it only connects.
const ARROWS: &[(&str, &[&str])] = &[
    ("protocol", &[]),
    ("format", &[]),
    // Block types are the words in which a plan says how its weights are stored.
    ("plan", &["format"]),
    ("model", &["plan", "format"]),
    ("text", &["format"]),
    ("store", &["format"]),
    ("engine", &["model", "plan"]),
    // It says to the engine what may come next of an answer that has a form.
    ("structure", &["text", "engine"]),
    ("gpu", &["plan", "format"]),
    ("cpu", &["plan", "format"]),
    ("client", &["protocol"]),
    ("bench", &["protocol"]),
    // The page shows, and deletes, what the browser keeps of models.
    ("ui", &["client", "protocol", "bench", "store"]),
    (
        "host",
        &[
            "protocol",
            "bench",
            "text",
            "store",
            "structure",
            "format",
            "engine",
            "model",
            "plan",
            "gpu",
            "cpu",
        ],
    ),
];
/// Words that mark what is unfinished or switched off, put together so that this file does not have them.
const FORBIDDEN: [&str; 4] =
    [concat!("#[", "ignore"), concat!("todo", "!("), concat!("unimplemented", "!("), concat!("dbg", "!(")];

struct Source {
    /// Relative to the repository, with forward slashes.
    path: String,
    text: String,
}

/// Every file below a folder of the repository with one of these extensions.
fn sources(folder: &str, extensions: &[&str]) -> Vec<Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.map(|entry| entry.expect("a readable folder").path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path
                .extension()
                .is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted))
            {
                found.push(source(root, &path));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn source(root: &Path, path: &PathBuf) -> Source {
    let text = std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let path = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
    Source { path, text }
}

/// Fails with every fault, if there is one.
fn assert_none(rule: &str, faults: &[String]) {
    let mut list = String::new();
    for fault in faults {
        let _ = write!(list, "\n  {fault}");
    }
    assert!(faults.is_empty(), "{rule}; {} faults:{list}", faults.len());
}

/// Each line with its number and without what follows `//`.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let code = |line| str::split_once(line, "//").map_or(line, |(code, _): (&str, &str)| code);
    text.lines().enumerate().map(move |(index, line)| (index + 1, code(line)))
}

/// The module of src/ that a file belongs to: `gpu` for `src/gpu/layout.rs`, `protocol` for `src/protocol.rs`.
fn module(path: &str) -> Option<&str> {
    let inside = path.strip_prefix("src/")?;
    let first = inside.split('/').next()?;
    Some(first.strip_suffix(".rs").unwrap_or(first))
}

/// The modules that a piece of code names by a path from the crate's root, also within `use crate::{a, b::c}`.
fn named_modules(text: &str) -> Vec<(usize, String)> {
    let code: String = code_lines(text).fold(String::new(), |code, (_, line)| code + line + "\n");
    let mut named = Vec::new();
    for root in ["crate::", "pagelm::"] {
        for (place, _) in code.match_indices(root) {
            let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'$';
            if place > 0 && is_word(&code.as_bytes()[place - 1]) {
                continue;
            }
            let line = code[..place].matches('\n').count() + 1;
            for name in first_segments(&code[place + root.len()..]) {
                named.push((line, name));
            }
        }
    }
    named
}

/// The first segment of each path of a use tree that starts here: `a` and `b` of `{a::{x, y}, b}`.
fn first_segments(tree: &str) -> Vec<String> {
    let identifier =
        |text: &str| text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect::<String>();
    let Some(group) = tree.strip_prefix('{') else { return vec![identifier(tree)] };
    let (mut names, mut depth, mut expected) = (Vec::new(), 0, true);
    for (place, character) in group.char_indices() {
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => expected = true,
            _ if expected && !character.is_whitespace() => {
                names.push(identifier(&group[place..]));
                expected = false;
            }
            _ => (),
        }
    }
    names
}

#[test]
fn folders_use_only_what_the_arrows_allow() {
    let modules: Vec<&str> = ARROWS.iter().map(|(module, _)| *module).collect();
    let mut faults = Vec::new();
    for file in sources("src", &["rs"]) {
        let from = module(&file.path).expect("files of src/");
        if from == "lib" || from == "bin" {
            continue;
        }
        let Some((_, allowed)) = ARROWS.iter().find(|(module, _)| *module == from) else {
            faults.push(format!("{}: the folder `{from}` is not in the design", file.path));
            continue;
        };
        for (line, to) in named_modules(&file.text) {
            if to != from && modules.contains(&to.as_str()) && !allowed.contains(&to.as_str()) {
                faults.push(format!("{}:{line}: `{from}` may not use `{to}`", file.path));
            }
        }
    }
    assert_none("arrows of the design", &faults);
}

#[test]
fn use_trees_are_read_right() {
    let check = |text: &str, wanted: &[&str]| {
        let found: Vec<String> = named_modules(text).into_iter().map(|(_, name)| name).collect();
        assert_eq!(found, wanted, "{text}");
    };
    check("use crate::plan::Batch;", &["plan"]);
    check("use crate::{\n    client::{Client, Incoming},\n    protocol::Event,\n};", &["client", "protocol"]);
    check("let x = crate::gpu::f(); // crate::ui::g", &["gpu"]);
    check("use pagelm::host;", &["host"]);
    check("use $crate::ui; my_crate::ui::x();", &[]);
}

#[test]
fn every_file_says_what_it_is() {
    let mut faults = Vec::new();
    for file in
        ["src", "tests", "xtask", "fuzz/fuzz_targets"].iter().flat_map(|folder| sources(folder, &["rs"]))
    {
        if !file.text.starts_with("//! ") {
            faults.push(format!("{}: does not open with `//! ` and a sentence", file.path));
        }
    }
    for file in sources("src", &["wgsl"]) {
        if !file.text.starts_with("// ") {
            faults.push(format!("{}: does not open with `// ` and a sentence", file.path));
        }
    }
    assert_none("openings", &faults);
}

#[test]
fn files_are_short_and_finished() {
    let mut faults = Vec::new();
    for file in sources("src", &["rs"]) {
        let n_lines = file.text.lines().count();
        if n_lines > MAX_LINES {
            faults.push(format!("{}: {n_lines} lines, at most {MAX_LINES}", file.path));
        }
    }
    for file in ["src", "tests", "xtask"].iter().flat_map(|folder| sources(folder, &["rs"])) {
        for (line, code) in code_lines(&file.text) {
            if let Some(word) = FORBIDDEN.iter().find(|word| code.contains(**word)) {
                faults.push(format!("{}:{line}: `{word}`", file.path));
            }
        }
    }
    assert_none("length and unfinished work", &faults);
}

#[test]
fn the_target_decides_only_at_the_rim() {
    let mut faults = Vec::new();
    for file in sources("src", &["rs"]) {
        for (line, code) in code_lines(&file.text) {
            let by_target = code.contains("target_arch") || code.contains("target_family");
            if by_target && !TARGET_FOLDERS.iter().any(|folder| file.path.starts_with(folder)) {
                faults.push(format!("{}:{line}: the target decides here; use a feature", file.path));
            }
        }
    }
    assert_none("cfg by target", &faults);
}

#[test]
fn every_kernel_is_used() {
    let rust: String = sources("src/gpu", &["rs"]).into_iter().map(|file| file.text).collect();
    let mut faults = Vec::new();
    for file in sources("src/gpu", &["wgsl"]) {
        let name = file.path.rsplit('/').next().unwrap_or_default();
        if !rust.contains(name) {
            faults.push(format!("{}: no Rust file of src/gpu names it", file.path));
        }
    }
    assert_none("kernels", &faults);
}

#[test]
fn the_page_contacts_nobody() {
    // Identifiers of XML, which nothing fetches; where models are that the person types the name of, and how addresses begin.
    let allowed = [
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
        "HUGGING_FACE: &str = \"https://huggingface.co/\"",
        "[\"https://\", \"http://\"]",
    ];
    let mut files = sources("www", &["html", "css", "js", "json", "svg"]);
    files.extend(sources("src/ui", &["rs"]).into_iter().filter(|file| !file.path.ends_with("/tests.rs")));
    let index = Path::new(env!("CARGO_MANIFEST_DIR")).join("index.html");
    if index.is_file() {
        files.push(source(Path::new(env!("CARGO_MANIFEST_DIR")), &index));
    }
    let mut faults = Vec::new();
    for file in files {
        // Tests show what is done with foreign addresses; nothing fetches those.
        let text = file.text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
        for (index, line) in text.lines().enumerate() {
            let comment = file.path.ends_with(".rs") && line.trim_start().starts_with("//");
            let rest = allowed.iter().fold(line.to_string(), |rest, address| rest.replace(address, ""));
            let absolute = ["http://", "https://", "ws://", "wss://", "\"//", "'//", "url(//"];
            if !comment && absolute.iter().any(|start| rest.contains(start)) {
                faults.push(format!("{}:{}: an absolute address", file.path, index + 1));
            }
        }
    }
    assert_none("addresses", &faults);
}
