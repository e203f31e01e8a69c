//! Ids and decoded texts equal those of Hugging Face's own library, on thousands of made-up texts: for the published
//! tokenizers, and for small ones that have what those lack.

use std::fmt::Write as _;
use std::rc::Rc;

use pagelm::text::Tokenizer;
use serde_json::{Value as Json, json};
use tokenizers::Tokenizer as Reference;

use super::tokenizer_files::{Folder, read};
use super::{alphabet, detokenize};

/// What texts are put together of.
const PIECES: [&str; 72] = [
    " ",
    "  ",
    "   ",
    "\n",
    "\n\n",
    "\r\n",
    "\t",
    "\t\t",
    "\u{a0}",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "a",
    "b",
    "ab",
    "abc",
    "the",
    "The",
    "THE",
    "fooBar",
    "HTTPServer",
    "don't",
    "I'M",
    "we'LL",
    "'S",
    "'ſ",
    "\u{212a}",
    "ß",
    "Ǆ",
    "ǅ",
    "ª",
    "0",
    "12",
    "123",
    "4567",
    "½",
    "²",
    "①",
    "٣",
    "१",
    "!",
    "...",
    "?!",
    "/",
    "//",
    "(",
    ")",
    "_",
    "$",
    "+",
    "<",
    ">",
    "<0x0A>",
    "<s>",
    "</s>",
    "<x>",
    "<|im_end|>",
    "<unk>",
    "é",
    "e\u{301}",
    "\u{301}",
    "한국",
    "日本語",
    "かな",
    "مرحبا",
    "नमस्ते",
    "👩\u{200d}👧",
    "🇺🇦",
    "\0",
    "\u{7f}",
    "\u{feff}",
    "\u{10ffff}",
];

/// A text of up to `n` pieces; `state` goes on from text to text (Marsaglia's xorshift).
fn made_up(state: &mut u64, n: u64) -> String {
    let mut next = |below: u64| {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state % below
    };
    let mut text = String::new();
    for _ in 0..=next(n) {
        let piece = PIECES[next(PIECES.len() as u64) as usize];
        let times = if next(10) == 0 { 1 + next(40) } else { 1 };
        (0..times).for_each(|_| text.push_str(piece));
    }
    text
}

/// Compares on `n_texts` texts.
fn check(name: &str, tokenizer: &Rc<Tokenizer>, reference: &Reference, n_texts: usize) {
    let mut state = 0x9E37_79B9_7F4A_7C15;
    for _ in 0..n_texts {
        let text = made_up(&mut state, 12);
        let ids = tokenizer.encode_text(&text).unwrap();
        let wanted = reference.encode_fast(text.as_str(), true).unwrap();
        assert_eq!(ids, wanted.get_ids(), "{name}: {text:?}");
        let decoded = reference.decode(&ids, false).unwrap();
        assert_eq!(detokenize(tokenizer, &ids, false), decoded, "{name}: {text:?} and back");
    }
}

/// Compares a tokenizer.json, straight and through GGUF.
fn check_json(name: &str, json: &Json, n_texts: usize) {
    let bytes = serde_json::to_vec(json).unwrap();
    let reference = Reference::from_bytes(&bytes).unwrap();
    let folder = Folder::new("llama", reference.get_vocab_size(true)).with("tokenizer.json", bytes);
    for (way, tokenizer) in folder.both_ways() {
        check(&format!("{name} from {way}"), &tokenizer, &reference, n_texts);
    }
}

#[test]
fn published_tokenizers_read_made_up_texts_as_the_reference() {
    for (name, n_tokens) in [("qwen3", 151_669), ("llama3_1", 128_256), ("gemma3", 262_145)] {
        let path = format!("tests/published/{name}/tokenizer.json");
        let folder = Folder::new("llama", n_tokens).with_file(&path);
        check(name, &folder.tokenizer().unwrap(), &Reference::from_bytes(read(&path)).unwrap(), 2000);
    }
}

/// Ids in the order of a list of tokens.
fn vocab(tokens: &[String]) -> Json {
    Json::Object(tokens.iter().zip(0..).map(|(token, id)| (token.clone(), Json::from(id))).collect())
}

