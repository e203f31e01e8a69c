//! What a tokenizer keeps in memory, counted by the allocator: little enough that the page's 64 MiB hold the largest
//! published vocabulary many times over.

#![expect(unsafe_code, reason = "an allocator that counts can be written in no other way")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use pagelm::format::metadata::Metadata;
use pagelm::text::{NamedFile, Tokenizer, TokenizerFiles, Vocabulary, tokenizer_metadata};

/// The system's allocator, counting bytes.
struct Counting;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call goes to the system's allocator as it is; only counters are touched beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(live, Relaxed);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller keeps to the same contract.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// One test: others would allocate beside it.
#[test]
fn a_tokenizer_keeps_at_most_sixteen_megabytes() {
    for (name, n_embeddings, most_mb) in
        [("qwen3", 151_936, 12.0), ("llama3_1", 128_256, 12.0), ("gemma3", 262_145, 16.0)]
    {
        let path = format!("tests/published/{name}/tokenizer.json");
        let bytes =
            std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join(&path)).unwrap_or_else(|error| {
                panic!("{path}: {error}; run `cargo xtask test`, which fetches the published tokenizers")
            });
        let before = LIVE.load(Relaxed);
        PEAK.store(before, Relaxed);
        let start = Instant::now();
        let files = TokenizerFiles {
            architecture: name,
            n_embeddings,
            tokenizer_json: Some(NamedFile { name: "tokenizer.json", bytes: &bytes }),
            ..TokenizerFiles::default()
        };
        let mut metadata = Metadata::default();
        tokenizer_metadata(&files).unwrap().into_iter().for_each(|(key, value)| metadata.set(&key, value));
        let read_secs = start.elapsed().as_secs_f64();
        let vocabulary = Vocabulary::from_gguf(&mut metadata).unwrap();
        drop(metadata);
        let tokenizer = Tokenizer::new(vocabulary).unwrap();
        let megabytes = |bytes: usize| (bytes - before) as f64 / 1e6;
        let (kept_mb, peak_mb) = (megabytes(LIVE.load(Relaxed)), megabytes(PEAK.load(Relaxed)));
        println!(
            "{name}: {} tokens, {kept_mb:.1} MB kept, {peak_mb:.1} MB at most while opening; {read_secs:.2} s to read, {:.2} s in all",
            tokenizer.vocab_size(),
            start.elapsed().as_secs_f64()
        );
        assert!(kept_mb <= most_mb, "{name} keeps {kept_mb:.1} MB, at most {most_mb} MB were expected");
        drop(tokenizer);
    }
}
