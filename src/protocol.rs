//! Request (tab → engine) and Event (engine → tab): the only thing that crosses between a page and its engine.
//!
//! Ids are chosen by the tab and mean nothing outside its connection. Data lives in the variant. Files never cross as
//! bytes: a transport carries them as attachments beside the encoded message, and a request names one by its index.
//!
//! Every message may come twice, late or never: a tab that reconnects sends again what was not answered, and an engine
//! that does not know who speaks asks for a greeting ([`Event::Unacquainted`]).

use serde::{Deserialize, Serialize};

pub use batch_status::{BatchStatus, SequenceStatus};
pub use generate_options::{ContentPart, GenerateOptions, Message, Prompt, Structure, ToolCall};
pub use load_options::{
    AttachedFile, DeviceChoice, IfFull, KvType, LoadOptions, ModelSource, Precision, Quantize,
};
pub use model_info::{DeviceKind, ModelInfo};
pub use op_time::OpTime;
pub use status::{FinishReason, ModelUse, Status, TokenLogprob, Usage};

mod batch_status;
mod generate_options;
mod load_options;
mod model_info;
mod op_time;
mod status;

/// Raised whenever the meaning of a message changes; a tab and an engine of different versions refuse each other.
pub const VERSION: u32 = 8;

/// Names the source that a page or an engine was built from: two builds of one [`VERSION`] do not mix either.
pub const BUILD: &str = env!("PAGELM_BUILD");

/// What is said of an answer that ended as [`FinishReason::Unmet`].
pub const UNMET: &str = "The answer is not whole: no token of this model goes on in its form, or the form is too complex to go on; loosen or simplify it.";

/// Why a load failed that its tab gave up.
pub const GIVEN_UP: &str = "loading was stopped; what this browser kept of a download is not fetched again";

/// The tags around what a model thinks before it answers.
pub const THINKING_TAGS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("[THINK]", "[/THINK]")];

/// What the text of a conversation's prompt ends with that the answer goes on from: a tag that opens what is thought, and
/// the blanks after it.
pub fn thought_opening(prompt_text: &str) -> &str {
    let written = prompt_text.trim_end();
    let tag = THINKING_TAGS.iter().map(|(open, _)| open).find(|open| written.ends_with(**open));
    tag.map_or("", |tag| &prompt_text[written.len() - tag.len()..])
}

/// A tab's name for one of its requests.
pub type RequestId = u64;

/// An engine's name for one of its loaded models; never used again after it was unloaded.
pub type ModelId = u32;

/// What a tab may ask.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The first message of a connection. This variant and [`Event::Welcome`] stay as they are in every version, so
    /// that builds that differ can tell each other.
    Hello {
        /// The tab's [`VERSION`].
        version: u32,
        /// The tab's [`BUILD`].
        build: String,
        /// Name of a Web Lock that the tab holds for as long as it lives; empty where the connection tells its own end.
        lock: String,
    },
    /// Make a model the one that answers this tab. Where another tab loads or has the same one, it is shared.
    Load {
        /// Where its bytes are.
        source: ModelSource,
        /// How to run it.
        options: LoadOptions,
        /// What to do where it does not fit beside models that other tabs use.
        if_full: IfFull,
    },
    /// Load no more for this tab: ends in [`Event::LoadFailed`] if something was on its way. What was kept of it stays, and what
    /// others wait for goes on.
    GiveUpLoad,
    /// Answer prompts, streaming: `n` outputs for each, numbered prompt by prompt.
    Generate {
        /// Names the answer's events; unique among those of the connection that run.
        request: RequestId,
        /// Which model; the tab's own where absent.
        model: Option<ModelId>,
        /// What to answer, at least one.
        prompts: Vec<Prompt>,
        /// How to choose tokens.
        options: GenerateOptions,
        /// Tokens that a lost engine generated before: (outputs)(tokens). They are read as part of the prompt and counted as
        /// generated, and only what follows is sent. Empty for a new request.
        generated: Vec<Vec<u32>>,
    },
    /// Show what the model reads of a prompt.
    Tokenize {
        /// Names the reply.
        request: RequestId,
        /// Which model; the tab's own where absent.
        model: Option<ModelId>,
        /// What to tokenize.
        prompt: Prompt,
    },
    /// Tell how the engine stands.
    Status {
        /// Names the reply.
        request: RequestId,
    },
    /// Tell what the batch of the tab's own model holds now. It is told to nobody who does not ask, and once for each time.
    Batch {
        /// Names the reply.
        request: RequestId,
    },
    /// Stop an answer; what was generated stays.
    Cancel {
        /// The request to stop.
        request: RequestId,
    },
    /// The tab has read so many events since it last said so; an engine holds back from a tab that does not read.
    Received {
        /// How many.
        n_events: u32,
    },
    /// The tab goes: its answers end, and its connection is forgotten.
    Bye,
    /// Break something on purpose, to see that everything recovers.
    Break {
        /// What.
        fault: Fault,
    },
}

/// What [`Request::Break`] breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fault {
    /// The GPU device is destroyed.
    DestroyDevice,
    /// The GPU device is taken for lost, for a reason that nobody knows.
    LoseDevice,
    /// The engine panics.
    Panic,
    /// Kernels return noise on a GPU that is opened from now on, as where a driver compiles them wrongly. It is taken for a
    /// real one, also where the processor imitates it.
    Noise,
}

