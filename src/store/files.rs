//! A model's files and what they hold: its tensors by rows, whatever lies in which file and how. Of the weights only the rows
//! asked for are in memory, but for a tensor that is stored by columns, which is kept while it is read.

use std::borrow::Cow;
use std::cell::RefCell;

use super::{Source, StoreError};
use crate::format::block::BlockType;
use crate::format::checkpoint::{Checkpoint, Origin, Tensor};
use crate::format::stored::{Arrangement, Span, Stored, WeightError};

/// The largest tensor that is kept whole. GPT-2's largest have 41 MB.
const MAX_WHOLE_BYTES: u64 = 1 << 29;

/// The files of a model.
pub struct ModelFiles<S> {
    /// What they say.
    pub checkpoint: Checkpoint,
    name: String,
    sources: Vec<S>,
    whole: RefCell<Option<Whole>>,
}

/// A tensor that is kept.
struct Whole {
    file: usize,
    span: Span,
    bytes: Vec<u8>,
}

/// Why rows could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The file.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// What the file holds.
    #[error("{file}: tensor {tensor}: {error}")]
    Weights {
        /// The file.
        file: String,
        /// The tensor, as the file calls it.
        tensor: String,
        /// What is wrong with it.
        error: WeightError,
    },
    /// More than memory holds.
    #[error(
        "{file}: tensor {tensor} has {n_bytes} bytes that are needed at once, more than this machine can hold"
    )]
    TooLarge {
        /// The file.
        file: String,
        /// The tensor, as the file calls it.
        tensor: String,
        /// How many.
        n_bytes: u64,
    },
}

impl<S: Source> ModelFiles<S> {
    /// Of files, which the checkpoint's tensors name by their place in the list; `name` is what a person knows the model by.
    pub fn new(name: String, sources: Vec<S>, checkpoint: Checkpoint) -> Self {
        Self { checkpoint, name, sources, whole: RefCell::new(None) }
    }

    /// What a person knows the model by: a file, or a folder.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the files that hold weights.
    pub fn len_bytes(&self) -> u64 {
        let mut files: Vec<usize> = self.checkpoint.tensors().iter().filter_map(file_of).collect();
        files.sort_unstable();
        files.dedup();
        files.into_iter().map(|file| self.sources[file].len_bytes()).sum()
    }

    /// Reads what is missing where only whole files tell whether they are those that were promised.
    pub async fn finish(&self) -> Result<(), StoreError> {
        for source in &self.sources {
            source.finish().await?;
        }
        Ok(())
    }

    /// What a person should know of how they are read.
    pub fn note(&self) -> Option<String> {
        self.sources.iter().find_map(Source::note)
    }

    /// File and name of a tensor as the files call it, for messages; `None` where no file has it.
    pub fn place_of(&self, tensor: &str) -> Option<(&str, &str)> {
        match &self.checkpoint.tensor(tensor)?.origin {
            Origin::Stored(stored) => Some((self.sources[stored.file].name(), &stored.name)),
            Origin::Computed(_) => None,
        }
    }

    /// Rows of a tensor, packed as its type says. The caller bounds their number by what memory holds.
    pub async fn read_rows(
        &self,
        tensor: &Tensor,
        first_row: u64,
        n_rows: u64,
    ) -> Result<Vec<u8>, ReadError> {
        let stored = match &tensor.origin {
            Origin::Stored(stored) => stored,
            Origin::Computed(values) => {
                let row = first_row as usize * tensor.row_len() as usize;
                let end = row + n_rows as usize * tensor.row_len() as usize;
                return Ok(values[row..end].iter().flat_map(|value| value.to_le_bytes()).collect());
            }
        };
        let span = tensor.span(stored, first_row, n_rows);
        let is_whole = stored.arrangement == Arrangement::Transposed;
        let kept = self.whole.take().filter(|kept| kept.file == stored.file && kept.span == span);
        let bytes = match kept {
            Some(kept) => kept.bytes,
            None => self.read_span(stored, span, is_whole).await?,
        };
        let wrong = |error| self.weights_error(stored, error);
        if !is_whole {
            return tensor.present(stored, first_row, n_rows, Cow::Owned(bytes)).map_err(wrong);
        }
        let rows = tensor.present(stored, first_row, n_rows, Cow::Borrowed(&bytes)).map_err(wrong)?;
        if first_row + n_rows < tensor.n_rows() {
            self.whole.replace(Some(Whole { file: stored.file, span, bytes }));
        }
        Ok(rows)
    }

    /// The values of a vector that is presented as F32.
    ///
    /// # Panics
    /// If it is of another type.
    pub async fn read_f32s(&self, tensor: &Tensor) -> Result<Vec<f32>, ReadError> {
        assert_eq!(tensor.block_type, BlockType::F32, "{}", tensor.name);
        let bytes = self.read_rows(tensor, 0, tensor.n_rows()).await?;
        Ok(bytes.as_chunks().0.iter().map(|value| f32::from_le_bytes(*value)).collect())
    }

    async fn read_span(&self, stored: &Stored, span: Span, is_whole: bool) -> Result<Vec<u8>, ReadError> {
        let source = &self.sources[stored.file];
        let len = usize::try_from(span.n_bytes).ok().filter(|_| !is_whole || span.n_bytes <= MAX_WHOLE_BYTES);
        let Some(len) = len else {
            return Err(ReadError::TooLarge {
                file: source.name().into(),
                tensor: stored.name.clone(),
                n_bytes: span.n_bytes,
            });
        };
        Ok(source.read(span.offset_bytes, len).await?)
    }

    fn weights_error(&self, stored: &Stored, error: WeightError) -> ReadError {
        let file = self.sources[stored.file].name().into();
        ReadError::Weights { file, tensor: stored.name.clone(), error }
    }
}

fn file_of(tensor: &Tensor) -> Option<usize> {
    match &tensor.origin {
        Origin::Stored(stored) => Some(stored.file),
        Origin::Computed(_) => None,
    }
}
