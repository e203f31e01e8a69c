//! Which of the files that a person chose a model may be made of, and what it is called; the engine finds out the rest.

use std::collections::HashMap;

/// Ends of names of files that belong to models. Pickles are let through so that the engine can say what would help.
const SUFFIXES: [&str; 6] = [".gguf", ".safetensors", ".json", ".txt", ".jinja", ".bin"];

/// Files that go to the engine together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choice {
    /// What the model is called: its file, or its folder.
    pub(crate) name: String,
    /// Which of the files, in their order.
    pub(crate) files: Vec<usize>,
}

/// How sure it is that files make a model; the least sure first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Promise {
    /// Nothing but texts and settings.
    Nothing,
    /// A part of one, or one in a form that is not read: the engine says what is missing.
    Part,
    /// Weights and what it takes to read them.
    Whole,
}

/// The files of a model that lie in one folder.
struct Folder<'a> {
    /// Its path; empty for files that were chosen by themselves.
    path: &'a str,
    files: Vec<usize>,
    promise: Promise,
}

/// Takes a pick of the files with these paths, each a name alone or one after its folders. The error is a sentence.
pub(crate) fn choose(paths: &[String]) -> Result<Choice, String> {
    // A single file is the engine's to judge, whatever its name.
    if let [path] = paths {
        return Ok(Choice { name: base_name(path).to_owned(), files: vec![0] });
    }
    let folders = folders(paths);
    let most = folders.iter().map(|folder| folder.promise).max();
    let best: Vec<&Folder<'_>> = folders.iter().filter(|folder| Some(folder.promise) == most).collect();
    // Below a model lie others' copies of it.
    let lies_below = |folder: &Folder<'_>| best.iter().any(|above| is_below(folder.path, above.path));
    let models: Vec<&&Folder<'_>> = best.iter().filter(|folder| !lies_below(folder)).collect();
    match models[..] {
        [] => Err(match paths {
            [] => "There was no file in what was chosen; choose a .gguf file or the folder of a model."
                .to_owned(),
            [..] => format!(
                "None of the {} files belongs to a model; choose a .gguf file or the folder of a model.",
                paths.len()
            ),
        }),
        [folder] => Ok(Choice { name: folder_name(folder, paths), files: folder.files.clone() }),
        [first, second, ref rest @ ..] => {
            let (first, second) = (folder_name(first, paths), folder_name(second, paths));
            Err(match rest.len() {
                0 => format!("{first} and {second} are two models; open one of them."),
                n_rest => format!("{first}, {second} and {n_rest} more are models; open one of them."),
            })
        }
    }
}

/// The folders that hold files of models, in the order in which they come.
fn folders(paths: &[String]) -> Vec<Folder<'_>> {
    let mut folders: Vec<Folder<'_>> = Vec::new();
    let mut by_path = HashMap::new();
    for (file, path) in paths.iter().enumerate().filter(|(_, path)| is_wanted(path)) {
        let path = folder_path(path);
        let index = *by_path.entry(path).or_insert_with(|| {
            folders.push(Folder { path, files: Vec::new(), promise: Promise::Nothing });
            folders.len() - 1
        });
        folders[index].files.push(file);
    }
    for folder in &mut folders {
        judge(folder, paths);
    }
    folders
}

/// Says what a folder's files make. Of a Hugging Face folder, copies of its weights in GGUF files are left out.
fn judge(folder: &mut Folder<'_>, paths: &[String]) {
    let ends_with = |file: &usize, suffix: &str| base_name(&paths[*file]).to_lowercase().ends_with(suffix);
    let has = |suffix: &str| folder.files.iter().any(|file| ends_with(file, suffix));
    let has_config = folder.files.iter().any(|file| base_name(&paths[*file]) == "config.json");
    let (has_weights, has_gguf) = (has(".safetensors"), has(".gguf"));
    folder.promise = if has_gguf || (has_config && has_weights) {
        Promise::Whole
    } else if has_config || has_weights || has(".bin") {
        Promise::Part
    } else {
        Promise::Nothing
    };
    if has_config && has_weights {
        folder.files.retain(|file| !ends_with(file, ".gguf"));
    }
}

