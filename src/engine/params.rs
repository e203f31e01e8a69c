//! How a sequence's tokens are chosen, with vLLM's names and meanings.
//!
//! Invariant: parameters that [`SamplingParams::validate`] accepts never make the sampler panic.

/// Most log-probabilities of a token that may be asked for.
pub const MAX_LOGPROBS: usize = 20;

/// How to choose tokens. The order in which they apply: `bad_words`, `min_tokens` and `logit_bias`, the penalties
/// (repetition, frequency, presence), `temperature`, `min_p`, `top_k`, `top_p`, and then a draw.
#[derive(Debug, Clone, PartialEq)]
pub struct SamplingParams {
    /// Divides the logits, ≥ 0; 0 is greedy: the largest logit, of equal ones the lowest id.
    pub temperature: f32,
    /// Keep the k likeliest tokens, of equal ones the lowest ids; 0 or −1 keeps all.
    pub top_k: i32,
    /// Keep the fewest likeliest tokens whose probabilities sum to p, at least one, in (0, 1]; 1 keeps all.
    pub top_p: f32,
    /// Drop tokens less likely than this times the likeliest, in [0, 1].
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens in prompt or output, > 0.
    pub repetition_penalty: f32,
    /// Subtracted once from logits of tokens in the output, in [−2, 2].
    pub presence_penalty: f32,
    /// Subtracted for each occurrence in the output, in [−2, 2].
    pub frequency_penalty: f32,
    /// Draws depend on this and the place in the output only. A caller without one draws it.
    pub seed: u64,
    /// Most tokens to generate, ≥ 1; what the context leaves if absent.
    pub max_tokens: Option<usize>,
    /// `eog_ids` and `stop_token_ids` are held back until so many tokens are out.
    pub min_tokens: usize,
    /// Tokens that end the sequence.
    pub stop_token_ids: Vec<u32>,
    /// The model's end-of-generation tokens; empty to go on past them.
    pub eog_ids: Vec<u32>,
    /// Token sequences that must not be generated: the last token of each is held back where the output ends with those
    /// before it.
    pub bad_words: Vec<Vec<u32>>,
    /// Added to the logits of token ids, each in [−100, 100].
    pub logit_bias: Vec<(u32, f32)>,
    /// Report the log-probability of each token, and of so many likeliest ones, ≤ [`MAX_LOGPROBS`].
    pub logprobs: Option<usize>,
    /// The same for the prompt's tokens.
    pub prompt_logprobs: Option<usize>,
    /// Use what the cache holds of the prompt's beginning.
    pub reuse_prefix: bool,
}

impl Default for SamplingParams {
    /// vLLM's defaults, with seed 0.
    fn default() -> Self {
        Self {
            temperature: 1.0,
            top_k: 0,
            top_p: 1.0,
            min_p: 0.0,
            repetition_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            seed: 0,
            max_tokens: Some(16),
            min_tokens: 0,
            stop_token_ids: Vec::new(),
            eog_ids: Vec::new(),
            bad_words: Vec::new(),
            logit_bias: Vec::new(),
            logprobs: None,
            prompt_logprobs: None,
            reuse_prefix: true,
        }
    }
}

/// A sampling parameter out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field} must be {range}; found {found}")]
pub struct ParamError {
    /// The field's name.
    pub field: &'static str,
    /// What it may be.
    pub range: String,
    /// What it is.
    pub found: String,
}

fn require(holds: bool, field: &'static str, range: &str, found: impl ToString) -> Result<(), ParamError> {
    if holds { Ok(()) } else { Err(ParamError { field, range: range.to_owned(), found: found.to_string() }) }
}

fn require_ids(
    field: &'static str,
    vocab_size: usize,
    mut ids: impl Iterator<Item = u32>,
) -> Result<(), ParamError> {
    match ids.find(|&id| id as usize >= vocab_size) {
        Some(id) => require(
            false,
            field,
            &format!("made of token ids from 0 to {}", vocab_size.saturating_sub(1)),
            id,
        ),
        None => Ok(()),
    }
}

