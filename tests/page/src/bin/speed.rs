//! Writes README's section on speed from the JSON files of `pagelm bench` and the page: `speed README.md FOLDER`.

use pagelm::bench::report::Report;
use pagelm::bench::section;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    let result = match &arguments[..] {
        [readme, folder] => write(readme, folder),
        _ => Err("usage: speed README.md FOLDER".to_owned()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            eprintln!("speed: {sentence}");
            ExitCode::FAILURE
        }
    }
}

fn write(readme: &Path, folder: &Path) -> Result<(), String> {
    let cannot = |what: &str, path: &Path, error: &dyn std::fmt::Display| {
        format!("cannot {what} {}: {error}", path.display())
    };
    let entries = std::fs::read_dir(folder).map_err(|error| cannot("read", folder, &error))?;
    let mut paths: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let mut reports: Vec<Report> = Vec::new();
    for path in &paths {
        let text = std::fs::read_to_string(path).map_err(|error| cannot("read", path, &error))?;
        reports.push(serde_json::from_str(&text).map_err(|error| cannot("understand", path, &error))?);
    }
    let text = std::fs::read_to_string(readme).map_err(|error| cannot("read", readme, &error))?;
    let written = section::written(&text, &reports)?;
    std::fs::write(readme, written).map_err(|error| cannot("write", readme, &error))
}
