//! Writes GGUF files for tests, after the format's description alone: it shares no code with the reader it tests.
#![allow(dead_code, unused_imports, unreachable_pub, reason = "every test file uses its own part of this")]

#[path = "llama_tiny.rs"]
mod llama_tiny;

pub use llama_tiny::{llama_tiny_gguf, llama_tiny_gguf_stored, llama_tiny_writer, permute_rows};

/// A metadata value of the types that real files use.
#[derive(Debug, Clone)]
pub enum Meta {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    U64(u64),
    I64(i64),
    F32(f32),
    F64(f64),
    Bool(bool),
    Str(String),
    I32s(Vec<i32>),
    F32s(Vec<f32>),
    Strs(Vec<String>),
    /// Bytes as they stand, behind a value type id.
    Raw(u32, Vec<u8>),
}

/// How the values of a matrix are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stored {
    F32,
    F16,
    Q8_0,
    Q4_1,
}

impl Stored {
    /// GGML's id.
    pub fn id(self) -> u32 {
        match self {
            Self::F32 => 0,
            Self::F16 => 1,
            Self::Q8_0 => 8,
            Self::Q4_1 => 3,
        }
    }

    /// Values as bytes; a quantized type needs a multiple of 32 of them.
    pub fn encode(self, values: &[f32]) -> Vec<u8> {
        match self {
            Self::F32 => values.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Self::F16 => values.iter().flat_map(|value| f16_from_f32(*value).to_le_bytes()).collect(),
            Self::Q8_0 => blocks(values).flat_map(q8_0_block).collect(),
            Self::Q4_1 => blocks(values).flat_map(q4_1_block).collect(),
        }
    }

    /// The values that `encode`'s bytes stand for, as llama.cpp's formulas give them.
    pub fn decode(self, bytes: &[u8]) -> Vec<f32> {
        let half = |bytes: &[u8]| f32_from_f16(u16::from_le_bytes([bytes[0], bytes[1]]));
        match self {
            Self::F32 => {
                bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect()
            }
            Self::F16 => bytes.chunks_exact(2).map(half).collect(),
            Self::Q8_0 => bytes
                .chunks_exact(34)
                .flat_map(|block| block[2..].iter().map(move |q| half(block) * f32::from(*q as i8)))
                .collect(),
            Self::Q4_1 => bytes
                .chunks_exact(20)
                .flat_map(|block| {
                    let (scale, min) = (half(block), half(&block[2..]));
                    let low = block[4..].iter().map(|q| q & 15);
                    let high = block[4..].iter().map(|q| q >> 4);
                    low.chain(high).map(move |q| scale * f32::from(q) + min)
                })
                .collect(),
        }
    }
}

/// A file being put together.
#[derive(Debug, Clone)]
pub struct GgufWriter {
    pub version: u32,
    /// Padding of tensors in bytes. If it is not 32, metadata should say so too.
    pub alignment: u64,
    pub metadata: Vec<(String, Meta)>,
    pub tensors: Vec<TensorOut>,
}

/// A tensor to write.
#[derive(Debug, Clone)]
pub struct TensorOut {
    pub name: String,
    /// Innermost first.
    pub shape: Vec<u64>,
    pub type_id: u32,
    pub bytes: Vec<u8>,
    /// Stated instead of the true offset.
    pub offset: Option<u64>,
}

impl GgufWriter {
    /// An empty file of a version.
    pub fn new(version: u32) -> Self {
        Self { version, alignment: 32, metadata: Vec::new(), tensors: Vec::new() }
    }

    /// Adds a key.
    pub fn meta(mut self, key: &str, value: Meta) -> Self {
        self.metadata.push((key.into(), value));
        self
    }

    /// Adds a text.
    pub fn text(self, key: &str, value: &str) -> Self {
        self.meta(key, Meta::Str(value.into()))
    }

    /// Adds a tensor; its shape innermost first.
    pub fn tensor(self, name: &str, shape: &[u64], stored: Stored, values: &[f32]) -> Self {
        assert_eq!(shape.iter().product::<u64>(), values.len() as u64, "{name}");
        self.raw_tensor(name, shape, stored.id(), stored.encode(values))
    }

    /// Adds a tensor as bytes.
    pub fn raw_tensor(mut self, name: &str, shape: &[u64], type_id: u32, bytes: Vec<u8>) -> Self {
        self.tensors.push(TensorOut { name: name.into(), shape: shape.into(), type_id, bytes, offset: None });
        self
    }

    /// The header alone, without padding.
    pub fn header(&self) -> Vec<u8> {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.metadata.len() as u64).to_le_bytes());
        for (key, value) in &self.metadata {
            put_string(&mut out, key);
            put_value(&mut out, value);
        }
        let mut next_offset = 0u64;
        for tensor in &self.tensors {
            put_string(&mut out, &tensor.name);
            out.extend((tensor.shape.len() as u32).to_le_bytes());
            tensor.shape.iter().for_each(|size| out.extend(size.to_le_bytes()));
            out.extend(tensor.type_id.to_le_bytes());
            out.extend(tensor.offset.unwrap_or(next_offset).to_le_bytes());
            next_offset = (next_offset + tensor.bytes.len() as u64).next_multiple_of(self.alignment);
        }
        out
    }

    /// The whole file.
    pub fn write(&self) -> Vec<u8> {
        let mut out = self.header();
        for tensor in &self.tensors {
            out.resize(out.len().next_multiple_of(self.alignment as usize), 0);
            out.extend(&tensor.bytes);
        }
        out
    }
}

