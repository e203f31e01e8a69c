//! Dispatches of a decode step, as README states them: the one table that tests hold.
#![allow(dead_code, unreachable_pub, reason = "every test file uses its own part of this")]

use pagelm::gpu::shader::Variant;

/// The most outside the layers (DESIGN.md, truth 2).
pub const OUTSIDE: usize = 4;

/// Outside the layers where the host samples: embedding, head and, where it is no part of the head, its norm.
pub fn outside(variant: Variant) -> usize {
    match variant {
        Variant::Serial => 3,
        Variant::Workgroup | Variant::Subgroup => 2,
    }
}

/// In a layer of an architecture whose q, k and v are of one block type, and whose gate and up are of one.
pub fn of_layer(architecture: &str, variant: Variant) -> usize {
    // Software adapters: norms are dispatches. Others: attention is one of ranges and one that adds them up.
    let least = match variant {
        Variant::Serial => 7,
        Variant::Workgroup | Variant::Subgroup => 6,
    };
    match architecture {
        "llama" | "qwen2" | "phi3" | "gpt2" => least,
        // Norms of heads.
        "qwen3" => least + 1,
        // A norm after each half.
        "gemma2" => least + 2,
        "gemma3" => least + 3,
        other => panic!("the table has no {other}"),
    }
}
