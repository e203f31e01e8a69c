//! Products of packed weights on the processor against f64 loops over the values that `format` decodes: every block type and
//! every set of instructions that the machine has; natively and in Chromium.
#![cfg(feature = "gpu")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/safetensors.rs"]
mod safetensors;

use std::ops::Range;

use pagelm::cpu::inputs::Inputs;
use pagelm::cpu::instructions::Instructions;
use pagelm::cpu::matrix::CpuMatrix;
use pagelm::format::block::BlockType;
use pagelm::format::decode::{DECODED, decode};
use pagelm::format::half::{f16_from_f32, f32_from_bf16, f32_from_f16};
use pagelm::format::quantize::quantize;
use pagelm::plan::Precision;
use safetensors::tensor_bytes;
#[cfg(target_arch = "wasm32")]
use wasm_bindgen_test::wasm_bindgen_test as test;

#[cfg(target_arch = "wasm32")]
wasm_bindgen_test::wasm_bindgen_test_configure!(run_in_dedicated_worker);

/// `TYPE.blocks` as bytes: 5 rows of 512 values, the last row's scales subnormal f16.
const BLOCKS: &[u8] = include_bytes!("fixtures/gguf-blocks/blocks.safetensors");
const BOUND: f64 = 1e-5;
const PRECISIONS: [Precision; 2] = [Precision::Exact, Precision::Fast];

/// Numbers that look random and are the same everywhere (xorshift64*, Vigna 2016).
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// In [−1, 1).
    fn signed(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Where a block has numbers in half precision; all other bits may be any.
fn halves_of(block_type: BlockType) -> &'static [usize] {
    match block_type {
        BlockType::Q2_K => &[80, 82],
        BlockType::Q3_K => &[108],
        BlockType::Q6_K => &[208],
        BlockType::Q4_1 | BlockType::Q5_1 | BlockType::Q4_K | BlockType::Q5_K => &[0, 2],
        BlockType::MXFP4 => &[],
        _ => &[0],
    }
}

/// Rows of a file: blocks of any bits and, of each row the last, one of those that GGML made.
fn random_rows(block_type: BlockType, n_rows: usize, n_columns: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    if block_type.block_len() == 1 {
        let values: Vec<f32> = (0..n_rows * n_columns).map(|_| random.signed()).collect();
        quantize(block_type, &values, &mut bytes).unwrap();
        return bytes;
    }
    let block_bytes = block_type.block_bytes() as usize;
    let made = tensor_bytes(BLOCKS, &format!("{}.blocks", block_type.name()));
    for row in 0..n_rows {
        for _ in 0..n_columns / block_type.block_len() as usize {
            let start = bytes.len();
            bytes.extend((0..block_bytes).map(|_| (random.next() >> 20) as u8));
            for at in halves_of(block_type) {
                let half = f16_from_f32(0.01 * (1.0 + 0.3 * random.signed()));
                bytes[start + at..][..2].copy_from_slice(&half.to_le_bytes());
            }
            if block_type == BlockType::MXFP4 {
                bytes[start] = 124 + (random.next() >> 40) as u8 % 3;
            }
        }
        let last = bytes.len() - block_bytes;
        let from = row % (made.len() / block_bytes) * block_bytes;
        bytes[last..].copy_from_slice(&made[from..][..block_bytes]);
    }
    bytes
}

struct Case {
    block_type: BlockType,
    n_rows: usize,
    n_columns: usize,
    file: Vec<u8>,
    /// (n_rows, n_columns)
    values: Vec<f32>,
}

impl Case {
    fn new(block_type: BlockType, n_rows: usize, n_columns: usize, random: &mut Random) -> Self {
        let file = random_rows(block_type, n_rows, n_columns, random);
        let mut values = Vec::new();
        decode(block_type, &file, &mut values).unwrap();
        Self { block_type, n_rows, n_columns, file, values }
    }

    /// As a load does it: in pieces of an odd number of rows, here the last one first.
    fn matrix(&self) -> CpuMatrix {
        let mut matrix = CpuMatrix::new(self.block_type, self.n_rows, self.n_columns).unwrap();
        let piece_bytes = self.file.len() / self.n_rows * 3;
        for (piece, bytes) in self.file.chunks(piece_bytes).enumerate().collect::<Vec<_>>().into_iter().rev()
        {
            matrix.write_rows(3 * piece, bytes);
        }
        matrix
    }

