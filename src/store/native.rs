//! Model files on this machine's disk, found by any one of them. A file's length is that of the moment it was opened.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

use super::{Source, StoreError, check_range};
use crate::format::hugging_face::{CONFIG_FILE, INDEX_FILE, WEIGHTS_FILE, WEIGHTS_SUFFIX, number_of_shard};
use crate::format::split::{name_of_part, part_of_name};

/// An open file.
#[derive(Debug)]
pub struct FileSource {
    file: File,
    name: String,
    len_bytes: u64,
}

impl FileSource {
    /// Opens the file at a path; an error names the path.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let unreadable = |problem: String| StoreError::Unreadable { name: name.clone(), problem };
        // Looked at before it is opened: to open a pipe waits for its writer.
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(error.to_string()))?;
        if !metadata.is_file() {
            return Err(unreadable(
                "it is not a file; give the path of a .gguf file or of a Hugging Face folder".into(),
            ));
        }
        let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let len_bytes = file.metadata().map_err(|error| unreadable(error.to_string()))?.len();
        Ok(Self { file, name, len_bytes })
    }
}

/// What the texts of a Hugging Face folder end with.
const TEXT_SUFFIXES: [&str; 3] = [".json", ".txt", ".jinja"];
/// What pickled weights end with; they are opened to be refused by name.
const PICKLE_SUFFIX: &str = ".bin";

/// The files of the model at a path: a folder's, where the path is a folder or a file of one, all parts of a split GGUF
/// file, or the one file. Weights of no usual name, such as `model.fp16.safetensors`, are read instead of the usual ones
/// where the path is theirs.
///
/// # Errors
/// If a file cannot be opened, a part is missing, or a folder holds no model or several.
pub fn model_files(path: impl AsRef<Path>) -> Result<Vec<FileSource>, StoreError> {
    let path = path.as_ref();
    if path.is_dir() {
        return folder_files(path, None);
    }
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    if let Some((before, _, count)) = part_of_name(name) {
        // Opened first, so that a wrong path is told as it was given.
        FileSource::open(path)?;
        let part = |number| FileSource::open(path.with_file_name(name_of_part(before, number, count)));
        return (1..=count).map(part).collect();
    }
    let folder = path.parent().unwrap_or(path);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let is_of_folder = is_named(path, &TEXT_SUFFIXES) || is_named(path, &[WEIGHTS_SUFFIX, PICKLE_SUFFIX]);
    if !(is_of_folder && path.is_file() && folder.join(CONFIG_FILE).is_file()) {
        return Ok(vec![FileSource::open(path)?]);
    }
    let is_usual = name == WEIGHTS_FILE || number_of_shard(name).is_some();
    let own_weights = (name.ends_with(WEIGHTS_SUFFIX) && !is_usual).then_some(path);
    folder_files(folder, own_weights)
}

fn is_named(path: &Path, suffixes: &[&str]) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    suffixes.iter().any(|suffix| name.ends_with(suffix))
}

/// The files of the model in a folder: a Hugging Face model's, or those of the only GGUF model there. With weights of their
/// own the folder's other weights are left alone.
fn folder_files(folder: &Path, own_weights: Option<&Path>) -> Result<Vec<FileSource>, StoreError> {
    // A model is called by its folder, which `.` does not name.
    let named = if folder == Path::new(".") { std::fs::canonicalize(folder).ok() } else { None };
    let folder = named.as_deref().unwrap_or(folder);
    let unreadable = |problem: String| StoreError::Unreadable { name: folder.display().to_string(), problem };
    let entries = std::fs::read_dir(folder).map_err(|error| unreadable(error.to_string()))?;
    let mut paths: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|path| path.is_file()).collect();
    paths.sort();
    if paths.iter().any(|path| path.file_name().is_some_and(|name| name == CONFIG_FILE)) {
        let is_wanted = |path: &&PathBuf| match own_weights.and_then(Path::file_name) {
            Some(own) if is_named(path, &[WEIGHTS_SUFFIX, PICKLE_SUFFIX]) => path.file_name() == Some(own),
            Some(_) => is_named(path, &TEXT_SUFFIXES) && !is_named(path, &[INDEX_FILE]),
            None => is_named(path, &TEXT_SUFFIXES) || is_named(path, &[WEIGHTS_SUFFIX, PICKLE_SUFFIX]),
        };
        return paths.iter().filter(is_wanted).map(FileSource::open).collect();
    }
    let ggufs: Vec<&PathBuf> = paths.iter().filter(|path| is_named(path, &[".gguf"])).collect();
    let other_than_first_part = |path: &&&PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        part_of_name(name).is_none_or(|(_, number, _)| number == 1)
    };
    let models: Vec<&&PathBuf> = ggufs.iter().filter(other_than_first_part).collect();
    match models[..] {
        [model] => model_files(model),
        [] => Err(unreadable(format!(
            "the folder has neither {CONFIG_FILE} nor a .gguf file; give the folder or the file of a model"
        ))),
        [first, second, ..] => Err(unreadable(format!(
            "the folder has several models, {} and {} among them; give the file of one",
            first.display(),
            second.display()
        ))),
    }
}

impl Source for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn len_bytes(&self) -> u64 {
        self.len_bytes
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        check_range(self, offset_bytes, len)?;
        let mut bytes = vec![0; len];
        let mut file = &self.file;
        match file.seek(SeekFrom::Start(offset_bytes)).and_then(|_| file.read_exact(&mut bytes)) {
            Ok(()) => Ok(bytes),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Err(StoreError::Changed {
                name: self.name.clone(),
                problem: format!("it had {} bytes and is shorter now", self.len_bytes),
            }),
            Err(error) => Err(StoreError::Unreadable { name: self.name.clone(), problem: error.to_string() }),
        }
    }
}