impl SamplingParams {
    /// Whether every value is in its range, for a model with so many token ids.
    pub fn validate(&self, vocab_size: usize) -> Result<(), ParamError> {
        self.validate_numbers()?;
        self.validate_counts()?;
        self.validate_tokens(vocab_size)
    }

    fn validate_numbers(&self) -> Result<(), ParamError> {
        let Self {
            temperature, top_p, min_p, repetition_penalty, presence_penalty, frequency_penalty, ..
        } = *self;
        let is_finite_from_0 = temperature.is_finite() && temperature >= 0.0;
        require(is_finite_from_0, "temperature", "a finite number of 0 or more", temperature)?;
        require(top_p > 0.0 && top_p <= 1.0, "top_p", "greater than 0 and at most 1", top_p)?;
        require((0.0..=1.0).contains(&min_p), "min_p", "from 0 to 1", min_p)?;
        let is_positive = repetition_penalty.is_finite() && repetition_penalty > 0.0;
        require(is_positive, "repetition_penalty", "a finite number greater than 0", repetition_penalty)?;
        for (field, penalty) in
            [("presence_penalty", presence_penalty), ("frequency_penalty", frequency_penalty)]
        {
            require((-2.0..=2.0).contains(&penalty), field, "from -2 to 2", penalty)?;
        }
        for (_, bias) in &self.logit_bias {
            require((-100.0..=100.0).contains(bias), "logit_bias", "from -100 to 100 for each token", bias)?;
        }
        Ok(())
    }

    fn validate_counts(&self) -> Result<(), ParamError> {
        require(self.top_k >= -1, "top_k", "0 or -1 to keep all tokens, or 1 or more", self.top_k)?;
        if let Some(max_tokens) = self.max_tokens {
            require(max_tokens >= 1, "max_tokens", "1 or more", max_tokens)?;
            let range = format!("at most max_tokens, which is {max_tokens}");
            require(self.min_tokens <= max_tokens, "min_tokens", &range, self.min_tokens)?;
        }
        let range = format!("from 0 to {MAX_LOGPROBS}");
        for (field, n_top) in [("logprobs", self.logprobs), ("prompt_logprobs", self.prompt_logprobs)] {
            let n_top = n_top.unwrap_or(0);
            require(n_top <= MAX_LOGPROBS, field, &range, n_top)?;
        }
        Ok(())
    }

