//! What this tab asked and no engine has answered yet, so that another engine can go on where one was lost.
//!
//! Invariant: nothing here knows a browser. Whoever asked sees one answer, however many engines worked on it: a request
//! starts once, no token comes twice, and every request ends.

use std::{collections::BTreeMap, mem};

use crate::protocol::{
    BUILD, Event, FinishReason, IfFull, LoadOptions, ModelSource, Request, RequestId, Usage, VERSION,
};

/// What follows from something said: messages to the engine, with what travels beside them, and events for the page.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Moves<A> {
    pub(super) send: Vec<(Request, Vec<A>)>,
    pub(super) tell: Vec<Event>,
}

/// The tab's model, its requests, and how it stands with the engine.
#[derive(Debug)]
pub(super) struct Ledger<A> {
    standing: Standing,
    /// The one that answers this tab, or did when the engine was lost.
    model: Option<Model<A>>,
    asked: Option<Asked<A>>,
    open: BTreeMap<RequestId, Open>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// No engine of this build has welcomed the tab.
    Away,
    /// The tab's model is on its way to an engine that is new; what needs a model waits.
    Reloading,
    /// All that is asked goes out at once.
    Here,
}

#[derive(Debug, Clone)]
struct Model<A> {
    source: ModelSource,
    options: LoadOptions,
    attachments: Vec<A>,
}

#[derive(Debug)]
struct Asked<A> {
    model: Model<A>,
    if_full: IfFull,
    sent: bool,
}

#[derive(Debug)]
struct Open {
    request: Request,
    /// The engine that the tab is connected with has it.
    sent: bool,
    cancelled: bool,
    started: bool,
    outputs: Vec<Output>,
}

/// What came of an output so far.
#[derive(Debug, Default, Clone)]
struct Output {
    ids: Vec<u32>,
    scored: bool,
    finished: bool,
}

impl<A> Default for Moves<A> {
    fn default() -> Self {
        Self { send: Vec::new(), tell: Vec::new() }
    }
}

impl<A> Default for Ledger<A> {
    fn default() -> Self {
        Self { standing: Standing::Away, model: None, asked: None, open: BTreeMap::new() }
    }
}

impl<A: Clone> Ledger<A> {
    /// Notes a request; it goes out now, or once an engine can take it.
    pub(super) fn ask(&mut self, request: Request, attachments: Vec<A>) -> Moves<A> {
        let mut moves = Moves::default();
        match request {
            Request::Load { source, options, if_full } => {
                let model = Model { source, options, attachments };
                let sent = self.standing != Standing::Away;
                if sent {
                    moves.send.push(model.load(if_full));
                }
                self.asked = Some(Asked { model, if_full, sent });
            }
            Request::Generate { request: id, .. }
            | Request::Tokenize { request: id, .. }
            | Request::Status { request: id } => {
                let mut open = Open::new(request);
                if self.takes(&open) {
                    moves.send.push((open.resend(), Vec::new()));
                }
                self.open.insert(id, open);
            }
            Request::Cancel { request: id } => self.cancel(id, &mut moves),
            // These are about the connection itself.
            Request::Hello { .. } | Request::Received { .. } | Request::Bye | Request::Break { .. } => {
                moves.send.push((request, attachments));
            }
        }
        moves
    }