/// What a folder is called; files without one are called after the first.
fn folder_name(folder: &Folder<'_>, paths: &[String]) -> String {
    let first = base_name(&paths[folder.files[0]]);
    match (folder.path, folder.files.len()) {
        ("", 1) => first.to_owned(),
        ("", 2) => format!("{first} and 1 more file"),
        ("", n_files) => format!("{first} and {} more files", n_files - 1),
        (path, _) => base_name(path).to_owned(),
    }
}

/// Whether a file may belong to a model: by its name, and none that a program keeps for itself in what was chosen.
fn is_wanted(path: &str) -> bool {
    let name = base_name(path).to_lowercase();
    let is_hidden = path.split('/').skip(1).any(|part| part.starts_with('.')) || name.starts_with('.');
    !is_hidden && SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
}

/// Whether a folder lies somewhere in another. Files chosen by themselves lie beside all folders.
fn is_below(path: &str, above: &str) -> bool {
    !above.is_empty() && path.strip_prefix(above).is_some_and(|rest| rest.starts_with('/'))
}

fn folder_path(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(paths: &[&str]) -> Result<Choice, String> {
        choose(&paths.iter().map(|path| (*path).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn files_of_models_are_chosen_and_named() {
        for (paths, name, files) in [
            (&["tiny.gguf"][..], "tiny.gguf", &[0][..]),
            (&["what.ever"], "what.ever", &[0]),
            (
                &[
                    "tiny/config.json",
                    "tiny/model.safetensors",
                    "tiny/README.md",
                    "tiny/onnx/model.bin",
                    "tiny/.cache.json",
                ],
                "tiny",
                &[0, 1],
            ),
            (&["config.json", "model.safetensors"], "config.json and 1 more file", &[0, 1]),
            (&["config.json", "a.safetensors", "vocab.json"], "config.json and 2 more files", &[0, 1, 2]),
            (&["a-00001-of-00002.GGUF", "notes.md"], "a-00001-of-00002.GGUF", &[0]),
            (&["models/tiny/config.json", "models/tiny/vocab.json"], "tiny", &[0, 1]),
            // One model below what was chosen, with strays beside and copies below.
            (&["nested/inner/config.json", "nested/inner/a.safetensors", "nested/x.png"], "inner", &[0, 1]),
            (&["up/notes.txt", "up/list.json", "up/it/config.json", "up/it/a.safetensors"], "it", &[2, 3]),
            (&["up/notes.txt", "up/it/tiny.gguf"], "it", &[1]),
            (&["a/config.json", "a/vocab.json", "b/config.json", "b/a.safetensors"], "b", &[2, 3]),
            (
                &["a/config.json", "a/a.safetensors", "a/copy/config.json", "a/copy/a.safetensors"],
                "a",
                &[0, 1],
            ),
            (&["a/.git/b.gguf", "a/b/config.json", "a/b/vocab.json"], "b", &[1, 2]),
            // The folder as one, not the file beside.
            (&["tiny/config.json", "tiny/model.safetensors", "tiny/tiny.gguf"], "tiny", &[0, 1]),
            (&["tiny/config.json", "tiny/tiny.gguf"], "tiny", &[0, 1]),
            (&["photo.png", "tiny/config.json", "tiny/model.safetensors"], "tiny", &[1, 2]),
        ] {
            assert_eq!(pick(paths), Ok(Choice { name: name.into(), files: files.into() }), "{paths:?}");
        }
    }

    #[test]
    fn what_is_not_one_model_is_told() {
        for (paths, part) in [
            (&[][..], "no file"),
            (&["a.jpg", "b.jpg"], "None of the 2 files"),
            (
                &["m/a/config.json", "m/a/a.safetensors", "m/b/config.json", "m/b/a.safetensors"],
                "a and b are two models; open one of them.",
            ),
            (&["m/a/a.gguf", "m/ab/a.gguf"], "a and ab are two models"),
            (&["b.gguf", "a/a.gguf"], "b.gguf and a are two models"),
            (&["m/a/a.gguf", "m/b/a.gguf", "m/c/a.gguf"], "a, b and 1 more are models"),
        ] {
            let sentence = pick(paths).unwrap_err();
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
