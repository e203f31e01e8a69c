//! Model files: what a header says and where each tensor lies. Pure and over bytes: nothing here reads a file or
//! knows a device.

pub mod block;
pub mod checkpoint;
mod cursor;
pub mod decode;
pub mod gguf;
pub mod half;
pub mod metadata;
pub mod quantize;
mod signature;
pub mod superblock;
pub mod tensor;
pub mod value;
