//! An engine's loop in a place made for tests: it is polled by hand, its clock stands still unless told otherwise, and its
//! files are in memory.
#![allow(dead_code, reason = "every test file uses its own part of this")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use futures_channel::mpsc::{UnboundedSender, unbounded};
use futures_util::future::LocalBoxFuture;
use pagelm::gpu::Gpu;
use pagelm::gpu::noise::Noise;
use pagelm::host::check::Records;
use pagelm::host::serve::{Letter, Place, serve};
use pagelm::host::{ConnectionId, Surroundings};
use pagelm::protocol::{
    self, BUILD, BatchStatus, DeviceChoice, Event, FinishReason, GenerateOptions, IfFull, LoadOptions,
    ModelInfo, ModelSource, Prompt, Request, RequestId, Status, TokenLogprob, Usage, VERSION,
};
use pagelm::store::{Source, StoreError};

use crate::gguf_writer::llama_tiny_gguf;
use crate::memory_source::MemorySource;

thread_local! {
    static NOW_MS: Cell<f64> = const { Cell::new(0.0) };
    static ENTROPY: Cell<u64> = const { Cell::new(1) };
    static SAMPLES: Cell<bool> = const { Cell::new(false) };
    static PROCESSOR_BYTES: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Whether devices of this test's worlds choose tokens; then two steps are in flight.
pub fn sample_on_device(samples: bool) {
    SAMPLES.set(samples);
}

/// Most bytes that models on the processor may take in this test's worlds.
pub fn limit_processor(n_bytes: u64) {
    PROCESSOR_BYTES.set(Some(n_bytes));
}

fn surroundings() -> Surroundings {
    Surroundings {
        now_ms: || NOW_MS.get(),
        unix_secs: || 0,
        entropy: || {
            ENTROPY.set(ENTROPY.get() + 1);
            ENTROPY.get()
        },
        memory_bytes: || None,
        turn: || Box::pin(pagelm::host::serve::yield_now()),
        n_threads: 1,
        processor_bytes: || PROCESSOR_BYTES.get(),
    }
}

/// A file that can be read while its gate is open.
#[derive(Clone)]
pub struct GatedSource {
    file: Rc<MemorySource>,
    gate: Rc<Cell<bool>>,
}

impl Source for GatedSource {
    fn name(&self) -> &str {
        self.file.name()
    }

    fn len_bytes(&self) -> u64 {
        self.file.len_bytes()
    }

    async fn read(&self, offset_bytes: u64, len: usize) -> Result<Vec<u8>, StoreError> {
        // Once later in any case, as a browser does it.
        let mut is_first = true;
        poll_fn(|_| match std::mem::replace(&mut is_first, false) || !self.gate.get() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        })
        .await;
        self.file.read(offset_bytes, len).await
    }
}

/// Where the loop runs.
pub struct Desk {
    posts: RefCell<Vec<(ConnectionId, Event, Vec<u32>)>>,
    pub watched: RefCell<Vec<(ConnectionId, String)>>,
    files: BTreeMap<&'static str, GatedSource>,
    /// Whether files can be read.
    pub gate: Rc<Cell<bool>>,
    /// How often a model's files were looked for.
    pub n_found: Cell<u32>,
    pub is_owned: Cell<bool>,
    pub budget_bytes: Cell<Option<u64>>,
    pub is_closed: Cell<bool>,
    /// What is known of GPUs; without it they are trusted.
    pub records: RefCell<Option<Rc<MemoryRecords>>>,
    /// Kernels that return noise.
    pub noise: Cell<Option<Noise>>,
    /// The device that was opened last.
    pub gpu: RefCell<Option<Gpu>>,
}

/// Verdicts in memory.
#[derive(Default)]
pub struct MemoryRecords {
    pub texts: RefCell<BTreeMap<String, String>>,
    /// How often they were looked for.
    pub n_asked: Cell<u32>,
    /// How often a check was made.
    pub n_kept: Cell<u32>,
}

