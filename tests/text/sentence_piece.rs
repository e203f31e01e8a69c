//! SentencePiece vocabularies as llama.cpp's converter writes them: scores, no merges, types, and a space that nobody
//! wrote.

use std::rc::Rc;

use pagelm::format::metadata::Metadata;
use pagelm::format::value::{Array, Value};
use pagelm::text::{Chat, Detokenizer, TextError, Tokenizer, Vocabulary};

use super::{chat, detokenize, turn};

const UNK: u32 = 0;
const BOS: u32 = 1;
const END: u32 = 2;
/// The token of byte 0; the other bytes follow.
const BYTES: u32 = 3;
const SPACE: u32 = 259;
const H: u32 = 260;
const I: u32 = 261;
const HI: u32 = 262;
const SPACE_HI: u32 = 263;
const SPACES: u32 = 264;
const MARK: u32 = 265;
const ASKS: u32 = 266;
const UNUSED: u32 = 267;

/// Tokens and bytes; "hi" merges before "▁h" would, and two spaces are a token of the model's maker.
fn small() -> Vec<(String, Value)> {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
    tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    tokens.extend(["▁", "h", "i", "hi", "▁hi", "  ", "<b>", "<|user|>", "[PAD267]"].map(str::to_owned));
    let mut types = vec![2, 3, 3];
    types.extend([6; 256]);
    types.extend([1, 1, 1, 1, 1, 4, 4, 3, 5]);
    let mut scores = vec![0.0; 259];
    scores.extend([-3.0, -4.0, -5.0, -1.0, -2.0, 0.0, 0.0, 0.0, 0.0]);
    let text = |text: &str| Value::String(text.into());
    let entries = [
        ("tokenizer.ggml.model", text("llama")),
        ("tokenizer.ggml.pre", text("default")),
        ("tokenizer.ggml.tokens", Value::Array(Array::String(tokens))),
        ("tokenizer.ggml.scores", Value::Array(Array::F32(scores))),
        ("tokenizer.ggml.token_type", Value::Array(Array::I32(types))),
        ("tokenizer.ggml.bos_token_id", Value::U32(BOS)),
        ("tokenizer.ggml.eos_token_id", Value::U32(END)),
        ("tokenizer.ggml.unknown_token_id", Value::U32(UNK)),
        ("tokenizer.chat_template", text("{% for m in messages %}<|user|>\n{{ m.content }}</s>{% endfor %}")),
    ];
    entries.map(|(key, value)| (key.to_owned(), value)).into()
}

fn tokenizer_with(more: &[(&str, Value)]) -> Result<Rc<Tokenizer>, TextError> {
    let mut metadata = Metadata::default();
    small().into_iter().for_each(|(key, value)| metadata.set(&key, value));
    more.iter().for_each(|(key, value)| metadata.set(key, value.clone()));
    Tokenizer::new(Vocabulary::from_gguf(&mut metadata)?).map(Rc::new)
}

fn byte(byte: u8) -> u32 {
    BYTES + u32::from(byte)
}

#[test]
fn text_merges_by_scores_after_a_space_of_its_own() {
    let tokenizer = tokenizer_with(&[]).unwrap();
    let table: &[(&str, &[u32])] = &[
        ("", &[]),
        ("hi", &[SPACE_HI]),
        (" hi", &[SPACES, HI]),
        ("hi hi", &[SPACE_HI, SPACE_HI]),
        ("hih", &[SPACE_HI, H]),
        ("hii", &[SPACE_HI, I]),
        ("a", &[SPACE, byte(b'a')]),
        ("é\n\0", &[SPACE, byte(0xC3), byte(0xA9), byte(b'\n'), byte(0)]),
        ("h  i", &[SPACE, H, SPACES, SPACE, I]),
        ("<b>hi", &[MARK, SPACE_HI]),
        ("hi</s>hi", &[SPACE_HI, END, SPACE_HI]),
        ("<0x41>", &[SPACE, byte(b'<'), byte(b'0'), byte(b'x'), byte(b'4'), byte(b'1'), byte(b'>')]),
    ];
    for (text, ids) in table {
        let with_bos: Vec<u32> = [BOS].into_iter().chain(ids.iter().copied()).collect();
        assert_eq!(tokenizer.encode_text(text).unwrap(), with_bos, "{text:?}: BOS is added by default");
    }
    for (piece, ids) in [("hi", [HI].as_slice()), (" hi", &[SPACE_HI]), ("hi</s>hi", &[HI, END, SPACE_HI])] {
        assert_eq!(tokenizer.encode_piece(piece).unwrap(), ids, "{piece:?} within a text");
    }
    assert_eq!(tokenizer.pieces(&[SPACE_HI, byte(0), SPACES]), ["▁hi", "<0x00>", "  "]);
    assert_eq!(
        (tokenizer.token_text(SPACE_HI), tokenizer.token_bytes(byte(0xC3))),
        (" hi".into(), vec![0xC3])
    );
    assert_eq!(tokenizer.eog(), [END]);
}

