//! What is found of a GPU is kept in the user's cache folder, and is found again there.

use std::fs;
use std::path::PathBuf;

use super::{Ran, file, pagelm, ran};

fn generate_in(cache: &PathBuf, device: &str) -> Ran {
    let model = file("tiny.gguf");
    let mut command = pagelm(&[
        "generate",
        "--model",
        &model,
        "--prompt",
        "a",
        "--max-tokens",
        "2",
        "--ignore-eos",
        "--device",
        device,
    ]);
    command.env("PAGELM_CACHE_DIR", cache);
    ran(command)
}

#[test]
fn a_verdict_is_kept_and_believed() {
    let cache = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("verdicts");
    let _ = fs::remove_dir_all(&cache);
    let first = generate_in(&cache, "gpu");
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    assert!(!first.stderr.contains("computes wrongly"), "{}", first.stderr);
    let files: Vec<PathBuf> =
        fs::read_dir(cache.join("checks")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [kept] = &files[..] else { panic!("{files:?}") };
    let text = fs::read_to_string(kept).unwrap();
    let (key, verdict) = text.split_once('\n').unwrap();
    assert!(verdict.contains("\nright "), "{text}");

    // As if no kernels had been right.
    fs::write(kept, format!("{key}\nuntil 9999999999\nwrong serial 0.5\nwrong workgroup inf\n")).unwrap();
    let asked = generate_in(&cache, "gpu");
    assert_eq!((asked.code, asked.stdout.as_str()), (Some(1), ""), "{}", asked.stderr);
    let sentence = "computes wrongly with its kernels without barriers (logits are off by 50 %), of workgroups (logits are no numbers)";
    assert!(
        asked.stderr.contains(sentence) && asked.stderr.contains("with auto or cpu as the device"),
        "{}",
        asked.stderr
    );

    // Of another key, too old, or not whole: it is checked again.
    let wrong = "wrong serial 0.5\nwrong workgroup inf\n";
    for damaged in [
        format!("{key} 2\nuntil 9999999999\n{wrong}"),
        format!("{key}\nuntil 1\n{wrong}"),
        format!("{key}\nwro"),
        String::new(),
    ] {
        fs::write(kept, damaged).unwrap();
        assert_eq!(generate_in(&cache, "gpu").code, Some(0));
        assert_eq!(fs::read_to_string(kept).unwrap(), text);
    }

    // Where nothing can be kept, it answers all the same.
    let nowhere = cache.join("file");
    fs::write(&nowhere, "").unwrap();
    assert_eq!(generate_in(&nowhere, "gpu").code, Some(0));
}
