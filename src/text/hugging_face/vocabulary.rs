//! Puts a tokenizer's tokens in the order of their ids, one a row of the embedding: each id once, none beyond the last
//! row, and the rows without token unused.

use std::collections::HashMap;

use super::config::Config;
use super::file::{AddedToken, TokenizerFile};
use super::pipeline::{Method, Pipeline};
use super::{TokenizerFiles, refuse};
use crate::text::TextError;
use crate::text::sentence_piece::{SPACE, byte_of};

/// Most rows: the largest published vocabularies have a quarter of a million.
const MAX_ROWS: usize = 1 << 24;

/// GGUF's token types.
const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const UNUSED: i32 = 5;
const BYTE: i32 = 6;

/// Tokens by id, as GGUF has them.
pub(super) struct Placed {
    pub(super) tokens: Vec<String>,
    /// A type a token.
    pub(super) types: Vec<i32>,
    /// Added tokens that take the whitespace before them.
    pub(super) lstrip: Vec<u32>,
    /// Added tokens that take the whitespace after them.
    pub(super) rstrip: Vec<u32>,
    pub(super) special: SpecialIds,
    /// Ids that end an answer, beside `special.eos`, ascending.
    pub(super) ends: Vec<u32>,
}

/// The tokens with a purpose.
#[derive(Default)]
pub(super) struct SpecialIds {
    pub(super) bos: Option<u32>,
    pub(super) eos: Option<u32>,
    pub(super) unk: Option<u32>,
    pub(super) pad: Option<u32>,
}

/// The rows as they fill.
struct Rows<'a> {
    file: &'a TokenizerFile,
    architecture: &'a str,
    tokens: Vec<Option<String>>,
    types: Vec<i32>,
}

/// Places the tokens of `file`.
pub(super) fn place(
    files: &TokenizerFiles<'_>,
    config: &Config,
    file: &TokenizerFile,
    pipeline: &Pipeline,
) -> Result<Placed, TextError> {
    let n_rows = files.n_embeddings;
    if n_rows > MAX_ROWS {
        return Err(TextError::TooManyTokens { found: n_rows });
    }
    let mut rows = Rows {
        file,
        architecture: files.architecture,
        tokens: vec![None; n_rows],
        types: vec![UNUSED; n_rows],
    };
    let sentence_piece = matches!(pipeline.method, Method::SentencePiece(_));
    rows.put_vocabulary(sentence_piece)?;
    let (mut lstrip, mut rstrip) = (Vec::new(), Vec::new());
    for token in &file.added_tokens {
        let Some(id) = rows.put_added(token, sentence_piece)? else { continue };
        lstrip.extend(token.lstrip.then_some(id));
        rstrip.extend(token.rstrip.then_some(id));
    }
    let special = rows.special_ids(config, pipeline)?;
    let ends = rows.ends(config, &special)?;
    let named = [special.bos, special.eos, special.pad].into_iter().flatten().chain(ends.iter().copied());
    for id in named {
        rows.types[id as usize] = CONTROL;
    }
    if let Some(unk) = special.unk.filter(|_| sentence_piece) {
        rows.types[unk as usize] = UNKNOWN;
    }
    let tokens = (0..).zip(rows.tokens).map(|(id, text)| text.unwrap_or_else(|| format!("[PAD{id}]")));
    Ok(Placed { tokens: tokens.collect(), types: rows.types, lstrip, rstrip, special, ends })
}

