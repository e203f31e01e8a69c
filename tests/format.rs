//! The GGUF reader against files of an independent writer, cut and corrupted in every place, and against a real model.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;

use std::collections::BTreeMap;

use gguf_writer::{GgufWriter, Meta, Stored, array_bytes, llama_tiny_gguf, llama_tiny_gguf_stored};
use pagelm::format::block::BlockType;
use pagelm::format::gguf::{GgufError, Header, Parsed};
use pagelm::format::metadata::Metadata;
use pagelm::format::value::{Array, Value};

const REAL_MODEL: &str = "www/models/SmolLM2-135M-Instruct.Q4_1.gguf";

fn parse(file: &[u8]) -> Result<Header, GgufError> {
    match Header::parse(file, file.len() as u64)? {
        Parsed::Complete(header) => Ok(*header),
        Parsed::NeedMore { at_least } => panic!("asked for {at_least} bytes of a file of {}", file.len()),
    }
}

/// Two keys, three tensors of 1, 2 and 1 dimensions.
fn small() -> GgufWriter {
    GgufWriter::new(3)
        .text("general.architecture", "llama")
        .meta("tokenizer.ggml.tokens", Meta::Strs(vec!["a".into(), "Ġb".into(), String::new()]))
        .tensor("norm", &[3], Stored::F32, &[1.0, -2.5, 3.0])
        .tensor("matrix", &[32, 2], Stored::Q8_0, &[0.5; 64])
        .tensor("last", &[5], Stored::F16, &[0.25; 5])
}

/// What a header promises to whoever uses it unchecked.
fn assert_consistent(header: &Header, file_len: u64) {
    assert!(header.alignment.is_power_of_two());
    let mut ranges: Vec<_> = header.tensors.iter().map(|t| (t.offset_bytes, t.end_bytes())).collect();
    ranges.sort_unstable();
    assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
    for tensor in &header.tensors {
        assert!(tensor.offset_bytes >= header.data_start && tensor.end_bytes() <= file_len);
        assert_eq!(tensor.row_bytes() * tensor.n_rows(), tensor.n_bytes);
        assert_eq!(tensor.block_type.row_bytes(tensor.row_len()), Some(tensor.row_bytes()));
        assert_eq!(header.tensor(&tensor.name), Some(tensor));
    }
}

#[test]
fn every_value_type_and_version_round_trips() {
    let nested = array_bytes(4, [7u32, 8].iter().map(|v| v.to_le_bytes().to_vec()));
    let broken_text = array_bytes(
        8,
        [&b"\xff"[..], b"ok"].iter().map(|text| [&(text.len() as u64).to_le_bytes()[..], text].concat()),
    );
    let bools = array_bytes(7, [1u8, 0].iter().map(|v| vec![*v]));
    let cases = [
        (Meta::U8(200), Value::U8(200)),
        (Meta::I8(-3), Value::I8(-3)),
        (Meta::U16(65535), Value::U16(65535)),
        (Meta::I16(-300), Value::I16(-300)),
        (Meta::U32(4_000_000_000), Value::U32(4_000_000_000)),
        (Meta::I32(-70000), Value::I32(-70000)),
        (Meta::U64(u64::MAX), Value::U64(u64::MAX)),
        (Meta::I64(i64::MIN), Value::I64(i64::MIN)),
        (Meta::F32(1e-5), Value::F32(1e-5)),
        (Meta::F64(0.1), Value::F64(0.1)),
        (Meta::Bool(true), Value::Bool(true)),
        (Meta::Str("né 🦀".into()), Value::String("né 🦀".into())),
        (Meta::I32s(vec![1, -2]), Value::Array(Array::I32(vec![1, -2]))),
        (Meta::F32s(vec![0.5]), Value::Array(Array::F32(vec![0.5]))),
        (Meta::Strs(vec![]), Value::Array(Array::String(vec![]))),
        (Meta::Raw(9, nested), Value::Array(Array::U32(vec![7, 8]))),
        (Meta::Raw(9, bools), Value::Array(Array::Bool(vec![true, false]))),
        (Meta::Raw(9, broken_text), Value::Array(Array::String(vec!["\u{fffd}".into(), "ok".into()]))),
    ];
    for version in [2, 3] {
        let mut writer = GgufWriter { version, ..small() };
        writer.metadata.clear();
        for (idx, (meta, _)) in cases.iter().enumerate() {
            writer = writer.meta(&format!("key.{idx}"), meta.clone());
        }
        let file = writer.write();
        let header = parse(&file).unwrap();
        assert_eq!((header.version, header.alignment), (version, 32));
        let read: Vec<_> = header.metadata.iter().collect();
        for (idx, (_, value)) in cases.iter().enumerate() {
            assert_eq!(read[idx], (format!("key.{idx}").as_str(), value));
        }
        assert_tensors_of_small(&header, &file);
    }
}

