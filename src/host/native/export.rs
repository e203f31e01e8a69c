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
    if to.exists() && !arguments.force {
        return Err(CliError::Input(format!("{} is there already; --force writes over it", to.display())));
    }
    let is_gguf = from.extension().is_some_and(|extension| extension == "gguf");
    if command == Command::Convert && is_gguf {
        return Err(CliError::Input(format!(
            "{} is a GGUF file already; `pagelm quantize` changes its block type",
            from.display()
        )));
    }
    let mut files = open(model_files(from)?).await?;
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
    /// Beside `to`, so that renaming it is at once.
    fn new(to: &Path) -> Result<Self, CliError> {
        let mut name = to.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}.part", std::process::id()));
        let path = to.with_file_name(name);
        let file = File::create_new(&path).map_err(|error| cannot_write(to, &error))?;
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
    CliError::Failure(format!("cannot write {}: {error}", path.display()))
}
