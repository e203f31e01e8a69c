//! What each command takes: one table from which the parser, the help texts and the hints are made.

mod options;

use std::fmt::Write as _;

use self::options::OPTIONS;
use super::slips::nearest;
use crate::gpu::shader::Variant;

/// What `pagelm` can be told to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Command {
    Info,
    Tokenize,
    Generate,
    Score,
    Bench,
    Chat,
    Quantize,
    Convert,
    Devices,
}

/// Options that go together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Model,
    Prompt,
    Logprobs,
    Sampling,
    Form,
    Score,
    Bench,
    Quantize,
    Convert,
    Export,
    Json,
}

/// One option.
#[derive(Debug, Clone, Copy)]
pub(super) struct OptionSpec {
    /// Without its dashes.
    pub(super) name: &'static str,
    /// How its value is called; empty for a flag.
    pub(super) value: &'static str,
    help: &'static str,
    group: Group,
}

/// What `--kernels` may be.
pub(super) const KERNELS: [(&str, Variant); 2] = [("gpu", Variant::Workgroup), ("software", Variant::Serial)];

const ABOUT: &str = "pagelm runs language models on the GPU, or on the processor.";

impl Command {
    /// All, in the order of the help text.
    pub(super) const ALL: [Self; 9] = [
        Self::Generate,
        Self::Chat,
        Self::Info,
        Self::Tokenize,
        Self::Score,
        Self::Bench,
        Self::Quantize,
        Self::Convert,
        Self::Devices,
    ];

