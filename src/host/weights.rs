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

/// Brings all that the plan names; `progress` hears of bytes done and in all.
pub(super) async fn write_weights<S: Source>(
    files: &ModelFiles<S>,
    plan: &Plan,
    model: &mut Computer,
    progress: &mut impl FnMut(u64, u64),
) -> Result<(), LoadError> {
    let tensor = |name: &str| files.checkpoint.tensor(name).expect("the recorder checked it");
    let mut done = 0;
    let mut unflushed = 0;
    for (i, vector) in plan.vectors.iter().enumerate() {
        let mut values = Vec::with_capacity(vector.len());
        for part in &vector.parts {
            values.append(&mut files.read_f32s(tensor(&part.tensor)).await?);
        }
        model.write_vector(VectorId(i), &values);
        done += 4 * values.len() as u64;
    }
    for (i, rotary) in plan.rotaries.iter().enumerate() {
        let divisors = match &rotary.divisors {
            None => None,
            Some(name) => Some(files.read_f32s(tensor(name)).await?),
        };
        model.write_rotary(i, divisors.as_deref());
    }
    let parts = || plan.matrices.iter().flat_map(|matrix| &matrix.parts);
    let total = done + parts().map(|part| tensor(&part.tensor)).map(Tensor::n_bytes).sum::<u64>();
    progress(done, total);
    for (i, matrix) in plan.matrices.iter().enumerate() {
        let mut first_row = 0;
        for part in &matrix.parts {
            let tensor = tensor(&part.tensor);
            let piece_rows = tensor.piece_rows(PIECE_BYTES);
            let mut row = 0;
            while row < part.n_rows as u64 {
                let n_rows = piece_rows.min(part.n_rows as u64 - row);
                let piece = files.read_rows(tensor, row, n_rows).await?;
                model.write_rows(MatrixId(i), first_row + row as usize, &piece);
                row += n_rows;
                done += piece.len() as u64;
                unflushed += piece.len() as u64;
                if unflushed >= FLUSH_BYTES {
                    model.flush().await?;
                    unflushed = 0;
                    progress(done, total);
                }
            }
            first_row += part.n_rows;
        }
        progress(done, total);
    }
    model.flush().await?;
    Ok(())
}