fn added(id: usize, content: &str, flags: Json) -> Json {
    let mut token = json!({"id": id, "content": content, "single_word": false, "lstrip": false, "rstrip": false,
        "normalized": false, "special": true});
    for (name, flag) in flags.as_object().unwrap() {
        token[name] = flag.clone();
    }
    token
}

/// Letters, bytes if asked for, and merges whose ranks are not those of their lengths.
fn sentence_piece(byte_fallback: bool) -> Json {
    let mut tokens: Vec<String> = ["<unk>", "<s>", "</s>"].map(str::to_owned).into();
    if byte_fallback {
        tokens.extend((0..=255u8).map(|byte| format!("<0x{byte:02X}>")));
    }
    tokens.extend("▁abcdefghoTtHES<>0123.!né日\n".chars().map(String::from));
    let merges = [
        ("▁", "▁"),
        ("▁▁", "▁▁"),
        ("▁", "t"),
        ("h", "e"),
        ("▁t", "he"),
        ("t", "he"),
        ("a", "b"),
        ("b", "c"),
        ("▁", "a"),
        ("▁a", "b"),
        ("ab", "c"),
        ("1", "2"),
        ("2", "3"),
        ("12", "3"),
        ("o", "o"),
        ("f", "oo"),
        (".", "."),
        ("..", "."),
        ("T", "H"),
        ("TH", "E"),
        ("\n", "\n"),
        ("日", "日"),
        ("a", "a"),
        ("aa", "aa"),
        ("▁▁▁▁", "▁▁▁▁"),
        ("▁▁", "▁"),
    ];
    tokens.extend(merges.iter().map(|(first, second)| format!("{first}{second}")));
    let mut seen = std::collections::HashSet::new();
    tokens.retain(|token| seen.insert(token.clone()));
    let id = |text: &str| tokens.iter().position(|token| token == text).unwrap();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(id("<unk>"), "<unk>", json!({})), added(id("<s>"), "<s>", json!({})),
            added(id("</s>"), "</s>", json!({}))],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
        "pre_tokenizer": null, "post_processor": null,
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"}]},
        "model": {"type": "BPE", "dropout": null, "unk_token": "<unk>", "continuing_subword_prefix": null,
            "end_of_word_suffix": null, "fuse_unk": true, "byte_fallback": byte_fallback, "ignore_merges": false,
            "vocab": vocab(&tokens), "merges": merges},
    })
}

