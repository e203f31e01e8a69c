//! Measures a model by asking it, the same for the terminal and the page: what to send, and what the answers' times say.
//!
//! Invariant: it has no clock and no connection. It is told when something happened, in the caller's milliseconds, and no
//! prompt begins like one before it.

pub mod made_up;
pub mod percentiles;
pub mod plan;
pub mod report;
pub mod section;
mod summary;

use made_up::MadeUp;
use plan::{Load, Plan};
use report::{Measured, Ops};
use summary::{Times, compare, summarize};

use crate::protocol::{Event, GenerateOptions, Prompt, Request, RequestId};

/// Tokens that a warm-up generates for each sequence.
const WARM_UP_TOKENS: u32 = 3;

/// Measurements on their way.
#[derive(Debug)]
pub struct Bench {
    plan: Plan,
    loads: Vec<Load>,
    made_up: MadeUp,
    /// Which load, and how many of its runs are done, warm-ups included.
    load_idx: usize,
    n_runs: u32,
    run: Option<Run>,
    /// Of this load.
    times: Vec<Times>,
    results: Vec<Measured>,
    ops: Option<Ops>,
    failure: Option<String>,
}

/// How far it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// What is measured now, as a person reads it.
    pub what: String,
    /// Runs done, warm-ups included.
    pub n_done: u32,
    /// Runs in all.
    pub n_runs: u32,
}

/// A run on its way.
#[derive(Debug)]
struct Run {
    load: Load,
    started_ms: f64,
    sequences: Vec<Sequence>,
    cached_tokens: u64,
}

#[derive(Debug)]
struct Sequence {
    /// The request on its way, or the one before.
    request: RequestId,
    /// Prompt and answer.
    tokens: Vec<u32>,
    times: Vec<f64>,
    /// Without the cache: the next token is to be asked for.
    is_due: bool,
    is_finished: bool,
}

/// Greedy, and so many tokens, whatever they are.
pub fn sampling(max_tokens: u32) -> GenerateOptions {
    GenerateOptions {
        temperature: 0.0,
        max_tokens: Some(max_tokens),
        ignore_eos: true,
        ..GenerateOptions::default()
    }
}

/// A token of which nothing is cached.
fn without_cache() -> GenerateOptions {
    GenerateOptions { reuse_prefix: false, ..sampling(1) }
}

impl Bench {
    /// Measures a model of such a vocabulary by a plan.
    pub fn new(plan: Plan, vocab_size: usize) -> Self {
        Self::after(plan, MadeUp::new(vocab_size))
    }

    /// The same on an engine that was asked these prompts before.
    pub fn after(plan: Plan, made_up: MadeUp) -> Self {
        Self {
            loads: plan.loads(),
            plan,
            made_up,
            load_idx: 0,
            n_runs: 0,
            run: None,
            times: Vec::new(),
            results: Vec::new(),
            ops: None,
            failure: None,
        }
    }

    /// Whether anything was sent.
    pub fn has_begun(&self) -> bool {
        self.run.is_some() || self.n_runs > 0 || self.load_idx > 0
    }

    /// What to send now, at `now_ms`. Ask once to begin, and after every event.
    pub fn due(&mut self, now_ms: f64, new_id: &mut impl FnMut() -> RequestId) -> Vec<Request> {
        if self.is_over() {
            return Vec::new();
        }
        match &mut self.run {
            None => self.begin(now_ms, new_id),
            Some(run) => {
                let due = run.sequences.iter_mut().filter(|sequence| sequence.is_due);
                due.map(|sequence| sequence.ask(new_id(), without_cache())).collect()
            }
        }
    }

    fn begin(&mut self, now_ms: f64, new_id: &mut impl FnMut() -> RequestId) -> Vec<Request> {
        let Some(&load) = self.loads.get(self.load_idx) else { return Vec::new() };
        let is_warm_up = self.n_runs < self.warm_up();
        let max_tokens = if is_warm_up { load.max_tokens.min(WARM_UP_TOKENS) } else { load.max_tokens };
        let load = Load { max_tokens, ..load };
        let (mut sequences, mut requests) = (Vec::new(), Vec::new());
        for _ in 0..load.n_sequences {
            let tokens = self.made_up.tokens(load.prompt_tokens);
            let mut sequence =
                Sequence { request: 0, tokens, times: Vec::new(), is_due: false, is_finished: false };
            let options = match load.kv_cache {
                true => GenerateOptions { time_ops: load.time_ops, ..sampling(max_tokens) },
                false => without_cache(),
            };
            requests.push(sequence.ask(new_id(), options));
            sequences.push(sequence);
        }
        self.run = Some(Run { load, started_ms: now_ms, sequences, cached_tokens: 0 });
        requests
    }

