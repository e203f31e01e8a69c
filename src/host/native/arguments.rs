//! The command line, checked as far as it can be without a model. Whatever is not understood is refused by name.

mod sampling;

use std::ffi::OsString;
use std::path::PathBuf;
use std::str::FromStr;

use lexopt::{Arg, Parser};

use super::CliError;
use super::spec::{self, Command, OptionSpec};
use crate::format::block::BlockType;
use crate::gpu::shader::Variant;
use crate::host::request::MAX_N;
use crate::protocol::{DeviceChoice, GenerateOptions, KvType, LoadOptions, Precision, Quantize};

/// What is asked of the program.
#[derive(Debug)]
pub(super) enum Asked {
    /// How a command is used, or all of them.
    Help(Option<Command>),
    /// Which version this is.
    Version,
    /// Work.
    Command(Command, Box<Arguments>),
}

/// What the commands take, each some of it.
#[derive(Debug, Default)]
pub(super) struct Arguments {
    model: Option<PathBuf>,
    /// How to load the model.
    pub(super) load: LoadOptions,
    /// Part of a GPU's name.
    pub(super) adapter_name: Option<String>,
    /// Threads of the processor, where it computes.
    pub(super) n_threads: Option<usize>,
    /// Answer in JSON.
    pub(super) json: bool,
    /// A raw prompt.
    pub(super) prompt: Option<String>,
    /// The file of a conversation.
    pub(super) messages: Option<PathBuf>,
    /// The file of many prompts.
    pub(super) prompts: Option<PathBuf>,
    /// The text to tokenize.
    pub(super) positional: Option<String>,
    text: Option<PathBuf>,
    /// A model to read and a file to write.
    paths: Vec<PathBuf>,
    /// What matrices become in the file written; what they are where absent.
    pub(super) block_type: Option<BlockType>,
    /// Write over a file that is there.
    pub(super) force: bool,
    /// How to choose tokens; `max_tokens` stands beside it, since its default differs.
    sampling: GenerateOptions,
    /// What form the answer has, and where that is written.
    pub(super) forms: Vec<FormFile>,
    /// Most tokens to generate, where that was said.
    pub(super) max_tokens: Option<u32>,
    /// What to measure.
    pub(super) measured: Measured,
    /// Tokens of each prompt to measure with, in order.
    pub(super) prompt_tokens: Vec<u32>,
    /// Tokens of each answer to measure with, in order; the first is `max_tokens`, too.
    pub(super) answer_tokens: Vec<u32>,
    /// How many sequences to measure with, in order.
    pub(super) sequences: Vec<u32>,
    /// Measure without the KV cache, too.
    pub(super) no_cache: bool,
    /// Measured runs.
    pub(super) runs: Option<u32>,
    /// Runs before them.
    pub(super) warm_up: Option<u32>,
    /// Which kernels to count and time on a device that computes nothing.
    pub(super) kernels: Option<Variant>,
    /// The token whose costs are counted.
    pub(super) position: Option<u32>,
    /// Memory's bandwidth, in GB/s.
    pub(super) bandwidth: Option<f64>,
    /// Options that say what to measure, as they came.
    measures: Vec<&'static str>,
}

/// A form of answers, as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum FormFile {
    JsonObject,
    JsonSchema(PathBuf),
    Grammar(PathBuf),
}

/// What `pagelm bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Measured {
    /// Tokens and their times.
    #[default]
    Speed,
    /// A chat of so many turns.
    Turns(u32),
    /// What a token costs, counted.
    Plan,
    /// What a step costs the host.
    Host,
    /// What each operation costs the device.
    Ops,
    /// The device alone, without a model.
    Floor,
}

impl FormFile {
    fn option(&self) -> &'static str {
        match self {
            Self::JsonObject => "json-object",
            Self::JsonSchema(_) => "json-schema",
            Self::Grammar(_) => "grammar",
        }
    }
}

impl Arguments {
    /// The model's file.
    pub(super) fn model(&self) -> &PathBuf {
        self.model.as_ref().expect("`check` refuses a command without its model")
    }