/// What the engine tells a tab.
#[allow(
    clippy::large_enum_variant,
    reason = "the large one comes once a load; a box would be one more thing in every pattern"
)]
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// Answers [`Request::Hello`], and stays as it is in every version.
    Welcome {
        /// The engine's [`VERSION`].
        version: u32,
        /// The engine's [`BUILD`]. One that differs from the tab's serves the tab nothing, and ends once no tab of its
        /// own build is left.
        build: String,
        /// Name of a Web Lock that the engine holds for as long as it lives; empty where there are no locks.
        epoch: String,
    },
    /// The connection is not known, as after a restart that nobody noticed: greet, and send again what was not answered.
    Unacquainted,
    /// A model that this tab will use is on its way: asked for by it, by another, or again after the GPU was lost.
    Loading {
        /// What is being done, in words a person reads.
        stage: String,
        /// Bytes done.
        done_bytes: u64,
        /// Bytes in all; 0 while unknown.
        total_bytes: u64,
    },
    /// The model answers this tab from now on.
    Ready {
        /// What was loaded, and where it runs.
        model: ModelInfo,
        /// Where it came from, so that any tab can have it loaded again by another engine. Attached files travel beside
        /// the event, in their order.
        source: ModelSource,
        /// How it is run.
        options: LoadOptions,
    },
    /// The model could not be loaded; the tab's model before it, if any, is gone only if `unloaded`.
    LoadFailed {
        /// One sentence: what, where, what would help.
        error: String,
        /// The tab has no model now.
        unloaded: bool,
    },
    /// The model does not fit beside those that other tabs use. Nothing was changed; the tab may ask again, to wait for
    /// room or to replace.
    InUse {
        /// What holds the room.
        models: Vec<ModelUse>,
    },
    /// The model that this tab used is gone.
    Unloaded {
        /// One sentence: why, and what would help.
        reason: String,
    },
    /// A request was accepted.
    Started {
        /// Whose.
        request: RequestId,
        /// Tokens of each prompt: (prompts)
        prompt_tokens: Vec<u32>,
        /// What each prompt ends with that belongs to its answer, such as `<think>`: (prompts)
        openings: Vec<String>,
    },
    /// Log-probabilities of the prompt's tokens, the first of which has none. Sent before the first [`Event::Tokens`].
    PromptLogprobs {
        /// Whose.
        request: RequestId,
        /// Which output, from 0.
        output: u32,
        /// One entry a prompt token.
        tokens: Vec<Option<TokenLogprob>>,
    },
    /// The prompt is being read.
    Prefilling {
        /// Whose.
        request: RequestId,
        /// Which output, from 0.
        output: u32,
        /// Prompt tokens read so far.
        done_tokens: u32,
        /// Prompt tokens in all.
        total_tokens: u32,
    },
    /// The answer grew.
    Tokens {
        /// Whose.
        request: RequestId,
        /// Which output, from 0.
        output: u32,
        /// Text that became certain; empty while a character or a possible stop string is incomplete.
        text: String,
        /// The new tokens.
        ids: Vec<u32>,
        /// One entry a token, if asked for.
        logprobs: Vec<TokenLogprob>,
    },
    /// What the operations of a decode step took, where that was asked for: the median of several runs, each dispatch in a
    /// pass of its own. Empty where the adapter has no clock.
    OpTimes {
        /// Whose.
        request: RequestId,
        /// The place of the token in its sequence.
        position: u32,
        /// Operations in order of their first dispatch.
        ops: Vec<OpTime>,
    },
    /// Answers [`Request::Tokenize`].
    Tokenized {
        /// Whose.
        request: RequestId,
        /// The text after the chat template.
        text: String,
        /// Its tokens.
        ids: Vec<u32>,
        /// Each token as the vocabulary spells it.
        pieces: Vec<String>,
        /// The bytes that each stands for; they may be part of a character.
        bytes: Vec<Vec<u8>>,
    },
    /// How the engine stands: told from time to time, and asked for by [`Request::Status`].
    Status {
        /// Whose; absent where nobody asked.
        request: Option<RequestId>,
        /// How the engine stands.
        status: Status,
    },
    /// Answers [`Request::Batch`].
    Batch {
        /// Whose.
        request: RequestId,
        /// What the batch holds.
        batch: BatchStatus,
    },
    /// An output is complete.
    Finished {
        /// Whose.
        request: RequestId,
        /// Which output, from 0.
        output: u32,
        /// Why.
        reason: FinishReason,
        /// What it took.
        usage: Usage,
        /// Outputs of the request that still run; at 0 nothing more comes of it.
        n_left: u32,
    },
    /// A request failed as a whole; nothing more comes of it.
    Failed {
        /// Whose; the connection's where absent. So it is where a request has the number of one that still runs: that one
        /// goes on.
        request: Option<RequestId>,
        /// One sentence: what, where, what would help.
        error: String,
    },
}

/// Why bytes are not a message.
#[derive(Debug, thiserror::Error)]
#[error(
    "not a message of protocol version {VERSION}: {0}; reload the page so that it and its engine are of one build"
)]
pub struct DecodeError(#[from] postcard::Error);

/// A message as bytes.
pub fn encode<T: Serialize>(message: &T) -> Vec<u8> {
    postcard::to_stdvec(message).expect("every message has a postcard form")
}

/// The version that a greeting names, whatever else is in it: a variant's number and an integer come first in every
/// version, as [`Request::Hello`] promises.
pub fn version_of_greeting(bytes: &[u8]) -> Option<u32> {
    let ((variant, version), _) = postcard::take_from_bytes::<(u32, u32)>(bytes).ok()?;
    (variant == 0).then_some(version)
}

/// Bytes as a message; bytes left over are refused too.
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Result<T, DecodeError> {
    let (message, rest) = postcard::take_from_bytes(bytes)?;
    if !rest.is_empty() {
        return Err(DecodeError(postcard::Error::DeserializeBadEncoding));
    }
    Ok(message)
}
