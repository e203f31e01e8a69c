//! The benchmark: what a person chose to measure, how far it is, and what came of it. `crate::bench` measures, as it does in
//! the terminal.
//!
//! Invariant: only one runs, and no answer beside it; what it asked for is cancelled when it ends early.

use super::{Part, State};
use crate::{
    bench::{
        Bench,
        made_up::MadeUp,
        plan::{MAX_SEQUENCES, Plan},
        report::Report,
    },
    protocol::{Event, Request, RequestId},
};

/// What is said where the engine or its model went away meanwhile.
const INTERRUPTED: &str = "The engine or its model changed during the benchmark; run it again.";

/// The benchmark as the screen shows it.
#[derive(Debug)]
pub(crate) struct Benchmark {
    /// What is chosen, each as it is typed.
    pub(crate) choices: Choices,
    /// What was measured last.
    pub(crate) report: Option<Report>,
    /// Why the last one did not begin, or did not end.
    pub(crate) problem: Option<String>,
    running: Option<Running>,
    /// To be sent so that nothing goes on that nobody waits for.
    cancels: Vec<Request>,
}

#[derive(Debug)]
struct Running {
    bench: Bench,
    date: String,
}

/// What to measure, as texts of numbers with commas between.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Choices {
    pub(crate) prompt_tokens: String,
    pub(crate) max_tokens: String,
    pub(crate) sequences: String,
    pub(crate) runs: String,
    pub(crate) without_cache: bool,
}

impl Default for Benchmark {
    fn default() -> Self {
        let choices = Choices {
            prompt_tokens: "32".to_owned(),
            max_tokens: "16".to_owned(),
            sequences: "1, 2, 4, 8".to_owned(),
            runs: "1".to_owned(),
            without_cache: true,
        };
        Self { choices, report: None, problem: None, running: None, cancels: Vec::new() }
    }
}

impl Choices {
    /// The plan, or a sentence about the text that is none.
    pub(crate) fn plan(&self) -> Result<Plan, String> {
        const MOST_TOKENS: u32 = 1_048_576;
        Ok(Plan {
            prompt_tokens: numbers("Prompt tokens", &self.prompt_tokens, MOST_TOKENS)?,
            max_tokens: numbers("Answer tokens", &self.max_tokens, MOST_TOKENS)?,
            sequences: numbers("Sequences at once", &self.sequences, MAX_SEQUENCES)?,
            runs: match numbers("Runs", &self.runs, 100)?[..] {
                [runs] => runs,
                _ => return Err("Runs must be one whole number from 1 to 100.".to_owned()),
            },
            without_cache: self.without_cache,
            time_ops: true,
            ..Plan::default()
        })
    }
}

/// Whole numbers with commas between; the error is a sentence.
fn numbers(name: &str, text: &str, most: u32) -> Result<Vec<u32>, String> {
    let number = |part: &str| part.trim().parse().ok().filter(|n| (1..=most).contains(n));
    let each = text.split(',').map(number).collect::<Option<Vec<u32>>>();
    each.ok_or_else(|| {
        format!("{name} must be whole numbers from 1 to {most} with commas between; found “{text}”.")
    })
}

impl Benchmark {
    /// Whether it runs.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }
}

impl State {
    /// Changes what is chosen.
    pub(crate) fn choose_bench(&mut self, edit: impl FnOnce(&mut Choices)) {
        edit(&mut self.benchmark.choices);
        self.touch(Part::Benchmark);
    }

    /// Begins to measure; `date` is today's, and `n_made` a number that no other session is likely to have.
    pub(crate) fn start_bench(&mut self, date: String, n_made: u64) {
        if self.benchmark.is_running() {
            return;
        }
        match self.begin_bench(date, n_made) {
            Ok(running) => {
                (self.benchmark.running, self.benchmark.problem) = (Some(running), None);
                self.rest_lab();
                self.touch(Part::Answering);
            }
            Err(sentence) => self.benchmark.problem = Some(sentence),
        }
        self.touch(Part::Benchmark);
    }

    fn begin_bench(&self, date: String, n_made: u64) -> Result<Running, String> {
        if let Some(obstacle) = self.obstacle() {
            return Err(obstacle.to_owned());
        }
        let plan = self.benchmark.choices.plan()?;
        let info = &self.model.as_ref().ok_or("Load a model first.")?.info;
        if let Some(sentence) = plan.obstacle(info.context.into(), info.kv_tokens.into()) {
            return Err(sentence);
        }
        let made_up = MadeUp::after(info.vocab_size as usize, n_made);
        Ok(Running { bench: Bench::after(plan, made_up), date })
    }

    /// Ends it; what was measured stays.
    pub(crate) fn stop_bench(&mut self) {
        if let Some(mut running) = self.benchmark.running.take() {
            self.benchmark.cancels.extend(running.bench.stop());
            self.touch(Part::Benchmark);
            self.touch(Part::Answering);
        }
    }

    /// What it runs on went away.
    pub(super) fn interrupt_bench(&mut self) {
        if self.benchmark.is_running() {
            self.stop_bench();
            self.benchmark.problem = Some(INTERRUPTED.to_owned());
        }
    }

    /// Takes in what the engine said at `now_ms`, if it is about the benchmark.
    pub(super) fn hear_bench(&mut self, event: &Event, now_ms: f64) {
        let Some(running) = &mut self.benchmark.running else { return };
        if !running.bench.hear(event, now_ms) {
            return;
        }
        let is_new = match &self.benchmark.report {
            None => true,
            Some(report) => {
                report.results != running.bench.results() || report.ops.as_ref() != running.bench.ops()
            }
        };
        if let (true, Some(model)) = (is_new && !running.bench.results().is_empty(), &self.model) {
            let date = running.date.clone();
            self.benchmark.report = Some(Report::new(&model.info, &model.options, date, &running.bench));
        }
        let problem = running.bench.failure().map(str::to_owned);
        if running.bench.is_over() {
            self.stop_bench();
        }
        if problem.is_some() {
            self.benchmark.problem = problem;
        }
        self.touch(Part::Benchmark);
    }

    /// What is to be sent for it at `now_ms`.
    pub(crate) fn bench_due(&mut self, now_ms: f64, mut new_id: impl FnMut() -> RequestId) -> Vec<Request> {
        let mut due = std::mem::take(&mut self.benchmark.cancels);
        if self.n_kernels_awaited() > 0 {
            return due;
        }
        if let Some(running) = &mut self.benchmark.running {
            due.extend(running.bench.due(now_ms, &mut new_id));
        }
        due
    }

    /// GPU kernels that are still to be compiled before the first measurement: it would be one of their compiler too.
    fn n_kernels_awaited(&self) -> u32 {
        match (&self.benchmark.running, &self.live) {
            (Some(running), Some(live)) if !running.bench.has_begun() => live.n_pipelines_left,
            _ => 0,
        }
    }

    /// How far it is, as a person reads it, while it runs.
    pub(crate) fn bench_progress(&self) -> Option<crate::bench::Progress> {
        let progress = self.benchmark.running.as_ref()?.bench.progress()?;
        match self.n_kernels_awaited() {
            0 => Some(progress),
            n => Some(crate::bench::Progress {
                what: format!("compiling the GPU's kernels: {n} left"),
                ..progress
            }),
        }
    }

    /// Whether [`Self::bench_due`] may have something.
    pub(crate) fn may_be_due(&self) -> bool {
        self.benchmark.is_running() || !self.benchmark.cancels.is_empty()
    }
}
