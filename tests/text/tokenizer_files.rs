//! Tokenizers of Hugging Face folders, each twice: straight from the folder's files, and from a GGUF file that was
//! written from them.

use std::path::Path;
use std::rc::Rc;

use pagelm::format::gguf::{Header, Parsed};
use pagelm::format::metadata::Metadata;
use pagelm::format::value::{Array, Value};
use pagelm::text::{NamedFile, TextError, Tokenizer, TokenizerFiles, Vocabulary, tokenizer_metadata};

use super::gguf_writer::{GgufWriter, Meta, array_bytes};

/// The files of a folder by their names.
pub(super) struct Folder {
    files: Vec<(String, Vec<u8>)>,
    architecture: String,
    n_embeddings: usize,
}

impl Folder {
    /// These files, held by a model of this architecture and so many rows.
    pub(super) fn new(architecture: &str, n_embeddings: usize) -> Self {
        Self { files: Vec::new(), architecture: architecture.into(), n_embeddings }
    }

    /// Adds a file as text.
    pub(super) fn with(mut self, name: &str, text: impl Into<Vec<u8>>) -> Self {
        self.files.push((name.into(), text.into()));
        self
    }

    /// Adds a file of the repository, under its own name.
    pub(super) fn with_file(self, path: &str) -> Self {
        let bytes = read(path);
        let name = path.rsplit('/').next().unwrap();
        self.with(name, bytes)
    }

    /// The metadata of its tokenizer.
    pub(super) fn metadata(&self) -> Result<Vec<(String, Value)>, TextError> {
        let file = |name: &str| {
            let found = self.files.iter().find(|(file, _)| file == name);
            found.map(|(name, bytes)| NamedFile { name, bytes })
        };
        tokenizer_metadata(&TokenizerFiles {
            architecture: &self.architecture,
            n_embeddings: self.n_embeddings,
            tokenizer_json: file("tokenizer.json"),
            vocab_json: file("vocab.json"),
            merges_txt: file("merges.txt"),
            tokenizer_config_json: file("tokenizer_config.json"),
            special_tokens_map_json: file("special_tokens_map.json"),
            chat_template_jinja: file("chat_template.jinja"),
            generation_config_json: file("generation_config.json"),
            config_json: file("config.json"),
        })
    }

    /// Its tokenizer, straight from the files.
    pub(super) fn tokenizer(&self) -> Result<Rc<Tokenizer>, TextError> {
        tokenizer_of(self.metadata()?, &self.architecture)
    }

    /// Its tokenizer, by way of a GGUF file.
    pub(super) fn through_gguf(&self) -> Result<Rc<Tokenizer>, TextError> {
        let mut writer = GgufWriter::new(3).text("general.architecture", &self.architecture);
        for (key, value) in self.metadata()? {
            writer = writer.meta(&key, meta(&value));
        }
        let bytes = writer.write();
        let Parsed::Complete(mut header) = Header::parse(&bytes, bytes.len() as u64).unwrap() else {
            panic!("the file is whole")
        };
        Tokenizer::new(Vocabulary::from_gguf(&mut header.metadata)?).map(Rc::new)
    }

    /// Both ways, each with its name.
    pub(super) fn both_ways(&self) -> [(&'static str, Rc<Tokenizer>); 2] {
        [("files", self.tokenizer().unwrap()), ("GGUF", self.through_gguf().unwrap())]
    }
}

/// The tokenizer of metadata as it stands.
pub(super) fn tokenizer_of(
    entries: Vec<(String, Value)>,
    architecture: &str,
) -> Result<Rc<Tokenizer>, TextError> {
    let mut metadata = Metadata::default();
    metadata.set("general.architecture", Value::String(architecture.into()));
    entries.into_iter().for_each(|(key, value)| metadata.set(&key, value));
    Tokenizer::new(Vocabulary::from_gguf(&mut metadata)?).map(Rc::new)
}

/// A file of the repository.
pub(super) fn read(path: &str) -> Vec<u8> {
    let place = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    std::fs::read(place).unwrap_or_else(|error| {
        panic!("{path}: {error}; run `cargo xtask test`, which fetches the published tokenizers")
    })
}

fn meta(value: &Value) -> Meta {
    match value {
        Value::U32(number) => Meta::U32(*number),
        Value::Bool(flag) => Meta::Bool(*flag),
        Value::String(text) => Meta::Str(text.clone()),
        Value::Array(Array::I32(values)) => Meta::I32s(values.clone()),
        Value::Array(Array::F32(values)) => Meta::F32s(values.clone()),
        Value::Array(Array::String(values)) => Meta::Strs(values.clone()),
        Value::Array(Array::U32(values)) => {
            Meta::Raw(9, array_bytes(4, values.iter().map(|id| id.to_le_bytes().to_vec())))
        }
        other => panic!("a tokenizer needs no {}", other.type_name()),
    }
}
