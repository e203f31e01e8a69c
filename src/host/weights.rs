//! Weights from their files to the device, in pieces.
//!
//! Invariant: never more than one piece of the weights is in host memory, or the one tensor that is stored column by column.

use super::load::LoadError;
use super::machine::Computer;
use crate::format::checkpoint::Tensor;
use crate::plan::{MatrixId, Plan, VectorId};
use crate::store::Source;
use crate::store::files::ModelFiles;

/// Weights read at once, in bytes.
pub const PIECE_BYTES: u64 = 2 << 20;

/// Weights written before the host waits for the device, in bytes: staging memory is bounded by it.
const FLUSH_BYTES: u64 = 32 << 20;

/// Something that is brought whole: a vector, or the rows that one tensor gives a matrix.
enum Share<'a> {
    Vector(usize),
    Rotary(usize, &'a Tensor),
    Rows { matrix: usize, first_row: usize, n_rows: usize, tensor: &'a Tensor },
}

/// Brings all that the plan names, in the order of the files, so that each of their bytes need come but once; `progress` hears
/// of bytes done and in all.
pub(super) async fn write_weights<S: Source>(
    files: &ModelFiles<S>,
    plan: &Plan,
    model: &mut Computer,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), LoadError> {
    for i in (0..plan.rotaries.len()).filter(|i| plan.rotaries[*i].divisors.is_none()) {
        model.write_rotary(i, None);
    }
    let shares = shares(files, plan);
    let n_bytes = |share: &Share<'_>| match share {
        Share::Vector(i) => 4 * plan.vectors[*i].len() as u64,
        Share::Rotary(_, tensor) | Share::Rows { tensor, .. } => tensor.n_bytes(),
    };
    let total = shares.iter().map(n_bytes).sum();
    let (mut done, mut unflushed) = (0, 0);
    progress(done, total);
    for share in &shares {
        match share {
            Share::Vector(i) => {
                let mut values = Vec::with_capacity(plan.vectors[*i].len());
                for part in &plan.vectors[*i].parts {
                    values.append(&mut files.read_f32s(named(files, &part.tensor)).await?);
                }
                model.write_vector(VectorId(*i), &values);
            }
            Share::Rotary(i, tensor) => {
                let divisors = files.read_f32s(tensor).await?;
                model.write_rotary(*i, Some(&divisors));
            }
            &Share::Rows { matrix, first_row, n_rows, tensor } => {
                let piece_rows = tensor.piece_rows(PIECE_BYTES);
                for row in (0..n_rows as u64).step_by(piece_rows as usize) {
                    let piece = files.read_rows(tensor, row, piece_rows.min(n_rows as u64 - row)).await?;
                    model.write_rows(MatrixId(matrix), first_row + row as usize, &piece);
                    unflushed += piece.len() as u64;
                    if unflushed >= FLUSH_BYTES {
                        model.flush().await?;
                        unflushed = 0;
                    }
                    progress(done + (row + piece_rows).min(n_rows as u64) * tensor.row_bytes, total);
                }
            }
        }
        done += n_bytes(share);
        progress(done, total);
    }
    model.flush().await?;
    Ok(())
}

/// What the plan names, in the order of the files.
fn shares<'a, S: Source>(files: &'a ModelFiles<S>, plan: &Plan) -> Vec<Share<'a>> {
    let mut placed = Vec::new();
    for (i, vector) in plan.vectors.iter().enumerate() {
        let place = vector.parts.iter().map(|part| named(files, &part.tensor).place()).min();
        placed.push((place.unwrap_or_default(), Share::Vector(i)));
    }
    for (i, rotary) in plan.rotaries.iter().enumerate() {
        if let Some(name) = &rotary.divisors {
            let tensor = named(files, name);
            placed.push((tensor.place(), Share::Rotary(i, tensor)));
        }
    }
    for (matrix, packed) in plan.matrices.iter().enumerate() {
        let mut first_row = 0;
        for part in &packed.parts {
            let tensor = named(files, &part.tensor);
            placed.push((tensor.place(), Share::Rows { matrix, first_row, n_rows: part.n_rows, tensor }));
            first_row += part.n_rows;
        }
    }
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, share)| share).collect()
}

fn named<'a, S: Source>(files: &'a ModelFiles<S>, name: &str) -> &'a Tensor {
    files.checkpoint.tensor(name).expect("the recorder checked it")
}
