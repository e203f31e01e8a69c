//! A model file on this machine's disk. Its length is that of the moment it was opened.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use super::{Source, StoreError, check_range};

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
            return Err(unreadable("it is not a file; give the path of a .gguf file".into()));
        }
        let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
        let len_bytes = file.metadata().map_err(|error| unreadable(error.to_string()))?.len();
        Ok(Self { file, name, len_bytes })
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
