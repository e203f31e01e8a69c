//! Threads that share a loop: natively a pool, elsewhere the one there is.
//!
//! Invariant: what a loop's turn computes does not depend on which thread computes it, or how many there are.

#[cfg(feature = "native")]
use rayon::prelude::{
    IndexedParallelIterator as _, IntoParallelIterator as _, ParallelIterator as _, ParallelSliceMut as _,
};

/// A pool.
#[derive(Debug)]
pub(super) struct Threads {
    #[cfg(feature = "native")]
    pool: Option<rayon::ThreadPool>,
    n_threads: usize,
}

impl Threads {
    /// So many, at least one; why there are not.
    #[cfg(feature = "native")]
    pub(super) fn new(n_threads: usize) -> Result<Self, String> {
        let n_threads = n_threads.max(1);
        let builder = || {
            rayon::ThreadPoolBuilder::new()
                .num_threads(n_threads)
                .thread_name(|i| format!("pagelm cpu {i}"))
                .build()
        };
        let pool = (n_threads > 1).then(builder).transpose().map_err(|error| error.to_string())?;
        Ok(Self { pool, n_threads })
    }

    /// One, whatever is asked for.
    #[cfg(not(feature = "native"))]
    pub(super) fn new(_n_threads: usize) -> Result<Self, String> {
        Ok(Self { n_threads: 1 })
    }

    pub(super) fn n_threads(&self) -> usize {
        self.n_threads
    }

    /// Does work whose loops the threads share.
    pub(super) fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        #[cfg(feature = "native")]
        if let Some(pool) = &self.pool {
            return pool.install(work);
        }
        work()
    }

    /// Calls `work` with each so many values, the last time with what is left, and which they are.
    pub(super) fn chunks(&self, values: &mut [f32], len: usize, work: impl Fn(usize, &mut [f32]) + Sync) {
        #[cfg(feature = "native")]
        if self.pool.is_some() && values.len() > len {
            values.par_chunks_mut(len).enumerate().for_each(|(i, chunk)| work(i, chunk));
            return;
        }
        values.chunks_mut(len).enumerate().for_each(|(i, chunk)| work(i, chunk));
    }

    /// Calls `work` with each.
    pub(super) fn each<T: Send>(&self, items: Vec<T>, work: impl Fn(T) + Sync) {
        #[cfg(feature = "native")]
        if self.pool.is_some() && items.len() > 1 {
            items.into_par_iter().with_max_len(1).for_each(&work);
            return;
        }
        items.into_iter().for_each(work);
    }
}
