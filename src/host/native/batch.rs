//! Many answers at once: prompts are handed in as others end, so that a batch of any size keeps the engine full.
//!
//! Invariant: results are told in the order of the prompts, each once, when it and all before it are complete.

use std::collections::BTreeMap;
use std::time::Instant;

use super::CliError;
use super::answer::Answer;
use super::model::{Opened, Running};
use super::output;
use crate::plan::batch::BLOCK_TOKENS;
use crate::protocol::{Event, GenerateOptions, Prompt};

/// So many full contexts a batch asks room for at most: beyond that its sequences take turns.
const MAX_CONTEXTS: usize = 8;

/// A prompt, and what the model reads of it.
pub(super) struct Asked {
    pub(super) prompt: Prompt,
    pub(super) ids: Vec<u32>,
}

/// What is to be answered.
pub(super) struct Batch<'a> {
    /// In order.
    pub(super) asked: &'a [Asked],
    /// How to choose tokens.
    pub(super) sampling: &'a GenerateOptions,
    /// Write text as it comes.
    pub(super) streams: bool,
}

/// A prompt that is being answered.
struct Open {
    /// From the start of all until it was handed in.
    asked_ms: f64,
    outputs: Vec<Answer>,
    n_left: usize,
}

/// Asks for room for as many of the sequences as run at once.
pub(super) fn with_room(
    opened: Opened,
    asked: &[Asked],
    sampling: &GenerateOptions,
) -> Result<Opened, CliError> {
    let (context, most) = (opened.described.context(), opened.described.max_sequences());
    let max_tokens = sampling.max_tokens.map_or(context, |n| n as usize);
    // A block more for each, which the scheduler keeps free before it lets another run.
    let needed = |asked: &Asked| {
        let n_tokens = asked.ids.len().saturating_add(max_tokens).min(context);
        n_tokens.next_multiple_of(BLOCK_TOKENS) + BLOCK_TOKENS
    };
    let mut sequences: Vec<usize> =
        asked.iter().flat_map(|asked| vec![needed(asked); sampling.n as usize]).collect();
    sequences.sort_unstable_by(|a, b| b.cmp(a));
    let n_tokens: usize = sequences.iter().take(most).sum();
    let n_contexts = n_tokens.div_ceil(context.next_multiple_of(BLOCK_TOKENS));
    opened.with_room(context, n_contexts.clamp(1, MAX_CONTEXTS))
}

impl Batch<'_> {
    /// Answers all; `tell` gets each prompt's outputs.
    pub(super) async fn run(
        &self,
        running: &mut Running,
        mut tell: impl FnMut(usize, Vec<Answer>) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        let start = Instant::now();
        let n = self.sampling.n as usize;
        let mut open: BTreeMap<usize, Open> = BTreeMap::new();
        let (mut n_asked, mut n_told, mut n_open) = (0, 0, 0);
        loop {
            // Twice what runs keeps the engine full, and is less than what it keeps waiting of a client.
            while n_asked < self.asked.len() && n_open < 2 * running.max_sequences {
                let asked_ms = start.elapsed().as_secs_f64() * 1000.0;
                let outputs = (0..n).map(|_| Answer::default()).collect();
                open.insert(n_asked, Open { asked_ms, outputs, n_left: n });
                running.ask(n_asked as u64, &self.asked[n_asked].prompt, self.sampling);
                n_asked += 1;
                n_open += n;
            }
            let now = Instant::now();
            for event in running.take_events() {
                n_open -= usize::from(self.hear(&mut open, event, now)?);
            }
            while open.get(&n_told).is_some_and(|next| next.n_left == 0) {
                let outputs = open.remove(&n_told).map_or(Vec::new(), |next| next.outputs);
                tell(n_told, outputs)?;
                n_told += 1;
            }
            if n_told == self.asked.len() {
                return Ok(());
            }
            running.step().await;
        }
    }

    /// Takes in an event; whether an output ended.
    fn hear(&self, open: &mut BTreeMap<usize, Open>, event: Event, now: Instant) -> Result<bool, CliError> {
        let Some((request, output)) = Answer::place(&event) else { return Ok(false) };
        let prompt_idx = request as usize;
        let Some(open) = open.get_mut(&prompt_idx) else { return Ok(false) };
        let answer = &mut open.outputs[output as usize];
        let text = answer.hear(event, now).map_err(|error| self.of_prompt(prompt_idx, error))?;
        if self.streams && !text.is_empty() {
            output::put(&text)?;
        }
        let ended = answer.reason.is_some();
        if ended {
            answer.usage.queue_ms += open.asked_ms;
            open.n_left -= 1;
        }
        Ok(ended)
    }

    fn of_prompt(&self, prompt_idx: usize, error: CliError) -> CliError {
        match error {
            CliError::Input(sentence) if self.asked.len() > 1 => {
                CliError::Input(format!("prompt {}: {sentence}", prompt_idx + 1))
            }
            other => other,
        }
    }
}
