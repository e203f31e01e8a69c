//! Text ⇄ tokens, exactly as the model was trained to see them. A control token comes from its own text outside of
//! message content, and from nothing else: the merges do not know it.

use std::collections::BTreeMap;

use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::{Model as _, NormalizedString, Normalizer as _, normalizers::NFC};

use super::pre_tokenizer::PreTokenizer;
use super::special::{Kind, Piece, SpecialTokens};
use super::template::{Chat, ChatTemplate, Rendered};
use super::{TextError, Vocabulary, byte_level};

/// The kinds of tokenizer that work, as `tokenizer.ggml.model` names them.
const MODELS: &str = "\"gpt2\"";

/// Control tokens that end an answer in every model that has them.
const END_OF_GENERATION: [&str; 20] = [
    "<|im_end|>",
    "<|endoftext|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|end_of_text|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
];

/// A model's tokenizer and chat template.
pub struct Tokenizer {
    /// Holds the strings of all tokens but the added ones: the only copy that is kept.
    bpe: BPE,
    pre_tokenizer: PreTokenizer,
    special: SpecialTokens,
    template: ChatTemplate,
    n_tokens: u32,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    add_space_prefix: bool,
    eog: Vec<u32>,
}

impl Tokenizer {
    /// Checks a vocabulary and builds its tokenizer, consuming it: its strings are moved, not copied.
    ///
    /// # Errors
    /// A kind or pre-tokenizer that is not supported, and whatever in the file contradicts itself. A broken chat
    /// template is told by [`Self::render`] only: raw text works without it.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self, TextError> {
        if vocabulary.model != "gpt2" {
            return Err(TextError::UnknownModel { found: vocabulary.model, known: MODELS.into() });
        }
        let pre_tokenizer = PreTokenizer::new(vocabulary.pre.as_deref())?;
        let n_tokens = check_counts(&vocabulary)?;
        check_ids(&vocabulary)?;
        let template = ChatTemplate::new(vocabulary.chat_template.take(), token_variables(&vocabulary));
        let (vocab, added) = take_tokens(&mut vocabulary)?;
        let merges = take_merges(&mut vocabulary, &vocab)?;
        let bpe = BPE::builder()
            .vocab_and_merges(vocab, merges)
            .cache_capacity(0)
            .ignore_merges(pre_tokenizer.ignore_merges)
            .build()
            .map_err(encode_error)?;
        let special = SpecialTokens::new(added).map_err(encode_error)?;
        let mut tokenizer = Self {
            bpe,
            pre_tokenizer,
            special,
            template,
            n_tokens,
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos,
            add_eos: vocabulary.add_eos,
            add_space_prefix: vocabulary.add_space_prefix,
            eog: Vec::new(),
        };
        tokenizer.eog = tokenizer.find_eog(&vocabulary);
        Ok(tokenizer)
    }

    /// Tokens of raw text: the text of special tokens becomes them; BOS and EOS only where the file asks for them.
    /// Characters that the vocabulary has no bytes for are left out, as Hugging Face's tokenizer does.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids: Vec<u32> = self.bos.filter(|_| self.add_bos).into_iter().collect();
        self.encode_into(text, &[], &mut ids)?;
        ids.extend(self.eos.filter(|_| self.add_eos));
        Ok(ids)
    }

    /// Tokens of a piece of raw text: like [`Self::encode_text`], but nothing is added at its ends.
    pub fn encode_piece(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.encode_into(text, &[], &mut ids)?;
        Ok(ids)
    }

    /// Tokens of a rendered conversation: the template's control tokens are tokens, those that message content spells
    /// are text. Nothing is added: what a template wants at the start it writes itself.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.encode_into(&rendered.text, &rendered.breaks, &mut ids)?;
        Ok(ids)
    }

    /// The conversation as the prompt that the model was trained on.
    ///
    /// # Errors
    /// No template, one that cannot be read, fails, refuses the conversation or does not end; JSON that is none.
    pub fn render(&self, chat: &Chat) -> Result<Rendered, TextError> {
        self.template.render(chat, &self.special)
    }

    /// Each token as the vocabulary spells it.
    pub fn pieces(&self, ids: &[u32]) -> Vec<String> {
        ids.iter().map(|id| self.piece(*id)).collect()
    }

    /// A token's text, with U+FFFD where it is part of a character; empty outside of the vocabulary.
    pub fn token_text(&self, id: u32) -> String {
        String::from_utf8_lossy(&self.token_bytes(id)).into_owned()
    }

    /// A token's bytes, which may be part of a character; empty outside of the vocabulary.
    pub fn token_bytes(&self, id: u32) -> Vec<u8> {
        match self.special.text(id) {
            Some(text) => text.as_bytes().to_vec(),
            None => byte_level::decode(&self.bpe.id_to_token(id).unwrap_or_default()),
        }
    }

    /// Whether a token is control or unused: its text is not for people.
    pub fn is_special(&self, id: u32) -> bool {
        self.special.is_hidden(id)
    }

    /// Every token that ends an answer, ascending.
    pub fn eog(&self) -> &[u32] {
        &self.eog
    }

    /// Number of tokens; ids are below it.
    pub fn vocab_size(&self) -> u32 {
        self.n_tokens
    }

    /// Whether the model has a chat template; it may still be broken.
    pub fn has_template(&self) -> bool {
        self.template.exists()
    }

    fn piece(&self, id: u32) -> String {
        self.special.text(id).map(str::to_owned).or_else(|| self.bpe.id_to_token(id)).unwrap_or_default()
    }

    fn find_eog(&self, vocabulary: &Vocabulary) -> Vec<u32> {
        let named = [vocabulary.eos, vocabulary.eot].into_iter().flatten();
        let known =
            self.special.controls().filter(|(_, text)| END_OF_GENERATION.contains(text)).map(|(id, _)| id);
        let mut eog: Vec<u32> = named.chain(vocabulary.extra_eog.iter().copied()).chain(known).collect();
        eog.sort_unstable();
        eog.dedup();
        eog
    }

    fn encode_into(&self, text: &str, breaks: &[usize], ids: &mut Vec<u32>) -> Result<(), TextError> {
        for piece in self.special.split(text, breaks) {
            match piece {
                Piece::Token(id) => ids.push(id),
                Piece::Text(text) => self.merge_into(text, ids)?,
            }
        }
        Ok(())
    }

    /// Merges text without added tokens.
    fn merge_into(&self, text: &str, ids: &mut Vec<u32>) -> Result<(), TextError> {
        let mut normalized;
        let mut text = text;
        if self.pre_tokenizer.nfc && !text.is_ascii() {
            normalized = NormalizedString::from(text);
            NFC.normalize(&mut normalized).map_err(encode_error)?;
            text = normalized.get();
        }
        let prefixed;
        if self.add_space_prefix && !text.starts_with(' ') {
            prefixed = format!(" {text}");
            text = &prefixed;
        }
        let mut word = String::new();
        self.pre_tokenizer.for_each_word(text, |part| {
            word.clear();
            byte_level::encode_into(part, &mut word);
            ids.extend(self.bpe.tokenize(&word).map_err(encode_error)?.iter().map(|token| token.id));
            Ok(())
        })
    }
}

