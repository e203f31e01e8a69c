//! A model as commands use it: its header first, so that bad input is refused before anything is loaded, then the rest.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use super::arguments::{Arguments, FormFile, Measured};
use super::records::FileRecords;
use super::{CliError, messages, output, surroundings};
use crate::engine::AddError;
use crate::host::forms::FormStore;
use crate::host::load::{self, Described};
use crate::host::{ConnectionId, Host, Surroundings, encode, options};
use crate::protocol::{
    DeviceChoice, DeviceKind, Event, GenerateOptions, ModelInfo, Prompt, RequestId, Structure,
};
use crate::store::native::{FileSource, model_files};
use crate::text::StopStrings;

/// The terminal's own connection.
const TERMINAL: ConnectionId = 0;

/// Longest text file that is read: no context holds more.
const MAX_TEXT_BYTES: u64 = 64 << 20;
/// What to do with a text that is longer.
pub(super) const TOO_LONG: &str = "no model reads a text so long, cut it";

/// A model whose header is read.
pub(super) struct Opened {
    pub(super) described: Described<FileSource>,
    started: Instant,
}

/// A model that answers.
pub(super) struct Running {
    pub(super) info: ModelInfo,
    /// Sequences that run at once.
    pub(super) max_sequences: usize,
    /// From opening the file to the last weight on the device.
    pub(super) load_ms: f64,
    host: Host,
}

impl Opened {
    /// Opens the model that the command line names.
    pub(super) async fn open(arguments: &Arguments) -> Result<Self, CliError> {
        let started = Instant::now();
        let mut options = arguments.load.clone();
        // Whoever names a GPU means it, and whoever times operations means one that has them.
        let means_gpu = arguments.adapter_name.is_some() || arguments.measured == Measured::Ops;
        if means_gpu && options.device == DeviceChoice::Auto {
            options.device = DeviceChoice::Gpu;
        }
        let described = load::describe(model_files(arguments.model())?, &options).await?;
        Ok(Self { described, started })
    }

    /// Asks for room for so many sequences of `context` tokens each.
    pub(super) fn with_room(self, context: usize, n_sequences: usize) -> Result<Self, CliError> {
        let context = u32::try_from(context).unwrap_or(u32::MAX);
        Ok(Self { described: self.described.with_room(context, n_sequences)?, ..self })
    }

    /// The tokens of a prompt.
    pub(super) fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>, CliError> {
        let encoded = encode(self.described.tokenizer(), prompt, (surroundings().unix_secs)());
        encoded.map(|(_, ids)| ids).map_err(|error| CliError::Input(error.to_string()))
    }

    /// Refuses a prompt that the engine would refuse.
    pub(super) fn check_prompt(&self, n_tokens: usize) -> Result<(), CliError> {
        let context = self.described.context();
        match n_tokens {
            0 => Err(CliError::Input(AddError::EmptyPrompt.to_string())),
            prompt_tokens if prompt_tokens >= context => {
                Err(CliError::Input(AddError::PromptExceedsContext { prompt_tokens, context }.to_string()))
            }
            _ => Ok(()),
        }
    }

    /// Refuses sampling options that the host or the engine would refuse.
    pub(super) fn check_sampling(&self, sampling: &GenerateOptions) -> Result<(), CliError> {
        let input = |error: &dyn std::error::Error| CliError::Input(error.to_string());
        let tokenizer = self.described.tokenizer();
        let params = options::sampling_params(sampling, tokenizer, 0).map_err(|error| input(&error))?;
        let vocab_size = self.described.config().vocab_size;
        params.validate(vocab_size).map_err(|error| input(&error))?;
        if let Some(structure) = &sampling.structure {
            FormStore::default()
                .compile(structure, tokenizer, vocab_size)
                .map(drop)
                .map_err(|error| input(&error))?;
        }
        StopStrings::new(sampling.stop.clone(), sampling.include_stop_str_in_output)
            .map_err(|error| input(&error))?;
        Ok(())
    }

