//! A request for answers, checked: as many sequences as it has outputs, or one sentence why not.
//!
//! Invariant: nothing is added to an engine before all of a request has been found good.

use std::rc::Rc;

use super::forms::StructureError;
use super::options::sampling_params;
use super::prompt::{encode, opening};
use super::session::Session;
use super::{ConnectionId, Surroundings};
use crate::engine::params::SamplingParams;
use crate::engine::{self, SequenceRequest};
use crate::protocol::{GenerateOptions, Prompt, RequestId};
use crate::text::{TextError, Tokenizer};

/// Most outputs of a prompt.
pub const MAX_N: u32 = 64;
/// Most outputs of a request, and most that wait for a client: a whole request finds room where nothing waits.
pub(super) const MAX_OUTPUTS: usize = 1024;

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is nothing to ask.
    #[error("no model is loaded; load one first")]
    NoModel,
    /// A model that is not there.
    #[error("model {0} is not loaded; load it again, or ask this tab's own model")]
    NotLoaded(crate::protocol::ModelId),
    /// The same name twice.
    #[error("request {0} is still running; give each request its own number")]
    Duplicate(RequestId),
    /// Nothing is asked.
    #[error("the request has no prompt; give at least one")]
    NoPrompt,
    /// A number of outputs out of range.
    #[error("n is {0}, but it must lie between 1 and {MAX_N}")]
    BadN(u32),
    /// More outputs than one request may have.
    #[error(
        "the request has {0} outputs, prompts times n, but {MAX_OUTPUTS} are allowed; split it into several"
    )]
    TooMany(usize),
    /// Handed back tokens for another number of outputs.
    #[error(
        "the request has {outputs} outputs, but tokens of {found} were handed back; hand back those of each output, or none"
    )]
    GeneratedOutputs {
        /// Outputs of the request.
        outputs: usize,
        /// Outputs with tokens.
        found: usize,
    },
    /// A token handed back that the model does not have.
    #[error(
        "token {index} handed back for output {output} is id {token}, but the model's ids end at {}; ask anew, without the tokens",
        vocab_size - 1
    )]
    GeneratedToken {
        /// Which output.
        output: usize,
        /// Place in its tokens.
        index: usize,
        /// The id found.
        token: u32,
        /// Ids of the model.
        vocab_size: usize,
    },
    /// One of several prompts.
    #[error("prompt {number}: {error}")]
    Prompt {
        /// Its number, from 1.
        number: usize,
        /// What is wrong.
        error: Box<Self>,
    },
    /// The prompt or an option that is text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The form that answers are to have.
    #[error(transparent)]
    Structure(#[from] StructureError),
    /// The prompt's length or a sampling option.
    #[error(transparent)]
    Add(#[from] engine::AddError),
}

impl RequestError {
    /// The same, of one of several prompts.
    fn of_prompt(self, index: usize, n_prompts: usize) -> Self {
        if n_prompts == 1 { self } else { Self::Prompt { number: index + 1, error: Box::new(self) } }
    }
}

/// What a tab asks to be answered.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Who asks.
    pub connection: ConnectionId,
    /// The tab's name for it.
    pub request: RequestId,
    /// What to answer.
    pub prompts: &'a [Prompt],
    /// How to choose tokens.
    pub options: &'a GenerateOptions,
    /// Tokens that another engine generated before: (outputs)(tokens), or empty.
    pub generated: &'a [Vec<u32>],
}

/// A request as the engine takes it in.
pub struct Outputs {
    /// Prompt by prompt.
    pub outputs: Vec<Output>,
    /// Tokens of each prompt.
    pub prompt_tokens: Vec<u32>,
    /// What each prompt ends with that belongs to its answer.
    pub openings: Vec<String>,
}

/// An output to be generated.
pub struct Output {
    /// Its text so far.
    pub session: Session,
    /// What the engine is to do.
    pub sequence: SequenceRequest,
    /// Which prompt it answers.
    pub prompt_idx: usize,
    /// A stop string had ended it already when another engine was lost.
    pub is_stopped: bool,
}

impl Ask<'_> {
    /// Its outputs in order, and what is told of its prompts.
    pub fn outputs(
        &self,
        tokenizer: &Rc<Tokenizer>,
        vocab_size: usize,
        surroundings: &Surroundings,
    ) -> Result<Outputs, RequestError> {
        let (n, n_prompts) = (self.options.n, self.prompts.len());
        if n_prompts == 0 {
            return Err(RequestError::NoPrompt);
        }
        if !(1..=MAX_N).contains(&n) {
            return Err(RequestError::BadN(n));
        }
        let n_outputs = n_prompts.saturating_mul(n as usize);
        if n_outputs > MAX_OUTPUTS {
            return Err(RequestError::TooMany(n_outputs));
        }
        self.check_generated(n_outputs, vocab_size)?;
        let now_ms = (surroundings.now_ms)();
        let params = sampling_params(self.options, tokenizer, (surroundings.entropy)())?;
        let (mut outputs, mut prompt_tokens, mut openings) = (Vec::new(), Vec::new(), Vec::new());
        for (prompt_idx, prompt) in self.prompts.iter().enumerate() {
            let (text, ids) = encode(tokenizer, prompt, (surroundings.unix_secs)())
                .map_err(|error| RequestError::from(error).of_prompt(prompt_idx, n_prompts))?;
            prompt_tokens.push(ids.len() as u32);
            openings.push(opening(prompt, &text));
            for i in 0..n as usize {
                let output = prompt_idx * n as usize + i;
                // With a seed each prompt is answered as if it were alone; without one no two outputs are alike.
                let offset = if self.options.seed.is_some() { i } else { output };
                let params =
                    SamplingParams { seed: params.seed.wrapping_add(offset as u64), ..params.clone() };
                let id = (self.connection, self.request, output as u32);
                let mut session =
                    Session::new(id, Rc::clone(tokenizer), self.options, prompt, ids.len() as u32, now_ms)?;
                let generated = self.generated.get(output).cloned().unwrap_or_default();
                let is_stopped = replay(&mut session, &generated, &params);
                let sequence =
                    SequenceRequest { client: self.connection, prompt: ids.clone(), generated, params };
                outputs.push(Output { session, sequence, prompt_idx, is_stopped });
            }
        }
        Ok(Outputs { outputs, prompt_tokens, openings })
    }

    fn check_generated(&self, n_outputs: usize, vocab_size: usize) -> Result<(), RequestError> {
        let found = self.generated.len();
        if found != 0 && found != n_outputs {
            return Err(RequestError::GeneratedOutputs { outputs: n_outputs, found });
        }
        for (output, tokens) in self.generated.iter().enumerate() {
            if let Some(index) = tokens.iter().position(|token| *token as usize >= vocab_size) {
                let token = tokens[index];
                return Err(RequestError::GeneratedToken { output, index, token, vocab_size });
            }
        }
        Ok(())
    }

    /// The error of the engine for an output's prompt.
    pub fn error_of(&self, output: &Output, error: engine::AddError) -> RequestError {
        match error {
            engine::AddError::Busy { .. } => error.into(),
            _ => RequestError::from(error).of_prompt(output.prompt_idx, self.prompts.len()),
        }
    }
}

/// Reads what was generated before; whether a stop string ended it. Other ends the engine finds by itself.
fn replay(session: &mut Session, generated: &[u32], params: &SamplingParams) -> bool {
    generated.iter().enumerate().any(|(index, token)| {
        let is_end = params.eog_ids.contains(token) || params.stop_token_ids.contains(token);
        session.replay(*token, is_end && index + 1 == generated.len())
    })
}