    /// The file to score.
    pub(super) fn text(&self) -> &PathBuf {
        self.text.as_ref().expect("`check` refuses `score` without its text")
    }

    /// The model to read and the file to write.
    pub(super) fn in_and_out(&self) -> (&PathBuf, &PathBuf) {
        let [model, out] = &self.paths[..] else {
            unreachable!("`check` refuses another number of paths");
        };
        (model, out)
    }

    /// How to choose tokens, with such a `max_tokens` where none was said.
    pub(super) fn sampling(&self, max_tokens: Option<u32>) -> GenerateOptions {
        GenerateOptions { max_tokens: self.max_tokens.or(max_tokens), ..self.sampling.clone() }
    }
}

fn usage(command: Option<Command>, sentence: impl Into<String>) -> CliError {
    CliError::Usage { sentence: sentence.into(), command }
}

/// Reads a command line, without the program's name.
pub(super) fn parse(arguments: impl IntoIterator<Item = OsString>) -> Result<Asked, CliError> {
    let mut parser = Parser::from_args(arguments);
    let first = parser.next().map_err(|error| usage(None, error.to_string()))?;
    let name = match first {
        None => return Err(usage(None, "a command is missing")),
        Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Asked::Help(None)),
        Some(Arg::Short('V') | Arg::Long("version")) => return Ok(Asked::Version),
        Some(Arg::Value(name)) => name.to_string_lossy().into_owned(),
        Some(Arg::Long(name)) => {
            return Err(usage(None, format!("the command comes first, before --{name}")));
        }
        Some(Arg::Short(name)) => {
            return Err(usage(None, format!("the command comes first, before -{name}")));
        }
    };
    if name == "help" {
        return match parser.next().map_err(|error| usage(None, error.to_string()))? {
            None => Ok(Asked::Help(None)),
            Some(Arg::Value(name)) => Ok(Asked::Help(Some(command(&name.to_string_lossy())?))),
            Some(_) => Err(usage(None, "`pagelm help` takes the name of a command and nothing else")),
        };
    }
    parse_options(command(&name)?, &mut parser)
}

fn command(name: &str) -> Result<Command, CliError> {
    Command::of(name).ok_or_else(|| match Command::nearest(name) {
        Some(near) => {
            usage(Some(near), format!("there is no command {name:?}; did you mean {}?", near.name()))
        }
        None => usage(None, format!("there is no command {name:?}")),
    })
}

fn parse_options(command: Command, parser: &mut Parser) -> Result<Asked, CliError> {
    let mut arguments = Arguments::default();
    loop {
        let next = parser.next().map_err(|error| usage(Some(command), error.to_string()))?;
        let name = match next {
            None => break,
            Some(Arg::Short('h') | Arg::Long("help")) => return Ok(Asked::Help(Some(command))),
            Some(Arg::Short(name)) => return Err(usage(Some(command), format!("unknown option -{name}"))),
            Some(Arg::Value(value)) => {
                set_positional(&mut arguments, command, value)?;
                continue;
            }
            Some(Arg::Long(name)) => name.to_owned(),
        };
        let option = command.option(&name).ok_or_else(|| unknown(command, &name))?;
        set(&mut arguments, option, parser).map_err(|sentence| usage(Some(command), sentence))?;
    }
    check(&arguments, command)?;
    Ok(Asked::Command(command, Box::new(arguments)))
}

/// `a`, `a and b`, or `a, b and c`.
fn listed(names: &[&str]) -> String {
    match names {
        [] => String::new(),
        [one] => (*one).to_owned(),
        [first @ .., last] => format!("{} and {last}", first.join(", ")),
    }
}

fn unknown(command: Command, name: &str) -> CliError {
    let takers = spec::takers(name);
    let sentence = if let Some(near) = command.nearest_option(name) {
        format!("unknown option --{name}; did you mean --{near}?")
    } else if takers.is_empty() {
        format!("unknown option --{name}")
    } else {
        format!("`pagelm {}` takes no --{name}, which belongs to {}", command.name(), listed(&takers))
    };
    usage(Some(command), sentence)
}

