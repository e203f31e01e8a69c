//! Model files: what a header says and where each tensor lies. Pure and over bytes: nothing here reads a file or
//! knows a device.

pub mod block;
pub mod checkpoint;
mod cursor;
pub mod decode;
pub mod gguf;
pub mod gguf_writer;
pub mod half;
pub mod hugging_face;
pub mod metadata;
pub mod quantize;
pub mod safetensors;
mod signature;
pub mod split;
pub mod stored;
pub mod superblock;
pub mod tensor;
pub mod value;