    /// As it is typed.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Tokenize => "tokenize",
            Self::Generate => "generate",
            Self::Score => "score",
            Self::Bench => "bench",
            Self::Chat => "chat",
            Self::Quantize => "quantize",
            Self::Convert => "convert",
            Self::Devices => "devices",
        }
    }

    fn groups(self) -> &'static [Group] {
        match self {
            Self::Info | Self::Tokenize => &[Group::Model, Group::Json],
            Self::Generate => {
                const GENERATE: &[Group] = &[
                    Group::Prompt,
                    Group::Model,
                    Group::Sampling,
                    Group::Form,
                    Group::Logprobs,
                    Group::Json,
                ];
                GENERATE
            }
            Self::Score => &[Group::Score, Group::Model, Group::Json],
            Self::Bench => &[Group::Model, Group::Bench, Group::Json],
            Self::Chat => &[Group::Model, Group::Sampling, Group::Form],
            Self::Quantize => &[Group::Quantize, Group::Export],
            Self::Convert => &[Group::Convert, Group::Export],
            Self::Devices => &[Group::Json],
        }
    }

    fn usage(self) -> &'static str {
        match self {
            Self::Info => "pagelm info --model PATH [--json]",
            Self::Tokenize => "pagelm tokenize --model PATH [--json] TEXT",
            Self::Generate => {
                "pagelm generate --model PATH (--prompt TEXT | --messages FILE.json | --prompts FILE) [options] [--json]"
            }
            Self::Score => "pagelm score --model PATH --text FILE [--json]",
            Self::Bench => {
                "pagelm bench --model PATH [--prompt-tokens P --max-tokens N (--sequences 1,2,4,8 | --turns T) --runs R | --plan | --host | --ops] [--json]"
            }
            Self::Chat => "pagelm chat --model PATH [options]",
            Self::Quantize => "pagelm quantize IN OUT.gguf --type q8_0|q4_0|f16|bf16|f32 [--force]",
            Self::Convert => "pagelm convert FOLDER OUT.gguf [--type TYPE] [--force]",
            Self::Devices => "pagelm devices [--json]",
        }
    }

    fn about(self) -> &'static str {
        match self {
            Self::Info => "what a model file holds, and what it takes to run it here",
            Self::Tokenize => "the tokens of a text",
            Self::Generate => "an answer, as it comes",
            Self::Score => "how well a model predicts a text",
            Self::Bench => "how fast a model runs",
            Self::Chat => "a conversation in the terminal",
            Self::Quantize => "a model in another block type, as a GGUF file",
            Self::Convert => "a Hugging Face folder as a GGUF file",
            Self::Devices => "the GPUs that can be used",
        }
    }

    fn details(self) -> &'static str {
        match self {
            Self::Info => "It works without a GPU, and then says so.\n",
            Self::Tokenize => {
                "TEXT is raw: no template, special tokens parsed, a begin token only where the file asks for one.\n\
                 JSON: {\"ids\", \"pieces\"}; pieces are the vocabulary's strings.\n"
            }
            Self::Generate => {
                "JSON: {\"text\", \"token_ids\", \"prompt_token_ids\", \"finish_reason\", \"logprobs\" (null if not asked for),\n\
                 \"prompt_logprobs\" (if asked for), \"timings\": {\"load_ms\", \"prefill_ms\", \"decode_ms\"}, \"device\": {\"name\", \"kind\"}}.\n\
                 prefill_ms ends with the first token; decode_ms has an entry for each token after it.\n\
                 --prompts prints an array of such objects, in order, and text under a heading for each output. There, and with\n\
                 --n of 2 or more, an object has \"cached_tokens\" too, prompt tokens that were found in the cache, and its timings\n\
                 \"queue_ms\", until it first ran, and \"first_token_ms\", until its first token, both from the start of all. With\n\
                 --n of 2 or more it has \"outputs\": [{\"text\", \"token_ids\", \"finish_reason\", \"logprobs\", \"cached_tokens\",\n\
                 \"timings\"}, …] in the place of those fields. An answer in a form whose finish_reason is \"length\" or \"unmet\" is\n\
                 not whole; after one that is unmet the exit code is 1.\n"
            }
            Self::Score => {
                "The mean negative log-likelihood is over the n - 1 tokens that have one before them; perplexity is its\n\
                 exponential. The context is as large as the text needs, unless --context is given.\n\
                 JSON: {\"tokens\", \"mean_nll\", \"perplexity\"}.\n"
            }
            Self::Bench => {
                "Every rate counts all sequences together. Prefill lasts until every sequence has its first token; decode counts\n\
                 the tokens while all decode: from that moment until the first sequence ends; total counts all generated tokens\n\
                 over the whole time; × (speedup in JSON) is decode over that of one sequence, where 1 is among --sequences.\n\
                 token_ms is the time between a sequence's tokens while all decode, first_token_ms the time from the start to its\n\
                 first token; percentiles are by nearest rank. Prompts are made-up tokens, others in every run, so that none is\n\
                 found in the cache (cached_tokens is 0); sampling is greedy, past end tokens. position_ms in JSON is the mean\n\
                 time of the second token, the third, and so on. The page's Benchmark measures the same, and writes the same JSON.\n\
                 With --turns a chat grows: each prompt is the one before it, its answer, and 24 tokens more, and each run is\n\
                 another chat. new_tokens are those that the model has not read, the answer's last among them; cached_tokens were\n\
                 found in the cache, in whole blocks of 32; prefilled_tokens are the rest.\n\
                 --plan counts a decode step of one sequence, by running it on a device that computes nothing; weights and KV\n\
                 cache count once for each dispatch that reads them. JSON: {\"layers\", \"dispatches\", \"submits\", \"host_writes\",\n\
                 \"gpu_objects_created\", \"weight_bytes\", \"kv_bytes\"}. --host times the same steps; use a release build.\n\
                 --ops gives each dispatch a pass of its own, so its sum is more than a step takes.\n\
                 --floor's JSON: {\"device\", \"dispatch_us\", \"bandwidth_gb_per_sec\", \"buffer_bytes\"}; it needs no model.\n"
            }
            Self::Chat => {
                "Each line of stdin is a message. /new begins anew, /system TEXT does so with a system prompt, /exit or the end of\n\
                 the input ends.\n"
            }
            Self::Quantize => {
                "IN is a model as --model takes it elsewhere. Vectors stay as they are, and so do rows that are no whole number of\n\
                 blocks. The file is written under another name and renamed when it is complete.\n"
            }
            Self::Convert => {
                "FOLDER is a Hugging Face folder, or a file in it. The file is what llama.cpp's converter would write, and is\n\
                 written under another name and renamed when it is complete.\n"
            }
            Self::Devices => "JSON: {\"devices\": [{\"name\", \"backend\", \"kind\"}]}.\n",
        }
    }

    /// The option of a name, if the command takes it.
    pub(super) fn option(self, name: &str) -> Option<&'static OptionSpec> {
        self.options().find(|option| option.name == name)
    }

    fn options(self) -> impl Iterator<Item = &'static OptionSpec> {
        let of = |group: &'static Group| OPTIONS.iter().filter(move |option| option.group == *group);
        self.groups().iter().flat_map(of)
    }

    /// What the name of an option could have been meant to be.
    pub(super) fn nearest_option(self, name: &str) -> Option<&'static str> {
        nearest(name, self.options().map(|option| option.name))
    }

    /// What the name of a command could have been meant to be.
    pub(super) fn nearest(name: &str) -> Option<Self> {
        let name = nearest(name, Self::ALL.iter().map(|command| command.name()))?;
        Self::of(name)
    }

    /// The command of a name.
    pub(super) fn of(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|command| command.name() == name)
    }
}

