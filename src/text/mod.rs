//! Text in and out: chat template → prompt, tokenizer, streaming detokenizer, stop strings. Pure: no clock, no file,
//! no browser; plain text never becomes a control token by accident.
//!
//! ```text
//! Chat ──template──► Rendered ──encode──► ids … model … ids ──Detokenizer──► text ──StopStrings──► what is shown
//! ```

mod assemble;
mod bpe;
mod byte_level;
mod byte_level_bpe;
mod detokenizer;
mod error;
mod hugging_face;
mod merges;
mod pre_tokenizer;
mod sentence_piece;
mod special;
mod stop;
mod strftime;
mod template;
mod template_scan;
mod template_value;
mod tojson;
mod token_table;
mod tokenizer;
mod vocabulary;

pub use detokenizer::Detokenizer;
pub use error::TextError;
pub use hugging_face::{NamedFile, TokenizerFiles, tokenizer_metadata};
pub use pre_tokenizer::pre_tokenizers;
pub use stop::{StopOutcome, StopStrings};
pub use strftime::strftime;
pub use template::{Chat, ChatToolCall, ChatTurn, Rendered};
pub use tokenizer::Tokenizer;
pub use vocabulary::Vocabulary;