    fn validate_tokens(&self, vocab_size: usize) -> Result<(), ParamError> {
        require_ids("stop_token_ids", vocab_size, self.stop_token_ids.iter().copied())?;
        require_ids("eog_ids", vocab_size, self.eog_ids.iter().copied())?;
        require_ids("logit_bias", vocab_size, self.logit_bias.iter().map(|&(id, _)| id))?;
        require_ids("bad_words", vocab_size, self.bad_words.iter().flatten().copied())?;
        let has_empty = self.bad_words.iter().any(Vec::is_empty);
        require(!has_empty, "bad_words", "made of words of at least one token", "one of none")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const VOCAB_SIZE: usize = 10;

    fn check(change: impl FnOnce(&mut SamplingParams), refused: Option<&str>) {
        let mut params = SamplingParams::default();
        change(&mut params);
        match (params.validate(VOCAB_SIZE), refused) {
            (Ok(()), None) => {}
            (Err(error), Some(field)) => {
                assert_eq!(error.field, field, "{error}");
                assert!(error.to_string().starts_with(&format!("{field} must be ")), "{error}");
            }
            (found, _) => panic!("{params:?}: {found:?} instead of {refused:?}"),
        }
    }

    #[test]
    fn numbers() {
        const INF: f32 = f32::INFINITY;
        type Field = fn(&mut SamplingParams) -> &mut f32;
        let table: [(&str, Field, &[f32], &[f32]); 6] = [
            ("temperature", |p| &mut p.temperature, &[0.0, 1e-9, 2.0, 100.0], &[-0.1, INF]),
            ("top_p", |p| &mut p.top_p, &[1e-9, 0.5, 1.0], &[0.0, -0.5, 1.0001, INF]),
            ("min_p", |p| &mut p.min_p, &[0.0, 0.5, 1.0], &[-0.01, 1.0001, INF]),
            ("repetition_penalty", |p| &mut p.repetition_penalty, &[1e-9, 1.0, 5.0], &[0.0, -1.0, INF]),
            ("presence_penalty", |p| &mut p.presence_penalty, &[-2.0, 0.0, 2.0], &[-2.01, 2.01, INF, -INF]),
            ("frequency_penalty", |p| &mut p.frequency_penalty, &[-2.0, 0.0, 2.0], &[-2.01, 2.01, INF, -INF]),
        ];
        for (field, value, accepted, refused) in table {
            accepted.iter().for_each(|&x| check(|params| *value(params) = x, None));
            refused.iter().chain(&[f32::NAN]).for_each(|&x| check(|params| *value(params) = x, Some(field)));
        }
        for bias in [-100.0, 0.0, 100.0] {
            check(|params| params.logit_bias = vec![(0, 1.0), (9, bias)], None);
        }
        for bias in [-100.1, 100.1, INF, f32::NAN] {
            check(|params| params.logit_bias = vec![(0, 1.0), (9, bias)], Some("logit_bias"));
        }
    }

    #[test]
    fn counts() {
        for (top_k, refused) in
            [(-2, Some("top_k")), (i32::MIN, Some("top_k")), (-1, None), (0, None), (1, None)]
        {
            check(|params| params.top_k = top_k, refused);
        }
        check(|params| params.top_k = i32::MAX, None);
        check(|params| params.max_tokens = Some(0), Some("max_tokens"));
        check(|params| params.max_tokens = Some(1), None);
        check(|params| params.max_tokens = Some(usize::MAX), None);
        check(|params| (params.max_tokens, params.min_tokens) = (Some(4), 4), None);
        check(|params| (params.max_tokens, params.min_tokens) = (Some(4), 5), Some("min_tokens"));
        check(|params| (params.max_tokens, params.min_tokens) = (None, 5), None);
        for (n_top, is_refused) in [(0, false), (20, false), (21, true), (usize::MAX, true)] {
            check(|params| params.logprobs = Some(n_top), is_refused.then_some("logprobs"));
            check(|params| params.prompt_logprobs = Some(n_top), is_refused.then_some("prompt_logprobs"));
        }
    }

    #[test]
    fn token_ids() {
        for (id, is_refused) in [(0, false), (9, false), (10, true), (u32::MAX, true)] {
            check(|params| params.stop_token_ids = vec![1, id], is_refused.then_some("stop_token_ids"));
            check(|params| params.eog_ids = vec![1, id], is_refused.then_some("eog_ids"));
            check(|params| params.logit_bias = vec![(1, 0.0), (id, 0.0)], is_refused.then_some("logit_bias"));
            check(|params| params.bad_words = vec![vec![1], vec![2, id]], is_refused.then_some("bad_words"));
        }
        check(|params| params.bad_words = vec![vec![1], vec![]], Some("bad_words"));
    }

    #[test]
    fn an_error_names_field_range_and_value() {
        let params = SamplingParams { top_p: 1.5, ..SamplingParams::default() };
        let error = params.validate(VOCAB_SIZE).unwrap_err();
        assert_eq!(error.to_string(), "top_p must be greater than 0 and at most 1; found 1.5");
        let params = SamplingParams { stop_token_ids: vec![12], ..SamplingParams::default() };
        let error = params.validate(VOCAB_SIZE).unwrap_err();
        assert_eq!(error.to_string(), "stop_token_ids must be made of token ids from 0 to 9; found 12");
    }
}