impl Records for MemoryRecords {
    fn recall<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Option<String>> {
        self.n_asked.set(self.n_asked.get() + 1);
        let text = self.texts.borrow().get(key).cloned();
        Box::pin(async { text })
    }

    fn keep<'a>(&'a self, key: &'a str, text: &'a str) -> LocalBoxFuture<'a, ()> {
        self.n_kept.set(self.n_kept.get() + 1);
        self.texts.borrow_mut().insert(key.into(), text.into());
        Box::pin(async {})
    }
}

impl Place for Desk {
    type Attachment = u32;
    type Source = GatedSource;

    fn epoch(&self) -> String {
        "epoch".into()
    }

    async fn sources(&self, source: &ModelSource, _: &[u32]) -> Result<Vec<GatedSource>, String> {
        self.n_found.set(self.n_found.get() + 1);
        let name = match source {
            ModelSource::Url { url } => url.as_str(),
            ModelSource::Attachments { files } => files.first().map_or("", |file| &file.name),
        };
        self.files
            .get(name)
            .cloned()
            .map(|file| vec![file])
            .ok_or_else(|| format!("there is no file {name:?}"))
    }

    async fn own_the_gpu(&self) {
        poll_fn(|_| if self.is_owned.get() { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn set_up(&self, gpu: Gpu) -> Gpu {
        let gpu = gpu.with_sampling(SAMPLES.get());
        let gpu = match self.noise.get() {
            Some(noise) => gpu.with_noise(noise),
            None => gpu,
        };
        *self.gpu.borrow_mut() = Some(gpu.clone());
        gpu
    }

    fn records(&self) -> Option<Rc<dyn Records>> {
        let records = self.records.borrow().clone()?;
        Some(records)
    }

    fn post(&self, connection: ConnectionId, bytes: &[u8], attachments: &[u32]) {
        let event = protocol::decode(bytes).unwrap();
        self.posts.borrow_mut().push((connection, event, attachments.to_vec()));
    }

    fn watch(&self, connection: ConnectionId, lock: &str) {
        self.watched.borrow_mut().push((connection, lock.into()));
    }

    async fn sleep(&self, ms: f64) {
        let until_ms = NOW_MS.get() + ms;
        poll_fn(|_| if NOW_MS.get() >= until_ms { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn close(&self) {
        self.is_closed.set(true);
    }

    fn budget_bytes(&self) -> Option<u64> {
        self.budget_bytes.get()
    }
}

/// What came of an output.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Output {
    pub ids: Vec<u32>,
    pub text: String,
    pub logprobs: Vec<TokenLogprob>,
    pub finish: Option<(FinishReason, Usage, u32)>,
}

impl Output {
    pub fn reason(&self) -> Option<FinishReason> {
        self.finish.map(|(reason, ..)| reason)
    }
}

/// The loop, and all that it posted.
pub struct World {
    pub desk: Rc<Desk>,
    letters: UnboundedSender<Letter<u32>>,
    looping: Pin<Box<dyn Future<Output = ()>>>,
    pub has_ended: bool,
    /// Everything posted, in order.
    pub events: Vec<(ConnectionId, Event)>,
    /// What travelled beside the last Ready of a connection.
    pub attachments: BTreeMap<ConnectionId, Vec<u32>>,
    n_read: BTreeMap<ConnectionId, u32>,
    /// Tabs that read nothing.
    pub frozen: BTreeSet<ConnectionId>,
}

impl World {
    pub fn new() -> Self {
        let gate = Rc::new(Cell::new(true));
        let file = |name: &'static str, bytes: Vec<u8>| {
            (name, GatedSource { file: Rc::new(MemorySource::new(name, bytes)), gate: Rc::clone(&gate) })
        };
        let files = BTreeMap::from([
            file("tiny", llama_tiny_gguf()),
            file("other", llama_tiny_gguf()),
            file("photo", b"\x89PNG\r\n".to_vec()),
        ]);
        let desk = Rc::new(Desk {
            posts: RefCell::default(),
            watched: RefCell::default(),
            files,
            gate,
            n_found: Cell::new(0),
            is_owned: Cell::new(true),
            budget_bytes: Cell::new(None),
            is_closed: Cell::new(false),
            records: RefCell::default(),
            noise: Cell::new(None),
            gpu: RefCell::default(),
        });
        let (letters, inbox) = unbounded();
        let looping = Box::pin(serve(Rc::clone(&desk), inbox, surroundings()));
        Self {
            desk,
            letters,
            looping,
            has_ended: false,
            events: Vec::new(),
            attachments: BTreeMap::new(),
            n_read: BTreeMap::new(),
            frozen: BTreeSet::new(),
        }
    }

    /// One with tabs that have greeted and have the tiny model.
    pub fn with_tabs(connections: impl IntoIterator<Item = ConnectionId>) -> Self {
        let mut world = Self::new();
        for connection in connections {
            world.hello(connection);
            world.load(connection, "tiny", on_gpu(), IfFull::Ask);
            world.ready(connection);
        }
        world
    }

    pub fn letter(&self, letter: Letter<u32>) {
        let _ = self.letters.unbounded_send(letter);
    }

    pub fn send(&self, connection: ConnectionId, request: &Request) {
        self.send_bytes(connection, protocol::encode(request));
    }

    pub fn send_bytes(&self, connection: ConnectionId, bytes: Vec<u8>) {
        self.letter(Letter::Message { connection, bytes, attachments: Vec::new() });
    }

    pub fn hello(&self, connection: ConnectionId) {
        let lock = format!("tab {connection}");
        self.send(connection, &Request::Hello { version: VERSION, build: BUILD.into(), lock });
    }

    pub fn load(&self, connection: ConnectionId, name: &str, options: LoadOptions, if_full: IfFull) {
        let source = ModelSource::Url { url: name.into() };
        self.send(connection, &Request::Load { source, options, if_full });
    }

    pub fn ask(
        &self,
        connection: ConnectionId,
        request: RequestId,
        prompts: &[&str],
        options: &GenerateOptions,
    ) {
        self.ask_again(connection, request, prompts, options, Vec::new());
    }

    pub fn ask_again(
        &self,
        connection: ConnectionId,
        request: RequestId,
        prompts: &[&str],
        options: &GenerateOptions,
        generated: Vec<Vec<u32>>,
    ) {
        let prompts = prompts.iter().map(|text| Prompt::Text((*text).into())).collect();
        let (model, options) = (None, options.clone());
        self.send(connection, &Request::Generate { request, model, prompts, options, generated });
    }

    /// One turn of the loop; a millisecond passes. Tabs read what they got.
    pub fn turn(&mut self) {
        NOW_MS.set(NOW_MS.get() + 1.0);
        if !self.has_ended {
            let polled = self.looping.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            self.has_ended = polled.is_ready();
        }
        for (connection, event, attachments) in self.desk.posts.take() {
            if matches!(event, Event::Ready { .. }) {
                self.attachments.insert(connection, attachments);
            }
            self.events.push((connection, event));
            let n_read = self.n_read.entry(connection).or_default();
            *n_read += 1;
            if *n_read == 16 && !self.frozen.contains(&connection) {
                *n_read = 0;
                let bytes = protocol::encode(&Request::Received { n_events: 16 });
                let _ = self.letters.unbounded_send(Letter::Message {
                    connection,
                    bytes,
                    attachments: Vec::new(),
                });
            }
        }
    }

    pub fn turns(&mut self, n: usize) {
        (0..n).for_each(|_| self.turn());
    }

    /// So many milliseconds pass at once.
    pub fn pass(&mut self, ms: f64) {
        NOW_MS.set(NOW_MS.get() + ms);
        self.turns(4);
    }

    /// Turns until it is so.
    pub fn until(&mut self, what: &str, mut is_so: impl FnMut(&Self) -> bool) {
        for _ in 0..20_000 {
            if is_so(self) {
                return;
            }
            self.turn();
        }
        let last = &self.events[self.events.len().saturating_sub(12)..];
        panic!("{what} never came; the last events are {last:?}");
    }

    /// Turns until a connection hears something after the events so far, and gives it.
    pub fn hear<T>(&mut self, connection: ConnectionId, what: &str, pick: impl Fn(&Event) -> Option<T>) -> T {
        let mut seen = self.events.len();
        for _ in 0..20_000 {
            while seen < self.events.len() {
                let (to, event) = &self.events[seen];
                seen += 1;
                if let Some(picked) = (*to == connection).then(|| pick(event)).flatten() {
                    return picked;
                }
            }
            self.turn();
        }
        let last = &self.events[self.events.len().saturating_sub(12)..];
        panic!("{connection} never heard {what}; the last events are {last:?}");
    }

    pub fn ready(&mut self, connection: ConnectionId) -> ModelInfo {
        self.hear(connection, "Ready", |event| match event {
            Event::Ready { model, .. } => Some(model.clone()),
            Event::LoadFailed { error, .. } => panic!("{error}"),
            _ => None,
        })
    }

    pub fn failed(&mut self, connection: ConnectionId) -> (Option<RequestId>, String) {
        self.hear(connection, "Failed", |event| match event {
            Event::Failed { request, error } => Some((*request, error.clone())),
            _ => None,
        })
    }

    pub fn status(&mut self, connection: ConnectionId) -> Status {
        self.send(connection, &Request::Status { request: 999_999 });
        self.hear(connection, "Status", |event| match event {
            Event::Status { request: Some(999_999), status } => Some(*status),
            _ => None,
        })
    }

    pub fn batch(&mut self, connection: ConnectionId) -> BatchStatus {
        self.send(connection, &Request::Batch { request: 999_999 });
        self.hear(connection, "Batch", |event| match event {
            Event::Batch { request: 999_999, batch } => Some(batch.clone()),
            _ => None,
        })
    }

    /// The events of a connection.
    pub fn heard(&self, connection: ConnectionId) -> impl Iterator<Item = &Event> {
        self.events.iter().filter(move |(to, _)| *to == connection).map(|(_, event)| event)
    }

    /// What came of a request so far.
    pub fn outputs(&self, connection: ConnectionId, of: RequestId) -> Vec<Output> {
        let mut outputs: BTreeMap<u32, Output> = BTreeMap::new();
        for event in self.heard(connection) {
            match event {
                Event::Tokens { request, output, text, ids, logprobs } if *request == of => {
                    let output = outputs.entry(*output).or_default();
                    output.text.push_str(text);
                    output.ids.extend(ids);
                    output.logprobs.extend(logprobs.iter().cloned());
                }
                Event::Finished { request, output, reason, usage, n_left } if *request == of => {
                    let output = outputs.entry(*output).or_default();
                    assert_eq!(output.finish, None, "an output ends once");
                    output.finish = Some((*reason, *usage, *n_left));
                }
                _ => {}
            }
        }
        outputs.into_values().collect()
    }

    /// Whether nothing more comes of a request.
    pub fn is_done(&self, connection: ConnectionId, of: RequestId) -> bool {
        self.heard(connection).any(|event| match event {
            Event::Finished { request, n_left: 0, .. } => *request == of,
            Event::Failed { request, .. } => *request == Some(of),
            _ => false,
        })
    }

    /// Runs a request to its end.
    pub fn finish(&mut self, connection: ConnectionId, request: RequestId) -> Vec<Output> {
        self.until("the end of an answer", |world| world.is_done(connection, request));
        self.outputs(connection, request)
    }
}

pub fn greedy(max_tokens: u32) -> GenerateOptions {
    let max_tokens = Some(max_tokens);
    GenerateOptions { temperature: 0.0, ignore_eos: true, max_tokens, ..GenerateOptions::default() }
}

/// As it stands, on a GPU, also one that the processor imitates.
pub fn on_gpu() -> LoadOptions {
    LoadOptions { device: DeviceChoice::Gpu, ..LoadOptions::default() }
}

/// The model with so long a context: another model.
pub fn context(context: u32) -> LoadOptions {
    LoadOptions { context: Some(context), ..on_gpu() }
}
