//! A loaded model with its answers: requests in, steps, events out.
//!
//! Invariant: what waits for a step owns all that it waits for ([`Stepping`]), so that requests are taken and cancelled and
//! the next step is submitted while it is computed. What comes of a step from before the cache was given up is dropped.

use std::collections::BTreeMap;
use std::rc::Rc;

use futures_util::future::LocalBoxFuture;

use super::forms::FormStore;
use super::load::Loaded;
use super::machine::Computer;
use super::pace::Pace;
use super::prompt::encode;
use super::request::{Ask, Outputs, RequestError};
use super::session::Session;
use super::{ConnectionId, Surroundings};
use crate::engine::{self, Engine, Progress, SequenceId, Step};
use crate::gpu::GpuError;
use crate::gpu::timings;
use crate::plan::StepOutput;
use crate::plan::batch::STEPS_IN_FLIGHT;
use crate::protocol::{Event, FinishReason, ModelInfo, OpTime, Prompt, RequestId};
use crate::text::Tokenizer;

/// Why answers end that were made of no numbers.
const NO_NUMBERS: &str = "the model computed what is no number; its file is damaged: download it again";

/// A model that answers.
pub struct Hosted {
    /// Its tokenizer and template.
    pub tokenizer: Rc<Tokenizer>,
    /// Its weights and cache; away where its device was lost.
    pub model: Option<Computer>,
    /// Its sequences.
    pub engine: Engine,
    /// What people are told of it.
    pub info: ModelInfo,
    pace: Pace,
    forms: FormStore,
    sessions: BTreeMap<SequenceId, Session>,
    /// Outputs of each request that still run.
    left: BTreeMap<(ConnectionId, RequestId), u32>,
    n_steps: u64,
    /// How often the cache was given up.
    n_forgotten: u64,
    events: Vec<(ConnectionId, Event)>,
}

/// A step that is computed.
pub struct Stepping {
    reading: LocalBoxFuture<'static, Result<StepOutput, GpuError>>,
    /// It was run again, to time its operations.
    timing: Option<LocalBoxFuture<'static, Result<Vec<timings::OpTime>, GpuError>>>,
    sent: Sent,
}

/// A step that was computed, or could not be.
pub struct Stepped {
    output: Result<StepOutput, GpuError>,
    ops: Option<Vec<timings::OpTime>>,
    sent: Sent,
}

/// A step as it was submitted.
struct Sent {
    step: Step,
    submitted_ms: f64,
    /// [`Hosted::n_forgotten`] then.
    n_forgotten: u64,
}

impl Stepping {
    /// Waits for the device.
    pub async fn read(self) -> Stepped {
        let mut output = self.reading.await;
        let mut ops = None;
        if let Some(timing) = self.timing {
            match timing.await {
                Ok(found) => ops = Some(found),
                Err(error) => output = Err(error),
            }
        }
        Stepped { output, ops, sent: self.sent }
    }
}

impl Hosted {
    /// A model without answers.
    pub fn new(loaded: Loaded) -> Self {
        let Loaded { tokenizer, model, engine, pace, info, config: _ } = loaded;
        Self {
            tokenizer,
            model: Some(model),
            engine,
            info,
            pace,
            forms: FormStore::default(),
            sessions: BTreeMap::new(),
            left: BTreeMap::new(),
            n_steps: 0,
            n_forgotten: 0,
            events: Vec::new(),
        }
    }

