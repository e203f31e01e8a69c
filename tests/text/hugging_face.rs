//! Published tokenizers of Hugging Face folders: ids, decoding and rendered chats equal what their makers' library gave,
//! both from the files and from a GGUF file written from them.

use serde_json::Value as Json;

use pagelm::format::value::{Array, Value};
use pagelm::text::Tokenizer;
use std::rc::Rc;

use super::tokenizer_files::{Folder, read, tokenizer_of};
use super::{chat, detokenize, ids_of, turn};

/// The published tokenizers: name, architecture, pre-tokenizer.
const PUBLISHED: [(&str, &str, &str); 3] =
    [("qwen3", "qwen3", "qwen2"), ("llama3_1", "llama", "llama-bpe"), ("gemma3", "gemma3", "default")];

fn expected(name: &str) -> Json {
    serde_json::from_slice(&read(&format!("tests/fixtures/tokenizers/{name}.json"))).unwrap()
}

fn folder(name: &str, architecture: &str, n_embeddings: usize) -> Folder {
    Folder::new(architecture, n_embeddings)
        .with_file(&format!("tests/published/{name}/tokenizer.json"))
        .with_file(&format!("tests/published/{name}/tokenizer_config.json"))
}

fn check_texts(way: &str, tokenizer: &Rc<Tokenizer>, expected: &Json) {
    let texts = expected["texts"].as_array().unwrap();
    assert_eq!(texts.len(), 24);
    for entry in texts {
        let text = entry["text"].as_str().unwrap();
        let ids = ids_of(&entry["ids"]);
        assert_eq!(tokenizer.encode_piece(text).unwrap(), ids, "{way}: {text:?}");
        assert_eq!(tokenizer.encode_text(text).unwrap(), ids_of(&entry["with_special"]), "{way}: {text:?}");
        assert_eq!(detokenize(tokenizer, &ids, false), entry["decoded"].as_str().unwrap(), "{way}: and back");
    }
}

fn check_chats(way: &str, tokenizer: &Rc<Tokenizer>, expected: &Json) {
    for entry in expected["chats"].as_array().unwrap() {
        let text = |message: &Json, field: &str| message[field].as_str().unwrap().to_owned();
        let messages = entry["messages"].as_array().unwrap().iter();
        let turns = messages.map(|message| turn(&text(message, "role"), &text(message, "content"))).collect();
        let rendered = tokenizer.render(&chat(turns)).unwrap();
        assert_eq!(rendered.text, entry["rendered"].as_str().unwrap(), "{way}");
        assert_eq!(tokenizer.encode_rendered(&rendered).unwrap(), ids_of(&entry["ids"]), "{way}");
    }
}

#[test]
fn published_tokenizers_give_the_published_ids_texts_and_chats() {
    for (name, architecture, pre) in PUBLISHED {
        let expected = expected(name);
        let n_tokens = usize::try_from(expected["vocab_size"].as_u64().unwrap()).unwrap();
        let folder = folder(name, architecture, n_tokens);
        let metadata = folder.metadata().unwrap();
        let found = metadata.iter().find(|(key, _)| key == "tokenizer.ggml.pre").map(|(_, value)| value);
        assert_eq!(found, Some(&Value::String(pre.into())), "{name}");
        for (way, tokenizer) in folder.both_ways() {
            let way = format!("{name} from {way}");
            assert_eq!(tokenizer.vocab_size() as usize, n_tokens, "{way}");
            check_texts(&way, &tokenizer, &expected);
            check_chats(&way, &tokenizer, &expected);
        }
    }
}

#[test]
fn gemma_by_scores_alone_is_the_same() {
    let expected = expected("gemma3");
    let mut metadata = folder("gemma3", "gemma3", 262_145).metadata().unwrap();
    metadata.retain(|(key, _)| key != "tokenizer.ggml.merges");
    let check = |way: &str, metadata: Vec<(String, Value)>| {
        let tokenizer = tokenizer_of(metadata, "gemma3").unwrap();
        check_texts(way, &tokenizer, &expected);
        check_chats(way, &tokenizer, &expected);
    };
    check("gemma3 by scores", metadata.clone());
    let array = |metadata: &[(String, Value)], key: &str| {
        metadata.iter().position(|(found, _)| found == key).unwrap()
    };
    let (tokens, types) =
        (array(&metadata, "tokenizer.ggml.tokens"), array(&metadata, "tokenizer.ggml.token_type"));
    let mut user_defined = Vec::new();
    if let Value::Array(Array::String(tokens)) = &mut metadata[tokens].1 {
        for (id, token) in tokens.iter_mut().enumerate() {
            if token.len() > "▁".len() && token.chars().all(|letter| letter == '▁') {
                *token = token.replace('▁', " ");
                user_defined.push(id);
            }
        }
    }
    assert_eq!(user_defined.len(), 30, "runs of two to 31 spaces");
    if let Value::Array(Array::I32(types)) = &mut metadata[types].1 {
        user_defined.into_iter().for_each(|id| types[id] = 4);
    }
    check("gemma3 with runs of spaces as llama.cpp's converter writes them", metadata);
}

#[test]
fn tiny_folders_give_the_reference_s_ids() {
    let folders = ["gpt2", "llama", "llama3-rope", "qwen2", "qwen3", "gemma3"];
    let mut n_prompts = 0;
    for name in folders {
        let at = |file: &str| format!("tests/fixtures/{name}-tiny/{file}");
        let expected: Json = serde_json::from_slice(&read(&at("expected.json"))).unwrap();
        let config = |folder: Folder| folder.with_file(&at("config.json"));
        let with_json = config(Folder::new(name, 384)).with_file(&at("tokenizer.json"));
        let without =
            config(Folder::new(name, 384)).with_file(&at("vocab.json")).with_file(&at("merges.txt"));
        for (way, tokenizer) in with_json.both_ways().into_iter().chain(without.both_ways()) {
            for prompt in expected["prompts"].as_array().unwrap() {
                let text = prompt["prompt"].as_str().unwrap();
                assert_eq!(
                    tokenizer.encode_text(text).unwrap(),
                    ids_of(&prompt["ids"]),
                    "{name}, {way}: {text:?}"
                );
                let decoded = detokenize(&tokenizer, &ids_of(&prompt["greedy"]), false);
                assert_eq!(decoded, prompt["decoded"].as_str().unwrap(), "{name}, {way}");
                n_prompts += 1;
            }
        }
    }
    assert!(n_prompts >= 4 * folders.len(), "{n_prompts} prompts");
}

#[test]
fn what_was_thought_in_earlier_turns_is_not_read_again() {
    for (_, tokenizer) in folder("qwen3", "qwen3", 151_669).both_ways() {
        // The answer whole, as the page sends it.
        let answer = "<think>\nA capital, so Paris.\n</think>\n\nIt is Paris.";
        let turns = vec![turn("user", "Which?"), turn("assistant", answer), turn("user", "Sure?")];
        let text = tokenizer.render(&chat(turns)).unwrap().text;
        assert!(text.contains("<|im_start|>assistant\nIt is Paris.<|im_end|>"), "{text}");
        assert!(!text.contains("A capital") && !text.contains("think>"), "{text}");
    }
}
