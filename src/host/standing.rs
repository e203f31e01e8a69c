//! How the engine stands, told to tabs while it changes, and what its batch holds, told to who asks.
//!
//! Invariant: a tab is told at most four times a second, and nothing twice; of other tabs it is told numbers only.

use super::ConnectionId;
use super::machine::Computer;
use super::serve::Place;
use super::server::Server;
use crate::engine::snapshot::SequenceSnapshot;
use crate::protocol::{BatchStatus, Event, SequenceStatus, Status};

/// So long (ms) nothing more is told.
const PAUSE_MS: f64 = 250.0;

impl<P: Place> Server<P> {
    /// How it stands, for one tab.
    pub(super) fn status(&mut self, connection: ConnectionId) -> Status {
        let now_ms = self.now_ms();
        let works = self.models.slots.values().any(|slot| slot.hosted.has_work());
        let live = self.gpu.as_ref().map(|gpu| gpu.live());
        let mut status = Status {
            n_tabs: self.connections.len() as u32,
            n_models: self.models.slots.len() as u32,
            n_loads: self.n_loads,
            n_losses: self.n_losses,
            n_gpu_buffers: live.map_or(0, |live| live.n_buffers()),
            gpu_bytes: live.map_or(0, |live| live.n_bytes()),
            memory_bytes: (self.surroundings.memory_bytes)(),
            ..Status::default()
        };
        let Some(tab) = self.connections.get_mut(&connection) else { return status };
        // Nothing comes of nothing: the last seconds' rate would stand there until the next answer.
        if works {
            status.tokens_per_sec = self.rate.per_sec(now_ms);
            status.own_tokens_per_sec = tab.rate.per_sec(now_ms);
        }
        let making = usize::from(self.making.is_some());
        let own = tab.model.and_then(|id| self.models.slots.get(&id));
        let Some(slot) = own else { return status };
        let stats = slot.hosted.engine.stats();
        Status {
            running: stats.running as u32,
            waiting: stats.waiting as u32,
            own: slot.hosted.n_sequences(Some(connection)),
            free_blocks: stats.free_blocks as u32,
            cached_blocks: stats.cached_blocks as u32,
            n_blocks: stats.n_blocks as u32,
            n_pipelines_left: (slot.hosted.model.as_ref().map_or(0, Computer::n_pipelines_left) + making)
                as u32,
            steps: slot.hosted.n_steps(),
            preemptions: stats.preemptions,
            ..status
        }
    }

    /// What the batch of a tab's own model holds.
    pub(super) fn batch(&self, connection: ConnectionId) -> BatchStatus {
        let own = self.connections.get(&connection).and_then(|tab| tab.model);
        let Some(slot) = own.and_then(|id| self.models.slots.get(&id)) else { return BatchStatus::default() };
        let snapshot = slot.hosted.engine.snapshot();
        // One that has gone, and of which a step is in flight, is none of them.
        let tab =
            |client| self.connections.keys().position(|tab| *tab == client).map_or(0, |place| place + 1);
        let sequence = |sequence: &SequenceSnapshot| SequenceStatus {
            tab: tab(sequence.client) as u32,
            is_own: sequence.client == connection,
            is_running: sequence.is_running,
            prompt_tokens: sequence.prompt_tokens as u32,
            n_tokens: sequence.n_tokens as u32,
            cached_tokens: sequence.cached_tokens as u32,
            prefill_rows: sequence.rows.prefill as u32,
            decode_rows: sequence.rows.decode as u32,
            alone_blocks: sequence.held.alone as u32,
            shared_blocks: sequence.held.shared as u32,
        };
        BatchStatus {
            steps: slot.hosted.n_steps(),
            sequences: snapshot.sequences.iter().map(sequence).collect(),
            alone_blocks: snapshot.blocks.alone as u32,
            shared_blocks: snapshot.blocks.shared as u32,
            cached_blocks: snapshot.blocks.cached as u32,
            empty_blocks: snapshot.blocks.empty as u32,
        }
    }

    /// When tabs are to be told, if something happened.
    pub(super) fn standing_due_ms(&self) -> Option<f64> {
        self.is_news.then_some(self.told_ms + PAUSE_MS)
    }

    /// Tells every tab how things stand, where that is due and new to it.
    pub(super) fn tell_standing(&mut self) {
        let now_ms = self.now_ms();
        if self.standing_due_ms().is_none_or(|due_ms| due_ms > now_ms) {
            return;
        }
        (self.is_news, self.told_ms) = (false, now_ms);
        let connections: Vec<ConnectionId> = self.connections.keys().copied().collect();
        for connection in connections {
            let status = self.status(connection);
            let Some(tab) = self.connections.get_mut(&connection) else { continue };
            if tab.told.replace(status) != Some(status) {
                self.tell(connection, Event::Status { request: None, status });
            }
        }
    }
}