    /// Takes in what the engine said at `now_ms`; whether it was about this.
    pub fn hear(&mut self, event: &Event, now_ms: f64) -> bool {
        let request = match event {
            Event::Tokens { request, .. }
            | Event::Finished { request, .. }
            | Event::Started { request, .. }
            | Event::Prefilling { request, .. }
            | Event::OpTimes { request, .. }
            | Event::Failed { request: Some(request), .. } => *request,
            _ => return false,
        };
        let Some(run) = &mut self.run else { return false };
        let elapsed_ms = now_ms - run.started_ms;
        let max_tokens = run.load.max_tokens as usize;
        let Some(sequence) = run.sequences.iter_mut().find(|sequence| sequence.request == request) else {
            return false;
        };
        match event {
            Event::Tokens { ids, .. } => {
                sequence.tokens.extend(ids);
                sequence.times.extend(ids.iter().map(|_| elapsed_ms));
            }
            Event::OpTimes { position, ops, .. } if !ops.is_empty() => {
                let mut ops = ops.clone();
                ops.iter_mut().for_each(|op| op.ms = percentiles::rounded(op.ms));
                ops.sort_by(|a, b| b.ms.total_cmp(&a.ms));
                self.ops = Some(Ops { position: *position, ops });
            }
            Event::Finished { usage, reason, .. } => {
                run.cached_tokens += u64::from(usage.cached_tokens);
                let n_tokens = sequence.times.len();
                sequence.is_finished = n_tokens == max_tokens;
                sequence.is_due = !run.load.kv_cache && !sequence.is_finished;
                if !sequence.is_finished && (run.load.kv_cache || usage.generated_tokens == 0) {
                    let sentence = format!(
                        "an answer ended after {n_tokens} of {max_tokens} tokens ({}); measure again, and load no other model meanwhile",
                        reason.name()
                    );
                    self.fail(sentence);
                    return true;
                }
            }
            Event::Failed { error, .. } => {
                let error = error.clone();
                self.fail(error);
                return true;
            }
            _ => {}
        }
        if self.run.as_ref().is_some_and(|run| run.sequences.iter().all(|sequence| sequence.is_finished)) {
            self.end_run();
        }
        true
    }

    fn end_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        if run.load.time_ops {
            self.load_idx += 1;
            return;
        }
        if self.n_runs >= self.plan.warm_up {
            let tokens = run.sequences.into_iter().map(|sequence| sequence.times).collect();
            self.times.push(Times { tokens, cached_tokens: run.cached_tokens });
        }
        self.n_runs += 1;
        if self.n_runs == self.plan.warm_up + self.plan.runs {
            self.results.push(summarize(self.loads[self.load_idx], &std::mem::take(&mut self.times)));
            compare(&mut self.results);
            (self.load_idx, self.n_runs) = (self.load_idx + 1, 0);
        }
    }

    /// Runs of this load that do not count.
    fn warm_up(&self) -> u32 {
        if self.loads.get(self.load_idx).is_some_and(|load| load.time_ops) { 0 } else { self.plan.warm_up }
    }

    /// Nothing more can be measured, for this reason.
    pub fn fail(&mut self, sentence: String) {
        self.failure.get_or_insert(sentence);
    }

    /// Gives up: what to send so that nothing goes on.
    pub fn stop(&mut self) -> Vec<Request> {
        self.loads.truncate(self.load_idx);
        let Some(run) = self.run.take() else { return Vec::new() };
        let running = run.sequences.iter().filter(|sequence| !sequence.is_finished);
        running.map(|sequence| Request::Cancel { request: sequence.request }).collect()
    }

    /// Whether nothing more is to be sent: all was measured, it was stopped, or it failed.
    pub fn is_over(&self) -> bool {
        self.failure.is_some() || self.load_idx == self.loads.len()
    }

    /// Why it could not go on, if so.
    pub fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// What was measured so far.
    pub fn results(&self) -> &[Measured] {
        &self.results
    }

    /// What operations took, where that was asked for and the adapter could tell.
    pub fn ops(&self) -> Option<&Ops> {
        self.ops.as_ref()
    }

    /// Tokens of prompts so far; see [`MadeUp::after`].
    pub fn n_made(&self) -> u64 {
        self.made_up.n_made()
    }

    /// How far it is; nothing once it is over.
    pub fn progress(&self) -> Option<Progress> {
        let load = self.loads.get(self.load_idx)?;
        let (warm_up, runs) = (self.plan.warm_up, self.plan.runs);
        let n_ops = u32::from(self.loads.last().is_some_and(|load| load.time_ops));
        let run = match self.n_runs.checked_sub(warm_up) {
            None => "warming up".to_owned(),
            Some(run) => format!("run {} of {runs}", run + 1),
        };
        Some(Progress {
            what: if load.time_ops { load.name() } else { format!("{}: {run}", load.name()) },
            n_done: self.load_idx as u32 * (warm_up + runs) + self.n_runs,
            n_runs: (self.loads.len() as u32 - n_ops) * (warm_up + runs) + n_ops,
        })
    }
}

impl Sequence {
    /// Asks for what comes after the tokens there are.
    fn ask(&mut self, request: RequestId, options: GenerateOptions) -> Request {
        (self.request, self.is_due) = (request, false);
        Request::Generate {
            request,
            model: None,
            prompts: vec![Prompt::Tokens(self.tokens.clone())],
            options,
            generated: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests;