    /// Notes what the engine said. What the page need not hear, because it heard it from the engine before, is left out.
    pub(super) fn hear(&mut self, event: Event, attachments: Vec<A>) -> Moves<A> {
        let mut moves = Moves::default();
        match event {
            Event::Welcome { version, ref build, .. } => {
                let is_ours = version == VERSION && build == BUILD;
                moves.tell.push(event);
                if is_ours {
                    self.greeted(&mut moves);
                }
            }
            Event::Ready { ref source, ref options, .. } => {
                let model = Model { source: source.clone(), options: options.clone(), attachments };
                moves.tell.push(event);
                self.ready(model, &mut moves);
            }
            Event::LoadFailed { ref error, unloaded } => {
                let sentence = format!("the answer cannot go on, its model was not loaded again: {error}");
                moves.tell.push(event);
                self.load_failed(unloaded, &sentence, &mut moves);
            }
            Event::InUse { .. } => {
                self.asked.take_if(|asked| asked.sent && asked.if_full != IfFull::Wait);
                moves.tell.push(event);
            }
            Event::Unloaded { .. } => {
                self.model = None;
                moves.tell.push(event);
            }
            Event::Started { request, .. } => {
                let again =
                    self.open.get_mut(&request).is_some_and(|open| mem::replace(&mut open.started, true));
                if !again {
                    moves.tell.push(event);
                }
            }
            Event::PromptLogprobs { request, output, .. } => {
                let again =
                    self.output(request, output).is_some_and(|output| mem::replace(&mut output.scored, true));
                if !again {
                    moves.tell.push(event);
                }
            }
            Event::Tokens { request, output, ref ids, .. } => match self.output(request, output) {
                Some(output) if output.finished => {}
                Some(output) => {
                    output.ids.extend(ids);
                    moves.tell.push(event);
                }
                None => moves.tell.push(event),
            },
            Event::Finished { request, output, reason, usage, n_left } => {
                let n_left = match self.finish(request, output) {
                    None => n_left,
                    Some(Ok(n_left)) => n_left,
                    Some(Err(Again)) => return moves,
                };
                moves.tell.push(Event::Finished { request, output, reason, usage, n_left });
            }
            Event::Tokenized { request, .. }
            | Event::Status { request: Some(request), .. }
            | Event::Failed { request: Some(request), .. } => {
                self.open.remove(&request);
                moves.tell.push(event);
            }
            // The engine does not know the tab: nothing of this connection counts.
            Event::Unacquainted => return self.lose(),
            Event::Loading { .. }
            | Event::Prefilling { .. }
            | Event::Status { request: None, .. }
            | Event::Failed { request: None, .. } => moves.tell.push(event),
        }
        moves
    }

    /// The engine is gone, and what it was told with it.
    pub(super) fn lose(&mut self) -> Moves<A> {
        let mut moves = Moves::default();
        self.standing = Standing::Away;
        if let Some(asked) = &mut self.asked {
            asked.sent = false;
        }
        self.open.values_mut().for_each(Open::lose);
        let cancelled = self.open.extract_if(.., |_, open| open.cancelled);
        moves.tell = cancelled.flat_map(|(id, open)| open.cancelled_events(id)).collect();
        moves
    }

    /// Whether the engine can take a request as things stand.
    fn takes(&self, open: &Open) -> bool {
        match self.standing {
            Standing::Away => false,
            Standing::Reloading => matches!(open.request, Request::Status { .. }),
            Standing::Here => true,
        }
    }

    fn greeted(&mut self, moves: &mut Moves<A>) {
        self.standing = Standing::Here;
        let needs_model = |open: &Open| !matches!(open.request, Request::Status { .. });
        let n_waiting = self.open.values().filter(|open| needs_model(open)).count();
        match (&self.model, &mut self.asked) {
            // An answer goes on with its own model; the one asked for comes after it.
            (Some(model), asked) if n_waiting > 0 || asked.is_none() => {
                moves.send.push(model.load(IfFull::Ask));
                self.standing = Standing::Reloading;
            }
            (_, Some(asked)) => {
                asked.sent = true;
                moves.send.push(asked.model.load(asked.if_full));
                if n_waiting > 0 {
                    self.standing = Standing::Reloading;
                }
            }
            (_, None) => {}
        }
        self.send_what_waits(moves);
    }

    fn ready(&mut self, model: Model<A>, moves: &mut Moves<A>) {
        let is_asked = self.asked.as_ref().is_some_and(|asked| asked.model.source == model.source);
        let is_own = self.model.as_ref().is_some_and(|own| own.source == model.source);
        if is_asked {
            // Its files are at hand already.
            self.model = self.asked.take().map(|asked| asked.model);
        } else if !is_own && self.standing == Standing::Here {
            self.model = Some(model);
        }
        if self.standing == Standing::Reloading && (is_asked || is_own) {
            self.standing = Standing::Here;
            self.send_what_waits(moves);
        }
    }