/// The same with a leading space, by normalizer or by pre-tokenizer.
fn with_prefix(mut json: Json, metaspace: bool) -> Json {
    let replace = json["normalizer"].take();
    if metaspace {
        json["pre_tokenizer"] =
            json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    } else {
        json["normalizer"] =
            json!({"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replace]});
    }
    let strip = json!({"type": "Strip", "content": " ", "start": 1, "stop": 0});
    json["decoder"]["decoders"].as_array_mut().unwrap().push(strip);
    json
}

#[test]
fn sentence_piece_reads_texts_as_the_reference() {
    check_json("gemma's form", &sentence_piece(true), 2000);
    check_json("llama 2's form", &with_prefix(sentence_piece(true), false), 2000);
    check_json("mistral's form", &with_prefix(sentence_piece(true), true), 2000);
    let mut stripping = with_prefix(sentence_piece(true), false);
    let n_tokens = stripping["model"]["vocab"].as_object().unwrap().len();
    let tokens = stripping["added_tokens"].as_array_mut().unwrap();
    tokens[2]["rstrip"] = true.into();
    tokens.push(added(n_tokens, "<|im_end|>", json!({"rstrip": true})));
    tokens.push(added(n_tokens + 1, "<x>", json!({"special": false, "lstrip": true})));
    stripping["post_processor"] = json!({
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": "</s>", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
        "special_tokens": {
            "<s>": {"id": "<s>", "ids": [stripping["model"]["vocab"]["<s>"]], "tokens": ["<s>"]},
            "</s>": {"id": "</s>", "ids": [stripping["model"]["vocab"]["</s>"]], "tokens": ["</s>"]},
        },
    });
    check_json("phi 3's form", &stripping, 2000);
}

#[test]
fn what_has_neither_token_nor_bytes_is_one_unknown_token() {
    let json = sentence_piece(false);
    let bytes = serde_json::to_vec(&json).unwrap();
    let reference = Reference::from_bytes(&bytes).unwrap();
    let folder = Folder::new("llama", reference.get_vocab_size(true)).with("tokenizer.json", bytes);
    let tokenizer = folder.tokenizer().unwrap();
    let mut state = 1;
    for _ in 0..2000 {
        let text = made_up(&mut state, 8);
        let wanted = reference.encode_fast(text.as_str(), false).unwrap();
        assert_eq!(tokenizer.encode_text(&text).unwrap(), wanted.get_ids(), "{text:?}");
    }
}

/// Bytes and a few merges, which cross what the rules cut.
fn byte_level(normalizer: Json, steps: &[Json], ignore_merges: bool) -> Json {
    let letter = |text: &str| text.bytes().map(|byte| alphabet()[usize::from(byte)]).collect::<String>();
    let mut tokens: Vec<String> = alphabet().into_iter().map(String::from).collect();
    let merges: Vec<[String; 2]> = [
        [" ", " "],
        ["  ", "  "],
        [" ", "t"],
        ["h", "e"],
        [" t", "he"],
        ["'", "S"],
        ["'", "s"],
        ["1", "2"],
        ["12", "3"],
        [".", "."],
        ["\n", "\n"],
        ["\r", "\n"],
        ["f", "o"],
        ["fo", "o"],
        ["foo", "B"],
        ["T", "T"],
        ["/", "/"],
        ["\0", "\0"],
        [" ", "("],
    ]
    .map(|pair| pair.map(letter))
    .into();
    tokens.extend(merges.iter().map(|pair| pair.concat()));
    tokens.extend(["abc", "HTTPServer", "日本語"].map(letter));
    let n_tokens = tokens.len();
    json!({
        "version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [added(n_tokens, "<|im_end|>", json!({})), added(n_tokens + 1, "<x>", json!({"special": false}))],
        "normalizer": normalizer, "pre_tokenizer": {"type": "Sequence", "pretokenizers": steps},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "ignore_merges": ignore_merges,
            "vocab": vocab(&tokens), "merges": merges},
    })
}

fn split(pattern: &str) -> Json {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

/// The lists of words as their files have them, each with the name that GGUF gives it.
const WORDS: [(&str, &str); 5] = [
    (
        "dbrx",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "tekken",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "gpt-4o",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    ("gpt-2", r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
];

#[test]
fn every_byte_level_rule_reads_texts_as_the_reference() {
    let bytes = |regex| json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": regex});
    let nfc = || json!({"type": "NFC"});
    for (name, words) in WORDS {
        for normalizer in [Json::Null, nfc()] {
            for ignore_merges in [false, true] {
                let json = byte_level(normalizer.clone(), &[split(words), bytes(false)], ignore_merges);
                check_json(name, &json, 500);
            }
        }
        let removed =
            json!({"type": "Split", "pattern": {"Regex": words}, "behavior": "Removed", "invert": true});
        check_json(name, &byte_level(Json::Null, &[removed, bytes(false)], false), 500);
    }
    check_json("gpt-2", &byte_level(Json::Null, &[bytes(true)], false), 2000);
    let prefixed =
        json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true});
    check_json("gpt-2 after a space", &byte_level(Json::Null, &[prefixed], false), 2000);
    let digits = json!({"type": "Digits", "individual_digits": true});
    check_json("smollm", &byte_level(Json::Null, &[digits, bytes(true)], false), 2000);
    let mut last = String::from("[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|");
    write!(last, "[^\r\n\\p{{L}}\\p{{P}}\\p{{S}}]?[\\p{{L}}\\p{{M}}]+| ?[\\p{{P}}\\p{{S}}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+").unwrap();
    let deepseek = [split(r"\p{N}{1,3}"), split("[一-龥\u{3040}-ゟ゠-ヿ]+"), split(&last), bytes(false)];
    check_json(
        "deepseek-v3",
        &byte_level(json!({"type": "Sequence", "normalizers": []}), &deepseek, false),
        2000,
    );
}