    /// (n_rows)
    fn expected(&self, x: &[f64]) -> Vec<f64> {
        let dot = |row: &[f32]| row.iter().zip(x).map(|(w, x)| f64::from(*w) * x).sum();
        self.values.chunks(self.n_columns).map(dot).collect()
    }

    fn is_packed(&self, precision: Precision) -> bool {
        precision == Precision::Fast && self.block_type.block_len() > 1
    }
}

/// Activations with a few that are far greater than the rest, as models have.
fn activations(n_columns: usize, random: &mut Random) -> Vec<f32> {
    (0..n_columns).map(|i| random.signed() * if i % 61 == 7 { 40.0 } else { 1.0 }).collect()
}

/// The same in steps of 1 / 511 of the greatest of each 32.
fn rounded(values: &[f32]) -> Vec<f64> {
    let round = |group: &[f32]| {
        let greatest = group.iter().fold(0f32, |greatest, value| greatest.max(value.abs()));
        let step = |value: f32| {
            f64::from(greatest / 511.0) * f64::from((value * (511.0 / greatest)).round_ties_even())
        };
        group.iter().map(|value| if greatest == 0.0 { 0.0 } else { step(*value) }).collect::<Vec<f64>>()
    };
    values.chunks(32).flat_map(round).collect()
}

fn inputs(rows: &[Vec<f32>], n_columns: usize, precision: Precision) -> Inputs {
    let mut inputs = Inputs::new();
    // What was there before must not shine through.
    inputs.reset(rows.len() + 1, 64);
    inputs.row_mut(0).fill(f32::NAN);
    inputs.seal(Precision::Fast);
    inputs.reset(rows.len(), n_columns);
    for (i, row) in rows.iter().enumerate() {
        inputs.row_mut(i).copy_from_slice(row);
        assert_eq!(bits(inputs.row(i)), bits(row));
    }
    inputs.seal(precision);
    inputs
}

/// (rows, rows of inputs)
fn multiply(matrix: &CpuMatrix, rows: Range<usize>, inputs: &Inputs) -> Vec<f32> {
    let mut outputs = vec![f32::NAN; rows.len() * inputs.n_rows()];
    matrix.multiply(rows, inputs, &mut outputs);
    outputs
}

/// Those of one row of inputs.
fn column(outputs: &[f32], n_inputs: usize, row: usize) -> Vec<f32> {
    outputs.iter().skip(row).step_by(n_inputs).copied().collect()
}

fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// max|Δ| / max|reference|; NaN is infinitely wrong.
fn error(got: &[f32], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let greatest = expected.iter().fold(f64::MIN_POSITIVE, |m, v| m.max(v.abs()));
    let deltas = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).abs());
    deltas.fold(0.0, |m, d| if d.is_nan() { f64::INFINITY } else { f64::max(m, d) }) / greatest
}

/// Rows and columns; superblocks take the columns eightfold.
const SHAPES: [(usize, usize); 5] = [(1, 32), (7, 64), (16, 96), (37, 576), (50, 1536)];

fn columns_of(block_type: BlockType, n_columns: usize) -> usize {
    match block_type.block_len() {
        256 => n_columns.next_multiple_of(256),
        _ => n_columns,
    }
}

#[test]
fn products_are_near_those_of_f64() {
    let mut random = Random::new(6);
    for block_type in DECODED {
        for (n_rows, n_columns) in SHAPES {
            let case = Case::new(block_type, n_rows, columns_of(block_type, n_columns), &mut random);
            let rows: Vec<Vec<f32>> = (0..3).map(|_| activations(case.n_columns, &mut random)).collect();
            for instructions in Instructions::available() {
                let matrix = case.matrix().with_instructions(instructions);
                for precision in PRECISIONS {
                    let outputs = multiply(&matrix, 0..n_rows, &inputs(&rows, case.n_columns, precision));
                    for (i, row) in rows.iter().enumerate() {
                        let x = match case.is_packed(precision) {
                            true => rounded(row),
                            false => row.iter().map(|x| f64::from(*x)).collect(),
                        };
                        let found = error(&column(&outputs, rows.len(), i), &case.expected(&x));
                        let what = format!(
                            "{block_type}, {n_rows}×{}, {precision:?}, {}",
                            case.n_columns,
                            instructions.name()
                        );
                        assert!(found <= BOUND, "{what}: row {i} is off by {found:.2e}");
                    }
                }
            }
        }
    }
}

