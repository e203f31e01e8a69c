//! Dispatches of a decode step, as README states them: the one table that tests hold.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use pagelm::gpu::shader::Variant;

/// The most outside the layers.
pub const OUTSIDE: usize = 4;

/// The most in a layer of an architecture whose q, k and v are of one block type, and whose gate and up are of one.
pub fn of_layer(architecture: &str, _variant: Variant) -> usize {
    match architecture {
        "llama" | "qwen2" | "phi3" | "gpt2" => 7,
        // Norms of heads.
        "qwen3" => 8,
        // A norm after each half.
        "gemma2" => 9,
        "gemma3" => 10,
        other => panic!("the table has no {other}"),
    }
}
