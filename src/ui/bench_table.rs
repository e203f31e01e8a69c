//! What the benchmark measured, number by number.

use leptos::prelude::*;

use crate::{
    bench::{
        percentiles::Percentiles,
        report::{Measured, Ops, Report},
    },
    protocol::OpTime,
};

/// The columns, each with what it means.
const COLUMNS: [(&str, &str); 11] = [
    ("Sequences", "Answers computed together"),
    ("Tokens", "Of each prompt and of each answer"),
    ("KV cache", "Without it every token computes all before it again"),
    ("Prefill tok/s", "Until every sequence has its first token, all together"),
    ("Decode tok/s", "While all decode, all together"),
    ("× one", "Decode over that of one sequence with the cache"),
    ("Mean ms", "Between a sequence's tokens, while all decode"),
    ("p50", "Half are not above it"),
    ("p95", "95 of a hundred are not above it"),
    ("p99", "99 of a hundred are not above it"),
    ("First ms", "Until a sequence's first token; half are not above it"),
];

/// A row for each measurement.
#[component]
pub(crate) fn Table(report: Report) -> impl IntoView {
    let heading =
        |(name, title): (&'static str, &'static str)| view! { <th scope="col" title=title>{name}</th> };
    let row = |result: &Measured| {
        let cell = |text: String| view! { <td>{text}</td> };
        view! { <tr>{cells(result).into_iter().map(cell).collect_view()}</tr> }
    };
    view! {
        <div class="bench-table" tabindex="0" role="region" aria-label="Measurements">
            <table>
                <thead>
                    <tr>{COLUMNS.into_iter().map(heading).collect_view()}</tr>
                </thead>
                <tbody>{report.results.iter().map(row).collect_view()}</tbody>
            </table>
        </div>
    }
}

fn cells(result: &Measured) -> Vec<String> {
    let number = |number: Option<f64>| number.map_or("–".to_owned(), |number| format!("{number:.2}"));
    let time = |of: fn(&Percentiles) -> f64| {
        result.token_ms.as_ref().map_or("–".to_owned(), |times| format!("{:.1}", of(times)))
    };
    vec![
        result.sequences.to_string(),
        format!("{} + {}", result.prompt_tokens, result.max_tokens),
        if result.kv_cache { "yes" } else { "no" }.to_owned(),
        number(Some(result.prefill_tokens_per_sec)),
        number(result.decode_tokens_per_sec),
        number(result.speedup),
        time(|times| times.mean),
        time(|times| times.p50),
        time(|times| times.p95),
        time(|times| times.p99),
        result.first_token_ms.as_ref().map_or("–".to_owned(), |times| format!("{:.0}", times.p50)),
    ]
}

/// A row for each operation of a decode step, where the adapter has a clock.
#[component]
pub(crate) fn OpsTable(ops: Ops) -> impl IntoView {
    let sum_ms = ops.sum_ms();
    let row = |op: &OpTime| {
        let rate = (op.weight_bytes > 0 && op.ms > 0.0).then(|| op.weight_bytes as f64 / op.ms / 1e6);
        view! {
            <tr>
                <th scope="row">{op.name.clone()}</th>
                <td>{op.dispatches}</td>
                <td>{format!("{:.3}", op.ms)}</td>
                <td>{format!("{:.1}", op.ms / sum_ms * 100.0)}</td>
                <td>{rate.map_or("–".to_owned(), |rate| format!("{rate:.2}"))}</td>
            </tr>
        }
    };
    let about = format!(
        "A decode step at position {}, by the adapter's clock. Each dispatch has a pass of its own here, so the {sum_ms:.1} ms together are more than a step takes.",
        ops.position,
    );
    view! {
        <h3 class="bench-ops-title">"Time by operation"</h3>
        <p class="about">{about}</p>
        <div class="bench-table" tabindex="0" role="region" aria-label="Time by operation">
            <table>
                <thead>
                    <tr>
                        <th scope="col">"Operation"</th>
                        <th scope="col">"Dispatches"</th>
                        <th scope="col">"ms"</th>
                        <th scope="col">"%"</th>
                        <th scope="col">"GB/s of weights"</th>
                    </tr>
                </thead>
                <tbody>{ops.ops.iter().map(row).collect_view()}</tbody>
            </table>
        </div>
    }
}