/// Also with other instructions, and however the rows of the matrix are cut.
#[test]
fn a_row_alone_has_the_bits_that_it_has_in_a_crowd() {
    let mut random = Random::new(7);
    for block_type in DECODED {
        let case = Case::new(block_type, 35, columns_of(block_type, 160), &mut random);
        let rows: Vec<Vec<f32>> = (0..71).map(|_| activations(case.n_columns, &mut random)).collect();
        for precision in PRECISIONS {
            let matrix = case.matrix().with_instructions(Instructions::available()[0]);
            let alone: Vec<Vec<u32>> = rows
                .iter()
                .map(|row| {
                    bits(&multiply(
                        &matrix,
                        0..35,
                        &inputs(std::slice::from_ref(row), case.n_columns, precision),
                    ))
                })
                .collect();
            for instructions in Instructions::available() {
                let matrix = case.matrix().with_instructions(instructions);
                let what = format!("{block_type}, {precision:?}, {}", instructions.name());
                for n in (1..=9).chain([33, 71]) {
                    let inputs = inputs(&rows[..n], case.n_columns, precision);
                    let outputs = multiply(&matrix, 0..35, &inputs);
                    for (i, alone) in alone[..n].iter().enumerate() {
                        assert_eq!(&bits(&column(&outputs, n, i)), alone, "{what}: row {i} of {n}");
                    }
                }
                let inputs = inputs(&rows[..5], case.n_columns, precision);
                let whole = multiply(&matrix, 0..35, &inputs);
                for cut in [0..0, 0..1, 0..16, 1..3, 15..17, 5..32, 16..35, 31..33, 34..35, 35..35] {
                    let piece = multiply(&matrix, cut.clone(), &inputs);
                    assert_eq!(
                        bits(&piece),
                        bits(&whole[cut.start * 5..cut.end * 5]),
                        "{what}: rows {cut:?}"
                    );
                }
            }
        }
    }
}

/// So that a page answers with the tokens that the native program has: one hash (FNV-1a) for every machine.
#[test]
fn every_machine_computes_the_same_bits() {
    for instructions in Instructions::available() {
        let mut random = Random::new(12);
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for block_type in DECODED {
            let case = Case::new(block_type, 19, columns_of(block_type, 96), &mut random);
            let rows = [activations(case.n_columns, &mut random), activations(case.n_columns, &mut random)];
            let matrix = case.matrix().with_instructions(instructions);
            for precision in PRECISIONS {
                let outputs = multiply(&matrix, 0..19, &inputs(&rows, case.n_columns, precision));
                for byte in bits(&outputs).into_iter().flat_map(u32::to_le_bytes) {
                    hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
                }
            }
        }
        assert_eq!(hash, 0x934b_347a_f68a_679c, "{}: {hash:#018x}", instructions.name());
    }
}

#[test]
fn rows_decode_to_the_values_of_the_file() {
    let mut random = Random::new(8);
    for block_type in DECODED {
        let case = Case::new(block_type, 21, columns_of(block_type, 96), &mut random);
        let matrix = case.matrix();
        for (row, expected) in case.values.chunks(case.n_columns).enumerate() {
            let mut values = vec![f32::NAN; case.n_columns];
            matrix.decode_row(row, &mut values);
            assert_eq!(bits(&values), bits(expected), "{block_type}: row {row}");
        }
    }
}

