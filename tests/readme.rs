//! README's tables of what works against the code and the tests: a row names the test that covers it, and nothing that
//! works is without a row.
#![allow(missing_docs, reason = "a test")]

use std::collections::BTreeSet;
use std::path::Path;

use pagelm::bench::report::Report;
use pagelm::bench::section;
use pagelm::format::decode::DECODED;
use pagelm::model::ARCHITECTURES;
use pagelm::text::pre_tokenizers;

const README: &str = include_str!("../README.md");

/// A row: what its first cell names in code spans, and the tests that its last cell names.
struct Row {
    line: String,
    names: Vec<String>,
    tests: Vec<String>,
}

/// The rows of the table below a heading.
fn rows(heading: &str) -> Vec<Row> {
    let start =
        README.find(&format!("### {heading}\n")).unwrap_or_else(|| panic!("README has ### {heading}"));
    let section = &README[start + 4..];
    let section = &section[..section.find("\n#").unwrap_or(section.len())];
    let lines = section.lines().filter(|line| line.starts_with('|')).skip(2);
    let rows: Vec<Row> = lines.map(row).collect();
    assert!(!rows.is_empty(), "### {heading} has a table");
    rows
}

fn row(line: &str) -> Row {
    let cells: Vec<&str> = line.trim_matches('|').split('|').collect();
    let (first, last) = (cells.first().copied().unwrap_or(""), cells.last().copied().unwrap_or(""));
    Row { line: line.to_owned(), names: code_spans(first), tests: code_spans(last) }
}

fn code_spans(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// Every row has a test, `file.rs::name`, that is there; other code spans beside it are fixtures that the tests read.
fn check_tests(rows: &[Row]) {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    for row in rows {
        let (named, fixtures): (Vec<_>, Vec<_>) = row.tests.iter().partition(|test| test.contains("::"));
        assert!(!named.is_empty(), "a row without a test: {}", row.line);
        for test in named {
            let (file, name) = test.split_once("::").expect("split by it above");
            let text = std::fs::read_to_string(tests.join(file)).unwrap_or_default();
            let is_there = [format!("fn {name}("), format!("gpu_test!({name},")]
                .iter()
                .any(|start| text.contains(start));
            assert!(is_there, "tests/{file} has no test {name}: {}", row.line);
        }
        for fixture in fixtures {
            assert!(tests.join("fixtures").join(fixture).exists(), "no fixture {fixture}: {}", row.line);
            let folders = std::fs::read_to_string(tests.join("support/folders.rs")).unwrap_or_default();
            assert!(folders.contains(&format!("\"{fixture}\"")), "no test reads {fixture}: {}", row.line);
        }
    }
}

fn check_names(heading: &str, expected: impl IntoIterator<Item = String>) {
    let rows = rows(heading);
    check_tests(&rows);
    let named: Vec<String> = rows.iter().flat_map(|row| row.names.clone()).collect();
    let distinct: BTreeSet<String> = named.iter().cloned().collect();
    assert_eq!(named.len(), distinct.len(), "### {heading} names something twice");
    assert_eq!(distinct, expected.into_iter().collect(), "### {heading} and the code disagree");
}

#[test]
fn architectures_have_their_rows_and_tests() {
    check_names("Architectures", ARCHITECTURES.map(str::to_owned));
    for row in rows("Architectures") {
        assert!(row.tests.len() > 1, "a row without a fixture: {}", row.line);
    }
}

#[test]
fn block_types_have_their_rows_and_tests() {
    check_names("Block types", DECODED.map(|block_type| block_type.name().to_owned()));
}

#[test]
fn tokenizers_have_their_rows_and_tests() {
    // Those of byte-level BPE by their rule, and SentencePiece's, which has none.
    check_names("Tokenizers", pre_tokenizers().chain(["llama"]).map(str::to_owned));
}

#[test]
fn files_and_sharing_have_their_tests() {
    check_tests(&rows("Files"));
    check_tests(&rows("Sharing"));
    check_tests(&rows("The page"));
}

/// README's speeds are those of the bench's own JSON; `cargo xtask speed` writes them.
#[test]
fn speeds_are_those_of_the_json_files() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/speed");
    let entries = std::fs::read_dir(&folder).into_iter().flatten();
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    assert!(
        !paths.is_empty(),
        "no speed was measured; `pagelm bench --json` makes a file of {}",
        folder.display()
    );
    let report = |path: &std::path::PathBuf| -> Report {
        let text = std::fs::read_to_string(path).expect("a readable file");
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    let reports: Vec<Report> = paths.iter().map(report).collect();
    let written = section::written(README, &reports).expect("README has a place for them");
    assert!(written == README, "README's speeds are not those of tests/speed; run `cargo xtask speed`");
}
