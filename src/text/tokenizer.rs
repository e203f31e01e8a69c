//! Text ⇄ tokens, exactly as the model was trained to see them. A control token comes from its own text outside of
//! message content, and from nothing else: the merges do not know it.

use super::assemble::{check_counts, check_ids, check_merges, take_merges, take_tokens, token_variables};
use super::bpe::Merger;
use super::byte_level_bpe::{BYTE_LEVEL, ByteLevelBpe};
use super::pre_tokenizer::{Exceptions, PreTokenizer};
use super::sentence_piece::{Place, Ranking, SENTENCE_PIECE, SentencePiece, SpacePrefix};
use super::special::{Piece, SpecialTokens};
use super::template::{Chat, ChatTemplate, Rendered};
use super::token_table::TokenTable;
use super::{TextError, Vocabulary};

/// The kinds of tokenizer that work, as `tokenizer.ggml.model` names them.
const MODELS: &str = "\"gpt2\" or \"llama\"";

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

/// Longest text that is encoded at once: three times as long, its spaces written out, it still counts in 32 bits.
const MAX_TEXT_BYTES: u32 = 1 << 30;

/// A model's tokenizer and chat template.
pub struct Tokenizer {
    tokens: TokenTable,
    method: Method,
    special: SpecialTokens,
    template: ChatTemplate,
    n_tokens: u32,
    bos: Option<u32>,
    eos: Option<u32>,
    add_bos: bool,
    add_eos: bool,
    eog: Vec<u32>,
}

/// How text becomes tokens.
enum Method {
    ByteLevel(ByteLevelBpe),
    SentencePiece(SentencePiece),
}

impl Tokenizer {
    /// Checks a vocabulary and builds its tokenizer, consuming it.
    ///
    /// # Errors
    /// A kind or pre-tokenizer that is not supported, and whatever in the file contradicts itself. A broken chat
    /// template is told by [`Self::render`] only: raw text works without it.
    pub fn new(mut vocabulary: Vocabulary) -> Result<Self, TextError> {
        if ![BYTE_LEVEL, SENTENCE_PIECE].contains(&vocabulary.model.as_str()) {
            return Err(TextError::UnknownModel { found: vocabulary.model, known: MODELS.into() });
        }
        let exceptions = Exceptions { nfc: vocabulary.nfc, ignore_merges: vocabulary.ignore_merges };
        let pre_tokenizer = match vocabulary.model.as_str() {
            BYTE_LEVEL => Some(PreTokenizer::new(vocabulary.pre.as_deref(), exceptions)?),
            _ => None,
        };
        let n_tokens = check_counts(&vocabulary)?;
        check_ids(&vocabulary)?;
        check_merges(&vocabulary)?;
        let template = ChatTemplate::new(vocabulary.chat_template.take(), token_variables(&vocabulary));
        let (tokens, added) = take_tokens(&mut vocabulary)?;
        let special = SpecialTokens::new(added)
            .map_err(|error| TextError::Encode { detail: error.to_string() })?
            .stripping(std::mem::take(&mut vocabulary.lstrip), std::mem::take(&mut vocabulary.rstrip));
        let method = match pre_tokenizer {
            Some(pre_tokenizer) => {
                let merges = take_merges(&mut vocabulary, &tokens)?;
                let prefix = vocabulary.add_space_prefix;
                Method::ByteLevel(ByteLevelBpe::new(&tokens, pre_tokenizer, merges, prefix))
            }
            None => Method::SentencePiece(sentence_piece(&mut vocabulary, &tokens)?),
        };
        let mut tokenizer = Self {
            tokens,
            method,
            special,
            template,
            n_tokens,
            bos: vocabulary.bos,
            eos: vocabulary.eos,
            add_bos: vocabulary.add_bos,
            add_eos: vocabulary.add_eos,
            eog: Vec::new(),
        };
        tokenizer.eog = tokenizer.find_eog(&vocabulary);
        Ok(tokenizer)
    }

