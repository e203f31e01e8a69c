//! A Hugging Face folder whose tokenizer is broken, hostile, or of a kind that is not supported: one clear sentence that
//! names the file and what is wrong, whatever the bytes are.

use pagelm::text::TextError;
use serde_json::{Value as Json, json};

use super::tokenizer_files::{Folder, read};

const TINY: &str = "tests/fixtures/gpt2-tiny";

fn tiny() -> Json {
    serde_json::from_slice(&read(&format!("{TINY}/tokenizer.json"))).unwrap()
}

/// The sentence that refuses a folder, on the way from its files to a tokenizer.
fn refusal(folder: &Folder) -> String {
    match folder.tokenizer() {
        Ok(_) => panic!("it should be refused"),
        Err(error) => error.to_string(),
    }
}

fn check(folder: &Folder, words: &[&str]) {
    let error = refusal(folder);
    for word in words {
        assert!(error.contains(word), "{word:?} is missing in: {error}");
    }
}

/// Refuses the tiny tokenizer.json after a change.
fn check_json(change: impl FnOnce(&mut Json), words: &[&str]) {
    let mut json = tiny();
    change(&mut json);
    check(&Folder::new("gpt2", 384).with("tokenizer.json", json.to_string()), words);
}

#[test]
fn what_is_not_supported_is_refused_by_name() {
    let split = |pattern: &str| {
        let split =
            json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
        json!({"type": "Sequence", "pretokenizers": [split, {"type": "ByteLevel", "use_regex": false}]})
    };
    check_json(
        |file| file["model"]["type"] = "Unigram".into(),
        &["tokenizer.json", "\"Unigram\"", "\"BPE\""],
    );
    check_json(
        |file| file["pre_tokenizer"] = split(r"\w+"),
        &[r"\\w+", "pre-tokenizer", "llama-bpe", "qwen2"],
    );
    check_json(
        |file| file["pre_tokenizer"] = json!({"type": "Whitespace"}),
        &["Whitespace", "SentencePiece"],
    );
    check_json(|file| file["pre_tokenizer"] = Json::Null, &["pre-tokenizer", "not supported"]);
    check_json(|file| file["normalizer"] = json!({"type": "Lowercase"}), &["normalizer", "Lowercase"]);
    check_json(|file| file["decoder"] = json!({"type": "WordPiece"}), &["decoder", "WordPiece"]);
    check_json(
        |file| file["post_processor"] = json!({"type": "BertProcessing"}),
        &["post-processor", "Bert"],
    );
    check_json(|file| file["model"]["dropout"] = 0.1.into(), &["model.dropout"]);
    check_json(|file| file["model"]["end_of_word_suffix"] = "</w>".into(), &["model.end_of_word_suffix"]);
    check_json(|file| file["added_tokens"][1]["single_word"] = true.into(), &["single_word", "<|im_start|>"]);
    let space = json!({"type": "Sequence", "normalizers": [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]});
    let split = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": true});
    check_json(|file| (file["normalizer"], file["pre_tokenizer"]) = (space, Json::Null), &["decoder"]);
    check_json(|file| file["pre_tokenizer"] = split, &["Metaspace"]);
}

#[test]
fn a_vocabulary_of_another_size_is_refused() {
    let folder =
        |n_embeddings| Folder::new("llama", n_embeddings).with_file(&format!("{TINY}/tokenizer.json"));
    check(&folder(383), &["tokenizer.json", "the id 383", "only 383 rows", "another model"]);
    check(&folder(0), &["only 0 rows"]);
    check(&folder(usize::MAX), &["more than any tokenizer has"]);
    let larger = folder(400).tokenizer().unwrap();
    assert_eq!((larger.vocab_size(), larger.token_text(399)), (400, "[PAD399]".into()));
    assert!(larger.is_special(399) && larger.encode_text("[PAD399]").unwrap().len() > 1);
    let mut json = tiny();
    let token = json!({"id": 384, "content": "<image>", "special": true});
    json["added_tokens"].as_array_mut().unwrap().push(token);
    let added = |architecture| Folder::new(architecture, 384).with("tokenizer.json", json.to_string());
    check(&added("llama"), &["\"<image>\"", "384"]);
    assert_eq!(
        added("gemma3").tokenizer().unwrap().vocab_size(),
        384,
        "text models of Gemma 3 have no row for it"
    );
}