fn assert_tensors_of_small(header: &Header, file: &[u8]) {
    assert_consistent(header, file.len() as u64);
    let data = |name: &str| {
        let tensor = header.tensor(name).unwrap();
        (tensor, &file[tensor.offset_bytes as usize..tensor.end_bytes() as usize])
    };
    let (norm, bytes) = data("norm");
    assert_eq!((norm.shape.as_slice(), norm.block_type, norm.n_bytes), (&[3][..], BlockType::F32, 12));
    assert_eq!(bytes, Stored::F32.encode(&[1.0, -2.5, 3.0]));
    let (matrix, bytes) = data("matrix");
    assert_eq!(
        (matrix.shape.as_slice(), matrix.block_type, matrix.n_bytes),
        (&[32, 2][..], BlockType::Q8_0, 68)
    );
    assert_eq!((matrix.row_len(), matrix.n_rows()), (32, 2));
    assert_eq!(bytes, Stored::Q8_0.encode(&[0.5; 64]));
    let (last, bytes) = data("last");
    assert_eq!((last.block_type, last.n_bytes, last.end_bytes()), (BlockType::F16, 10, file.len() as u64));
    assert_eq!(bytes, Stored::F16.encode(&[0.25; 5]));
    assert_eq!(header.tensor("absent"), None);
}

#[test]
fn other_alignments_are_followed() {
    for alignment in [1u32, 8, 64, 4096] {
        let mut writer = small().meta("general.alignment", Meta::U32(alignment));
        writer.alignment = alignment.into();
        let file = writer.write();
        let header = parse(&file).unwrap();
        assert_eq!(header.alignment, u64::from(alignment));
        assert_tensors_of_small(&header, &file);
    }
}

#[test]
fn a_file_cut_anywhere_asks_for_more_or_is_refused() {
    let writer = small();
    let (header_len, file) = (writer.header().len(), writer.write());
    let file_len = file.len() as u64;
    for cut in 0..file.len() {
        match Header::parse(&file[..cut], file_len) {
            Ok(Parsed::NeedMore { at_least }) => {
                assert!(
                    cut < header_len && cut < at_least as usize && at_least as usize <= header_len,
                    "{cut}"
                );
            }
            Ok(Parsed::Complete(_)) => assert!(cut >= header_len, "{cut}"),
            Err(error) => panic!("{cut}: {error}"),
        }
        let error = match Header::parse(&file[..cut], cut as u64) {
            Err(error) => error.to_string(),
            Ok(parsed) => panic!("{cut} bytes gave {parsed:?}"),
        };
        let wanted = match cut {
            0 => "empty",
            1..4 => "not a GGUF file",
            4..24 => "truncated",
            // Counts no longer fit, then fields, then tensors.
            _ if cut < header_len => "download it again",
            _ => "tensor \"last\" ends at byte",
        };
        assert!(error.contains(wanted), "{cut}: {error}");
    }
}

