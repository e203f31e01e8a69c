//! An engine on a device that computes: requests in a crowd and alone, and how their answers compare.

use std::collections::{BTreeMap, VecDeque};

use pagelm::engine::logprobs::TokenLogprobs;
use pagelm::engine::{Budget, Engine, EngineConfig, Progress, SequenceId, SequenceRequest, StepId};
use pagelm::host::machine::Computer;
use pagelm::plan::Ticket;

/// Numbers for a test's own choices.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % end
    }

    pub(crate) fn tokens(&mut self, n: usize, vocab_size: u32) -> Vec<u32> {
        (0..n).map(|_| self.below(vocab_size as usize) as u32).collect()
    }
}

/// What a request was answered with.
#[derive(Default)]
pub(crate) struct Answer {
    pub(crate) tokens: Vec<TokenLogprobs>,
    pub(crate) cached: usize,
    pub(crate) is_finished: bool,
}

impl Answer {
    pub(crate) fn ids(&self) -> Vec<u32> {
        self.tokens.iter().map(|token| token.chosen.token).collect()
    }

    /// Each token, and its log-probability and the two largest to the last bit.
    pub(crate) fn bits(&self) -> Vec<Vec<(u32, u32)>> {
        let bits = |token: &TokenLogprobs| {
            let all = std::iter::once(&token.chosen).chain(&token.top);
            all.map(|logprob| (logprob.token, logprob.logprob.to_bits())).collect()
        };
        self.tokens.iter().map(bits).collect()
    }
}

/// An engine, the device that computes its steps, and what it answered.
pub(crate) struct Crowd<'a> {
    model: &'a mut Computer,
    pub(crate) engine: Engine,
    pub(crate) answers: BTreeMap<SequenceId, Answer>,
    in_flight: VecDeque<(StepId, Ticket)>,
}

impl<'a> Crowd<'a> {
    pub(crate) fn new(model: &'a mut Computer, engine: Engine) -> Self {
        Self { model, engine, answers: BTreeMap::new(), in_flight: VecDeque::new() }
    }

    /// What a request is answered with by an engine of its own.
    pub(crate) async fn alone(
        model: &'a mut Computer,
        config: &EngineConfig,
        request: SequenceRequest,
    ) -> Answer {
        let mut crowd = Self::new(model, Engine::new(config.clone()));
        let id = crowd.add(request);
        while crowd.step(Budget { prefill_rows: 64 }, 0).await {}
        crowd.answers.remove(&id).unwrap()
    }

    pub(crate) fn add(&mut self, request: SequenceRequest) -> SequenceId {
        let id = self.engine.add(request).unwrap();
        self.answers.insert(id, Answer::default());
        id
    }

    /// Submits a step, if there is one, and waits for the oldest until no more than so many are in flight; whether
    /// anything was done.
    pub(crate) async fn step(&mut self, budget: Budget, n_in_flight: usize) -> bool {
        let step = self.engine.next_step(budget);
        let is_new = step.is_some();
        if let Some(step) = step {
            self.in_flight.push_back((step.id, self.model.submit(&step.batch)));
        }
        let keeps = if is_new { n_in_flight } else { 0 };
        let is_old = !self.in_flight.is_empty();
        while self.in_flight.len() > keeps {
            let (step, ticket) = self.in_flight.pop_front().unwrap();
            let output = self.model.read(ticket).await.unwrap();
            for progress in self.engine.retire(step, &output) {
                self.note(progress);
            }
        }
        is_new || is_old
    }

    fn note(&mut self, progress: Progress) {
        match progress {
            Progress::Admitted { sequence, cached_tokens } => {
                self.answers.get_mut(&sequence).unwrap().cached = cached_tokens;
            }
            Progress::Token { sequence, logprobs, .. } => {
                self.answers.get_mut(&sequence).unwrap().tokens.push(logprobs.unwrap());
            }
            Progress::Finished { sequence, .. } => {
                self.answers.get_mut(&sequence).unwrap().is_finished = true;
            }
            Progress::Prefilled { .. } | Progress::PromptLogprobs { .. } => {}
        }
    }
}

/// Panics unless two answers have the same tokens up to one whose two likeliest were no further apart than `bound`, and
/// until there log-probabilities within it.
pub(crate) fn check_close(found: &Answer, alone: &Answer, bound: f64, label: &str) {
    assert!(found.is_finished && found.tokens.len() == alone.tokens.len(), "{label}");
    for (i, (found, alone)) in found.tokens.iter().zip(&alone.tokens).enumerate() {
        if found.chosen.token != alone.chosen.token {
            let gap = f64::from(alone.top[0].logprob) - f64::from(alone.top[1].logprob);
            assert!(
                gap <= bound,
                "{label}: token {i} has another, and the two likeliest are {gap:.2e} apart"
            );
            return;
        }
        let delta = (f64::from(found.chosen.logprob) - f64::from(alone.chosen.logprob)).abs();
        assert!(delta <= bound, "{label}: token {i} is off by {delta:.2e}, over {bound:.2e}");
    }
}
