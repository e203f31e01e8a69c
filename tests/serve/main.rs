//! The loop of an engine that serves tabs, with a tiny model on the device: nothing that a tab does harms another.
#![cfg(feature = "native")]
#![allow(
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "a test that cannot go on says so by panicking"
)]

#[path = "../support/gguf_writer.rs"]
mod gguf_writer;
#[path = "../support/json_schema.rs"]
mod json_schema;
#[path = "../support/memory_source.rs"]
mod memory_source;

mod answers;
mod checks;
mod connections;
mod losses;
mod models;
mod nonsense;
mod processor;
mod random;
mod soak;
mod structure;
mod world;