fn set_positional(arguments: &mut Arguments, command: Command, value: OsString) -> Result<(), CliError> {
    const MOST_PATHS: usize = 2;
    if matches!(command, Command::Quantize | Command::Convert) && arguments.paths.len() < MOST_PATHS {
        arguments.paths.push(value.into());
        return Ok(());
    }
    let text =
        value.into_string().map_err(|value| usage(Some(command), format!("{value:?} is not UTF-8 text")))?;
    let sentence = match (command, &arguments.positional) {
        (Command::Tokenize, None) => {
            arguments.positional = Some(text);
            return Ok(());
        }
        (Command::Tokenize, Some(_)) => {
            format!("one TEXT is tokenized, but {text:?} is another; quote a text with spaces")
        }
        (Command::Quantize | Command::Convert, _) => {
            format!(
                "one model is read and one file written, but {text:?} is a third; quote a path with spaces"
            )
        }
        (Command::Generate, _) => format!("{text:?} stands alone; a prompt is given as --prompt {text:?}"),
        _ => format!("{text:?} stands alone; `pagelm {}` takes options only", command.name()),
    };
    Err(usage(Some(command), sentence))
}

/// What a command cannot do without.
fn check(arguments: &Arguments, command: Command) -> Result<(), CliError> {
    let missing = |what: &str| Err(usage(Some(command), format!("{what} is missing")));
    let takes_model = !matches!(command, Command::Devices | Command::Quantize | Command::Convert)
        && arguments.measured != Measured::Floor;
    if takes_model && arguments.model.is_none() {
        return missing("--model PATH");
    }
    if let [first, second, ..] = &arguments.forms[..] {
        let names = format!("--{} and --{}", first.option(), second.option());
        return Err(usage(Some(command), format!("{names} are given together, but an answer has one form")));
    }
    if command != Command::Bench && arguments.answer_tokens.len() > 1 {
        const ONE: &str = "max_tokens must be one whole number here; several are for `pagelm bench`";
        return Err(usage(Some(command), ONE));
    }
    match command {
        Command::Quantize | Command::Convert if arguments.paths.is_empty() => missing("the model to read"),
        Command::Quantize | Command::Convert if arguments.paths.len() < 2 => missing("the file to write"),
        Command::Quantize if arguments.block_type.is_none() => missing("--type"),
        Command::Tokenize if arguments.positional.is_none() => missing("the TEXT to tokenize"),
        Command::Score if arguments.text.is_none() => missing("--text FILE"),
        Command::Generate => match &given_prompts(arguments)[..] {
            [] => missing("the prompt, --prompt TEXT, --messages FILE.json or --prompts FILE,"),
            [_] => Ok(()),
            several => Err(usage(
                Some(command),
                format!("{} are given together, but only one of them is answered", listed(several)),
            )),
        },
        Command::Bench => check_bench(arguments).map_err(|sentence| usage(Some(command), sentence)),
        _ => Ok(()),
    }
}

/// One thing is measured at a time, and by options that mean something for it.
fn check_bench(arguments: &Arguments) -> Result<(), String> {
    let mut measures = arguments.measures.clone();
    measures.dedup();
    if let [first, second, ..] = measures[..] {
        return Err(format!(
            "--{first} and --{second} are both given, but one thing is measured at a time; leave one out"
        ));
    }
    let speed_alone = [
        ("sequences", !arguments.sequences.is_empty()),
        ("no-cache", arguments.no_cache),
        ("warm-up", arguments.warm_up.is_some()),
        ("prompt-tokens with several numbers", arguments.prompt_tokens.len() > 1),
        ("max-tokens with several numbers", arguments.answer_tokens.len() > 1),
    ];
    let given = speed_alone.into_iter().find(|(_, is_given)| *is_given);
    match (measures.first(), given) {
        (Some(measure), Some((option, _))) => Err(format!(
            "--{option} and --{measure} are both given, but one thing is measured at a time; leave one out"
        )),
        _ => Ok(()),
    }
}