fn encode_error(error: impl ToString) -> TextError {
    TextError::Encode { detail: error.to_string() }
}

/// Lengths that must agree; gives the number of tokens.
fn check_counts(vocabulary: &Vocabulary) -> Result<u32, TextError> {
    let n_tokens = vocabulary.tokens.len();
    if n_tokens == 0 {
        return Err(TextError::EmptyVocabulary);
    }
    let arrays = [
        ("scores (tokenizer.ggml.scores)", vocabulary.scores.len()),
        ("token types (tokenizer.ggml.token_type)", vocabulary.token_types.len()),
    ];
    for (what, found) in arrays {
        if found != 0 && found != n_tokens {
            return Err(TextError::CountMismatch { what, found, n_tokens });
        }
    }
    u32::try_from(n_tokens).ok().ok_or(TextError::TooManyTokens { found: n_tokens })
}

/// Every token that the file names, with what it is for.
fn named_tokens(vocabulary: &Vocabulary) -> impl Iterator<Item = (&'static str, u32)> {
    let one = [
        ("beginning of text (tokenizer.ggml.bos_token_id)", vocabulary.bos),
        ("end of text (tokenizer.ggml.eos_token_id)", vocabulary.eos),
        ("end of turn (tokenizer.ggml.eot_token_id)", vocabulary.eot),
        ("unknown token (tokenizer.ggml.unknown_token_id)", vocabulary.unk),
        ("padding (tokenizer.ggml.padding_token_id)", vocabulary.pad),
    ];
    let more = vocabulary.extra_eog.iter().map(|id| ("end of message (tokenizer.ggml.eom_token_id)", *id));
    one.into_iter().filter_map(|(what, id)| Some((what, id?))).chain(more)
}

