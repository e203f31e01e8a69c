//! A request that has not ended, and what came of it so far.
//!
//! Invariant: what is asked again goes on where it stood.

use std::mem;

use crate::protocol::{Event, FinishReason, ModelSource, Request, RequestId, Usage};

/// It and its outputs.
#[derive(Debug)]
pub(super) struct Open {
    pub(super) request: Request,
    /// The engine that the tab is connected with has it.
    pub(super) sent: bool,
    pub(super) cancelled: bool,
    pub(super) started: bool,
    /// Where the model came from that began with it; unknown where the request names one.
    pub(super) of: Option<ModelSource>,
    pub(super) outputs: Vec<Output>,
}

/// What came of an output so far.
#[derive(Debug, Default, Clone)]
pub(super) struct Output {
    pub(super) ids: Vec<u32>,
    /// After so many tokens came the text that was held back. The end follows; where it is lost, the text comes again.
    pub(super) tail_after: Option<usize>,
    pub(super) scored: bool,
    pub(super) finished: bool,
}

impl Open {
    pub(super) fn new(request: Request) -> Self {
        let outputs = match &request {
            Request::Generate { generated, .. } => {
                generated.iter().map(|ids| Output { ids: ids.clone(), ..Output::default() }).collect()
            }
            _ => Vec::new(),
        };
        Self { request, sent: false, cancelled: false, started: false, of: None, outputs }
    }

    pub(super) fn needs_model(&self) -> bool {
        !matches!(self.request, Request::Status { .. } | Request::Batch { .. })
    }

    /// Whether there are tokens that an engine was heard to work on.
    pub(super) fn is_begun(&self) -> bool {
        self.started && self.outputs.iter().any(|output| !output.ids.is_empty())
    }

    /// An engine works on it, with the model from there where it names none. Whether one did before.
    pub(super) fn start(&mut self, source: Option<&ModelSource>) -> bool {
        let names_one = matches!(self.request, Request::Generate { model: Some(_), .. });
        self.of = source.filter(|_| !names_one).cloned();
        mem::replace(&mut self.started, true)
    }

    /// The request as an engine that does not know it must hear it.
    pub(super) fn resend(&mut self) -> Request {
        self.sent = true;
        let mut request = self.request.clone();
        if let Request::Generate { generated, .. } = &mut request
            && self.outputs.iter().any(|output| !output.ids.is_empty())
        {
            let ids =
                |output: usize| self.outputs.get(output).map_or_else(Vec::new, |output| output.ids.clone());
            *generated = (0..self.n_outputs() as usize).map(ids).collect();
        }
        request
    }

    /// The engine that had it is gone, and its names for models mean nothing to another one.
    pub(super) fn lose(&mut self) {
        self.sent = false;
        if let Request::Generate { model, .. } | Request::Tokenize { model, .. } = &mut self.request {
            *model = None;
        }
    }

    pub(super) fn n_outputs(&self) -> u64 {
        match &self.request {
            Request::Generate { prompts, options, .. } => prompts.len() as u64 * u64::from(options.n),
            _ => 0,
        }
    }

    /// How a request ends that nobody works on.
    pub(super) fn cancelled_events(&self, id: RequestId) -> Vec<Event> {
        let finished = |output: u32| self.outputs.get(output as usize).is_some_and(|output| output.finished);
        let left: Vec<u32> = (0..self.n_outputs() as u32).filter(|output| !finished(*output)).collect();
        if left.is_empty() {
            let error = "the request was cancelled".to_owned();
            return vec![Event::Failed { request: Some(id), error }];
        }
        let event = |(place, output): (usize, &u32)| {
            let ids = self.outputs.get(*output as usize).map_or(0, |output| output.ids.len());
            Event::Finished {
                request: id,
                output: *output,
                reason: FinishReason::Cancelled,
                usage: Usage { generated_tokens: ids as u32, ..Usage::default() },
                n_left: (left.len() - 1 - place) as u32,
            }
        };
        left.iter().enumerate().map(event).collect()
    }
}
