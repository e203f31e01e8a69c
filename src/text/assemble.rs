//! A vocabulary's parts, checked against each other and packed for use. What contradicts itself is refused here, so
//! that encoding cannot fail.

use std::collections::{BTreeMap, BTreeSet};

use super::merges::{Merge, MergeTable};
use super::sentence_piece::{SENTENCE_PIECE, SPACE, byte_of};
use super::token_table::{Kind, NO_TOKEN, TokenTable};
use super::{TextError, Vocabulary};

/// Lengths that must agree; gives the number of tokens.
pub(super) fn check_counts(vocabulary: &Vocabulary) -> Result<u32, TextError> {
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
    let n_tokens_32 = u32::try_from(n_tokens).ok().filter(|n_tokens| *n_tokens < NO_TOKEN);
    n_tokens_32.ok_or(TextError::TooManyTokens { found: n_tokens })
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
    let more = vocabulary
        .extra_eog
        .iter()
        .map(|id| ("end of message (tokenizer.ggml.eom_token_id or pagelm.tokenizer.end_token_ids)", *id));
    one.into_iter().filter_map(|(what, id)| Some((what, id?))).chain(more)
}

/// Whether the tokens that the file names exist.
pub(super) fn check_ids(vocabulary: &Vocabulary) -> Result<(), TextError> {
    let n_tokens = vocabulary.tokens.len();
    match named_tokens(vocabulary).find(|(_, id)| usize::try_from(*id).map_or(true, |id| id >= n_tokens)) {
        Some((what, id)) => Err(TextError::IdOutOfRange { what, id, n_tokens }),
        None => Ok(()),
    }
}

/// What templates call the tokens that the file names.
pub(super) fn token_variables(vocabulary: &Vocabulary) -> Vec<(&'static str, String)> {
    let named = [
        ("bos_token", vocabulary.bos),
        ("eos_token", vocabulary.eos),
        ("unk_token", vocabulary.unk),
        ("pad_token", vocabulary.pad),
    ];
    let text = |id: u32| vocabulary.tokens[id as usize].clone();
    named.into_iter().filter_map(|(name, id)| Some((name, text(id?)))).collect()
}

/// The tokens that are no ordinary text, by id.
pub(super) type Added = BTreeMap<u32, (String, Kind)>;

/// Moves the tokens out, packed, and those that are no ordinary text once more. Without types the tokens that the file
/// names are control, all others normal.
pub(super) fn take_tokens(vocabulary: &mut Vocabulary) -> Result<(TokenTable, Added), TextError> {
    let sentence_piece = vocabulary.model == SENTENCE_PIECE;
    let named: BTreeSet<u32> = named_tokens(vocabulary).map(|(_, id)| id).collect();
    let types = std::mem::take(&mut vocabulary.token_types);
    let mut tokens = std::mem::take(&mut vocabulary.tokens);
    let mut kinds = Vec::with_capacity(tokens.len());
    let mut added = Added::new();
    for (id, text) in (0..).zip(&mut tokens) {
        let kind = match types.get(id as usize) {
            None if named.contains(&id) => Kind::Control,
            None | Some(6) if sentence_piece && byte_of(text).is_some() => Kind::Byte,
            None | Some(0 | 1 | 6) => Kind::Normal,
            Some(2 | 3) => Kind::Control,
            Some(4) => Kind::Added,
            Some(5) => Kind::Unused,
            Some(found) => return Err(TextError::BadTokenType { id, found: *found }),
        };
        kinds.push(kind);
        if matches!(kind, Kind::Control | Kind::Added | Kind::Unused) {
            added.insert(id, (text.clone(), kind));
        }
        if sentence_piece && kind == Kind::Added && text.contains(' ') {
            // llama.cpp's converter writes these as they stand in a text, but merges know them as pieces.
            *text = text.replace(' ', SPACE.encode_utf8(&mut [0; 4]));
        }
    }
    let table = TokenTable::new(tokens, kinds)
        .map_err(|(first, second, text)| TextError::DuplicateToken { first, second, text })?;
    Ok((table, added))
}

/// Moves the merges out, packed. Their parts and wholes must be tokens that text can become; SentencePiece's lists also
/// spell control tokens, which are left out.
pub(super) fn take_merges(vocabulary: &mut Vocabulary, tokens: &TokenTable) -> Result<MergeTable, TextError> {
    let sentence_piece = vocabulary.model == SENTENCE_PIECE;
    let mut merges = Vec::with_capacity(vocabulary.merges.len());
    let mut whole = String::new();
    for (index, merge) in std::mem::take(&mut vocabulary.merges).into_iter().enumerate() {
        let Some((first, second)) = split_merge(&merge) else {
            let problem = "is not two tokens with a space between".into();
            return Err(TextError::BadMerge { index, merge, problem });
        };
        whole.clear();
        whole.push_str(first);
        whole.push_str(second);
        let parts = [first, second, &whole];
        match parts.map(|part| tokens.find(part)) {
            [Some(first), Some(second), Some(whole)] => merges.push(Merge { first, second, whole }),
            found => {
                let missing =
                    found.iter().zip(parts).find(|(id, _)| id.is_none()).map_or("", |(_, part)| part);
                if !(sentence_piece && tokens.find_any(missing).is_some()) {
                    let problem =
                        format!("needs {missing:?}, which is not an ordinary token of the vocabulary");
                    return Err(TextError::BadMerge { index, merge, problem });
                }
            }
        }
    }
    Ok(MergeTable::new(tokens.len(), &merges))
}

/// Refuses byte-level BPE that has words to merge into and no merges: it would spell everything.
pub(super) fn check_merges(vocabulary: &Vocabulary) -> Result<(), TextError> {
    if vocabulary.model == SENTENCE_PIECE || !vocabulary.merges.is_empty() {
        return Ok(());
    }
    let named: Vec<u32> = named_tokens(vocabulary).map(|(_, id)| id).collect();
    let is_ordinary = |id: u32| match vocabulary.token_types.get(id as usize) {
        None => !named.contains(&id),
        Some(kind) => matches!(kind, 0 | 1),
    };
    let is_word = |(id, token): &(u32, &String)| is_ordinary(*id) && token.chars().nth(1).is_some();
    match (0..).zip(&vocabulary.tokens).find(is_word) {
        None => Ok(()),
        Some((id, token)) => Err(TextError::NoMerges { id, token: token.clone() }),
    }
}

/// The two tokens of a merge.
pub(super) fn split_merge(merge: &str) -> Option<(&str, &str)> {
    let (first, second) = merge.split_once(' ')?;
    (!first.is_empty() && !second.is_empty() && !second.contains(' ')).then_some((first, second))
}
