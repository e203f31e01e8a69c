//! What the benchmark measured, as pictures: time by position with and without the cache, and speed by sequences.

use leptos::prelude::*;

use super::bench_scale::Scale;
use crate::bench::report::{Measured, Report};

/// Size of a picture, and of the room around its field, in its own units.
const WIDTH: f64 = 480.0;
const HEIGHT: f64 = 260.0;
const LEFT: f64 = 58.0;
const RIGHT: f64 = 14.0;
const TOP: f64 = 14.0;
const BOTTOM: f64 = 40.0;

/// Points that belong together.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Series {
    pub(super) name: String,
    pub(super) points: Vec<(f64, f64)>,
}

/// The pictures that the measurements fill.
#[component]
pub(crate) fn Plots(report: Report) -> impl IntoView {
    let by_position = by_position(&report.results);
    let by_sequences = by_sequences(&report.results);
    view! {
        <div class="bench-plots">
            <Plot title="Time of a token by its position" x_label="position" y_label="ms" series=by_position />
            <Plot
                title="Decode speed by sequences at once"
                x_label="sequences"
                y_label="tokens/s"
                series=by_sequences
            />
        </div>
    }
}

/// One sequence with the cache and one without, or the fewest that were measured; of the first lengths.
fn by_position(results: &[Measured]) -> Vec<Series> {
    let Some(first) = results.first() else { return Vec::new() };
    let of_first = |result: &&Measured| {
        (result.prompt_tokens, result.max_tokens) == (first.prompt_tokens, first.max_tokens)
    };
    let series = |kv_cache: bool| {
        let alike = results.iter().filter(of_first).filter(|result| result.kv_cache == kv_cache);
        let result = alike.min_by_key(|result| result.sequences)?;
        let name = if kv_cache { "with the KV cache" } else { "without the KV cache" };
        let place = |i: usize| f64::from(result.prompt_tokens) + 1.0 + i as f64;
        let points = result.position_ms.iter().enumerate().map(|(i, ms)| (place(i), *ms)).collect();
        Some(Series { name: name.to_owned(), points })
    };
    [true, false].into_iter().filter_map(series).filter(|series| !series.points.is_empty()).collect()
}

/// A line for each pair of lengths.
fn by_sequences(results: &[Measured]) -> Vec<Series> {
    let mut lines: Vec<Series> = Vec::new();
    for result in results.iter().filter(|result| result.kv_cache) {
        let Some(rate) = result.decode_tokens_per_sec else { continue };
        let name = format!("{} + {} tokens", result.prompt_tokens, result.max_tokens);
        let point = (f64::from(result.sequences), rate);
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push(point),
            None => lines.push(Series { name, points: vec![point] }),
        }
    }
    for line in &mut lines {
        line.points.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    lines
}

/// Lines over two axes, and what each is called.
#[component]
pub(super) fn Plot(
    title: &'static str,
    x_label: &'static str,
    y_label: &'static str,
    series: Vec<Series>,
) -> impl IntoView {
    if series.is_empty() {
        return None;
    }
    let all = || series.iter().flat_map(|series| &series.points);
    let x = Scale::around(all().map(|(x, _)| *x), LEFT, WIDTH - RIGHT);
    let y = Scale::from_zero(all().map(|(_, y)| *y), HEIGHT - BOTTOM, TOP);
    let summary = format!("{title}: {}", series.iter().map(told).collect::<Vec<_>>().join("; "));
    let x_ticks = x.ticks().into_iter().map(|tick| {
        view! { <text class="tick" x=x.place(tick) y=HEIGHT - BOTTOM + 16.0 text-anchor="middle">{text_of(tick)}</text> }
    });
    let y_ticks = y.ticks().into_iter().map(|tick| {
        let at = y.place(tick);
        view! {
            <line class="grid" x1=LEFT x2=WIDTH - RIGHT y1=at y2=at />
            <text class="tick" x=LEFT - 6.0 y=at + 4.0 text-anchor="end">{text_of(tick)}</text>
        }
    });
    let lines = series.iter().enumerate().map(|(i, series)| {
        let at: Vec<(f64, f64)> = series.points.iter().map(|(px, py)| (x.place(*px), y.place(*py))).collect();
        let path = at.iter().map(|(px, py)| format!("{px:.1},{py:.1}")).collect::<Vec<_>>().join(" ");
        let dot = |(px, py): (f64, f64)| view! { <circle cx=px cy=py r="2.5" /> };
        view! {
            <g class=class_of(i)>
                <polyline points=path />
                {at.into_iter().map(dot).collect_view()}
            </g>
        }
    });
    let keys = series.iter().enumerate().map(|(i, series)| {
        view! { <li class=class_of(i)><span class="key" aria-hidden="true"></span>{series.name.clone()}</li> }
    });
    Some(view! {
        <figure class="bench-plot">
            <figcaption>{title}</figcaption>
            <svg viewBox=format!("0 0 {WIDTH} {HEIGHT}") role="img" aria-label=summary>
                {y_ticks.collect_view()}
                {x_ticks.collect_view()}
                <text class="axis" x=WIDTH - RIGHT y=HEIGHT - 6.0 text-anchor="end">{x_label}</text>
                <text class="axis" x="4" y=HEIGHT - 6.0>{y_label}</text>
                {lines.collect_view()}
            </svg>
            <ul class="bench-keys">{keys.collect_view()}</ul>
        </figure>
    })
}

/// What someone hears who does not see the line.
fn told(series: &Series) -> String {
    let end = |point: Option<&(f64, f64)>| point.map_or(String::new(), |(x, y)| format!("{y:.1} at {x}"));
    match &series.points[..] {
        [one] => format!("{} {}", series.name, end(Some(one))),
        points => format!("{} from {} to {}", series.name, end(points.first()), end(points.last())),
    }
}

fn text_of(tick: f64) -> String {
    if tick.fract() == 0.0 { format!("{tick:.0}") } else { format!("{tick}") }
}

fn class_of(series_idx: usize) -> String {
    format!("series-{}", series_idx % 4)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(sequences: u32, kv_cache: bool, rate: f64, position_ms: Vec<f64>) -> Measured {
        Measured {
            sequences,
            prompt_tokens: 8,
            max_tokens: 4,
            runs: 1,
            kv_cache,
            prefill_tokens_per_sec: 1.0,
            decode_tokens_per_sec: Some(rate),
            speedup: None,
            total_tokens_per_sec: 1.0,
            cached_tokens: 0,
            token_ms: None,
            first_token_ms: None,
            position_ms,
        }
    }

    #[test]
    fn lines_are_of_what_belongs_together() {
        let results = [
            measured(4, true, 9.0, vec![40.0]),
            measured(1, true, 3.0, vec![10.0, 11.0]),
            measured(1, false, 1.0, vec![90.0, 99.0]),
        ];
        let [with, without] = &by_position(&results)[..] else { panic!() };
        assert_eq!(with.points, [(9.0, 10.0), (10.0, 11.0)]);
        assert_eq!((without.points[1], without.name.as_str()), ((10.0, 99.0), "without the KV cache"));
        let [speed] = &by_sequences(&results)[..] else { panic!() };
        assert_eq!(
            (speed.points.clone(), speed.name.as_str()),
            (vec![(1.0, 3.0), (4.0, 9.0)], "8 + 4 tokens")
        );
        assert_eq!(told(speed), "8 + 4 tokens from 3.0 at 1 to 9.0 at 4");
        assert!(by_position(&[]).is_empty() && by_sequences(&[]).is_empty());
    }
}
