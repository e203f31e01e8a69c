//! The buffers of a model, and how many live on a device.
//!
//! Invariant: a buffer is counted from when it is made until it is destroyed, which is when its model goes: a browser that
//! waits for its garbage collector would hold the memory longer.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Counts the buffers that live.
#[derive(Debug, Default)]
pub struct Live {
    n_buffers: AtomicU32,
    n_bytes: AtomicU64,
}

impl Live {
    /// Buffers.
    pub fn n_buffers(&self) -> u32 {
        self.n_buffers.load(Ordering::Relaxed)
    }

    /// Their bytes.
    pub fn n_bytes(&self) -> u64 {
        self.n_bytes.load(Ordering::Relaxed)
    }
}

/// Buffers that go together.
#[derive(Debug)]
pub(super) struct Buffers {
    live: Arc<Live>,
    made: Vec<wgpu::Buffer>,
}

impl Buffers {
    /// None yet.
    pub(super) fn new(live: &Arc<Live>) -> Self {
        Self { live: Arc::clone(live), made: Vec::new() }
    }

    /// One more.
    pub(super) fn push(&mut self, buffer: &wgpu::Buffer) {
        self.live.n_buffers.fetch_add(1, Ordering::Relaxed);
        self.live.n_bytes.fetch_add(buffer.size(), Ordering::Relaxed);
        self.made.push(buffer.clone());
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    /// Their bytes.
    pub(super) fn n_bytes(&self) -> u64 {
        self.made.iter().map(wgpu::Buffer::size).sum()
    }

    /// Destroys all but the first `len`.
    pub(super) fn truncate(&mut self, len: usize) {
        for buffer in self.made.drain(len..) {
            self.live.n_buffers.fetch_sub(1, Ordering::Relaxed);
            self.live.n_bytes.fetch_sub(buffer.size(), Ordering::Relaxed);
            buffer.destroy();
        }
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.truncate(0);
    }
}