#[test]
fn pieces_of_the_asked_size_reach_the_end() {
    let file = llama_tiny_gguf();
    let (mut have, mut rounds) = (0, 0);
    let header = loop {
        rounds += 1;
        match Header::parse(&file[..have], file.len() as u64).unwrap() {
            Parsed::Complete(header) => break header,
            Parsed::NeedMore { at_least } => have = at_least as usize,
        }
    };
    assert_eq!(header.tensors, parse(&file).unwrap().tensors);
    assert!(rounds > 2 && have < header.data_start as usize + 1);
}

#[test]
fn a_header_with_any_byte_changed_is_refused_or_consistent() {
    let writer = small();
    let file = writer.write();
    for place in 0..writer.header().len() {
        for byte in [0x00, 0x01, 0x03, 0x1f, 0x7f, 0x80, 0xff] {
            let mut changed = file.clone();
            changed[place] = byte;
            if let Ok(Parsed::Complete(header)) = Header::parse(&changed, file.len() as u64) {
                assert_consistent(&header, file.len() as u64);
            }
        }
    }
}

/// A file's one error contains all of these.
fn check(file: &[u8], wanted: &[&str]) {
    let error = match Header::parse(file, file.len() as u64) {
        Err(error) => error.to_string(),
        Ok(parsed) => panic!("{wanted:?} expected, but it gave {parsed:?}"),
    };
    assert!(wanted.iter().all(|part| error.contains(part)), "{wanted:?} expected in: {error}");
    assert!(error.len() < 500 && !error.contains('\n'), "{error}");
}

#[test]
fn what_is_not_gguf_is_named() {
    let with_start = |start: &[u8]| [start, &[0; 64]].concat();
    check(b"", &["not a GGUF file", "empty", "download it again"]);
    check(&with_start(b"GGML"), &["GGML", "older than GGUF"]);
    check(&with_start(b"PK\x03\x04"), &["zip archive", ".gguf"]);
    check(&with_start(b"<!DOCTYPE html>"), &["web page", "download"]);
    check(include_bytes!("fixtures/llama-tiny/model.safetensors"), &["safetensors", "the whole folder"]);
    check(&with_start(b"\x7fELF"), &["starts with \"\\x7fELF\""]);
    check(&with_start(b"GGUF\0\0\0\x03"), &["big-endian", "little-endian"]);
    check(&GgufWriter { version: 1, ..small() }.write(), &["version 1", "convert"]);
    check(&GgufWriter { version: 4, ..small() }.write(), &["version 4", "2 and 3"]);
    check(&GgufWriter { version: 0, ..small() }.write(), &["version 0"]);
}

#[test]
fn absurd_counts_and_lengths_are_refused() {
    const N_TENSORS: usize = 8;
    const N_KEYS: usize = 16;
    const FIRST_KEY_LEN: usize = 24;
    let patched = |place: usize, number: u64| {
        let mut file = small().write();
        file[place..place + 8].copy_from_slice(&number.to_le_bytes());
        file
    };
    for absurd in [u64::MAX, i64::MAX as u64, 1 << 40, u64::from(u32::MAX)] {
        check(&patched(N_TENSORS, absurd), &["number of tensors", &absurd.to_string(), "has room for"]);
        check(&patched(N_KEYS, absurd), &["number of metadata keys", &absurd.to_string(), "has room for"]);
        check(&patched(FIRST_KEY_LEN, absurd), &["name of metadata key 0", "truncated or damaged"]);
        for element_type in [0u32, 4, 7, 8, 12] {
            let array = [&element_type.to_le_bytes()[..], &absurd.to_le_bytes()].concat();
            check(
                &small().meta("x.y", Meta::Raw(9, array)).write(),
                &["metadata key \"x.y\"", "truncated or damaged"],
            );
        }
        let text = Meta::Raw(8, absurd.to_le_bytes().to_vec());
        check(&small().meta("x.y", text).write(), &["metadata key \"x.y\"", "truncated or damaged"]);
    }
    // Past the tensors there is padding: a tensor without a name.
    check(&patched(N_TENSORS, 4), &["name of tensor 3", "empty"]);
    // One key fewer: the second key is then read as a tensor.
    check(&patched(N_KEYS, 1), &["tensor \"tokenizer.ggml.tokens\"", "9 dimensions"]);
}

