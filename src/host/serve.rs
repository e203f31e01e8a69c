//! The loop of an engine that serves tabs, and what it needs of the place where it runs.
//!
//! Invariant: nothing here knows a browser: tests run the same loop natively. Nobody is answered out of the loop, and
//! nothing in it waits for one tab: letters, a step, a load and a timer are waited for together.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use futures_channel::mpsc::UnboundedReceiver;
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, StreamExt as _};

use super::load::LoadError;
use super::server::Server;
use super::{ConnectionId, Surroundings};
use crate::gpu::Gpu;
use crate::protocol::ModelSource;
use crate::store::Source;

/// The longest that a timer waits at once; a browser's rings at once where it is set for more than 24 days.
const MAX_SLEEP_MS: f64 = 3_600_000.0;

/// Letters that are read before a step gets its turn.
const LETTERS_A_TURN: usize = 64;

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
    /// A tab waits for no load any more.
    LoadUnwanted {
        /// Which connection.
        connection: ConnectionId,
    },
}

/// What the loop needs of the place where it runs: a worker in a browser, a test natively.
#[allow(async_fn_in_trait, reason = "the engine lives on one thread, so its futures need no Send")]
pub trait Place: 'static {
    /// What travels beside a message.
    type Attachment: Clone + 'static;
    /// Where a model's bytes are read from; a copy reads the same bytes.
    type Source: Source + Clone + 'static;

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

    /// Sets a device up that was just opened.
    fn set_up(&self, gpu: Gpu) -> Gpu {
        gpu
    }

    /// Sends an encoded [`crate::protocol::Event`] and what travels beside it; never waits.
    fn post(&self, connection: ConnectionId, bytes: &[u8], attachments: &[Self::Attachment]);

    /// Sends [`Letter::Gone`] once that lock is free.
    fn watch(&self, connection: ConnectionId, lock: &str);

    /// Waits for so many milliseconds.
    async fn sleep(&self, ms: f64);

    /// Ends the engine, as one of an outdated build does when nobody uses it.
    fn close(&self);

    /// The error as a sentence; a place may add the way to the setting that caused it.
    fn in_words(&self, error: &LoadError) -> String {
        error.to_string()
    }

    /// Bytes that models may take on the GPU, all together. If absent, twice the largest buffer that the device makes:
    /// what a device has in all is told nowhere. One model alone is always tried.
    fn budget_bytes(&self) -> Option<u64> {
        None
    }
}

/// Serves tabs until no letter can come any more, or an outdated engine is used by nobody.
pub async fn serve<P: Place>(
    place: Rc<P>,
    mut letters: UnboundedReceiver<Letter<P::Attachment>>,
    surroundings: Surroundings,
) {
    let now_ms = surroundings.now_ms;
    let mut server = Server::new(Rc::clone(&place), surroundings);
    let mut timer: Option<(f64, LocalBoxFuture<'static, ()>)> = None;
    loop {
        for _ in 0..LETTERS_A_TURN {
            let Ok(letter) = letters.try_recv() else { break };
            server.receive(letter);
        }
        server.turn();
        if server.is_closed() {
            return;
        }
        // Others on this thread run too, such as those who bring letters.
        yield_now().await;
        let due_ms = server.due_ms();
        // A timer that rings too early does no harm.
        if due_ms.is_some_and(|due_ms| timer.as_ref().is_none_or(|(rings_ms, _)| *rings_ms > due_ms)) {
            let due_ms = due_ms.unwrap_or_default();
            let (place, ms) = (Rc::clone(&place), (due_ms - now_ms()).clamp(0.0, MAX_SLEEP_MS));
            timer = Some((due_ms, async move { place.sleep(ms).await }.boxed_local()));
        }
        let letter = poll_fn(|context| {
            // Before letters: a tab that writes without end keeps no step from ending.
            let mut is_ready = server.poll(context);
            if timer.as_mut().is_some_and(|(_, sleep)| sleep.poll_unpin(context).is_ready()) {
                timer = None;
                is_ready = true;
            }
            if is_ready {
                return Poll::Ready(Ok(None));
            }
            letters.poll_next_unpin(context).map(|letter| letter.map(Some).ok_or(Ended))
        });
        match letter.await {
            Ok(Some(letter)) => server.receive(letter),
            Ok(None) => {}
            Err(Ended) => return,
        }
    }
}

/// No letter can come any more.
struct Ended;

/// Lets the executor run what else is ready.
pub async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|context| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