/// The options that say what to answer, of those given.
fn given_prompts(arguments: &Arguments) -> Vec<&'static str> {
    let options = [
        ("--prompt", arguments.prompt.is_some()),
        ("--messages", arguments.messages.is_some()),
        ("--prompts", arguments.prompts.is_some()),
    ];
    options.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name).collect()
}

/// Sets what an option says. Sampling options are named as their fields are, as the engine does.
fn set(arguments: &mut Arguments, option: &OptionSpec, parser: &mut Parser) -> Result<(), String> {
    if option.value.is_empty() {
        return set_flag(arguments, option.name, flag(option.name, parser)?);
    }
    let missing = || format!("--{} has no value: it takes {}", option.name, option.value);
    let value = parser.value().ok().ok_or_else(missing)?;
    match option.name {
        "model" => arguments.model = Some(value.into()),
        "messages" => arguments.messages = Some(value.into()),
        "prompts" => arguments.prompts = Some(value.into()),
        "text" => arguments.text = Some(value.into()),
        "json-schema" => arguments.forms.push(FormFile::JsonSchema(value.into())),
        "grammar" => arguments.forms.push(FormFile::Grammar(value.into())),
        name => {
            let value =
                value.into_string().map_err(|value| format!("--{name} is not UTF-8 text: {value:?}"))?;
            set_text(arguments, name, value)?;
        }
    }
    Ok(())
}

fn set_flag(arguments: &mut Arguments, name: &str, on: bool) -> Result<(), String> {
    let sampling = &mut arguments.sampling;
    match name {
        "json" => arguments.json = on,
        "json-object" if on => arguments.forms.push(FormFile::JsonObject),
        "json-object" => arguments.forms.retain(|form| *form != FormFile::JsonObject),
        "no-cache" => arguments.no_cache = on,
        "plan" if on => measure(arguments, "plan", Measured::Plan),
        "host" if on => measure(arguments, "host", Measured::Host),
        "ops" if on => measure(arguments, "ops", Measured::Ops),
        "floor" if on => measure(arguments, "floor", Measured::Floor),
        "plan" | "host" | "ops" | "floor" => {}
        "force" => arguments.force = on,
        "ignore-eos" => sampling.ignore_eos = on,
        "include-stop-str-in-output" => sampling.include_stop_str_in_output = on,
        "skip-special-tokens" => sampling.skip_special_tokens = on,
        "keep-special-tokens" => sampling.skip_special_tokens = !on,
        other => unreachable!("the table has no other flag than those here, but {other}"),
    }
    Ok(())
}

fn measure(arguments: &mut Arguments, name: &'static str, measured: Measured) {
    arguments.measured = measured;
    arguments.measures.push(name);
}

