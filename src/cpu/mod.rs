//! The processor as a device: runs a plan with loops over packed weights, natively with threads.
//!
//! Invariant: a row's bits depend on its own tokens alone: not on the rows beside it or their kind, on the number of threads,
//! or on when the host has a turn.

use std::cell::Cell;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;
use threads::Threads;

mod attention;
mod cache;
pub mod inputs;
pub mod matrix;
pub mod model;
mod nonlinearity;
mod norms;
mod parts;
mod rotary;
mod step;
mod threads;

/// Why there is no model on the processor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CpuError {
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
const MOST_WORK: usize = 1 << 32;

/// What gives the host a turn.
pub type Turn = Rc<dyn Fn() -> LocalBoxFuture<'static, ()>>;

/// Milliseconds since any moment.
pub type Clock = Rc<dyn Fn() -> f64>;

/// The processor that computes, and how it shares time with its host.
pub struct Processor {
    name: String,
    threads: Threads,
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
        let name = match model_name() {
            Some(model) => format!("{model}, {n_threads} thread{plural}, {}", simd_name()),
            None => format!("{}, {n_threads} thread{plural}", simd_name()),
        };
        let turned_ms = Cell::new(now_ms());
        Ok(Self { name, threads, turn, now_ms, turned_ms, work: Cell::new(FIRST_WORK) })
    }

    /// What people are told of it: `AMD EPYC 9B14, 2 threads, AVX-512`.
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

/// The instructions that products are made of.
fn simd_name() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    {
        if std::arch::is_x86_feature_detected!("avx512bw") {
            return "AVX-512";
        }
        if std::arch::is_x86_feature_detected!("avx2") {
            return "AVX2";
        }
        "SSE2"
    }
    #[cfg(target_arch = "aarch64")]
    {
        "NEON"
    }
    #[cfg(target_arch = "wasm32")]
    {
        if cfg!(target_feature = "simd128") { "WebAssembly SIMD" } else { "WebAssembly" }
    }
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64", target_arch = "wasm32")))]
    {
        std::env::consts::ARCH
    }
}
