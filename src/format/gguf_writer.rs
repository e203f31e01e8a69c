//! The header of a GGUF file that is being written, version 3. The tensors follow it in order, each from a multiple of
//! [`ALIGNMENT`] on; their bytes are the writer's business.

use super::checkpoint::Checkpoint;
use super::value::{Array, Value};

/// Tensors start at multiples of so many bytes.
pub const ALIGNMENT: u64 = 32;
/// The key that would state another alignment.
const ALIGNMENT_KEY: &str = "general.alignment";

/// The header, up to where the first tensor starts.
pub fn header(checkpoint: &Checkpoint) -> Vec<u8> {
    let keys = || checkpoint.metadata.iter().filter(|(key, _)| *key != ALIGNMENT_KEY);
    let mut out = b"GGUF".to_vec();
    out.extend(3u32.to_le_bytes());
    out.extend((checkpoint.tensors().len() as u64).to_le_bytes());
    out.extend((keys().count() as u64).to_le_bytes());
    for (key, value) in keys() {
        put_string(&mut out, key);
        put_value(&mut out, value);
    }
    let mut offset = 0u64;
    for tensor in checkpoint.tensors() {
        put_string(&mut out, &tensor.name);
        out.extend((tensor.shape.len() as u32).to_le_bytes());
        tensor.shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
        out.extend(tensor.block_type.id().to_le_bytes());
        out.extend(offset.to_le_bytes());
        offset += padded(tensor.n_bytes());
    }
    out.resize(padded(out.len() as u64) as usize, 0);
    out
}

/// Bytes of a tensor with the padding behind it.
pub fn padded(n_bytes: u64) -> u64 {
    n_bytes.next_multiple_of(ALIGNMENT)
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

/// The type's id and the value.
fn put_value(out: &mut Vec<u8>, value: &Value) {
    let mut put = |type_id: u32, bytes: &[u8]| {
        out.extend(type_id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Value::U8(number) => put(0, &number.to_le_bytes()),
        Value::I8(number) => put(1, &number.to_le_bytes()),
        Value::U16(number) => put(2, &number.to_le_bytes()),
        Value::I16(number) => put(3, &number.to_le_bytes()),
        Value::U32(number) => put(4, &number.to_le_bytes()),
        Value::I32(number) => put(5, &number.to_le_bytes()),
        Value::F32(number) => put(6, &number.to_le_bytes()),
        Value::Bool(flag) => put(7, &[u8::from(*flag)]),
        Value::String(text) => {
            put(8, &[]);
            put_string(out, text);
        }
        Value::Array(array) => {
            put(9, &[]);
            put_array(out, array);
        }
        Value::U64(number) => put(10, &number.to_le_bytes()),
        Value::I64(number) => put(11, &number.to_le_bytes()),
        Value::F64(number) => put(12, &number.to_le_bytes()),
    }
}

/// The elements' type id, their number, and they.
fn put_array(out: &mut Vec<u8>, array: &Array) {
    fn put<const N: usize, T: Copy>(
        out: &mut Vec<u8>,
        type_id: u32,
        values: &[T],
        to_le_bytes: impl Fn(T) -> [u8; N],
    ) {
        out.extend(type_id.to_le_bytes());
        out.extend((values.len() as u64).to_le_bytes());
        values.iter().for_each(|value| out.extend(to_le_bytes(*value)));
    }
    match array {
        Array::U8(values) => put(out, 0, values, u8::to_le_bytes),
        Array::I8(values) => put(out, 1, values, i8::to_le_bytes),
        Array::U16(values) => put(out, 2, values, u16::to_le_bytes),
        Array::I16(values) => put(out, 3, values, i16::to_le_bytes),
        Array::U32(values) => put(out, 4, values, u32::to_le_bytes),
        Array::I32(values) => put(out, 5, values, i32::to_le_bytes),
        Array::F32(values) => put(out, 6, values, f32::to_le_bytes),
        Array::Bool(values) => put(out, 7, values, |flag| [u8::from(flag)]),
        Array::U64(values) => put(out, 10, values, u64::to_le_bytes),
        Array::I64(values) => put(out, 11, values, i64::to_le_bytes),
        Array::F64(values) => put(out, 12, values, f64::to_le_bytes),
        Array::String(texts) => {
            out.extend(8u32.to_le_bytes());
            out.extend((texts.len() as u64).to_le_bytes());
            texts.iter().for_each(|text| put_string(out, text));
        }
    }
}
