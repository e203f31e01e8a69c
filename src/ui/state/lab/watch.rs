//! The batch as it was last seen, and answers of this tab that fill it.
//!
//! Invariant: the engine is asked again only once it has answered, so a slow one is not asked more and more.

use crate::protocol::{BatchStatus, Event, GenerateOptions, Prompt, Request, RequestId};

/// Answers that fill the batch, and tokens of each.
const N_CROWD: u32 = 4;
const CROWD_TOKENS: u32 = 160;
/// Steps that are remembered.
const N_STEPS: usize = 48;

/// What is seen of the batch.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Watch {
    /// As it was last seen.
    pub(crate) batch: Option<BatchStatus>,
    /// Rows of the steps that were seen, the oldest first; those between two looks are not.
    pub(crate) steps: Vec<StepRows>,
    is_wanted: bool,
    asked: Option<RequestId>,
    crowd: Option<Crowd>,
}

/// Rows of a step.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct StepRows {
    pub(crate) step: u64,
    pub(crate) prefill: u32,
    pub(crate) decode: u32,
}

#[derive(Debug, Clone, PartialEq)]
enum Crowd {
    Wanted(Vec<u32>),
    Asked(RequestId),
}

/// What the cells of the strip stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cell {
    /// A sequence owns them alone: its place among those of the batch.
    Alone(usize),
    /// Several sequences own them.
    Shared,
    /// They keep a beginning that nobody uses now.
    Cached,
    /// They hold nothing.
    Empty,
}

impl Watch {
    /// Looks, unless the last look is not answered yet.
    pub(crate) fn look(&mut self) {
        self.is_wanted = self.asked.is_none();
    }

    /// Whether answers of this tab fill the batch.
    pub(crate) fn is_crowded(&self) -> bool {
        self.crowd.is_some()
    }

    /// Has the text of these tokens answered several times at once.
    pub(crate) fn fill(&mut self, prompt: Vec<u32>) {
        if self.crowd.is_none() && !prompt.is_empty() {
            self.crowd = Some(Crowd::Wanted(prompt));
        }
    }

    /// Ends these answers; what is to be cancelled.
    pub(crate) fn empty(&mut self) -> Option<Request> {
        match self.crowd.take()? {
            Crowd::Asked(request) => Some(Request::Cancel { request }),
            Crowd::Wanted(_) => None,
        }
    }

    /// Forgets what is on its way and what was seen; what is to be cancelled.
    pub(super) fn give_up(&mut self) -> Option<Request> {
        let cancel = self.empty();
        *self = Self::default();
        cancel
    }

    /// What is to be asked now, if the tab's model can be asked.
    pub(super) fn due(&mut self, new_id: &mut impl FnMut() -> RequestId) -> Vec<Request> {
        let mut due = Vec::new();
        if std::mem::take(&mut self.is_wanted) {
            let request = new_id();
            self.asked = Some(request);
            due.push(Request::Batch { request });
        }
        if let Some(Crowd::Wanted(prompt)) = &mut self.crowd {
            let (request, prompts) = (new_id(), vec![Prompt::Tokens(std::mem::take(prompt))]);
            let options =
                GenerateOptions { n: N_CROWD, max_tokens: Some(CROWD_TOKENS), ..GenerateOptions::default() };
            self.crowd = Some(Crowd::Asked(request));
            due.push(Request::Generate { request, model: None, prompts, options, generated: Vec::new() });
        }
        due
    }

    /// Takes in what the engine said; whether it was about this, or a sentence about what went wrong.
    pub(super) fn hear(&mut self, event: &Event) -> Result<bool, String> {
        let of_crowd = |request: &RequestId| self.crowd == Some(Crowd::Asked(*request));
        match event {
            Event::Batch { request, batch } if self.asked == Some(*request) => {
                self.asked = None;
                self.see(batch);
                Ok(true)
            }
            Event::Failed { request: Some(request), error } if self.asked == Some(*request) => {
                self.asked = None;
                Err(error.clone())
            }
            Event::Finished { request, n_left: 0, .. } if of_crowd(request) => {
                self.crowd = None;
                Ok(true)
            }
            Event::Failed { request: Some(request), error } if of_crowd(request) => {
                self.crowd = None;
                Err(error.clone())
            }
            _ => Ok(false),
        }
    }

    fn see(&mut self, batch: &BatchStatus) {
        let rows = |of: fn(&crate::protocol::SequenceStatus) -> u32| batch.sequences.iter().map(of).sum();
        let step = StepRows {
            step: batch.steps,
            prefill: rows(|sequence| sequence.prefill_rows),
            decode: rows(|sequence| sequence.decode_rows),
        };
        // What ended meanwhile is not there any more, so a step is seen in full once at most: the first time counts.
        if step.prefill + step.decode > 0 && self.steps.last().is_none_or(|last| last.step != step.step) {
            self.steps.push(step);
            let n_over = self.steps.len().saturating_sub(N_STEPS);
            self.steps.drain(..n_over);
        }
        self.batch = Some(batch.clone());
    }
}

/// The blocks as cells, at most about so many, and the blocks of a cell. What there is of a kind has a cell.
pub(crate) fn strip(batch: &BatchStatus, n_most: u32) -> (Vec<(Cell, u32)>, u32) {
    let BatchStatus { alone_blocks, shared_blocks, cached_blocks, empty_blocks, .. } = batch;
    let n_blocks = alone_blocks + shared_blocks + cached_blocks + empty_blocks;
    let n_each = n_blocks.div_ceil(n_most).max(1);
    let own = batch.sequences.iter().enumerate();
    let own = own.map(|(place, sequence)| (Cell::Alone(place), sequence.alone_blocks));
    let rest = [(Cell::Shared, *shared_blocks), (Cell::Cached, *cached_blocks), (Cell::Empty, *empty_blocks)];
    let cells = own.chain(rest).filter(|(_, n)| *n > 0).map(|(cell, n)| (cell, n.div_ceil(n_each)));
    (cells.collect(), n_each)
}