fn put_string(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}

fn put_value(out: &mut Vec<u8>, value: &Meta) {
    let mut put = |type_id: u32, bytes: &[u8]| {
        out.extend(type_id.to_le_bytes());
        out.extend(bytes);
    };
    match value {
        Meta::U8(v) => put(0, &v.to_le_bytes()),
        Meta::I8(v) => put(1, &v.to_le_bytes()),
        Meta::U16(v) => put(2, &v.to_le_bytes()),
        Meta::I16(v) => put(3, &v.to_le_bytes()),
        Meta::U32(v) => put(4, &v.to_le_bytes()),
        Meta::I32(v) => put(5, &v.to_le_bytes()),
        Meta::F32(v) => put(6, &v.to_le_bytes()),
        Meta::Bool(v) => put(7, &[u8::from(*v)]),
        Meta::Str(v) => {
            put(8, &[]);
            put_string(out, v);
        }
        Meta::I32s(v) => put(9, &array_bytes(5, v.iter().map(|v| v.to_le_bytes().to_vec()))),
        Meta::F32s(v) => put(9, &array_bytes(6, v.iter().map(|v| v.to_le_bytes().to_vec()))),
        Meta::Strs(v) => put(
            9,
            &array_bytes(
                8,
                v.iter().map(|v| {
                    let mut bytes = Vec::new();
                    put_string(&mut bytes, v);
                    bytes
                }),
            ),
        ),
        Meta::U64(v) => put(10, &v.to_le_bytes()),
        Meta::I64(v) => put(11, &v.to_le_bytes()),
        Meta::F64(v) => put(12, &v.to_le_bytes()),
        Meta::Raw(type_id, bytes) => put(*type_id, bytes),
    }
}

/// An array value without its own type id.
pub fn array_bytes(element_type: u32, elements: impl ExactSizeIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut bytes = element_type.to_le_bytes().to_vec();
    bytes.extend((elements.len() as u64).to_le_bytes());
    elements.for_each(|element| bytes.extend(element));
    bytes
}

fn blocks(values: &[f32]) -> impl Iterator<Item = &[f32; 32]> {
    let (blocks, rest) = values.as_chunks::<32>();
    assert!(rest.is_empty(), "{} values are no whole number of blocks of 32", values.len());
    blocks.iter()
}

/// A scale, then 32 signed bytes.
fn q8_0_block(values: &[f32; 32]) -> Vec<u8> {
    let largest = values.iter().fold(0f32, |largest, value| largest.max(value.abs()));
    let scale = largest / 127.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let mut block = f16_from_f32(scale).to_le_bytes().to_vec();
    block.extend(values.iter().map(|value| (value * inverse).round() as i8 as u8));
    block
}

/// A scale, a minimum, then 16 bytes: value i in the low half of byte i, value i + 16 in its high half.
fn q4_1_block(values: &[f32; 32]) -> Vec<u8> {
    let min = values.iter().copied().fold(f32::INFINITY, f32::min);
    let max = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let scale = (max - min) / 15.0;
    let inverse = if scale > 0.0 { 1.0 / scale } else { 0.0 };
    let quantize = |value: f32| ((value - min) * inverse).round().clamp(0.0, 15.0) as u8;
    let mut block = f16_from_f32(scale).to_le_bytes().to_vec();
    block.extend(f16_from_f32(min).to_le_bytes());
    block.extend((0..16).map(|i| quantize(values[i]) | quantize(values[i + 16]) << 4));
    block
}

/// The nearest half-precision number, ties to even.
pub fn f16_from_f32(value: f32) -> u16 {
    let bits = value.to_bits();
    let sign = (bits >> 16 & 0x8000) as u16;
    let magnitude = f64::from(value.abs());
    if value.is_nan() {
        return sign | 0x7e00;
    }
    // 2^-24 is the step below 2^-14, and 2^(e - 10) from 2^e on; `round_ties_even` does the rounding.
    let exponent = ((bits >> 23 & 0xff) as i32 - 127).max(-14);
    let steps = (magnitude * 2f64.powi(10 - exponent)).round_ties_even() as u64;
    let encoded = (((exponent + 14) as u64) * 1024).saturating_add(steps);
    sign | encoded.min(0x7c00) as u16
}

/// A half-precision number's value.
pub fn f32_from_f16(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from(bits >> 10 & 31), f32::from(bits & 1023));
    sign * match exponent {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        _ => (1024.0 + fraction) * 2f32.powi(exponent - 25),
    }
}
