//! Runs language models where the page is: in the browser on WebGPU, and natively on the same engine.
//!
//! Modules stand in reading order; `tests/tidy.rs` holds the arrows between them.

pub mod protocol;
pub mod bench;
#[cfg(feature = "web")]
pub mod ui;
#[cfg(feature = "web")]
pub mod client;
#[cfg(feature = "gpu")]
pub mod host;
#[cfg(feature = "gpu")]
pub mod store;
#[cfg(feature = "grammar")]
pub mod structure;
pub mod format;
pub mod text;
pub mod engine;
pub mod model;
pub mod plan;
#[cfg(feature = "gpu")]
pub mod gpu;
#[cfg(feature = "gpu")]
pub mod cpu;