#[test]
fn a_broken_tokenizer_json_is_refused_with_its_cause() {
    check_json(|file| file["model"]["vocab"]["!"] = 4.into(), &["id 4", "\"!\"", "\"\\\"\""]);
    check_json(|file| file["model"]["vocab"]["!"] = (1u64 << 40).into(), &["1099511627776", "\"!\""]);
    check_json(|file| file["model"]["vocab"]["!"] = u32::MAX.into(), &["4294967295"]);
    check_json(|file| file["model"]["vocab"]["!"] = json!(-1), &["tokenizer.json", "-1", "line 1"]);
    check_json(|file| file["model"]["vocab"]["!"] = json!(1.5), &["1.5"]);
    check_json(|file| file["model"]["vocab"]["!"] = json!("3"), &["\"3\""]);
    check_json(|file| file["model"]["vocab"] = json!([["a", -1.0]]), &["model.vocab", "ids"]);
    check_json(|file| file["model"]["vocab"] = json!({}), &["no tokens"]);
    check_json(|file| file["model"]["vocab"] = Json::Null, &["object of tokens"]);
    check_json(|file| drop(file.as_object_mut().unwrap().remove("model")), &["model"]);
    check_json(|file| file["model"]["merges"][0] = json!(["a"]), &["merge"]);
    check_json(|file| file["model"]["merges"][0] = json!(["a", "b", "c"]), &["merge"]);
    check_json(|file| file["model"]["merges"][0] = json!(["a b", "c"]), &["a b c"]);
    check_json(|file| file["model"]["merges"][0] = json!(["", "a"]), &["merge"]);
    check_json(|file| file["model"]["merges"][0] = json!("a"), &["merge"]);
    check_json(|file| file["model"]["merges"][0] = json!(7), &["merge"]);
    check_json(|file| file["model"]["merges"][3] = json!(["zz", "a"]), &["merge 3", "needs \"zz\""]);
    check_json(|file| file["added_tokens"][0]["id"] = 9.into(), &["id 9", "<|endoftext|>"]);
    check_json(|file| file["added_tokens"][0]["content"] = Json::Null, &["null"]);
    check_json(|file| file["added_tokens"] = json!({}), &["map", "sequence"]);
    let mut twice = tiny().to_string();
    twice.truncate(twice.len() - 1);
    let folder = |text: String| Folder::new("gpt2", 384).with("tokenizer.json", text);
    check(&folder(twice.clone() + ",\"model\": {}}"), &["duplicate field `model`"]);
    check(&folder(twice), &["tokenizer.json", "EOF", "download it again"]);
    check(&folder(String::new()), &["EOF"]);
    check(
        &folder(r#"{"model": {"vocab": {"a": 0, "a": 1}}, "pre_tokenizer": {"type": "ByteLevel"}}"#.into()),
        &["0 and 1"],
    );
    check(&folder(r#"{"model": {"vocab": {"a": 1e999}}}"#.into()), &["number out of range"]);
}

#[test]
fn nesting_without_end_costs_no_stack() {
    let deep = "[".repeat(1_000_000);
    for field in ["normalizer", "model", "added_tokens", "nobody reads this"] {
        let error =
            refusal(&Folder::new("gpt2", 384).with("tokenizer.json", format!("{{\"{field}\": {deep}")));
        assert!(error.starts_with("tokenizer.json cannot be read"), "{error}");
    }
    let closed = format!("{}{}", deep, "]".repeat(1_000_000));
    let folder = Folder::new("gpt2", 384).with_file(&format!("{TINY}/tokenizer.json"));
    check(
        &folder.with("tokenizer_config.json", format!("{{\"x\": {closed}}}")),
        &["tokenizer_config.json", "recursion"],
    );
}

#[test]
fn the_other_files_are_checked_too() {
    let folder = || Folder::new("gpt2", 384).with_file(&format!("{TINY}/tokenizer.json"));
    let with = |name: &str, text: &str| folder().with(name, text);
    check(&with("tokenizer_config.json", "[]"), &["tokenizer_config.json", "map"]);
    check(&with("tokenizer_config.json", r#"{"eos_token": 7}"#), &["eos_token 7", "a token's text"]);
    check(&with("tokenizer_config.json", r#"{"eos_token": "</s>"}"#), &["no token \"</s>\"", "eos_token"]);
    check(
        &with("tokenizer_config.json", r#"{"add_bos_token": "yes"}"#),
        &["add_bos_token \"yes\"", "true or false"],
    );
    check(
        &with("tokenizer_config.json", r#"{"chat_template": 7}"#),
        &["chat_template 7", "a text or a list"],
    );
    check(&with("config.json", r#"{"eos_token_id": "2"}"#), &["config.json", "eos_token_id \"2\""]);
    check(&with("config.json", r#"{"bos_token_id": 384}"#), &["no token 384", "config.json"]);
    check(
        &with("generation_config.json", r#"{"eos_token_id": [0, 999]}"#),
        &["generation_config.json", "999"],
    );
    let many: Vec<u32> = (0..2000).collect();
    check(&with("generation_config.json", &json!({"eos_token_id": many}).to_string()), &["eos_token_id"]);
    let bytes = |name: &str| Folder::new("gpt2", 384).with_file(&format!("{TINY}/{name}"));
    check(&Folder::new("gpt2", 384), &["tokenizer.json", "missing"]);
    check(&bytes("vocab.json"), &["merges.txt", "missing"]);
    check(&bytes("merges.txt"), &["tokenizer.json", "missing"]);
    check(
        &bytes("vocab.json").with("merges.txt", "#version: 0.2\nà ¤\nx\n"),
        &["merges.txt", "line 3", "\"x\""],
    );
    check(&bytes("vocab.json").with("merges.txt", b"\xFF\xFE".as_slice()), &["merges.txt", "UTF-8"]);
    check(&bytes("vocab.json").with("merges.txt", "a zz"), &["merge 0", "\"zz\""]);
    let class = r#"{"tokenizer_class": "BertTokenizer"}"#;
    check(
        &bytes("vocab.json").with_file(&format!("{TINY}/merges.txt")).with("tokenizer_config.json", class),
        &["tokenizer_config.json", "\"BertTokenizer\"", "tokenizer.json"],
    );
}

#[test]
fn what_the_other_files_say_is_heard() {
    let files = || {
        Folder::new("qwen2", 384)
            .with_file(&format!("{TINY}/vocab.json"))
            .with_file(&format!("{TINY}/merges.txt"))
    };
    let tokenizer = |folder: Folder| folder.through_gguf().unwrap();
    assert_eq!(tokenizer(files()).eog(), [0u32; 0], "nothing says that <|endoftext|> is not text");
    let ends = r#"{"eos_token_id": [2, 1], "pad_token_id": -1}"#;
    assert_eq!(tokenizer(files().with("generation_config.json", ends)).eog(), [1, 2]);
    let llama2 = r#"{"eos_token_id": 0, "bos_token_id": 1, "pad_token_id": -1}"#;
    let both = tokenizer(files().with("generation_config.json", ends).with("config.json", llama2));
    assert_eq!(both.eog(), [0, 1, 2]);
    let map = r#"{"eos_token": {"content": "<|im_end|>"}, "bos_token": "<|im_start|>"}"#;
    let named = tokenizer(
        files()
            .with("special_tokens_map.json", map)
            .with("tokenizer_config.json", r#"{"add_bos_token": true}"#),
    );
    assert_eq!(
        (named.eog(), &named.encode_text("<|im_end|>").unwrap()[..]),
        ([2].as_slice(), [1, 2].as_slice())
    );
    let added = r#"{"added_tokens_decoder": {"300": {"content": "X", "special": true}}}"#;
    check(&files().with("tokenizer_config.json", added), &["id 300", "\"X\""]);
    let qwen =
        tokenizer(files().with("tokenizer_config.json", r#"{"tokenizer_class": "Qwen2TokenizerFast"}"#));
    assert_eq!(
        qwen.encode_text("e\u{301}").unwrap(),
        qwen.encode_text("é").unwrap(),
        "Qwen 2 composes characters"
    );
    let template = |folder: Folder| tokenizer(folder).has_template();
    assert!(template(files().with("chat_template.jinja", "{{ messages }}")));
    assert!(template(
        files().with("tokenizer_config.json", r#"{"chat_template": [{"name": "default", "template": "x"}]}"#)
    ));
    assert!(!template(files()));
    let tools = r#"{"chat_template": [{"name": "tool_use", "template": "x"}]}"#;
    assert!(!template(files().with("tokenizer_config.json", tools)), "none for conversations");
}

#[test]
fn an_error_is_one_of_this_package_s_own() {
    let folder = Folder::new("gpt2", 384).with("tokenizer.json", "{}");
    assert!(
        matches!(folder.metadata(), Err(TextError::TokenizerFile { file, .. }) if file == "tokenizer.json")
    );
}

#[test]
fn words_without_merges_are_refused() {
    let folder = Folder::new("gpt2", 384).with_file(&format!("{TINY}/vocab.json"));
    check(&folder.with("merges.txt", "#version: 0.2\n".to_owned()), &["no merges", "merges.txt"]);
    check_json(|json| json["model"]["merges"] = Json::Array(Vec::new()), &["no merges"]);
}
