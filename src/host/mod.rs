//! The rim: owns the engine, drains the inbox, steps, and fans events out.
//!
//! Invariant: one owner, one loop, no lock. What comes in is checked here; what lies below asserts.

pub mod check;
#[cfg_attr(not(feature = "grammar"), path = "no_forms.rs")]
pub(crate) mod forms;
pub mod host_time;
pub mod hosted;
pub mod load;
mod loads;
mod losses;
pub mod machine;
mod models;
#[cfg(feature = "native")]
pub mod native;
pub mod open;
pub mod options;
pub mod outbox;
pub mod pace;
mod pipelines;
mod prompt;
mod rate;
mod recovery;
pub mod request;
mod residency;
mod room;
mod running;
pub mod serve;
mod server;
pub mod session;
mod single;
mod standing;
#[cfg(feature = "web")]
pub mod web;
pub mod weights;

pub use prompt::encode;
pub use single::Host;

use futures_util::future::LocalBoxFuture;

/// Names a connection: a tab, or the terminal.
pub type ConnectionId = u64;

/// What the host cannot know by itself.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// A clock that only goes forward, in milliseconds.
    pub now_ms: fn() -> f64,
    /// The time of day, in seconds since 1970, for templates that write a date.
    pub unix_secs: fn() -> i64,
    /// A number that nobody can foresee, for requests without a seed.
    pub entropy: fn() -> u64,
    /// Bytes of the engine's wasm memory, where it has one.
    pub memory_bytes: fn() -> Option<u64>,
    /// Lets everything else that waits on this thread run once, while the processor computes a step.
    pub turn: fn() -> LocalBoxFuture<'static, ()>,
    /// Threads that compute on the processor.
    pub n_threads: usize,
    /// Most bytes that models on the processor may take, all together, where that is known.
    pub processor_bytes: fn() -> Option<u64>,
}