    /// Events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<(ConnectionId, Event)> {
        std::mem::take(&mut self.events)
    }

    /// Whether a step would do something, or one is under way.
    pub fn has_work(&self) -> bool {
        !self.engine.is_idle()
    }

    /// Steps submitted.
    pub fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// Outputs that run or wait: all, or those of one connection.
    pub fn n_sequences(&self, of: Option<ConnectionId>) -> u32 {
        let is_theirs = |session: &&Session| of.is_none_or(|connection| session.id.0 == connection);
        self.sessions.values().filter(is_theirs).count() as u32
    }

    /// Connections with answers.
    pub fn askers(&self) -> impl Iterator<Item = ConnectionId> {
        self.left.keys().map(|(connection, _)| *connection)
    }

    /// Whether a request has not ended.
    pub fn runs(&self, connection: ConnectionId, request: RequestId) -> bool {
        self.left.contains_key(&(connection, request))
    }

    /// Takes in a request, or nothing of it.
    pub fn generate(&mut self, ask: &Ask<'_>, surroundings: &Surroundings) -> Result<(), RequestError> {
        let Ask { connection, request, .. } = *ask;
        if self.runs(connection, request) {
            return Err(RequestError::Duplicate(request));
        }
        let vocab_size = self.info.vocab_size as usize;
        let Outputs { outputs, prompt_tokens, openings } =
            ask.outputs(&self.tokenizer, vocab_size, surroundings)?;
        let form = match &ask.options.structure {
            Some(structure) => Some(self.forms.compile(structure, &self.tokenizer, vocab_size)?),
            None => None,
        };
        let mut added: Vec<SequenceId> = Vec::new();
        let n_outputs = outputs.len() as u32;
        let (mut running, mut stopped) = (Vec::new(), Vec::new());
        for output in outputs {
            if output.is_stopped {
                stopped.push(output.session);
                continue;
            }
            let constraint = form.as_ref().map(|begin| begin());
            match self.engine.add_constrained(output.sequence.clone(), constraint) {
                Ok(sequence) => {
                    added.push(sequence);
                    running.push((sequence, output.session));
                }
                Err(error) => {
                    added.into_iter().for_each(|sequence| self.engine.cancel(sequence));
                    return Err(ask.error_of(&output, error));
                }
            }
        }
        drop(form);
        self.sessions.extend(running);
        self.left.insert((connection, request), n_outputs);
        self.events.push((connection, Event::Started { request, prompt_tokens, openings }));
        for session in stopped {
            self.finish_session(session, FinishReason::Stop, true);
        }
        self.settle((surroundings.now_ms)());
        Ok(())
    }

    /// Shows what the model reads of a prompt.
    pub fn tokenize(
        &self,
        request: RequestId,
        prompt: &Prompt,
        surroundings: &Surroundings,
    ) -> Result<Event, RequestError> {
        let (text, ids) = encode(&self.tokenizer, prompt, (surroundings.unix_secs)())?;
        let pieces = self.tokenizer.pieces(&ids);
        let bytes = ids.iter().map(|id| self.tokenizer.token_bytes(*id)).collect();
        Ok(Event::Tokenized { request, text, ids, pieces, bytes })
    }

    /// Stops a request; one that has ended already is none of anybody's concern.
    pub fn cancel(&mut self, connection: ConnectionId, request: RequestId) {
        self.cancel_where(|session| session.id.0 == connection && session.id.1 == request);
    }

    /// Stops all answers, or those of one connection.
    pub fn cancel_all(&mut self, of: Option<ConnectionId>) {
        self.cancel_where(|session| of.is_none_or(|connection| session.id.0 == connection));
    }

    fn cancel_where(&mut self, is_meant: impl Fn(&Session) -> bool) {
        let meant = self.sessions.iter().filter(|(_, session)| is_meant(session));
        let mut meant: Vec<SequenceId> = meant.map(|(sequence, _)| *sequence).collect();
        meant.sort_by_key(|sequence| self.sessions[sequence].id);
        for sequence in meant {
            self.end(sequence, FinishReason::Cancelled, false);
        }
    }

    /// Ends every answer for the reason given.
    pub fn fail_all(&mut self, reason: &str) {
        for sequence in std::mem::take(&mut self.sessions).into_keys() {
            self.engine.cancel(sequence);
        }
        for (connection, request) in std::mem::take(&mut self.left).into_keys() {
            let error = format!("the answer was ended: {reason}");
            self.events.push((connection, Event::Failed { request: Some(request), error }));
        }
    }

    /// Submits the next step, if there is one and it is worth it beside so many that are in flight on the device.
    pub fn begin_step(&mut self, now_ms: f64, n_in_flight: usize) -> Option<Stepping> {
        let model = self.model.as_ref()?;
        let may_overlap = model.samples() && n_in_flight < STEPS_IN_FLIGHT && self.engine.may_overlap();
        if self.engine.is_idle() || n_in_flight > 0 && !may_overlap {
            return None;
        }
        let step = self.engine.next_step(self.pace.budget())?;
        let times_ops = self.take_op_times(&step);
        let model = self.model.as_mut()?;
        model.set_prefill_submits(self.pace.submits(&step.batch));
        let ticket = model.submit(&step.batch);
        let reading = model.read(ticket);
        self.n_steps += 1;
        let timing = times_ops.then(|| model.time_ops(&step.batch));
        let sent = Sent { step, submitted_ms: now_ms, n_forgotten: self.n_forgotten };
        Some(Stepping { reading, timing, sent })
    }

    /// Takes a step's tokens; the device had ended the step before at `free_since_ms`. An error is the device's, and the
    /// step's sequences wait again.
    pub fn end_step(&mut self, stepped: Stepped, free_since_ms: f64, now_ms: f64) -> Result<(), GpuError> {
        let Stepped { output, ops, sent: Sent { step, submitted_ms, n_forgotten } } = stepped;
        let is_timed = ops.is_some();
        self.tell_op_times(&step, ops);
        let is_known = n_forgotten == self.n_forgotten;
        match output {
            Ok(_) if !is_known => {}
            // Not numbers: no token can be chosen from them, and they would be in the cache too.
            Ok(output) if output.has_nan() => {
                self.engine.abandon(step.id);
                self.fail_all(NO_NUMBERS);
                self.forget_cache();
            }
            Ok(output) => {
                if !is_timed {
                    self.pace.learn(&step.batch, submitted_ms, free_since_ms, now_ms);
                }
                let progress = self.engine.retire(step.id, &output);
                self.tell(progress, submitted_ms, now_ms);
            }
            Err(error) => {
                if is_known {
                    self.engine.abandon(step.id);
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the step is a decode step of one sequence that wants its operations timed, once.
    fn take_op_times(&mut self, step: &Step) -> bool {
        let [sequence] = step.sequences[..] else { return false };
        let session = self.sessions.get_mut(&sequence).filter(|_| step.batch.n_prefill() == 0);
        session.is_some_and(|session| std::mem::take(&mut session.wants_op_times))
    }

    fn tell_op_times(&mut self, step: &Step, ops: Option<Vec<timings::OpTime>>) {
        let session = step.sequences.first().and_then(|sequence| self.sessions.get(sequence));
        let (Some(session), Some(ops)) = (session, ops) else { return };
        let (connection, request, _) = session.id;
        let op = |op: timings::OpTime| {
            let timings::OpTime { name, dispatches, ms, weight_bytes } = op;
            OpTime { name, dispatches, ms, weight_bytes }
        };
        let ops = ops.into_iter().map(op).collect();
        let position = step.batch.positions[0];
        self.events.push((connection, Event::OpTimes { request, position, ops }));
    }

    fn forget_cache(&mut self) {
        self.engine.forget_cache();
        self.n_forgotten += 1;
    }

    /// Its device is lost: every sequence waits for [`Self::move_to`].
    pub fn lose(&mut self) {
        self.model = None;
        self.forget_cache();
    }

    /// Goes on with a model that was loaded again.
    pub fn move_to(&mut self, loaded: Loaded, now_ms: f64) {
        let Loaded { model, pace, info, config, .. } = loaded;
        self.engine.move_to(config);
        self.info = ModelInfo { id: self.info.id, ..info };
        (self.model, self.pace) = (Some(model), pace);
        self.settle(now_ms);
    }

    /// Tells of outputs that ended without a step.
    fn settle(&mut self, now_ms: f64) {
        let progress = self.engine.take_settled();
        self.tell(progress, now_ms, now_ms);
    }

    /// Tells what a step brought that began at `began_ms` and ended at `now_ms`.
    fn tell(&mut self, progress: Vec<Progress>, began_ms: f64, now_ms: f64) {
        let mut progress = progress.into_iter().peekable();
        while let Some(next) = progress.next() {
            match next {
                Progress::Admitted { sequence, cached_tokens } => {
                    if let Some(session) = self.sessions.get_mut(&sequence) {
                        session.admit(cached_tokens as u32, began_ms);
                    }
                }
                Progress::Prefilled { sequence, done, total } => {
                    self.push(sequence, |session| session.prefilling(done as u32, total as u32));
                }
                Progress::PromptLogprobs { sequence, tokens } => {
                    self.push(sequence, |session| session.prompt_logprobs(tokens));
                }
                Progress::Token { sequence, token, logprobs } => {
                    let ends = matches!(progress.peek(), Some(Progress::Finished { sequence: ended, reason: engine::FinishReason::Stop }) if *ended == sequence);
                    let mut stopped = false;
                    self.push(sequence, |session| {
                        let (event, stopped_now) = session.push(token, logprobs, ends, now_ms);
                        stopped = stopped_now;
                        event
                    });
                    if stopped {
                        self.end(sequence, FinishReason::Stop, true);
                    }
                }
                Progress::Finished { sequence, reason } => {
                    let reason = match reason {
                        engine::FinishReason::Stop | engine::FinishReason::Complete => FinishReason::Stop,
                        engine::FinishReason::Unmet => FinishReason::Unmet,
                        engine::FinishReason::Length => FinishReason::Length,
                    };
                    self.finish(sequence, reason, false);
                }
            }
        }
    }

    /// Sends a session's event; one that ended within this step sends nothing more.
    fn push(&mut self, sequence: SequenceId, event: impl FnOnce(&mut Session) -> Event) {
        if let Some(session) = self.sessions.get_mut(&sequence) {
            let event = event(session);
            self.events.push((session.id.0, event));
        }
    }

    /// Ends a session that the engine has not ended by itself.
    fn end(&mut self, sequence: SequenceId, reason: FinishReason, stopped_by_string: bool) {
        self.engine.cancel(sequence);
        self.finish(sequence, reason, stopped_by_string);
    }

    fn finish(&mut self, sequence: SequenceId, reason: FinishReason, stopped_by_string: bool) {
        if let Some(session) = self.sessions.remove(&sequence) {
            self.finish_session(session, reason, stopped_by_string);
        }
    }

    fn finish_session(&mut self, session: Session, reason: FinishReason, stopped_by_string: bool) {
        let (connection, request, _) = session.id;
        let key = (connection, request);
        let n_left = self.left.get(&key).map_or(0, |n| n - 1);
        if n_left == 0 {
            self.left.remove(&key);
        } else {
            self.left.insert(key, n_left);
        }
        let events = session.finish(reason, stopped_by_string, n_left);
        self.events.extend(events.into_iter().map(|event| (connection, event)));
    }
}
