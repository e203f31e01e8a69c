//! The default model's file, whole or cut short.

use std::io::Read as _;
use std::path::PathBuf;

/// The model that `cargo xtask setup` puts in place.
pub(crate) fn model_path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../www/models/SmolLM2-135M-Instruct.Q4_1.gguf")
}

/// The file's first bytes.
pub(crate) fn first_bytes(n_bytes: u64) -> Result<Vec<u8>, String> {
    let path = model_path();
    let mut bytes = Vec::new();
    let read = std::fs::File::open(&path).and_then(|file| file.take(n_bytes).read_to_end(&mut bytes));
    read.map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    Ok(bytes)
}