#[test]
fn a_wrong_field_is_named() {
    let raw = |type_id, bytes: &[u8]| small().meta("x.y", Meta::Raw(type_id, bytes.to_vec())).write();
    check(&raw(13, &[0; 8]), &["metadata key \"x.y\"", "value type is 13"]);
    check(&raw(7, &[2]), &["metadata key \"x.y\"", "bool is 2"]);
    check(&raw(8, b"\x01\0\0\0\0\0\0\0\xff"), &["metadata key \"x.y\"", "not UTF-8"]);
    check(&raw(9, &array_bytes(9, [vec![0; 12]].into_iter())), &["metadata key \"x.y\"", "array of arrays"]);
    check(
        &raw(9, &array_bytes(77, [vec![0; 12]].into_iter())),
        &["metadata key \"x.y\"", "element type is 77"],
    );
    check(&raw(9, &array_bytes(7, [vec![9]].into_iter())), &["metadata key \"x.y\"", "bool is 9"]);
    check(&small().text("general.architecture", "gpt2").write(), &["key \"general.architecture\"", "twice"]);
    for alignment in [0, 3, 48] {
        let file = small().meta("general.alignment", Meta::U32(alignment)).write();
        check(&file, &["general.alignment", &alignment.to_string(), "power of two"]);
    }
    check(&small().text("general.alignment", "32").write(), &["general.alignment", "string", "integer"]);
    let mut file = small().write();
    file[32] = 0xff;
    check(&file, &["name of metadata key 0", "not UTF-8"]);
    let long = "n".repeat(5000);
    check(&small().text(&long, "").text(&long, "").write(), &["nnnn", "…", "twice"]);
}

#[test]
fn a_wrong_tensor_is_named() {
    let with = |shape: &[u64], type_id| small().raw_tensor("t", shape, type_id, vec![0; 64]).write();
    check(&with(&[], 0), &["tensor \"t\"", "0 dimensions"]);
    check(&with(&[1; 5], 0), &["tensor \"t\"", "5 dimensions"]);
    check(&with(&[4, 0], 0), &["tensor \"t\"", "[4, 0]"]);
    check(&with(&[1 << 32, 1 << 32], 0), &["tensor \"t\"", "overflows"]);
    check(&with(&[1 << 62], 28), &["tensor \"t\"", "overflows"]);
    check(&with(&[33, 2], 8), &["tensor \"t\"", "33 values", "Q8_0 blocks of 32"]);
    check(&with(&[32, 2], 14), &["tensor \"t\"", "Q6_K blocks of 256"]);
    check(&with(&[32], 4), &["tensor \"t\"", "Q4_2", "given up"]);
    check(&with(&[32], 1000), &["tensor \"t\"", "block type 1000", "unknown"]);
    check(&with(&[17], 0), &["tensor \"t\" ends at byte", "truncated"]);
    check(&with(&[1 << 50], 0), &["tensor \"t\" ends at byte", "truncated"]);
    check(&small().raw_tensor("last", &[1], 0, vec![0; 4]).write(), &["tensor \"last\"", "twice"]);
    let placed = |offset| {
        let mut writer = small();
        writer.tensors[1].offset = Some(offset);
        writer.write()
    };
    check(&placed(33), &["tensor \"matrix\"", "offset 33", "alignment 32"]);
    check(&placed(0), &["overlap", "\"matrix\"", "\"norm\""]);
    check(&placed(64), &["tensor \"last\"", "overlap", "\"matrix\""]);
    check(&placed(1 << 40), &["tensor \"matrix\" ends at byte 10995", "truncated"]);
    check(&placed(u64::MAX - 31), &["tensor \"matrix\"", "beyond any file"]);
}

