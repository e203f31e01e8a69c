//! A plan's operations cut into parts, each a loop over items that may stop and go on between any two of them.
//!
//! Invariant: a part reads only what parts before it have finished.

use crate::plan::{Activation, MatrixId, Nonlinearity, Norm, Op, Plan, Rotation, VectorId};

/// Rows that a part computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rows {
    All,
    /// Those whose logits are wanted.
    Logits,
}

/// A loop of a step; `inputs` are what matrices multiply, `outputs` are what they make.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Part {
    /// Angles of all rotaries at the positions of the rows.
    Angles,
    Embed {
        table: MatrixId,
        scale: f32,
    },
    AddPosition {
        table: MatrixId,
    },
    /// inputs = norm(hidden).
    Norm {
        norm: Norm,
        rows: Rows,
    },
    /// outputs = weights · inputs, from row `first_output` of the outputs on.
    Multiply {
        weights: MatrixId,
        first_output: usize,
    },
    /// q, k and v = outputs + bias, normed by heads, rotated; k and v go to the cache.
    KeepQkv {
        layer: usize,
        bias: Option<VectorId>,
        head_norms: Option<[Norm; 2]>,
        rotation: Option<Rotation>,
    },
    Attend {
        layer: usize,
        scale: f32,
        softcap: Option<f32>,
    },
    /// inputs = attended.
    TakeAttended,
    /// outputs = nonlinearity(gate + bias) · (up + bias), or without an up.
    Activate {
        bias: Option<VectorId>,
        nonlinearity: Nonlinearity,
        is_gated: bool,
    },
    /// inputs = outputs.
    TakeMlp,
    /// hidden += post_norm(outputs + bias).
    Add {
        bias: Option<VectorId>,
        post_norm: Option<Norm>,
    },
    /// logits = capped outputs.
    Logits {
        softcap: Option<f32>,
    },
}

/// All parts of a plan's steps, in order.
///
/// # Panics
/// If an MLP is not projected back by the operation that follows it: what it makes lies where the next one's outputs go.
pub(super) fn parts(plan: &Plan) -> Vec<Part> {
    let mut parts = vec![Part::Angles];
    for (i, op) in plan.ops.iter().enumerate() {
        push_op(plan, op, &mut parts);
        if matches!(op, Op::GatedMlp { .. } | Op::Mlp { .. }) {
            let next = plan.ops.get(i + 1);
            assert!(matches!(next, Some(Op::ProjectAdd { input: Activation::Mlp, .. })), "{next:?}");
        }
    }
    parts
}

fn push_op(plan: &Plan, op: &Op, parts: &mut Vec<Part>) {
    match op {
        Op::Embed { table, scale } => parts.push(Part::Embed { table: *table, scale: *scale }),
        Op::AddPosition { table } => parts.push(Part::AddPosition { table: *table }),
        Op::ProjectQkv { layer, norm, weights, bias, head_norms, rotation } => {
            parts.push(Part::Norm { norm: *norm, rows: Rows::All });
            push_products(plan, weights, parts);
            let (layer, bias, head_norms, rotation) = (*layer, *bias, *head_norms, *rotation);
            parts.push(Part::KeepQkv { layer, bias, head_norms, rotation });
        }
        Op::Attend { layer, scale, softcap } => {
            parts.push(Part::Attend { layer: *layer, scale: *scale, softcap: *softcap });
        }
        Op::ProjectAdd { weights, bias, input, post_norm } => {
            parts.push(match input {
                Activation::Attended => Part::TakeAttended,
                Activation::Mlp => Part::TakeMlp,
            });
            push_products(plan, &[*weights], parts);
            parts.push(Part::Add { bias: *bias, post_norm: *post_norm });
        }
        Op::GatedMlp { norm, weights, bias, nonlinearity } => {
            parts.push(Part::Norm { norm: *norm, rows: Rows::All });
            push_products(plan, weights, parts);
            parts.push(Part::Activate { bias: *bias, nonlinearity: *nonlinearity, is_gated: true });
        }
        Op::Mlp { norm, weights, bias, nonlinearity } => {
            parts.push(Part::Norm { norm: *norm, rows: Rows::All });
            push_products(plan, &[*weights], parts);
            parts.push(Part::Activate { bias: *bias, nonlinearity: *nonlinearity, is_gated: false });
        }
        Op::Logits { norm, weights, softcap } => {
            parts.push(Part::Norm { norm: *norm, rows: Rows::Logits });
            push_products(plan, &[*weights], parts);
            parts.push(Part::Logits { softcap: *softcap });
        }
    }
}

/// Products with matrices whose outputs are stacked.
fn push_products(plan: &Plan, weights: &[MatrixId], parts: &mut Vec<Part>) {
    let mut first_output = 0;
    for weights in weights {
        parts.push(Part::Multiply { weights: *weights, first_output });
        first_output += plan.matrices[weights.0].n_rows();
    }
}
