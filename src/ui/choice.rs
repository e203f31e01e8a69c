//! Which of the files that a person chose a model may be made of, and what it is called; the engine finds out the rest.

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

/// Takes a pick of the files with these paths, each a name alone or one after its folders. The error is a sentence.
pub(crate) fn choose(paths: &[String]) -> Result<Choice, String> {
    // A single file is the engine's to judge, whatever its name.
    if let [path] = paths {
        return Ok(Choice { name: base_name(path).to_owned(), files: vec![0] });
    }
    // Of a folder only what lies in it: others' copies of the model lie deeper.
    let least_depth = paths.iter().map(|path| depth(path)).min().unwrap_or(0);
    let is_wanted = |path: &str| {
        let name = base_name(path);
        depth(path) == least_depth
            && !name.starts_with('.')
            && SUFFIXES.iter().any(|suffix| name.to_lowercase().ends_with(suffix))
    };
    let files: Vec<usize> = (0..paths.len()).filter(|file| is_wanted(&paths[*file])).collect();
    let Some(first) = files.first().map(|file| paths[*file].as_str()) else {
        return Err(match paths {
            [] => "There was no file in what was chosen; choose a .gguf file or the folder of a model."
                .to_owned(),
            [..] => format!(
                "None of the {} files belongs to a model; choose a .gguf file or the folder of a model.",
                paths.len()
            ),
        });
    };
    let folder = first.rsplit('/').nth(1).filter(|folder| !folder.is_empty());
    let name = match (folder, &files[..]) {
        (Some(folder), _) => folder.to_owned(),
        (None, [_]) => base_name(first).to_owned(),
        (None, _) => format!("{} and {} files more", base_name(first), files.len() - 1),
    };
    Ok(Choice { name, files })
}

fn depth(path: &str) -> usize {
    path.matches('/').count()
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

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
            (&["config.json", "model.safetensors"], "config.json and 1 files more", &[0, 1]),
            (&["a-00001-of-00002.GGUF", "notes.md"], "a-00001-of-00002.GGUF", &[0]),
            (&["models/tiny/config.json", "models/tiny/vocab.json"], "tiny", &[0, 1]),
        ] {
            let paths: Vec<String> = paths.iter().map(|path| (*path).to_owned()).collect();
            assert_eq!(choose(&paths), Ok(Choice { name: name.into(), files: files.into() }));
        }
    }

    #[test]
    fn what_holds_no_model_is_told() {
        assert!(choose(&[]).unwrap_err().contains("no file"));
        let photos = ["a.jpg".to_owned(), "b.jpg".to_owned()];
        assert!(choose(&photos).unwrap_err().contains("None of the 2 files"));
    }
}
