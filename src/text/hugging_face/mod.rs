//! The tokenizer of a Hugging Face folder as the metadata of a GGUF file, written as llama.cpp's converter does, so that
//! there is one way into a tokenizer. What GGUF has no key for goes under `pagelm.tokenizer`; what would change a token
//! id is carried over or refused, never left out.

mod config;
mod file;
mod metadata;
mod pipeline;
mod vocabulary;

use super::TextError;
use crate::format::value::Value;

/// A file of the folder.
#[derive(Debug, Clone, Copy)]
pub struct NamedFile<'a> {
    /// Its name or path, for errors.
    pub name: &'a str,
    /// All of it.
    pub bytes: &'a [u8],
}

/// The files of a folder that a tokenizer is made of. There must be `tokenizer_json`, or `vocab_json` and `merges_txt`.
#[derive(Debug, Clone, Copy, Default)]
pub struct TokenizerFiles<'a> {
    /// The architecture's name in GGUF, such as `qwen3`.
    pub architecture: &'a str,
    /// Rows of the model's embedding, as its tensor has them. A smaller tokenizer is filled up with unused tokens.
    pub n_embeddings: usize,
    /// `tokenizer.json`.
    pub tokenizer_json: Option<NamedFile<'a>>,
    /// `vocab.json`, read where there is no `tokenizer.json`.
    pub vocab_json: Option<NamedFile<'a>>,
    /// `merges.txt`, read where there is no `tokenizer.json`.
    pub merges_txt: Option<NamedFile<'a>>,
    /// `tokenizer_config.json`.
    pub tokenizer_config_json: Option<NamedFile<'a>>,
    /// `special_tokens_map.json`.
    pub special_tokens_map_json: Option<NamedFile<'a>>,
    /// `chat_template.jinja`; it comes before the one in `tokenizer_config.json`.
    pub chat_template_jinja: Option<NamedFile<'a>>,
    /// `generation_config.json`.
    pub generation_config_json: Option<NamedFile<'a>>,
    /// `config.json`.
    pub config_json: Option<NamedFile<'a>>,
}

/// The metadata of the folder's tokenizer, from which `Vocabulary::from_gguf` reads it again.
///
/// # Errors
/// A file that is missing or not of the form it should have; a kind of tokenizer or a step of one that is not supported,
/// named; a vocabulary larger than the embedding.
pub fn tokenizer_metadata(files: &TokenizerFiles<'_>) -> Result<Vec<(String, Value)>, TextError> {
    let config = config::Config::read(files)?;
    let tokenizer = match (files.tokenizer_json, files.vocab_json, files.merges_txt) {
        (Some(json), _, _) => file::read_tokenizer_json(json)?,
        (None, Some(vocab), Some(merges)) => file::read_vocab_and_merges(vocab, merges, &config)?,
        (None, vocab, _) => {
            let missing = if vocab.is_some() { "merges.txt" } else { "tokenizer.json" };
            return Err(refuse(
                missing,
                "is missing: a tokenizer is tokenizer.json, or vocab.json with merges.txt; add it to the model's files",
            ));
        }
    };
    let pipeline = pipeline::recognise(&tokenizer)?;
    let vocabulary = vocabulary::place(files, &config, &tokenizer, &pipeline)?;
    metadata::write(files.architecture, &config, tokenizer, pipeline, vocabulary)
}

/// The error that a file cannot be used.
fn refuse(file: &str, problem: impl Into<String>) -> TextError {
    TextError::TokenizerFile { file: file.into(), problem: problem.into() }
}
