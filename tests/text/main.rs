//! Text at the module's boundary: small made-up vocabularies for what no published one shows; `published` compares with
//! ids that other libraries made.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod against_reference;
#[path = "../support/gguf_writer.rs"]
mod gguf_writer;
mod hugging_face;
mod hugging_face_refusals;
mod published;
mod sentence_piece;
mod template;
mod template_attacks;
mod tokenizer_files;

use std::rc::Rc;

use pagelm::text::{Chat, ChatTurn, Detokenizer, TextError, Tokenizer, Vocabulary};

/// The text of `ids`, streamed; no piece ends within a character.
fn detokenize(tokenizer: &Rc<Tokenizer>, ids: &[u32], skip_special: bool) -> String {
    let mut detokenizer = Detokenizer::new(Rc::clone(tokenizer), skip_special);
    let text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
    text + &detokenizer.finish()
}

fn ids_of(json: &serde_json::Value) -> Vec<u32> {
    json.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

fn turn(role: &str, content: &str) -> ChatTurn {
    ChatTurn { role: role.into(), content: content.into(), tool_calls: Vec::new() }
}

fn chat(turns: Vec<ChatTurn>) -> Chat {
    Chat {
        turns,
        tools: Vec::new(),
        template_arguments: Vec::new(),
        add_generation_prompt: true,
        now_unix_secs: 1_785_542_400,
    }
}

/// A character of GPT-2's alphabet for each byte.
fn alphabet() -> Vec<char> {
    let mut next = 0x100;
    (0..=255u8)
        .map(|byte| match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
            _ => {
                next += 1;
                char::from_u32(next - 1).unwrap()
            }
        })
        .collect()
}

const END: u32 = 256;
const START: u32 = 257;
const ADDED: u32 = 258;
const UNUSED: u32 = 259;
const HI: u32 = 260;
const TWO_SPACES: u32 = 261;
const SPACE_A: u32 = 262;
const ONE_TWO: u32 = 263;

/// Token ids below 256 are bytes; merges make "hi", two spaces, " a" and "12".
fn small() -> Vocabulary {
    let mut tokens: Vec<String> = alphabet().into_iter().map(String::from).collect();
    let more = ["<|im_end|>", "<s>", "<think>", "[PAD0]", "hi", "ĠĠ", "Ġa", "12"];
    tokens.extend(more.map(str::to_owned));
    let mut token_types = vec![1; 256];
    token_types.extend([3, 3, 4, 5, 1, 1, 1, 1]);
    Vocabulary {
        model: "gpt2".into(),
        pre: Some("gpt-2".into()),
        tokens,
        token_types,
        merges: ["h i", "Ġ Ġ", "Ġ a", "1 2"].map(str::to_owned).into(),
        bos: Some(START),
        ..Vocabulary::default()
    }
}

fn small_with(change: impl FnOnce(&mut Vocabulary)) -> Result<Rc<Tokenizer>, TextError> {
    let mut vocabulary = small();
    change(&mut vocabulary);
    Tokenizer::new(vocabulary).map(Rc::new)
}

#[test]
fn raw_text_is_cut_at_special_tokens_and_merged_between() {
    let tokenizer = small_with(|_| {}).unwrap();
    let byte = u32::from;
    let table: &[(&str, &[u32])] = &[
        ("hi", &[HI]),
        ("<s>hi<|im_end|>", &[START, HI, END]),
        ("<think>hi", &[ADDED, HI]),
        ("     a", &[TWO_SPACES, TWO_SPACES, SPACE_A]),
        ("    ", &[TWO_SPACES, TWO_SPACES]),
        ("\0", &[0]),
        ("12", &[ONE_TWO]),
        ("é", &[0xC3, 0xA9]),
        ("[PAD0]", &[byte(b'['), byte(b'P'), byte(b'A'), byte(b'D'), byte(b'0'), byte(b']')]),
    ];
    for (text, ids) in table {
        assert_eq!(tokenizer.encode_text(text).unwrap(), *ids, "{text:?}");
        assert_eq!(detokenize(&tokenizer, ids, false), *text, "and back");
    }
    assert_eq!(detokenize(&tokenizer, &[START, HI, ADDED, UNUSED, END], true), "hi<think>");
    assert_eq!(tokenizer.token_text(0xC3), "\u{FFFD}");
    assert_eq!(tokenizer.token_bytes(0xC3), [0xC3]);
}

