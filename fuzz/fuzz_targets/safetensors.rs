//! Any bytes at all: the readers of a Hugging Face folder never panic, and what the safetensors reader accepts is consistent
//! and makes tensors that lie in the file.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use pagelm::format::checkpoint::{Origin, Tensor};
use pagelm::format::hugging_face::{self, ModelConfig, Shard, WeightMap};
use pagelm::format::safetensors::{Header, Parsed};

/// Bytes that a file may have beyond those at hand.
const FURTHER_BYTES: u64 = 1 << 33;

/// One for each way to arrange rows.
static CONFIGS: LazyLock<Vec<ModelConfig>> = LazyLock::new(|| {
    let configs = [
        r#"{"model_type": "llama", "num_attention_heads": 2, "hidden_size": 8, "tie_word_embeddings": true}"#,
        r#"{"model_type": "gpt2"}"#,
        r#"{"model_type": "gemma3", "text_config": {}}"#,
    ];
    configs.map(|config| ModelConfig::parse(config.as_bytes()).expect("a good config")).into()
});

fuzz_target!(|bytes: &[u8]| {
    let len = bytes.len() as u64;
    let whole = Header::parse(bytes, len);
    assert!(!matches!(whole, Ok(Parsed::NeedMore { .. })), "a whole file needs no more");
    check(bytes, len);
    check(bytes, len + FURTHER_BYTES);
    check(&bytes[..bytes.len() / 2], len);
    if let Ok(config) = ModelConfig::parse(bytes) {
        let _ = hugging_face::keys(&config, None).map_err(|error| assert!(!error.to_string().is_empty()));
    }
    if let Ok(map) = WeightMap::parse(bytes) {
        assert!(map.files().iter().all(|file| !file.is_empty() && !file.contains('/')));
    }
});

fn check(bytes: &[u8], file_len: u64) {
    match Header::parse(bytes, file_len) {
        Ok(Parsed::Complete(header)) => check_header(&header, file_len),
        Ok(Parsed::NeedMore { at_least }) => assert!((bytes.len() as u64) < at_least && at_least <= file_len),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn check_header(header: &Header, file_len: u64) {
    let mut ranges: Vec<_> = header
        .tensors
        .iter()
        .map(|tensor| (tensor.offset_bytes, tensor.offset_bytes + tensor.n_bytes))
        .collect();
    ranges.sort_unstable();
    let end = ranges.iter().fold(header.data_start, |end, range| {
        assert_eq!(end, range.0, "every byte belongs to one tensor");
        range.1
    });
    assert_eq!(end, file_len);
    let shards = [Shard { file: 0, name: "model.safetensors", header }];
    for config in CONFIGS.iter() {
        match hugging_face::checkpoint(config, None, &shards, None) {
            Ok(checkpoint) => checkpoint.tensors().iter().for_each(|tensor| check_tensor(tensor, file_len)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

fn check_tensor(tensor: &Tensor, file_len: u64) {
    let Origin::Stored(stored) = &tensor.origin else { return };
    let pieces = tensor.piece_rows(1 << 20);
    assert!(pieces > 0);
    for (first, n_rows) in
        [(0, 1), (tensor.n_rows() - 1, 1), (0, tensor.n_rows()), (0, pieces.min(tensor.n_rows()))]
    {
        let span = tensor.span(stored, first, n_rows);
        assert!(span.offset_bytes + span.n_bytes <= file_len);
    }
}
