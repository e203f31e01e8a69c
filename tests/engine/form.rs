//! A form that answers of some seeds have here, so that every test of crowds, losses and preemptions holds for it, too.

use pagelm::engine::constraint::{Constraint, Unmet};
use pagelm::engine::logprobs::tame;
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{AddError, Engine, FinishReason};

use crate::world::{VOCAB_SIZE, alone, config, greedy, model, request};

/// Answers of this seed and those up to 999 have a form.
pub(crate) const FIRST_SEED: u64 = 880;

/// Every third token may come, which ones depends on the place; after so many the answer is whole, or stuck.
#[derive(Debug)]
pub(crate) struct Form {
    seed: u64,
    n_tokens: usize,
    is_stuck: bool,
    mask: Vec<u32>,
}

impl Form {
    /// The form of an answer, if it has one.
    pub(crate) fn of(params: &SamplingParams) -> Option<Self> {
        (FIRST_SEED..1000).contains(&params.seed).then(|| Self {
            seed: params.seed,
            n_tokens: 0,
            is_stuck: false,
            mask: Vec::new(),
        })
    }

    /// Tokens of a whole answer.
    pub(crate) fn len(seed: u64) -> usize {
        seed as usize % 60 + 30
    }

    /// Whether no token may come at the end, though the answer is not whole.
    fn gets_stuck(&self) -> bool {
        self.seed.is_multiple_of(9)
    }

    /// Whether a token may come at a place.
    pub(crate) fn allows(seed: u64, place: usize, token: u32) -> bool {
        (seed as usize + place + token as usize).is_multiple_of(3)
    }
}

impl Constraint for Form {
    fn allowed(&mut self) -> Result<&[u32], Unmet> {
        if self.is_stuck || self.n_tokens == Self::len(self.seed) {
            return Err(Unmet);
        }
        self.mask = vec![0; VOCAB_SIZE.div_ceil(32)];
        for token in (0..VOCAB_SIZE as u32).filter(|token| Self::allows(self.seed, self.n_tokens, *token)) {
            self.mask[token as usize / 32] |= 1 << (token % 32);
        }
        Ok(&self.mask)
    }

    fn push(&mut self, token: u32) -> Result<(), Unmet> {
        if !Self::allows(self.seed, self.n_tokens, token) {
            return Err(Unmet);
        }
        self.n_tokens += 1;
        self.is_stuck = self.gets_stuck() && self.n_tokens == Self::len(self.seed);
        Ok(())
    }

    fn is_complete(&self) -> bool {
        !self.is_stuck && self.n_tokens == Self::len(self.seed)
    }
}

#[test]
fn the_likeliest_token_of_the_form_comes_until_it_is_whole_or_stuck() {
    let config = config(20, 300);
    for (seed, end) in [(881, FinishReason::Complete), (882, FinishReason::Unmet)] {
        let request = request(50, SamplingParams { seed, logprobs: Some(1), ..greedy(100) });
        let answer = alone(&config, &request);
        assert_eq!((answer.tokens.len(), answer.finished), (Form::len(seed), Some(end)));
        let mut tokens = request.prompt.clone();
        for (place, &token) in answer.tokens.iter().enumerate() {
            let logits = model(tokens.iter().copied());
            let allowed = (0..VOCAB_SIZE as u32).filter(|token| Form::allows(seed, place, *token));
            let best = allowed.max_by(|a, b| logits[*a as usize].total_cmp(&logits[*b as usize]));
            assert_eq!(Some(token), best);
            // What the model itself thinks, whatever may come.
            let sum: f64 = logits.iter().map(|logit| f64::from(tame(*logit)).exp()).sum();
            let expected = f64::from(logits[token as usize]) - sum.ln();
            assert!((f64::from(answer.logprobs[place].chosen.logprob) - expected).abs() < 1e-4);
            tokens.push(token);
        }
        // The length goes first where it is shorter.
        let short = SamplingParams { max_tokens: Some(Form::len(seed) - 1), ..request.params.clone() };
        let cut = alone(&config, &pagelm::engine::SequenceRequest { params: short, ..request });
        assert_eq!((cut.tokens.len(), cut.finished), (Form::len(seed) - 1, Some(FinishReason::Length)));
    }
}

#[test]
fn tokens_of_another_form_are_refused() {
    let params = SamplingParams { seed: 881, ..greedy(100) };
    let mut request = request(50, params.clone());
    request.generated =
        (0..4).map(|place| (0..).find(|token| Form::allows(881, place, *token)).unwrap()).collect();
    request.generated[3] += 1;
    let mut engine = Engine::new(config(20, 300));
    let form = Box::new(Form::of(&params).unwrap());
    assert_eq!(engine.add_constrained(request, Some(form)), Err(AddError::GeneratedUnmet { index: 3 }));
    assert!(engine.is_idle());
}