#[test]
fn what_the_file_asks_for_is_added_to_raw_text() {
    let encode =
        |change: fn(&mut Vocabulary), text: &str| small_with(change).unwrap().encode_text(text).unwrap();
    assert_eq!(encode(|file| file.add_bos = true, "hi"), [START, HI]);
    assert_eq!(encode(|file| (file.add_eos, file.eos) = (true, Some(END)), "hi"), [HI, END]);
    assert_eq!(encode(|file| file.add_space_prefix = true, "a"), [SPACE_A]);
    let smollm: fn(&mut Vocabulary) = |file| file.pre = Some("smollm".into());
    assert_eq!(encode(smollm, "12"), [u32::from(b'1'), u32::from(b'2')], "smollm's digits stand alone");
    let qwen: fn(&mut Vocabulary) = |file| file.pre = Some("qwen2".into());
    assert_eq!(encode(qwen, "e\u{301}"), [0xC3, 0xA9], "qwen2 composes characters first");
}

#[test]
fn every_end_of_generation_token_is_known() {
    assert_eq!(small_with(|_| {}).unwrap().eog(), [END], "by its name");
    let eog = |change: fn(&mut Vocabulary)| small_with(change).unwrap().eog().to_vec();
    assert_eq!(eog(|file| file.eos = Some(START)), [END, START]);
    assert_eq!(eog(|file| (file.eot, file.extra_eog) = (Some(HI), vec![START, HI])), [END, START, HI]);
    assert_eq!(
        eog(|file| file.token_types.clear()),
        [0u32; 0],
        "without types only what the file names is control"
    );
}

#[test]
fn a_split_character_never_shows_half() {
    let tokenizer = small_with(|_| {}).unwrap();
    let mut detokenizer = Detokenizer::new(Rc::clone(&tokenizer), true);
    let shown: Vec<String> = "🙂é".bytes().map(|byte| detokenizer.push(byte.into())).collect();
    assert_eq!(shown, ["", "", "", "🙂", "", "é"]);
    assert_eq!(detokenizer.finish(), "");
    let table: &[&[u8]] = &[
        b"a\xF0\x9F\x99",
        b"\xFFa\xC3",
        b"\xC3(\xA9",
        b"\xE2\x82\xE2\x82\xAC",
        b"\xF0\x9F\xF0\x9F\x99\x82\x80",
        b"\xED\xA0\x80",
        b"",
    ];
    for bytes in table {
        let ids: Vec<u32> = bytes.iter().map(|byte| u32::from(*byte)).collect();
        assert_eq!(detokenize(&tokenizer, &ids, false), String::from_utf8_lossy(bytes), "{bytes:?}");
    }
    assert_eq!(
        detokenize(&tokenizer, &[0xF0, 0x9F, END, 0x99, 0x82], true),
        "🙂",
        "what is left out breaks nothing"
    );
    assert_eq!(detokenize(&tokenizer, &[9999], true), "", "not a token");
}

#[test]
fn a_contradictory_vocabulary_is_refused_with_its_cause() {
    let check = |change: fn(&mut Vocabulary), words: &[&str]| {
        let error = small_with(change).err().expect("refused").to_string();
        for word in words {
            assert!(error.contains(word), "{word:?} is missing in: {error}");
        }
    };
    check(|file| file.model = "t5".into(), &["\"t5\"", "tokenizer.ggml.model", "gpt2", "llama"]);
    check(
        |file| file.pre = Some("falcon".into()),
        &["\"falcon\"", "tokenizer.ggml.pre", "gpt-2, phi-2, smollm", "qwen2"],
    );
    check(|file| file.pre = None, &["not named", "tokenizer.ggml.pre"]);
    check(|file| file.tokens.clear(), &["empty", "tokenizer.ggml.tokens"]);
    check(|file| file.token_types.truncate(9), &["264 tokens", "9 token types"]);
    check(|file| file.scores.push(0.0), &["264 tokens", "1 scores"]);
    check(|file| file.token_types[7] = 9, &["token 7", "type 9"]);
    check(|file| file.eos = Some(264), &["264", "end of text"]);
    check(|file| file.extra_eog = vec![u32::MAX], &["4294967295", "end of message"]);
    check(|file| file.tokens[261] = "hi".into(), &["260 and 261", "\"hi\""]);
    check(|file| file.tokens[257] = "<|im_end|>".into(), &["256 and 257", "\"<|im_end|>\""]);
    check(|file| file.merges[1] = "zz h".into(), &["merge 1", "\"zz h\"", "needs \"zz\""]);
    check(|file| file.merges[2] = "h a".into(), &["merge 2", "needs \"ha\""]);
    check(|file| file.merges[0] = "hi".into(), &["merge 0", "two tokens"]);
    check(|file| file.merges[3] = "h  i".into(), &["merge 3", "two tokens"]);
    check(|file| file.merges[3] = " i".into(), &["merge 3", "two tokens"]);
    check(|file| file.merges.push("ĠĠ <|im_end|>".into()), &["merge 4", "not an ordinary token"]);
}