/// Each as the only weight of its row that does not meet a zero.
#[test]
fn every_half_is_widened() {
    let every: Vec<u16> = (0..=u16::MAX).collect();
    let file: Vec<u8> = every.iter().flat_map(|half| half.to_le_bytes()).collect();
    for (block_type, widen) in
        [(BlockType::F16, f32_from_f16 as fn(u16) -> f32), (BlockType::BF16, f32_from_bf16)]
    {
        for instructions in Instructions::available() {
            let mut matrix = CpuMatrix::new(block_type, 2048, 32).unwrap().with_instructions(instructions);
            matrix.write_rows(0, &file);
            let rows: Vec<Vec<f32>> =
                (0..32).map(|i| (0..32).map(|k| f32::from(u8::from(i == k))).collect()).collect();
            let outputs = multiply(&matrix, 0..2048, &inputs(&rows, 32, Precision::Exact));
            for ((halves, outputs), row) in every.chunks(32).zip(outputs.chunks(32)).zip(0..) {
                let is_number = halves.iter().all(|half| widen(*half).is_finite());
                let wanted = |half: &u16| if is_number { widen(*half) + 0.0 } else { f32::NAN };
                for (output, half) in outputs.iter().zip(halves) {
                    let wanted = wanted(half);
                    let is_right = if is_number { *output == wanted } else { !output.is_finite() };
                    assert!(is_right, "{block_type} {half:#06x} of row {row} became {output}, not {wanted}");
                }
            }
        }
    }
}

#[test]
fn rows_written_anew_replace_the_old_ones() {
    let mut random = Random::new(9);
    for block_type in DECODED {
        let n_columns = columns_of(block_type, 64);
        let (old, new) = (
            Case::new(block_type, 3, n_columns, &mut random),
            Case::new(block_type, 3, n_columns, &mut random),
        );
        let mut matrix = old.matrix();
        let row_bytes = new.file.len() / 3;
        matrix.write_rows(1, &new.file[row_bytes..2 * row_bytes]);
        let mut values = vec![f32::NAN; n_columns];
        for (row, case) in [&old, &new, &old].into_iter().enumerate() {
            matrix.decode_row(row, &mut values);
            assert_eq!(
                bits(&values),
                bits(&case.values[row * n_columns..][..n_columns]),
                "{block_type}: row {row}"
            );
        }
    }
}

#[test]
fn weights_take_hardly_more_than_in_the_file() {
    for block_type in DECODED {
        let matrix = CpuMatrix::new(block_type, 160, 512).unwrap();
        let file = 160 * block_type.row_bytes(512).unwrap();
        assert!(
            matrix.n_bytes() * 10 <= file * 12,
            "{block_type}: {} bytes, {file} in the file",
            matrix.n_bytes()
        );
    }
}

#[test]
fn memory_that_is_not_there_is_an_error() {
    assert!(CpuMatrix::new(BlockType::F32, usize::MAX >> 12, 1024).is_err());
}

#[test]
fn what_is_no_number_stays_none() {
    let mut random = Random::new(10);
    for block_type in DECODED {
        let case = Case::new(block_type, 17, columns_of(block_type, 96), &mut random);
        for instructions in Instructions::available() {
            let matrix = case.matrix().with_instructions(instructions);
            for (precision, bad) in PRECISIONS
                .into_iter()
                .flat_map(|p| [f32::NAN, f32::INFINITY, f32::NEG_INFINITY].map(|bad| (p, bad)))
            {
                let mut rows = vec![activations(case.n_columns, &mut random); 3];
                rows[1][41] = bad;
                let outputs = multiply(&matrix, 0..17, &inputs(&rows, case.n_columns, precision));
                let what = format!("{block_type}, {precision:?}, {}, {bad}", instructions.name());
                assert!(column(&outputs, 3, 1).iter().all(|value| !value.is_finite()), "{what}: {outputs:?}");
                assert!(
                    [0, 2].iter().all(|i| column(&outputs, 3, *i).iter().all(|value| value.is_finite())),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn zeros_and_what_is_nearly_zero_give_zeros() {
    let mut random = Random::new(11);
    let case = Case::new(BlockType::Q4_1, 5, 64, &mut random);
    for precision in PRECISIONS {
        for tiny in [0.0, -0.0, f32::from_bits(1), 1e-38] {
            let outputs = multiply(&case.matrix(), 0..5, &inputs(&[vec![tiny; 64]], 64, precision));
            assert!(outputs.iter().all(|value| value.abs() < 1e-35), "{precision:?}, {tiny:e}: {outputs:?}");
        }
    }
    let nothing = inputs(&[], 64, Precision::Fast);
    assert_eq!(nothing.n_rows(), 0);
    assert!(multiply(&case.matrix(), 0..5, &nothing).is_empty(), "no rows of inputs have no outputs");
}
