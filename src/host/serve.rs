//! The loop of an engine that serves tabs, and what it needs of the place where it runs.
//!
//! Invariant: nothing here knows a browser: tests run the same loop natively.

use super::ConnectionId;
use crate::protocol::ModelSource;
use crate::store::Source;

/// What reaches the loop.
#[derive(Debug)]
pub enum Letter<A> {
    /// A tab said something.
    Message {
        /// Which connection it came by; a new number is a new connection.
        connection: ConnectionId,
        /// An encoded [`crate::protocol::Request`].
        bytes: Vec<u8>,
        /// What travelled beside it.
        attachments: Vec<A>,
    },
    /// A tab said what is not even an envelope.
    Garbled {
        /// Which connection it came by.
        connection: ConnectionId,
    },
    /// A tab is gone: its lock is free, or its port closed.
    Gone {
        /// Which connection.
        connection: ConnectionId,
    },
}

/// What the loop needs of the place where it runs: a worker in a browser, a test natively.
#[allow(async_fn_in_trait, reason = "the engine lives on one thread, so its futures need no Send")]
pub trait Place {
    /// What travels beside a message.
    type Attachment: Clone;
    /// Where a model's bytes are read from; a copy reads the same bytes.
    type Source: Source + Clone;

    /// Name of a lock that is held as long as the engine lives; empty where there are no locks.
    fn epoch(&self) -> String;

    /// Finds a model's files. The error is a sentence.
    async fn sources(
        &self,
        source: &ModelSource,
        attachments: &[Self::Attachment],
    ) -> Result<Vec<Self::Source>, String>;

    /// Returns once no other engine of this origin may hold GPU memory.
    async fn own_the_gpu(&self);

    /// Sends an encoded [`crate::protocol::Event`] and what travels beside it; never waits.
    fn post(&self, connection: ConnectionId, bytes: &[u8], attachments: &[Self::Attachment]);

    /// Sends [`Letter::Gone`] once that lock is free.
    fn watch(&self, connection: ConnectionId, lock: &str);

    /// Waits for so many milliseconds.
    async fn sleep(&self, ms: f64);

    /// Ends the engine, as one of an outdated build does when nobody uses it.
    fn close(&self);
}
