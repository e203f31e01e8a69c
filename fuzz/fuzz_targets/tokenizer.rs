//! Any bytes at all as the files of a tokenizer: they are refused in a sentence, or make a tokenizer whose ids are within
//! its vocabulary, and which reads the same after its metadata has been read again.
#![no_main]

use std::rc::Rc;

use libfuzzer_sys::fuzz_target;
use pagelm::format::gguf::{Header, Parsed};
use pagelm::format::metadata::Metadata;
use pagelm::text::{
    Detokenizer, NamedFile, TextError, Tokenizer, TokenizerFiles, Vocabulary, tokenizer_metadata,
};

/// Rows of the embedding; a byte's tokens and some more.
const N_EMBEDDINGS: usize = 400;
/// Stands between the files of a folder.
const BETWEEN_FILES: u8 = 0xFF;
const TEXT: &str = "  Hello w\u{f6}rld\n\n\t123 \0 <s></s> <|im_end|>e\u{301} \u{1F642}";

fuzz_target!(|bytes: &[u8]| {
    if bytes.starts_with(b"GGUF") {
        if let Ok(Parsed::Complete(mut header)) = Header::parse(bytes, bytes.len() as u64) {
            check(Vocabulary::from_gguf(&mut header.metadata).and_then(Tokenizer::new));
        }
        return;
    }
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == BETWEEN_FILES).collect();
    let file = |index: usize| parts.get(index).map(|bytes| NamedFile { name: "file", bytes });
    let (tokenizer_json, vocab_json, merges_txt, beside) =
        if parts.len() < 3 { (file(0), None, None, 1) } else { (None, file(0), file(1), 2) };
    check(read(&TokenizerFiles {
        architecture: "llama",
        n_embeddings: N_EMBEDDINGS,
        tokenizer_json,
        vocab_json,
        merges_txt,
        tokenizer_config_json: file(beside),
        generation_config_json: file(beside),
        ..TokenizerFiles::default()
    }));
});

fn read(files: &TokenizerFiles<'_>) -> Result<Tokenizer, TextError> {
    let mut metadata = Metadata::default();
    for (key, value) in tokenizer_metadata(files)? {
        assert!(metadata.get(&key).is_none(), "{key} is written twice");
        metadata.set(&key, value);
    }
    Tokenizer::new(Vocabulary::from_gguf(&mut metadata)?)
}

fn check(made: Result<Tokenizer, TextError>) {
    let tokenizer = match made {
        Ok(tokenizer) => Rc::new(tokenizer),
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    let ids = tokenizer.encode_text(TEXT).expect("a short text is read");
    let n_tokens = tokenizer.vocab_size();
    assert!(ids.iter().chain(tokenizer.eog()).all(|id| *id < n_tokens));
    let mut detokenizer = Detokenizer::new(Rc::clone(&tokenizer), false);
    let text: String = ids.iter().map(|id| detokenizer.push(*id)).collect();
    let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
    let whole = String::from_utf8_lossy(&bytes).into_owned();
    let shown = text + &detokenizer.finish();
    assert!(shown == whole || Some(shown.as_str()) == whole.strip_prefix(' '));
}