#[test]
fn getters_name_the_key_and_both_types() {
    let file = small()
        .meta("i", Meta::I8(-1))
        .meta("big", Meta::U64(1 << 40))
        .meta("small", Meta::I16(7))
        .meta("f", Meta::F64(0.5))
        .meta("b", Meta::Bool(true))
        .meta("ids", Meta::I32s(vec![1, 3]))
        .meta("scores", Meta::F32s(vec![0.5]))
        .write();
    let mut metadata: Metadata = parse(&file).unwrap().metadata;
    assert_eq!(metadata.u32("small"), Ok(7));
    assert_eq!(metadata.u64("big"), Ok(1 << 40));
    assert_eq!(metadata.f32("f"), Ok(0.5));
    assert_eq!(metadata.bool("b"), Ok(true));
    assert_eq!(metadata.str("general.architecture"), Ok("llama"));
    assert_eq!(metadata.i32s("ids"), Ok(vec![1, 3]));
    assert_eq!(metadata.f32s("scores"), Ok(vec![0.5]));
    assert_eq!((metadata.opt_u32("none"), metadata.opt_str("none")), (Ok(None), Ok(None)));
    let refused = |error: String, wanted: &[&str]| {
        assert!(wanted.iter().all(|part| error.contains(part)), "{wanted:?} expected in: {error}");
    };
    refused(metadata.u32("none").unwrap_err().to_string(), &["no metadata key none", "an integer"]);
    refused(metadata.u32("i").unwrap_err().to_string(), &["i holds -1", "from 0 to 4294967295"]);
    refused(metadata.opt_u32("big").unwrap_err().to_string(), &["big holds 1099511627776"]);
    refused(metadata.u32("f").unwrap_err().to_string(), &["f is float64", "an integer"]);
    refused(metadata.f32("small").unwrap_err().to_string(), &["small is int16", "floating-point"]);
    refused(metadata.bool("ids").unwrap_err().to_string(), &["ids is an array of 2 int32", "a bool"]);
    refused(metadata.i32s("scores").unwrap_err().to_string(), &["scores is an array of 1 float32"]);
    refused(
        metadata.take_strings("ids").unwrap_err().to_string(),
        &["ids is an array of 2 int32", "strings"],
    );
    assert_eq!(metadata.take_strings("tokenizer.ggml.tokens").unwrap(), ["a", "Ġb", ""]);
    assert_eq!(metadata.opt_take_strings("tokenizer.ggml.tokens"), Ok(None));
}

#[test]
fn llama_tiny_is_laid_out_as_llama_cpp_does() {
    for (stored, block_type) in [
        (Stored::F32, BlockType::F32),
        (Stored::F16, BlockType::F16),
        (Stored::Q8_0, BlockType::Q8_0),
        (Stored::Q4_1, BlockType::Q4_1),
    ] {
        let file = llama_tiny_gguf_stored(stored);
        let mut header = parse(&file).unwrap();
        assert_consistent(&header, file.len() as u64);
        assert_eq!(header.tensors.len(), 3 + 2 * 9);
        let shape = |name: &str| {
            let tensor = header.tensor(name).unwrap();
            (tensor.shape.clone(), tensor.block_type)
        };
        assert_eq!(shape("token_embd.weight"), (vec![64, 384], block_type));
        assert_eq!(shape("output.weight"), (vec![64, 384], block_type));
        assert_eq!(shape("output_norm.weight"), (vec![64], BlockType::F32));
        assert_eq!(shape("blk.1.attn_q.weight"), (vec![64, 64], block_type));
        assert_eq!(shape("blk.1.attn_k.weight"), (vec![64, 32], block_type));
        assert_eq!(shape("blk.0.ffn_down.weight"), (vec![160, 64], block_type));
        assert_eq!(header.metadata.u32("llama.attention.head_count_kv"), Ok(2));
        assert_eq!(header.metadata.f32("llama.rope.freq_base"), Ok(10000.0));
        assert_eq!(header.metadata.i32s("tokenizer.ggml.token_type").unwrap()[..4], [3, 3, 3, 1]);
        assert_eq!(header.metadata.take_strings("tokenizer.ggml.tokens").unwrap().len(), 384);
        assert_eq!(header.metadata.take_strings("tokenizer.ggml.merges").unwrap()[0], "à ¤");
    }
}

