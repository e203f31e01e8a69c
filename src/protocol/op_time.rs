//! What the engine tells of the time that operations take; it crosses as part of an event.

use serde::{Deserialize, Serialize};

/// All dispatches of one kind in a decode step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OpTime {
    /// The kernel, and the kind of tensor that it multiplies with.
    pub name: String,
    /// How many.
    pub dispatches: u32,
    /// Their times together, by the device's clock.
    pub ms: f64,
    /// Bytes of weights that they read.
    pub weight_bytes: u64,
}