/// Which commands take an option.
pub(super) fn takers(name: &str) -> Vec<&'static str> {
    Command::ALL
        .iter()
        .filter(|command| command.option(name).is_some())
        .map(|command| command.name())
        .collect()
}

/// A line or two on how to do it right.
pub(super) fn usage_hint(command: Option<Command>) -> String {
    match command {
        Some(command) => {
            format!("usage: {}; `pagelm {} --help` lists its options", command.usage(), command.name())
        }
        None => {
            let names: Vec<&str> = Command::ALL.iter().map(|command| command.name()).collect();
            format!("usage: pagelm COMMAND …, one of {}; `pagelm help` tells more", names.join(", "))
        }
    }
}

/// The help text of a command, or of all.
pub(super) fn help(command: Option<Command>) -> String {
    let mut text = String::new();
    let Some(command) = command else {
        text.push_str(ABOUT);
        text.push_str("\n\n");
        for command in Command::ALL {
            line(&mut text, command.usage(), command.about());
        }
        text.push_str(
            "\n`pagelm COMMAND --help` lists a command's options, `pagelm --version` tells the version.\n\
             Text goes to stdout, everything else to stderr. Exit codes: 1 where the device failed, 2 for bad input.\n",
        );
        return text;
    };
    let _ = write!(text, "{}: {}\n\nusage: {}\n\n", command.name(), command.about(), command.usage());
    for option in command.options() {
        let form = if option.value.is_empty() {
            format!("--{}", option.name)
        } else {
            format!("--{} {}", option.name, option.value)
        };
        line(&mut text, &form, option.help);
    }
    text.push('\n');
    text.push_str(command.details());
    text
}

/// What is typed, and what it means: beside it, or below where it is long.
fn line(text: &mut String, typed: &str, meaning: &str) {
    let fits = typed.chars().count() <= 32;
    let _ = if fits {
        writeln!(text, "  {typed:<32}  {meaning}")
    } else {
        writeln!(text, "  {typed}\n      {meaning}")
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_nonsense_is_not() {
        assert_eq!(Command::nearest("genrate"), Some(Command::Generate));
        assert_eq!(Command::nearest("serve-everything"), None);
        assert_eq!(Command::Generate.nearest_option("temprature"), Some("temperature"));
        assert_eq!(Command::Generate.nearest_option("zzzzzzzz"), None);
    }

    #[test]
    fn every_option_is_in_the_help_of_its_commands() {
        for command in Command::ALL {
            let text = help(Some(command));
            for option in command.options() {
                assert!(text.contains(&format!("--{}", option.name)), "{text}");
            }
        }
    }
}