fn set_text(arguments: &mut Arguments, name: &str, value: String) -> Result<(), String> {
    const COUNT: &str = "a whole number of 1 or more";
    const FROM_0: &str = "a whole number of 0 or more";
    const MOST_RUNS: u32 = 10_000;
    const MOST_THREADS: u32 = 1024;
    const TOP: &str = "a whole number from 0 to 20";
    let value = value.as_str();
    match name {
        "device" => {
            let choices = DeviceChoice::ALL.map(|choice| (choice.name(), choice));
            arguments.load.device = choice(name, value, &choices)?;
        }
        "precision" => {
            let choices =
                [Precision::Auto, Precision::Exact, Precision::Fast].map(|choice| (choice.name(), choice));
            arguments.load.precision = choice(name, value, &choices)?;
        }
        "kv" => arguments.load.kv = choice(name, value, &KvType::NAMED)?,
        "quantize" => {
            let choices = [("none", Quantize::None), ("q8_0", Quantize::Q8), ("q4_0", Quantize::Q4)];
            arguments.load.quantize = choice(name, value, &choices)?;
        }
        "type" => {
            let choices = [
                ("q8_0", Some(BlockType::Q8_0)),
                ("q4_0", Some(BlockType::Q4_0)),
                ("f16", Some(BlockType::F16)),
                ("bf16", Some(BlockType::BF16)),
                ("f32", Some(BlockType::F32)),
                ("as-is", None),
            ];
            arguments.block_type = choice(name, value, &choices)?;
        }
        "context" => arguments.load.context = Some(number("--context", value, "a whole number of tokens")?),
        "threads" => arguments.n_threads = Some(within("--threads", value, 1..=MOST_THREADS)? as usize),
        "adapter-name" => arguments.adapter_name = Some(value.into()),
        "prompt" => arguments.prompt = Some(value.into()),
        "max-tokens" => {
            let each = value.split(',').map(|n| number("max_tokens", n, COUNT));
            arguments.answer_tokens = each.collect::<Result<_, _>>()?;
            arguments.max_tokens = arguments.answer_tokens.first().copied();
        }
        "prompt-tokens" => arguments.prompt_tokens = counts("--prompt-tokens", value)?,
        "runs" => arguments.runs = Some(within("--runs", value, 1..=MOST_RUNS)?),
        "warm-up" => arguments.warm_up = Some(within("--warm-up", value, 0..=MOST_RUNS)?),
        "turns" => {
            let n_turns = at_least_1("--turns", value)?;
            measure(arguments, "turns", Measured::Turns(n_turns));
        }
        "kernels" => arguments.kernels = Some(choice(name, value, &spec::KERNELS)?),
        "position" => arguments.position = Some(number("--position", value, FROM_0)?),
        "bandwidth" => {
            const WANTED: &str = "a number of GB/s above 0";
            let bandwidth: f64 = number("--bandwidth", value, WANTED)?;
            if !(bandwidth > 0.0 && bandwidth.is_finite()) {
                return Err(refusal("--bandwidth", value, WANTED));
            }
            arguments.bandwidth = Some(bandwidth);
        }
        "n" => arguments.sampling.n = within("n", value, 1..=MAX_N)?,
        "sequences" => arguments.sequences = counts("--sequences", value)?,
        "min-tokens" => arguments.sampling.min_tokens = number("min_tokens", value, FROM_0)?,
        "logprobs" => arguments.sampling.logprobs = Some(number("logprobs", value, TOP)?),
        "prompt-logprobs" => {
            arguments.sampling.prompt_logprobs = Some(number("prompt_logprobs", value, TOP)?);
        }
        _ => sampling::set(&mut arguments.sampling, name, value)?,
    }
    Ok(())
}

/// A flag is on where it stands; `--flag=false` turns it off.
fn flag(name: &str, parser: &mut Parser) -> Result<bool, String> {
    let Some(value) = parser.optional_value() else { return Ok(true) };
    choice(name, &value.to_string_lossy(), &[("true", true), ("false", false)])
}

fn choice<T: Copy>(name: &str, value: &str, choices: &[(&str, T)]) -> Result<T, String> {
    let found = choices.iter().find(|(choice, _)| *choice == value);
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let names: Vec<&str> = choices.iter().map(|(choice, _)| *choice).collect();
        refusal(&format!("--{name}"), value, &format!("one of {}", names.join(", ")))
    })
}

fn number<T: FromStr>(name: &str, value: &str, wanted: &str) -> Result<T, String> {
    value.trim().parse().ok().ok_or_else(|| refusal(name, value, wanted))
}

fn at_least_1(name: &str, value: &str) -> Result<u32, String> {
    const WANTED: &str = "a whole number of 1 or more";
    let n: u32 = number(name, value, WANTED)?;
    if n > 0 { Ok(n) } else { Err(refusal(name, value, WANTED)) }
}

/// A whole number of that range.
fn within(name: &str, value: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32, String> {
    let wanted = format!("a whole number from {} to {}", range.start(), range.end());
    let n = number(name, value, &wanted)?;
    if range.contains(&n) { Ok(n) } else { Err(refusal(name, value, &wanted)) }
}

/// Whole numbers of 1 or more with commas between.
fn counts(name: &str, value: &str) -> Result<Vec<u32>, String> {
    value.split(',').map(|n| at_least_1(name, n)).collect()
}

fn refusal(name: &str, value: &str, wanted: &str) -> String {
    format!("{name} must be {wanted}; found {value:?}")
}

#[cfg(test)]
mod tests;
