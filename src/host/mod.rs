//! The rim: owns the engine, drains the inbox, steps, and fans events out.
//!
//! Invariant: one owner, one loop, no lock. What comes in is checked here; what lies below asserts.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use crate::engine::{self, Progress, SequenceId, SequenceRequest};
use crate::gpu::{Gpu, GpuError};
use crate::plan::Device as _;
use crate::protocol::{
    self, BUILD, Event, FinishReason, GenerateOptions, LoadOptions, Message, ModelInfo, Prompt, RequestId,
    VERSION,
};
use crate::store::Source;
use crate::text::{Chat, ChatToolCall, ChatTurn, TextError, Tokenizer};
use load::{LoadError, Loaded};
use session::Session;

pub mod load;
#[cfg(feature = "native")]
pub mod native;
pub mod open;
pub mod options;
pub mod pace;
pub mod serve;
pub mod session;
#[cfg(feature = "web")]
pub mod web;
pub mod weights;

/// Names a connection: a tab, or the terminal.
pub type ConnectionId = u64;

/// What the host cannot know by itself.
#[derive(Debug, Clone, Copy)]
pub struct Surroundings {
    /// A clock that only goes forward, in milliseconds.
    pub now_ms: fn() -> f64,
    /// The time of day, in seconds since 1970, for templates that write a date.
    pub unix_secs: fn() -> i64,
    /// A number that nobody can foresee, for requests without a seed.
    pub entropy: fn() -> u64,
    /// Bytes of the engine's wasm memory, where it has one.
    pub memory_bytes: fn() -> Option<u64>,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// There is nothing to ask.
    #[error("no model is loaded; load one first")]
    NoModel,
    /// The same name twice.
    #[error("request {0} is still running; give each request its own number")]
    Duplicate(RequestId),
    /// The prompt or an option that is text.
    #[error(transparent)]
    Text(#[from] TextError),
    /// The prompt's length or a sampling option.
    #[error(transparent)]
    Add(#[from] engine::AddError),
}

/// Serves connections with one model.
pub struct Host {
    surroundings: Surroundings,
    adapter_name: Option<String>,
    gpu: Option<Rc<Gpu>>,
    loaded: Option<Loaded>,
    sessions: BTreeMap<SequenceId, Session>,
    /// Connections that have greeted: they are told when the model goes.
    connections: BTreeSet<ConnectionId>,
    outbox: Vec<(ConnectionId, Event)>,
}

impl Host {
    /// Without a model, and without having touched a device; `adapter_name` picks one of several.
    pub fn new(surroundings: Surroundings, adapter_name: Option<String>) -> Self {
        Self {
            surroundings,
            adapter_name,
            gpu: None,
            loaded: None,
            sessions: BTreeMap::new(),
            connections: BTreeSet::new(),
            outbox: Vec::new(),
        }
    }

    /// Uses a device that is open already.
    pub fn with_gpu(mut self, gpu: Rc<Gpu>) -> Self {
        self.gpu = Some(gpu);
        self
    }

    /// The loaded model.
    pub fn loaded(&self) -> Option<&Loaded> {
        self.loaded.as_ref()
    }

    /// Events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<(ConnectionId, Event)> {
        std::mem::take(&mut self.outbox)
    }

    /// Whether a step would do something.
    pub fn has_work(&self) -> bool {
        self.loaded.as_ref().is_some_and(|loaded| !loaded.engine.is_idle())
    }

    /// Replaces the model by that of the files. The one before it stays until the new headers have been found good.
    pub async fn load(
        &mut self,
        sources: Vec<impl Source>,
        options: &LoadOptions,
        progress: impl FnMut(u64, u64),
    ) -> Result<ModelInfo, LoadError> {
        let described = load::describe(sources, options).await?;
        self.load_described(described, progress).await
    }

    /// The same for files whose headers were read already.
    pub async fn load_described(
        &mut self,
        described: load::Described<impl Source>,
        progress: impl FnMut(u64, u64),
    ) -> Result<ModelInfo, LoadError> {
        let gpu = self.make_room().await?;
        self.load_on(gpu, described, progress).await
    }

    /// Frees the model for one whose headers have been found good; what runs on it ends as cancelled. It stays where
    /// there is no device for the other.
    pub(crate) async fn make_room(&mut self) -> Result<Rc<Gpu>, GpuError> {
        let gpu = self.open_gpu().await?;
        let sequences: Vec<SequenceId> = self.sessions.keys().copied().collect();
        for sequence in sequences {
            self.end(sequence, FinishReason::Cancelled, false);
        }
        self.loaded = None;
        Ok(gpu)
    }

    /// Brings a model to the device that [`Self::make_room`] gave.
    pub(crate) async fn load_on(
        &mut self,
        gpu: Rc<Gpu>,
        described: load::Described<impl Source>,
        progress: impl FnMut(u64, u64),
    ) -> Result<ModelInfo, LoadError> {
        let loaded = described.load(gpu, progress).await?;
        let info = loaded.info.clone();
        self.loaded = Some(loaded);
        Ok(info)
    }

    /// A device that works; one that was lost is replaced.
    async fn open_gpu(&mut self) -> Result<Rc<Gpu>, GpuError> {
        if let Some(gpu) = self.gpu.as_ref().filter(|gpu| gpu.fault().is_none()) {
            return Ok(Rc::clone(gpu));
        }
        let gpu = Rc::new(Gpu::open(self.adapter_name.as_deref()).await?);
        self.gpu = Some(Rc::clone(&gpu));
        Ok(gpu)
    }

    /// Frees the model; what runs on it fails for the reason given.
    fn unload(&mut self, reason: &str) {
        self.fail_all(reason);
        self.loaded = None;
    }

    /// Ends every answer for the reason given.
    fn fail_all(&mut self, reason: &str) {
        for (sequence, session) in std::mem::take(&mut self.sessions) {
            if let Some(loaded) = &mut self.loaded {
                loaded.engine.cancel(sequence);
            }
            let error = format!("the answer was ended: {reason}");
            self.outbox.push((session.connection, Event::Failed { request: Some(session.request), error }));
        }
    }

    /// Answers a greeting.
    pub fn greet(&mut self, connection: ConnectionId, version: u32) {
        if version == VERSION {
            self.connections.insert(connection);
            self.outbox.push((
                connection,
                Event::Welcome { version: VERSION, build: BUILD.into(), epoch: String::new() },
            ));
            if let Some(loaded) = &self.loaded {
                self.outbox.push((
                    connection,
                    Event::Ready {
                        model: loaded.info.clone(),
                        source: protocol::ModelSource::Url { url: String::new() },
                        options: LoadOptions::default(),
                    },
                ));
            }
        } else {
            let error = format!(
                "this page speaks protocol {version}, its engine {VERSION}; reload the page so that both are of one build"
            );
            self.outbox.push((connection, Event::Failed { request: None, error }));
        }
    }

    /// Starts an answer, or tells why not.
    pub fn generate(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        prompt: &Prompt,
        options: &GenerateOptions,
    ) {
        if let Err(error) = self.try_generate(connection, request, prompt, options) {
            self.outbox
                .push((connection, Event::Failed { request: Some(request), error: error.to_string() }));
        }
    }

    fn try_generate(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        prompt: &Prompt,
        options: &GenerateOptions,
    ) -> Result<(), RequestError> {
        if self.sequence_of(connection, request).is_some() {
            return Err(RequestError::Duplicate(request));
        }
        let now_ms = (self.surroundings.now_ms)();
        let loaded = self.loaded.as_mut().ok_or(RequestError::NoModel)?;
        let tokenizer = &loaded.tokenizer;
        let (_, ids) = encode(tokenizer, prompt, (self.surroundings.unix_secs)())?;
        let prompt_tokens = ids.len() as u32;
        let params = options::sampling_params(options, tokenizer, (self.surroundings.entropy)())?;
        let session =
            Session::new(connection, request, Rc::clone(tokenizer), options, prompt, prompt_tokens, now_ms)?;
        let sequence = loaded.engine.add(SequenceRequest {
            client: connection,
            prompt: ids,
            generated: Vec::new(),
            params,
        })?;
        self.sessions.insert(sequence, session);
        self.outbox.push((connection, Event::Started { request, prompt_tokens: vec![prompt_tokens] }));
        Ok(())
    }

    /// Shows what the model reads of a prompt.
    pub fn tokenize(&mut self, connection: ConnectionId, request: RequestId, prompt: &Prompt) {
        let event = match self.try_tokenize(prompt) {
            Ok((text, ids, pieces)) => Event::Tokenized { request, text, ids, pieces },
            Err(error) => Event::Failed { request: Some(request), error: error.to_string() },
        };
        self.outbox.push((connection, event));
    }

    fn try_tokenize(&self, prompt: &Prompt) -> Result<(String, Vec<u32>, Vec<String>), RequestError> {
        let loaded = self.loaded.as_ref().ok_or(RequestError::NoModel)?;
        let (text, ids) = encode(&loaded.tokenizer, prompt, (self.surroundings.unix_secs)())?;
        let pieces = loaded.tokenizer.pieces(&ids);
        Ok((text, ids, pieces))
    }

    /// Tells how the engine stands.
    pub fn status(&mut self, connection: ConnectionId, request: RequestId) {
        let status = self.loaded.as_ref().map_or_else(protocol::Status::default, |loaded| {
            let stats = loaded.engine.stats();
            protocol::Status {
                n_loads: 1,
                running: stats.running as u32,
                waiting: stats.waiting as u32,
                free_blocks: stats.free_blocks as u32,
                n_blocks: stats.n_blocks as u32,
                steps: loaded.model.counters().steps,
                ..protocol::Status::default()
            }
        });
        let status = protocol::Status { memory_bytes: (self.surroundings.memory_bytes)(), ..status };
        self.outbox.push((connection, Event::Status { request: Some(request), status }));
    }

    /// Stops an answer; one that has ended already is none of anybody's concern.
    pub fn cancel(&mut self, connection: ConnectionId, request: RequestId) {
        let Some(sequence) = self.sequence_of(connection, request) else { return };
        self.end(sequence, FinishReason::Cancelled, false);
    }

    /// Stops all answers of a connection that is gone.
    pub fn disconnect(&mut self, connection: ConnectionId) {
        self.connections.remove(&connection);
        let gone = |(_, session): &(&SequenceId, &Session)| session.connection == connection;
        let sequences: Vec<SequenceId> = self.sessions.iter().filter(gone).map(|(id, _)| *id).collect();
        for sequence in sequences {
            self.end(sequence, FinishReason::Cancelled, false);
        }
    }

    fn sequence_of(&self, connection: ConnectionId, request: RequestId) -> Option<SequenceId> {
        let wanted = |(_, session): &(&SequenceId, &Session)| {
            session.connection == connection && session.request == request
        };
        self.sessions.iter().find(wanted).map(|(id, _)| *id)
    }

    /// Ends a session that the engine has not ended by itself.
    fn end(&mut self, sequence: SequenceId, reason: FinishReason, stopped_by_string: bool) {
        if let Some(loaded) = &mut self.loaded {
            loaded.engine.cancel(sequence);
        }
        self.finish(sequence, reason, stopped_by_string);
    }

    fn finish(&mut self, sequence: SequenceId, reason: FinishReason, stopped_by_string: bool) {
        if let Some(session) = self.sessions.remove(&sequence) {
            let connection = session.connection;
            let events = session.finish(reason, stopped_by_string);
            self.outbox.extend(events.into_iter().map(|event| (connection, event)));
        }
    }

    /// One step: schedule, compute, retire.
    pub async fn step(&mut self) {
        let now_ms = self.surroundings.now_ms;
        let Some(loaded) = &mut self.loaded else { return };
        let Some(step) = loaded.engine.next_step(loaded.pace.budget()) else { return };
        loaded.model.set_prefill_submits(loaded.pace.submits(&step.batch));
        let submitted_ms = now_ms();
        let ticket = loaded.model.submit(&step.batch);
        match loaded.model.read(ticket).await {
            // Not numbers: no token can be chosen from them, and they would be in the cache too.
            Ok(logits) if logits.iter().any(|logit| logit.is_nan()) => {
                loaded.engine.retire(step.id, &logits);
                self.fail_all("the model computed what is no number; its file is damaged: download it again");
            }
            Ok(logits) => {
                loaded.pace.learn(&step.batch, now_ms() - submitted_ms);
                let progress = loaded.engine.retire(step.id, &logits);
                self.tell(progress);
            }
            Err(error) => {
                self.unload("its model is gone");
                self.gpu = None;
                for connection in &self.connections {
                    let event = Event::LoadFailed { error: error.to_string(), unloaded: true };
                    self.outbox.push((*connection, event));
                }
            }
        }
    }

    fn tell(&mut self, progress: Vec<Progress>) {
        let now_ms = (self.surroundings.now_ms)();
        let mut progress = progress.into_iter().peekable();
        while let Some(next) = progress.next() {
            match next {
                Progress::Admitted { .. } => {}
                Progress::Prefilled { sequence, done, total } => {
                    self.push(sequence, |session| Event::Prefilling {
                        request: session.request,
                        output: 0,
                        done_tokens: done as u32,
                        total_tokens: total as u32,
                    });
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
                        engine::FinishReason::Stop => FinishReason::Stop,
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
            let connection = session.connection;
            let event = event(session);
            self.outbox.push((connection, event));
        }
    }
}

/// The text after the template, and its tokens.
pub fn encode(
    tokenizer: &Tokenizer,
    prompt: &Prompt,
    now_unix_secs: i64,
) -> Result<(String, Vec<u32>), TextError> {
    match prompt {
        Prompt::Text(text) => Ok((text.clone(), tokenizer.encode_text(text)?)),
        Prompt::Tokens(ids) => {
            let bytes: Vec<u8> = ids.iter().flat_map(|id| tokenizer.token_bytes(*id)).collect();
            Ok((String::from_utf8_lossy(&bytes).into_owned(), ids.clone()))
        }
        Prompt::Chat { messages, tools, template_arguments } => {
            let chat = Chat {
                turns: messages.iter().map(turn).collect(),
                tools: tools.clone(),
                template_arguments: template_arguments.clone(),
                add_generation_prompt: true,
                now_unix_secs,
            };
            let rendered = tokenizer.render(&chat)?;
            let ids = tokenizer.encode_rendered(&rendered)?;
            Ok((rendered.text, ids))
        }
    }
}

fn turn(message: &Message) -> ChatTurn {
    let tool_call = |call: &protocol::ToolCall| ChatToolCall {
        id: call.id.clone(),
        name: call.name.clone(),
        arguments: call.arguments.clone(),
    };
    ChatTurn {
        role: message.role.clone(),
        content: message.joined_text(),
        tool_calls: message.tool_calls.iter().map(tool_call).collect(),
    }
}