    fn load_failed(&mut self, unloaded: bool, sentence: &str, moves: &mut Moves<A>) {
        let was_asked = self.asked.take_if(|asked| asked.sent).is_some();
        if self.standing == Standing::Reloading {
            self.standing = Standing::Here;
            let waiting = self.open.extract_if(.., |_, open| !open.sent);
            moves.tell.extend(
                waiting.map(|(id, _)| Event::Failed { request: Some(id), error: sentence.to_owned() }),
            );
            self.model = None;
            self.send_what_waits(moves);
        } else if unloaded || !was_asked {
            self.model = None;
        }
    }

    /// What waits for a model goes out, and after it the load that was asked for meanwhile.
    fn send_what_waits(&mut self, moves: &mut Moves<A>) {
        let standing = self.standing;
        for open in self.open.values_mut().filter(|open| !open.sent) {
            if standing == Standing::Here || matches!(open.request, Request::Status { .. }) {
                moves.send.push((open.resend(), Vec::new()));
            }
        }
        if standing == Standing::Here
            && let Some(asked) = self.asked.as_mut().filter(|asked| !asked.sent)
        {
            asked.sent = true;
            moves.send.push(asked.model.load(asked.if_full));
        }
    }

    fn cancel(&mut self, id: RequestId, moves: &mut Moves<A>) {
        match self.open.get_mut(&id) {
            // It ended already, and that is none of anybody's concern.
            None => {}
            Some(open) if open.sent => {
                open.cancelled = true;
                moves.send.push((Request::Cancel { request: id }, Vec::new()));
            }
            Some(_) => {
                let open = self.open.remove(&id).expect("it was just there");
                moves.tell = open.cancelled_events(id);
            }
        }
    }

    /// The output of a request that still runs.
    fn output(&mut self, id: RequestId, output: u32) -> Option<&mut Output> {
        let open = self.open.get_mut(&id)?;
        let output = output as usize;
        if (output as u64) < open.n_outputs() && open.outputs.len() <= output {
            open.outputs.resize(output + 1, Output::default());
        }
        open.outputs.get_mut(output)
    }

    /// Marks an output as finished. Tells how many of the request are left, or that it was finished before.
    fn finish(&mut self, id: RequestId, output: u32) -> Option<Result<u32, Again>> {
        let finished = &mut self.output(id, output)?.finished;
        if mem::replace(finished, true) {
            return Some(Err(Again));
        }
        let open = self.open.get(&id)?;
        let n_left = open.n_outputs() - open.outputs.iter().filter(|output| output.finished).count() as u64;
        if n_left == 0 {
            self.open.remove(&id);
        }
        Some(Ok(n_left as u32))
    }
}

/// Said before.
struct Again;

impl<A: Clone> Model<A> {
    fn load(&self, if_full: IfFull) -> (Request, Vec<A>) {
        let (source, options) = (self.source.clone(), self.options.clone());
        (Request::Load { source, options, if_full }, self.attachments.clone())
    }
}

impl Open {
    fn new(request: Request) -> Self {
        let outputs = match &request {
            Request::Generate { generated, .. } => {
                generated.iter().map(|ids| Output { ids: ids.clone(), ..Output::default() }).collect()
            }
            _ => Vec::new(),
        };
        Self { request, sent: false, cancelled: false, started: false, outputs }
    }

    /// The request as an engine that does not know it must hear it.
    fn resend(&mut self) -> Request {
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
    fn lose(&mut self) {
        self.sent = false;
        if let Request::Generate { model, .. } | Request::Tokenize { model, .. } = &mut self.request {
            *model = None;
        }
    }

    fn n_outputs(&self) -> u64 {
        match &self.request {
            Request::Generate { prompts, options, .. } => prompts.len() as u64 * u64::from(options.n),
            _ => 0,
        }
    }

    /// How a request ends that nobody works on.
    fn cancelled_events(&self, id: RequestId) -> Vec<Event> {
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

#[cfg(test)]
mod tests;
