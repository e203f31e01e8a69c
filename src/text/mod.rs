//! Text in and out: chat template → prompt, tokenizer, streaming detokenizer, stop strings. Pure: no clock, no file,
//! no browser; plain text never becomes a control token by accident.
//!
//! ```text
//! Chat ──template──► Rendered ──encode──► ids … model … ids ──Detokenizer──► text ──StopStrings──► what is shown
//! ```

mod byte_level;
mod detokenizer;
mod error;
mod pre_tokenizer;
mod special;
mod stop;
mod strftime;
mod template;
mod template_scan;
mod template_value;
mod tojson;
mod tokenizer;
mod vocabulary;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use stop::{StopOutcome, StopStrings};
pub use template::{Chat, ChatToolCall, ChatTurn, Rendered};
pub use tokenizer::Tokenizer;
pub use vocabulary::Vocabulary;
