//! The engine of a terminal: one model, and whoever asks holds it by the hand.

use std::collections::VecDeque;
use std::rc::Rc;

use super::check::{self, Records};
use super::hosted::{Hosted, Stepping};
use super::load::{self, LoadError};
use super::machine::Chosen;
use super::request::{Ask, RequestError};
use super::{ConnectionId, Surroundings};
use crate::gpu::{Gpu, GpuError};
use crate::protocol::{DeviceChoice, Event, GenerateOptions, LoadOptions, ModelInfo, Prompt, RequestId};
use crate::store::Source;

/// Answers with one model.
pub struct Host {
    surroundings: Surroundings,
    adapter_name: Option<String>,
    records: Option<Rc<dyn Records>>,
    gpu: Option<Rc<Gpu>>,
    /// Whether it was handed in, and so is the one to use where nothing else is asked for.
    is_given: bool,
    hosted: Option<Hosted>,
    /// Steps of the model that are computed, the oldest first.
    steps: VecDeque<Stepping>,
    /// When the device had ended the last step that was read.
    free_since_ms: f64,
    outbox: Vec<(ConnectionId, Event)>,
}

impl Host {
    /// Without a model, and without having touched a device; `adapter_name` picks one of several.
    pub fn new(surroundings: Surroundings, adapter_name: Option<String>) -> Self {
        Self {
            surroundings,
            adapter_name,
            records: None,
            gpu: None,
            is_given: false,
            hosted: None,
            steps: VecDeque::new(),
            free_since_ms: f64::NEG_INFINITY,
            outbox: Vec::new(),
        }
    }

    /// Uses a device that is open already, also one that the processor imitates.
    pub fn with_gpu(mut self, gpu: Rc<Gpu>) -> Self {
        (self.gpu, self.is_given) = (Some(gpu), true);
        self
    }

    /// Checks a GPU before a model first runs on it, and keeps there what was found; else it is trusted.
    pub fn with_records(mut self, records: Rc<dyn Records>) -> Self {
        self.records = Some(records);
        self
    }

    /// The loaded model.
    pub fn hosted(&self) -> Option<&Hosted> {
        self.hosted.as_ref()
    }

    /// Events since the last call, in order.
    pub fn take_events(&mut self) -> Vec<(ConnectionId, Event)> {
        std::mem::take(&mut self.outbox)
    }

    /// Whether a step would do something.
    pub fn has_work(&self) -> bool {
        self.hosted.as_ref().is_some_and(Hosted::has_work)
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

    /// The same for files whose headers were read already; what runs on the model before ends as cancelled.
    pub async fn load_described(
        &mut self,
        described: load::Described<impl Source>,
        progress: impl FnMut(u64, u64),
    ) -> Result<ModelInfo, LoadError> {
        let surroundings = self.surroundings;
        let choice = match described.device() {
            DeviceChoice::Auto if self.is_given => DeviceChoice::Gpu,
            choice => choice,
        };
        let mut chosen = Chosen::by(choice, &surroundings, async || self.open_gpu().await).await?;
        if let Some(records) = &self.records {
            chosen = check::trusted(&described, chosen, &surroundings, &**records).await?;
        }
        if let Some(mut hosted) = self.hosted.take() {
            hosted.cancel_all(None);
            self.steps.clear();
            self.outbox.extend(hosted.take_events());
        }
        let hosted = Hosted::new(described.load(chosen, progress).await?);
        let info = hosted.info.clone();
        self.hosted = Some(hosted);
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

    /// Starts an answer, or tells why not.
    pub fn generate(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        prompt: &Prompt,
        options: &GenerateOptions,
    ) {
        self.generate_all(connection, request, std::slice::from_ref(prompt), options);
    }

    /// The same for several prompts.
    pub fn generate_all(
        &mut self,
        connection: ConnectionId,
        request: RequestId,
        prompts: &[Prompt],
        options: &GenerateOptions,
    ) {
        let ask = Ask { connection, request, prompts, options, generated: &[] };
        let started = match &mut self.hosted {
            Some(hosted) => hosted.generate(&ask, &self.surroundings),
            None => Err(RequestError::NoModel),
        };
        self.collect();
        if let Err(error) = started {
            let event = Event::Failed { request: Some(request), error: error.to_string() };
            self.outbox.push((connection, event));
        }
    }

    /// Stops an answer; one that has ended already is none of anybody's concern.
    pub fn cancel(&mut self, connection: ConnectionId, request: RequestId) {
        if let Some(hosted) = &mut self.hosted {
            hosted.cancel(connection, request);
        }
        self.collect();
    }

    /// One step is retired, and as many as the device may have are submitted before that. A device that fails takes the model
    /// with it.
    pub async fn step(&mut self) {
        let now_ms = self.surroundings.now_ms;
        let Some(hosted) = &mut self.hosted else { return };
        while let Some(stepping) = hosted.begin_step(now_ms(), self.steps.len()) {
            self.steps.push_back(stepping);
        }
        let Some(stepping) = self.steps.pop_front() else { return };
        let stepped = stepping.read().await;
        let ended = hosted.end_step(stepped, self.free_since_ms, now_ms());
        self.free_since_ms = now_ms();
        if let Err(error) = ended {
            hosted.fail_all(&error.to_string());
            self.collect();
            self.steps.clear();
            (self.hosted, self.gpu) = (None, None);
        }
        self.collect();
    }

    fn collect(&mut self) {
        if let Some(hosted) = &mut self.hosted {
            self.outbox.extend(hosted.take_events());
        }
    }
}