fn check_ids(vocabulary: &Vocabulary) -> Result<(), TextError> {
    let n_tokens = vocabulary.tokens.len();
    match named_tokens(vocabulary).find(|(_, id)| usize::try_from(*id).map_or(true, |id| id >= n_tokens)) {
        Some((what, id)) => Err(TextError::IdOutOfRange { what, id, n_tokens }),
        None => Ok(()),
    }
}

/// What templates call the tokens that the file names.
fn token_variables(vocabulary: &Vocabulary) -> Vec<(&'static str, String)> {
    let named = [
        ("bos_token", vocabulary.bos),
        ("eos_token", vocabulary.eos),
        ("unk_token", vocabulary.unk),
        ("pad_token", vocabulary.pad),
    ];
    let text = |id: u32| vocabulary.tokens[id as usize].clone();
    named.into_iter().filter_map(|(name, id)| Some((name, text(id?)))).collect()
}

type Added = BTreeMap<u32, (String, Kind)>;

/// Moves the tokens out: those that text merges into, and the added ones. Without types the tokens that the file names
/// are control, all others normal.
fn take_tokens(vocabulary: &mut Vocabulary) -> Result<(Vocab, Added), TextError> {
    let named: Vec<u32> = named_tokens(vocabulary).map(|(_, id)| id).collect();
    let types = std::mem::take(&mut vocabulary.token_types);
    let mut vocab = Vocab::with_capacity(vocabulary.tokens.len());
    let mut controls = Vocab::new();
    let mut added = Added::new();
    for (id, text) in (0..).zip(std::mem::take(&mut vocabulary.tokens)) {
        let kind = match types.get(id as usize) {
            None if named.contains(&id) => Some(Kind::Control),
            None | Some(0 | 1 | 6) => None,
            Some(2 | 3) => Some(Kind::Control),
            Some(4) => Some(Kind::Added),
            Some(5) => Some(Kind::Unused),
            Some(found) => return Err(TextError::BadTokenType { id, found: *found }),
        };
        if kind == Some(Kind::Unused) {
            added.insert(id, (text, Kind::Unused));
            continue;
        }
        if let Some(first) = vocab.get(&text).or_else(|| controls.get(&text)) {
            return Err(TextError::DuplicateToken { first: *first, second: id, text });
        }
        match kind {
            Some(Kind::Control) => drop(controls.insert(text.clone(), id)),
            Some(_) => drop(vocab.insert(text.clone(), id)),
            None => {
                vocab.insert(text, id);
                continue;
            }
        }
        added.extend(kind.map(|kind| (id, (text, kind))));
    }
    Ok((vocab, added))
}

/// Moves the merges out, as pairs whose parts and whole are tokens.
fn take_merges(vocabulary: &mut Vocabulary, vocab: &Vocab) -> Result<Vec<(String, String)>, TextError> {
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    let mut whole = String::new();
    for (index, mut merge) in std::mem::take(&mut vocabulary.merges).into_iter().enumerate() {
        let space = merge.find(' ').filter(|at| *at > 0 && *at + 1 < merge.len());
        let Some(space) = space.filter(|at| !merge[at + 1..].contains(' ')) else {
            return Err(TextError::BadMerge {
                index,
                merge,
                problem: "is not two tokens with a space between".into(),
            });
        };
        whole.clear();
        whole.push_str(&merge[..space]);
        whole.push_str(&merge[space + 1..]);
        let missing = [&merge[..space], &merge[space + 1..], &whole]
            .into_iter()
            .find(|part| !vocab.contains_key(*part));
        if let Some(missing) = missing.map(str::to_owned) {
            let problem = format!("needs {missing:?}, which is not an ordinary token of the vocabulary");
            return Err(TextError::BadMerge { index, merge, problem });
        }
        let second = merge[space + 1..].to_owned();
        merge.truncate(space);
        merges.push((merge, second));
    }
    Ok(merges)
}
