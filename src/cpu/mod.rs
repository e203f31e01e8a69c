//! The processor as a device: runs a plan with loops over packed weights, natively with threads.
//!
//! Invariant: a row's bits depend on its own tokens alone: not on the rows beside it or their kind, on the number of threads,
//! or on when the host has a turn.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;

use crate::format::decode::decoded_names;
use instructions::Instructions;
use threads::Threads;

mod attention;
mod cache;
pub mod inputs;
pub mod instructions;
pub mod matrix;
pub mod model;
mod nonlinearity;
mod norms;
mod pack;
mod panel;
mod parts;
mod products;
mod rotary;
mod step;
mod threads;
mod vectors;
#[cfg(target_feature = "simd128")]
mod wasm;
#[cfg(target_arch = "x86_64")]
mod x86;

/// Why there is no model on the processor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
    /// No loop decodes a block type.
    #[error(
        "tensor {tensor} is stored as {block_type}, which pagelm does not decode yet; {} work, so take the model in one of these",
        decoded_names()
    )]
    BlockType {
        /// The tensor.
        tensor: String,
        /// Its type.
        block_type: &'static str,
    },
    /// A width does not fit the loops.
    #[error(
        "tensor {tensor} has rows of {found} values, but the processor's loops need a multiple of {multiple}; another model of the family may work"
    )]
    Width {
        /// The tensor.
        tensor: String,
        /// Its columns.
        found: usize,
        /// Of what they must be a multiple.
        multiple: usize,
    },
    /// Memory does not suffice.
    #[error(
        "the memory has no room for {what} ({needed_bytes} bytes); close other tabs or programs, or take a smaller model or context"
    )]
    OutOfMemory {
        /// For what.
        what: &'static str,
        /// How much was asked.
        needed_bytes: u64,
    },
    /// A model is larger than the memory that can be addressed.
    #[error(
        "the model's weights take {:.1} GB, but without a GPU no more than {:.1} GB fit here; take a smaller model, one with fewer bits a weight, or a browser or system with a GPU",
        *weight_bytes as f64 / 1e9, *most_bytes as f64 / 1e9
    )]
    TooLarge {
        /// Of the weights.
        weight_bytes: u64,
        /// For all that is in memory.
        most_bytes: u64,
    },
    /// The system gave no threads.
    #[error("{n_threads} threads were not to be had: {reason}; ask for fewer")]
    Threads {
        /// So many were asked for.
        n_threads: usize,
        /// What the system says.
        reason: String,
    },
}

/// Milliseconds after which the host has a turn, when a piece is done: with the piece it is below 20.
const TURN_MS: f64 = 12.0;

/// Milliseconds that a piece should take.
const PIECE_MS: f64 = 8.0;

/// Products of the first piece, and the fewest and most of one.
const FIRST_WORK: usize = 1 << 20;
const LEAST_WORK: usize = 1 << 18;
const MOST_WORK: usize = 1 << 30;

/// What gives the host a turn.
pub type Turn = Rc<dyn Fn() -> Pin<Box<dyn Future<Output = ()>>>>;

/// Milliseconds since any moment.
pub type Clock = Rc<dyn Fn() -> f64>;

/// The processor that computes, and how it shares time with its host.
pub struct Processor {
    name: String,
    threads: Threads,
    instructions: Instructions,
    turn: Turn,
    now_ms: Clock,
    /// When the host had its last turn.
    turned_ms: Cell<f64>,
    /// Products that a piece may have, by what pieces before it took.
    work: Cell<usize>,
}

impl std::fmt::Debug for Processor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Processor")
            .field("name", &self.name)
            .field("threads", &self.threads)
            .finish_non_exhaustive()
    }
}

impl Processor {
    /// With so many threads, where there are threads at all.
    pub fn new(n_threads: usize, turn: Turn, now_ms: Clock) -> Result<Self, CpuError> {
        let threads = Threads::new(n_threads).map_err(|reason| CpuError::Threads { n_threads, reason })?;
        let n_threads = threads.n_threads();
        let plural = if n_threads == 1 { "" } else { "s" };
        let instructions = Instructions::best();
        let model = model_name().unwrap_or_else(|| std::env::consts::ARCH.to_owned());
        let name = format!("{model}, {n_threads} thread{plural}, {}", instructions.name());
        let turned_ms = Cell::new(now_ms());
        Ok(Self { name, threads, instructions, turn, now_ms, turned_ms, work: Cell::new(FIRST_WORK) })
    }

    /// What people are told of it: `AMD EPYC 9B14, 2 threads, avx512-vnni`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Threads that compute.
    pub fn n_threads(&self) -> usize {
        self.threads.n_threads()
    }

    /// Computes pieces until the host is due a turn, or all is done: `piece` is given the products that it may compute, and
    /// tells how many it did and whether that was all.
    fn compute(&self, mut piece: impl FnMut(usize) -> (usize, bool)) -> bool {
        let mut since = (self.now_ms)();
        loop {
            let work = self.work.get();
            let (done, is_all) = piece(work);
            let now = (self.now_ms)();
            // A step's last piece may be too small to tell.
            if done >= work {
                let right = (done as f64 * PIECE_MS / (now - since).max(0.01)) as usize;
                self.work.set(right.clamp(work / 2, work * 2).clamp(LEAST_WORK, MOST_WORK));
            }
            if is_all {
                return true;
            }
            if now - self.turned_ms.get() >= TURN_MS {
                return false;
            }
            since = now;
        }
    }

    /// Gives the host a turn where it is due one: also steps of one piece add up.
    async fn take_due_turn(&self) {
        if (self.now_ms)() - self.turned_ms.get() >= TURN_MS {
            self.take_turn().await;
        }
    }

    async fn take_turn(&self) {
        (self.turn)().await;
        self.turned_ms.set((self.now_ms)());
    }
}

/// What the system calls the processor, where it says.
fn model_name() -> Option<String> {
    let told = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = told.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}