    /// Brings the model to its device.
    pub(super) async fn load(self, arguments: &Arguments) -> Result<Running, CliError> {
        let (name, max_sequences) = (self.described.model_name(), self.described.max_sequences());
        let surroundings = surroundings();
        let n_threads = arguments.n_threads.unwrap_or(surroundings.n_threads);
        let surroundings = Surroundings { n_threads, ..surroundings };
        let mut host = Host::new(surroundings, arguments.adapter_name.clone());
        if let Some(records) = FileRecords::of_user() {
            host = host.with_records(Rc::new(records));
        }
        let progress = |done: u64, total: u64| {
            output::progress(&format!("loading {name}: {} of {}", output::bytes(done), output::bytes(total)));
        };
        let loaded = host.load_described(self.described, progress).await;
        output::progress("");
        let info = loaded?;
        let load_ms = self.started.elapsed().as_secs_f64() * 1000.0;
        let kind = match info.device_kind {
            DeviceKind::Gpu => "",
            DeviceKind::Software => " (a GPU imitated by the processor: correct and slow)",
            DeviceKind::Cpu => " (the processor)",
        };
        match &info.device_note {
            Some(note) if info.device_kind == DeviceKind::Cpu => {
                output::note(&format!("the processor computes: {note}"));
            }
            Some(note) => output::note(note),
            None => {}
        }
        let parameters = output::parameters(info.n_parameters);
        output::note(&format!(
            "{name}, {parameters} parameters, on {}{kind}, {} precision, loaded in {:.1} s",
            info.device_name,
            info.precision.name(),
            load_ms / 1000.0
        ));
        if let Some(note) = &info.kv_note {
            output::note(note);
        }
        Ok(Running { info, max_sequences, load_ms, host })
    }
}

impl Running {
    /// Hands in a request; an error is what its first event will be.
    pub(super) fn ask(&mut self, request: RequestId, prompt: &Prompt, sampling: &GenerateOptions) {
        self.host.generate(TERMINAL, request, prompt, sampling);
    }

    /// Steps until all requests have ended; `hear` gets every event with the moment its step ended.
    pub(super) async fn run(
        &mut self,
        mut hear: impl FnMut(Event, Instant) -> Result<(), CliError>,
    ) -> Result<(), CliError> {
        loop {
            let now = Instant::now();
            for event in self.take_events() {
                hear(event, now)?;
            }
            if !self.host.has_work() {
                return Ok(());
            }
            self.step().await;
        }
    }

    /// Events since the last call, in order.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        self.host.take_events().into_iter().map(|(_, event)| event).collect()
    }

    /// One step, if there is something to do.
    pub(super) async fn step(&mut self) {
        self.host.step().await;
    }
}

/// The prompt that the command line gives.
pub(super) fn prompt(arguments: &Arguments) -> Result<Prompt, CliError> {
    let Some(path) = &arguments.messages else {
        return Ok(Prompt::Text(arguments.prompt.clone().unwrap_or_default()));
    };
    let messages = messages::parse(&read_text(path, TOO_LONG)?)
        .map_err(|problem| CliError::Input(format!("{}: {problem}", path.display())))?;
    Ok(Prompt::Chat { messages, tools: Vec::new(), template_arguments: Vec::new() })
}

/// How to choose tokens, as the command line says, with such a `max_tokens` where it says none.
pub(super) fn sampling(arguments: &Arguments, max_tokens: Option<u32>) -> Result<GenerateOptions, CliError> {
    const LONG: &str = "leave out what the answer does not need";
    let structure = match arguments.forms.first() {
        None => None,
        Some(FormFile::JsonObject) => Some(Structure::Json),
        Some(FormFile::JsonSchema(path)) => Some(Structure::JsonSchema(read_text(path, LONG)?)),
        Some(FormFile::Grammar(path)) => Some(Structure::Grammar(read_text(path, LONG)?)),
    };
    Ok(GenerateOptions { structure, ..arguments.sampling(max_tokens) })
}

/// A text file; `help` tells what to do with one that is too long.
pub(super) fn read_text(path: &Path, help: &str) -> Result<String, CliError> {
    let name = path.display();
    let mut bytes = Vec::new();
    File::open(path)
        .and_then(|file| file.take(MAX_TEXT_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|error| CliError::Input(format!("cannot read {name}: {error}")))?;
    if bytes.len() as u64 > MAX_TEXT_BYTES {
        let most = output::bytes(MAX_TEXT_BYTES);
        return Err(CliError::Input(format!("{name} has more than {most}; {help}")));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        CliError::Input(format!("{name} is not UTF-8 text, from byte {at} on; save it as UTF-8"))
    })
}