impl Rows<'_> {
    /// The tokens that merges make.
    fn put_vocabulary(&mut self, sentence_piece: bool) -> Result<(), TextError> {
        let file = self.file;
        let Some(vocabulary) = &file.model.vocab.0 else {
            let problem = "lists its tokens without ids (model.vocab), but an object of tokens with their ids was expected; use a model with a BPE tokenizer";
            return Err(refuse(&file.name, problem));
        };
        if vocabulary.is_empty() {
            return Err(refuse(&file.name, "has no tokens (model.vocab); download it again"));
        }
        for (text, id) in vocabulary {
            let row = self.row(text, *id)?.ok_or_else(|| self.too_large(text, *id))?;
            if let Some(other) = &self.tokens[row] {
                let problem = format!("gives id {id} to both {other:?} and {text:?}; download it again");
                return Err(refuse(&file.name, problem));
            }
            self.tokens[row] = Some(text.clone());
            self.types[row] = if sentence_piece && file.model.byte_fallback && byte_of(text).is_some() {
                BYTE
            } else {
                NORMAL
            };
        }
        Ok(())
    }

    /// A token that is found in text as it stands; its row, if it has one.
    fn put_added(&mut self, token: &AddedToken, sentence_piece: bool) -> Result<Option<u32>, TextError> {
        let AddedToken { id, content, .. } = token;
        if token.single_word {
            let problem = format!(
                "asks that added token {content:?} be found between words only (single_word), which is not supported; use a model without it"
            );
            return Err(refuse(&self.file.name, problem));
        }
        let Some(row) = self.row(content, *id)? else {
            // Gemma 3's tokenizer also serves its models for images: text models have no row for its last token.
            let can_be_left_out = self.architecture == "gemma3" && token.special;
            return if can_be_left_out { Ok(None) } else { Err(self.too_large(content, *id)) };
        };
        match &self.tokens[row] {
            Some(other) if other != content => {
                let problem = format!("gives id {id} to both {other:?} and {content:?}; download it again");
                return Err(refuse(&self.file.name, problem));
            }
            _ => self.tokens[row] = Some(content.clone()),
        }
        self.types[row] = if token.special || looks_special(content) {
            CONTROL
        } else if sentence_piece && content.contains(SPACE) && self.types[row] == NORMAL {
            // Runs of spaces: merges make them, in their rank among other merges.
            NORMAL
        } else {
            USER_DEFINED
        };
        Ok(Some(u32::try_from(row).expect("rows were checked")))
    }

    /// The row of an id, or none beyond the embedding.
    fn row(&self, text: &str, id: u64) -> Result<Option<usize>, TextError> {
        if u32::try_from(id).map_or(true, |id| id == u32::MAX) {
            let problem =
                format!("gives {text:?} the id {id}, but ids are below 4294967295; download it again");
            return Err(refuse(&self.file.name, problem));
        }
        Ok(usize::try_from(id).ok().filter(|row| *row < self.tokens.len()))
    }

    fn too_large(&self, text: &str, id: u64) -> TextError {
        let n_rows = self.tokens.len();
        let problem = format!(
            "gives {text:?} the id {id}, but the model's embedding has only {n_rows} rows; the tokenizer is of another model, take all files from one"
        );
        refuse(&self.file.name, problem)
    }

    /// The tokens with a purpose: by their texts, else by config.json's ids.
    fn special_ids(&self, config: &Config, pipeline: &Pipeline) -> Result<SpecialIds, TextError> {
        let ids: HashMap<&str, u32> =
            self.tokens.iter().zip(0..).filter_map(|(text, id)| Some((text.as_deref()?, id))).collect();
        let by_text = |what: &str, text: Option<&str>| match text {
            None => Ok(None),
            Some(text) => ids.get(text).copied().map(Some).ok_or_else(|| {
                let problem =
                    format!("has no token {text:?}, which is its {what}; take all files from one model");
                refuse(&self.file.name, problem)
            }),
        };
        let purpose = |name: &str, of_template: Option<&str>| -> Result<Option<u32>, TextError> {
            let text = of_template
                .map_or_else(|| config.special_token(&format!("{name}_token")), |it| Ok(Some(it)))?;
            match by_text(&format!("{name}_token"), text)? {
                Some(id) => Ok(Some(id)),
                None => self.known(config.first_id(&format!("{name}_token_id"))?),
            }
        };
        let unk = match self.file.model.unk_token.as_deref() {
            Some(text) => by_text("model.unk_token", Some(text))?,
            None => config.special_token("unk_token")?.and_then(|text| ids.get(text).copied()),
        };
        Ok(SpecialIds {
            bos: purpose("bos", pipeline.first.as_deref())?,
            eos: purpose("eos", pipeline.last.as_deref())?,
            unk,
            // Many files name a padding token that nothing ever uses.
            pad: config.special_token("pad_token")?.and_then(|text| ids.get(text).copied()),
        })
    }

    /// An id that has a token.
    fn known(&self, id: Option<u64>) -> Result<Option<u32>, TextError> {
        let Some(id) = id else { return Ok(None) };
        let row = usize::try_from(id).ok().filter(|row| self.tokens.get(*row).is_some_and(Option::is_some));
        let id_32 = row.and_then(|row| u32::try_from(row).ok());
        id_32.map(Some).ok_or_else(|| {
            let problem =
                format!("has no token {id}, which config.json names; take all files from one model");
            refuse(&self.file.name, problem)
        })
    }

    /// Ids that end an answer, without that of `eos`.
    fn ends(&self, config: &Config, special: &SpecialIds) -> Result<Vec<u32>, TextError> {
        let mut ends = Vec::new();
        for (id, file) in config.end_ids()? {
            let known = self.known(Some(id)).ok().flatten();
            ends.push(known.ok_or_else(|| {
                let problem = format!(
                    "names {id} as an end token (eos_token_id), which the tokenizer does not have; take all files from one model"
                );
                refuse(file, problem)
            })?);
        }
        ends.sort_unstable();
        ends.dedup();
        ends.retain(|id| Some(*id) != special.eos);
        Ok(ends)
    }
}

/// Whether an added token steers the model although its file does not say so; llama.cpp's converter knows them by the
/// same signs.
fn looks_special(text: &str) -> bool {
    let within = |start: &str, end: &str| text.starts_with(start) && text.ends_with(end);
    ["<pad>", "<mask>", "<2mass>", "[@BOS@]"].contains(&text)
        || within("<|", "|>")
        || within("<｜", "｜>")
        || within("<unused", ">")
}