#[test]
fn stored_values_are_near_the_true_ones() {
    let values: Vec<f32> = (0..64).map(|i| ((i * 37 % 64) as f32 - 20.0) / 16.0).collect();
    let range = 63.0 / 16.0;
    for (stored, most) in
        [(Stored::F32, 0.0), (Stored::F16, 0.0), (Stored::Q8_0, range / 127.0), (Stored::Q4_1, range / 15.0)]
    {
        let decoded = stored.decode(&stored.encode(&values));
        assert_eq!(decoded.len(), values.len());
        for (decoded, value) in decoded.iter().zip(&values) {
            assert!((decoded - value).abs() <= most, "{stored:?}: {decoded} for {value}");
        }
    }
    for (value, half) in [
        (0.0, 0x0000),
        (-0.0, 0x8000),
        (1.0, 0x3c00),
        (65504.0, 0x7bff),
        (65520.0, 0x7c00),
        (f32::NEG_INFINITY, 0xfc00),
        (5.960_464_5e-8, 0x0001),
        (2.980_232_2e-8, 0x0000),
        (6.103_515_6e-5, 0x0400),
        (0.333_333_34, 0x3555),
        (1.000_488_3, 0x3c00),
        (1.001_464_8, 0x3c02),
    ] {
        assert_eq!(gguf_writer::f16_from_f32(value), half, "{value}");
    }
}

#[test]
fn the_real_model_parses() {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(REAL_MODEL);
    let file = std::fs::read(&path)
        .unwrap_or_else(|error| panic!("{}: {error}; `cargo xtask test` fetches it", path.display()));
    // The header is read from a piece, as a host does.
    let Parsed::Complete(header) = Header::parse(&file[..2 << 20], file.len() as u64).unwrap() else {
        panic!("the header is longer than 2 MiB");
    };
    assert_consistent(&header, file.len() as u64);
    assert_eq!((header.version, header.data_start, header.metadata.len()), (3, 1_785_664, 33));
    let mut counts = BTreeMap::new();
    for tensor in &header.tensors {
        *counts.entry(tensor.block_type).or_insert(0) += 1;
    }
    let expected = [(BlockType::F32, 61), (BlockType::Q4_1, 210), (BlockType::Q8_0, 1)];
    assert_eq!((header.tensors.len(), counts), (272, BTreeMap::from(expected)));
    let tensor = |name: &str| {
        let tensor = header.tensor(name).unwrap();
        (tensor.shape.clone(), tensor.offset_bytes, tensor.n_bytes)
    };
    assert_eq!(tensor("token_embd.weight"), (vec![576, 49152], 1_785_664, 30_081_024));
    assert_eq!(tensor("blk.0.attn_k.weight"), (vec![576, 192], 33_530_176, 69_120));
    assert_eq!(tensor("output_norm.weight"), (vec![576], 98_360_128, 2304));
    assert_eq!(header.metadata.u32("llama.block_count"), Ok(30));
    assert_eq!(header.metadata.strings("tokenizer.ggml.tokens").unwrap().len(), 49152);
    assert_eq!(header.metadata.strings("tokenizer.ggml.merges").unwrap().len(), 48900);
    assert_eq!(header.metadata.bool("tokenizer.ggml.add_bos_token"), Ok(false));
    let most = header.tensors.iter().map(|tensor| tensor.end_bytes()).max();
    assert_eq!(most, Some(file.len() as u64));
}
