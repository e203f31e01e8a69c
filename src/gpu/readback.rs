//! How results come back to the host: buffers that are mapped, copied and given back.
//!
//! Invariant: what waits for a result owns all that it waits for, and gives its buffer back, also where nobody waits to the
//! end.

use std::cell::Cell;
use std::rc::Rc;

use futures_channel::oneshot;

use super::{Gpu, GpuError};

/// A buffer for the results of one step at a time.
#[derive(Debug)]
pub(super) struct Readback {
    pub(super) buffer: wgpu::Buffer,
    is_free: Rc<Cell<bool>>,
}

impl Readback {
    /// Nothing is in it.
    pub(super) fn new(buffer: wgpu::Buffer) -> Self {
        Self { buffer, is_free: Rc::new(Cell::new(true)) }
    }

    /// Whether no result is in it that was not read.
    pub(super) fn is_free(&self) -> bool {
        self.is_free.get()
    }

    /// Asks for the first `end` bytes, which that submission writes.
    pub(super) fn map(&self, end: u64, submission: wgpu::SubmissionIndex) -> Mapping {
        self.is_free.set(false);
        let (done, mapped) = oneshot::channel();
        self.buffer.slice(..end).map_async(wgpu::MapMode::Read, move |result| {
            // Nobody waits for a step whose model is gone.
            let _ = done.send(result);
        });
        Mapping { buffer: self.buffer.clone(), is_free: Rc::clone(&self.is_free), end, mapped, submission }
    }
}

/// A result on its way.
#[derive(Debug)]
pub(super) struct Mapping {
    buffer: wgpu::Buffer,
    is_free: Rc<Cell<bool>>,
    end: u64,
    mapped: oneshot::Receiver<Result<(), wgpu::BufferAsyncError>>,
    submission: wgpu::SubmissionIndex,
}

impl Mapping {
    /// Waits for it, and reads it.
    pub(super) async fn take<T>(mut self, gpu: &Gpu, read: impl FnOnce(&[u32]) -> T) -> Result<T, GpuError> {
        // Not for what was submitted since.
        gpu.drive(Some(self.submission.clone()))?;
        let mapped = (&mut self.mapped).await;
        if let Some(fault) = gpu.fault() {
            return Err(fault);
        }
        let view = match mapped {
            Ok(Ok(())) => self.buffer.slice(..self.end).get_mapped_range().ok(),
            _ => None,
        };
        let Some(view) = view else { return Err(gpu.lost("a step's result could not be read")) };
        Ok(read(bytemuck::cast_slice(&view)))
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.buffer.unmap();
        self.is_free.set(true);
    }
}

impl Gpu {
    /// Natively lets callbacks run once submitted work is done, up to a submission or all of it; a browser does that by
    /// itself.
    pub(super) fn drive(&self, until: Option<wgpu::SubmissionIndex>) -> Result<(), GpuError> {
        match self.device.poll(wgpu::PollType::Wait { submission_index: until, timeout: None }) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.lost(&error.to_string())),
        }
    }

    /// The device's fault, or else that it is lost.
    pub(super) fn lost(&self, reason: &str) -> GpuError {
        self.fault().unwrap_or_else(|| GpuError::Lost { reason: reason.into() })
    }
}