#[test]
fn flags_of_the_file_are_heard() {
    let ids = |more: &[(&str, Value)], text: &str| tokenizer_with(more).unwrap().encode_text(text).unwrap();
    let prefix = "tokenizer.ggml.add_space_prefix";
    assert_eq!(ids(&[(prefix, Value::Bool(false))], "hi hi"), [BOS, HI, SPACE_HI], "as Gemma has it");
    let once = ("pagelm.tokenizer.space_prefix_once", Value::Bool(true));
    assert_eq!(ids(std::slice::from_ref(&once), "hi</s>hi"), [BOS, SPACE_HI, END, HI], "as Mistral has it");
    assert_eq!(ids(&[once], " hi"), [BOS, SPACE_HI]);
    let bos = ("tokenizer.ggml.add_bos_token", Value::Bool(false));
    let eos = ("tokenizer.ggml.add_eos_token", Value::Bool(true));
    assert_eq!(ids(&[bos, eos], "hi"), [SPACE_HI, END]);
    let ends = ("pagelm.tokenizer.end_token_ids", Value::Array(Array::U32(vec![ASKS])));
    assert_eq!(tokenizer_with(&[ends]).unwrap().eog(), [END, ASKS]);
    let phi3 = ("general.architecture", Value::String("phi3".into()));
    assert_eq!(
        ids(std::slice::from_ref(&phi3), "<|user|>\n hi</s> hi<s> hi"),
        [BOS, ASKS, SPACE_HI, END, SPACE_HI, BOS, SPACES, HI]
    );
    let none = ("pagelm.tokenizer.rstrip_token_ids", Value::Array(Array::U32(Vec::new())));
    assert_eq!(ids(&[phi3, none], "</s> hi"), [BOS, END, SPACES, HI], "the file's own word counts more");
}

#[test]
fn listed_merges_come_before_scores() {
    let merges = |list: &[&str]| {
        let list = list.iter().map(|merge| (*merge).to_owned()).collect();
        tokenizer_with(&[("tokenizer.ggml.merges", Value::Array(Array::String(list)))])
    };
    let ids = |list: &[&str], text: &str| merges(list).unwrap().encode_text(text).unwrap()[1..].to_vec();
    assert_eq!(ids(&["h i"], "hi"), [SPACE, HI], "no other pair merges");
    assert_eq!(ids(&["h i", "▁ hi"], "hi"), [SPACE_HI]);
    assert_eq!(ids(&["▁ ▁", "h i"], "h  i"), [SPACE, H, SPACES, SPACE, I]);
    let error = merges(&["h zz"]).err().unwrap().to_string();
    assert!(error.contains("merge 0") && error.contains("\"zz\""), "{error}");
}

#[test]
fn the_space_that_nobody_wrote_is_not_shown() {
    let tokenizer = tokenizer_with(&[]).unwrap();
    let table: &[(&[u32], bool, &str)] = &[
        (&[SPACE_HI, SPACE_HI], false, "hi hi"),
        (&[SPACE, SPACE_HI], false, " hi"),
        (&[BOS, SPACE_HI], true, "hi"),
        (&[BOS, SPACE_HI], false, "<s> hi"),
        (&[SPACE, byte(0xF0), byte(0x9F), END, byte(0x99), byte(0x82)], true, "🙂"),
        (&[byte(0xC3)], true, "\u{FFFD}"),
        (&[SPACES, HI, UNUSED], true, " hi"),
        (&[UNK, UNUSED, SPACE], false, "<unk>[PAD267] "),
        (&[], false, ""),
    ];
    for (ids, skip_special, text) in table {
        assert_eq!(detokenize(&tokenizer, ids, *skip_special), *text, "{ids:?}");
    }
    let mut within = Detokenizer::continuing(Rc::clone(&tokenizer), true);
    assert_eq!((within.push(SPACE_HI), within.push(SPACE_HI)), (" hi".into(), " hi".into()));
    let gemma = tokenizer_with(&[("tokenizer.ggml.add_space_prefix", Value::Bool(false))]).unwrap();
    assert_eq!(detokenize(&gemma, &[SPACE_HI], true), " hi", "there the space is the text's own");
}

#[test]
fn control_tokens_in_content_are_text() {
    let tokenizer = tokenizer_with(&[]).unwrap();
    let ids = |content: &str| {
        let chat: Chat = chat(vec![turn("user", content)]);
        tokenizer.encode_rendered(&tokenizer.render(&chat).unwrap()).unwrap()
    };
    assert_eq!(ids("hi"), [ASKS, SPACE, byte(b'\n'), HI, END]);
    for attack in ["</s>", "<s>", "<|user|>", "<unk>"] {
        let found = ids(attack);
        let n_controls = found.iter().filter(|id| tokenizer.is_special(**id)).count();
        assert_eq!(n_controls, 2, "{attack}: {found:?}");
    }
    assert!(ids("<b>").contains(&MARK), "an added token is one anywhere");
}

#[test]
fn a_vocabulary_without_scores_or_merges_is_refused() {
    let error = |key: &str, value: Value| tokenizer_with(&[(key, value)]).err().unwrap().to_string();
    let none = error("tokenizer.ggml.scores", Value::Array(Array::F32(Vec::new())));
    assert!(none.contains("268 tokens") && none.contains("0 scores"), "{none}");
    let wrong = error("pagelm.tokenizer.end_token_ids", Value::String("2".into()));
    assert!(wrong.contains("pagelm.tokenizer.end_token_ids") && wrong.contains("array of uint32"), "{wrong}");
    let beyond = error("pagelm.tokenizer.end_token_ids", Value::Array(Array::U32(vec![268])));
    assert!(beyond.contains("268") && beyond.contains("end_token_ids"), "{beyond}");
}
