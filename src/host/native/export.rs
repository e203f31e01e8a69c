//! `pagelm quantize` and `pagelm convert`: a model written as one GGUF file. It appears under its name only when it is
//! complete, and takes the place of another file only if that was asked for.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use super::arguments::Arguments;
use super::spec::Command;
use super::{CliError, output};
use crate::format::checkpoint::Repack;
use crate::format::gguf_writer;
use crate::host::open::open;
use crate::host::weights::PIECE_BYTES;
use crate::store::Source as _;
use crate::store::files::{ModelFiles, ReadError};
use crate::store::native::{FileSource, model_files};

impl From<ReadError> for CliError {
    fn from(error: ReadError) -> Self {
        Self::Input(error.to_string())
    }
}

/// A file being written beside the place where it belongs; without [`Draft::publish`] it goes away again.
struct Draft {
    path: PathBuf,
    to: PathBuf,
    file: BufWriter<File>,
}

/// Runs either command.
pub(super) async fn export(command: Command, arguments: &Arguments) -> Result<(), CliError> {
    let (from, to) = arguments.in_and_out();
    // A link is looked at itself: to take its place would leave what it points to as it was.
    let there = fs::symlink_metadata(to);
    if there.as_ref().is_ok_and(|there| !there.is_file()) {
        let sentence =
            format!("{} is there and is no file; give the path of the file to write", to.display());
        return Err(CliError::Input(sentence));
    }
    if there.is_ok() && !arguments.force {
        return Err(CliError::Input(format!("{} is there already; --force writes over it", to.display())));
    }
    let is_gguf = from.extension().is_some_and(|extension| extension == "gguf");
    if command == Command::Convert && is_gguf {
        return Err(CliError::Input(format!(
            "{} is a GGUF file already; `pagelm quantize` changes its block type",
            from.display()
        )));
    }
    let sources = model_files(from)?;
    if let Some(source) = sources.iter().find(|source| is_same(Path::new(source.name()), to)) {
        let sentence = format!("{} is read here; write to another file", source.name());
        return Err(CliError::Input(sentence));
    }
    let mut files = open(sources).await?;
    if let Some(block_type) = arguments.block_type {
        files.checkpoint.quantize(block_type, Repack::All);
    }
    let mut draft = Draft::new(to)?;
    let n_bytes = write(&files, &mut draft).await?;
    draft.publish()?;
    output::note(&format!(
        "{}: {} tensors, {}",
        to.display(),
        files.checkpoint.tensors().len(),
        output::bytes(n_bytes)
    ));
    Ok(())
}

/// Whether two paths lead to one file.
fn is_same(one: &Path, other: &Path) -> bool {
    fs::canonicalize(one).is_ok_and(|one| fs::canonicalize(other).is_ok_and(|other| one == other))
}

/// Writes the whole file, and tells its length in bytes.
async fn write(files: &ModelFiles<FileSource>, draft: &mut Draft) -> Result<u64, CliError> {
    let header = gguf_writer::header(&files.checkpoint);
    draft.put(&header)?;
    let total: u64 = files.checkpoint.tensors().iter().map(|tensor| tensor.n_bytes()).sum();
    let mut done = 0;
    let mut n_bytes = header.len() as u64;
    for tensor in files.checkpoint.tensors() {
        let piece_rows = tensor.piece_rows(PIECE_BYTES);
        let mut row = 0;
        while row < tensor.n_rows() {
            let n_rows = piece_rows.min(tensor.n_rows() - row);
            let piece = files.read_rows(tensor, row, n_rows).await?;
            draft.put(&piece)?;
            row += n_rows;
            done += piece.len() as u64;
            output::progress(&format!("writing: {} of {}", output::bytes(done), output::bytes(total)));
        }
        let padded = gguf_writer::padded(tensor.n_bytes());
        draft.put(&vec![0; (padded - tensor.n_bytes()) as usize])?;
        n_bytes += padded;
    }
    output::progress("");
    Ok(n_bytes)
}

impl Draft {
    /// Beside `to`, so that renaming it is at once. One that a killed run has left is written over.
    fn new(to: &Path) -> Result<Self, CliError> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(".part");
        let path = to.with_file_name(name);
        let file = File::create(&path).map_err(|error| cannot_write(to, &error))?;
        Ok(Self { path, to: to.into(), file: BufWriter::new(file) })
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), CliError> {
        self.file.write_all(bytes).map_err(|error| cannot_write(&self.to, &error))
    }

    /// Gives the complete file its name.
    fn publish(mut self) -> Result<(), CliError> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_all());
        written
            .and_then(|()| fs::rename(&self.path, &self.to))
            .map_err(|error| cannot_write(&self.to, &error))
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After publishing there is nothing of that name.
        let _ = fs::remove_file(&self.path);
    }
}

fn cannot_write(path: &Path, error: &io::Error) -> CliError {
    let sentence = format!("cannot write {}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied => {
            CliError::Input(sentence)
        }
        _ => CliError::Failure(sentence),
    }
}