    /// Tokens of raw text: the text of special tokens becomes them; BOS and EOS only where the file asks for them.
    /// Characters that the vocabulary has no bytes for are left out, as Hugging Face's tokenizer does.
    pub fn encode_text(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids: Vec<u32> = self.bos.filter(|_| self.add_bos).into_iter().collect();
        self.encode_into(text, &[], Place::Start, &mut ids)?;
        ids.extend(self.eos.filter(|_| self.add_eos));
        Ok(ids)
    }

    /// Tokens of a piece of raw text, within a longer one: like [`Self::encode_text`], but nothing is added at its ends,
    /// not even a space.
    pub fn encode_piece(&self, text: &str) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.encode_into(text, &[], Place::Within, &mut ids)?;
        Ok(ids)
    }

    /// Tokens of a rendered conversation: the template's control tokens are tokens, those that message content spells
    /// are text. Nothing is added: what a template wants at the start it writes itself.
    pub fn encode_rendered(&self, rendered: &Rendered) -> Result<Vec<u32>, TextError> {
        let mut ids = Vec::new();
        self.encode_into(&rendered.text, &rendered.breaks, Place::Start, &mut ids)?;
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
            None => match self.method {
                Method::ByteLevel(_) => ByteLevelBpe::token_bytes(&self.tokens, id),
                Method::SentencePiece(_) => SentencePiece::token_bytes(&self.tokens, id),
            },
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

    /// Arguments that the chat template reads beside what every conversation has; none where it cannot be read.
    pub fn template_arguments(&self) -> Vec<String> {
        self.template.arguments()
    }

    /// Whether a text of tokens begins with a space that nobody wrote.
    pub(super) fn adds_space(&self) -> bool {
        matches!(&self.method, Method::SentencePiece(method) if method.space_prefix != SpacePrefix::Nowhere)
    }

    fn piece(&self, id: u32) -> String {
        self.special.text(id).unwrap_or_else(|| self.tokens.text(id)).to_owned()
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

    fn encode_into(
        &self,
        text: &str,
        breaks: &[usize],
        mut place: Place,
        ids: &mut Vec<u32>,
    ) -> Result<(), TextError> {
        // Symbols count bytes in 32 bits, and a piece may grow by a space a few bytes long.
        if u32::try_from(text.len()).map_or(true, |n_bytes| n_bytes > MAX_TEXT_BYTES) {
            return Err(TextError::Encode { detail: "it is longer than 1 GiB".into() });
        }
        let mut merger = Merger::default();
        for piece in self.special.split(text, breaks) {
            match (piece, &self.method) {
                (Piece::Token(id), _) => ids.push(id),
                (Piece::Text(text), Method::ByteLevel(method)) => {
                    method.encode_into(&self.tokens, text, place, &mut merger, ids);
                }
                (Piece::Text(text), Method::SentencePiece(method)) => {
                    method.encode_into(&self.tokens, text, place, &mut merger, ids);
                }
            }
            place = Place::AfterSpecial;
        }
        Ok(())
    }
}

/// SentencePiece's rules of a vocabulary.
fn sentence_piece(vocabulary: &mut Vocabulary, tokens: &TokenTable) -> Result<SentencePiece, TextError> {
    let ranking = if !vocabulary.merges.is_empty() {
        Ranking::Merges(take_merges(vocabulary, tokens)?)
    } else if vocabulary.scores.is_empty() {
        let what = "scores (tokenizer.ggml.scores)";
        return Err(TextError::CountMismatch { what, found: 0, n_tokens: tokens.len() });
    } else {
        Ranking::Scores(std::mem::take(&mut vocabulary.scores))
    };
    let space_prefix = match (vocabulary.add_space_prefix, vocabulary.space_prefix_once) {
        (false, _) => SpacePrefix::Nowhere,
        (true, false) => SpacePrefix::EverySegment,
        (true, true) => SpacePrefix::Once,
    };
    Ok(SentencePiece::new(tokens, ranking, space_prefix, vocabulary.unk))
}
