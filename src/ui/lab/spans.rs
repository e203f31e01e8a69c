//! An answer's time as a picture: waiting, reading the prompt, and writing token by token.

use leptos::prelude::*;

use crate::ui::{
    bench_scale::Scale,
    state::lab::{Span, Timeline, Work},
    words,
};

/// Size of the picture, and of the room around its field, in its own units.
const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 84.0;
const EDGE: f64 = 8.0;
const BAR_TOP: f64 = 10.0;
const BAR_HEIGHT: f64 = 40.0;

#[component]
pub(super) fn TimelineView(timeline: Timeline) -> impl IntoView {
    let spans = timeline.spans();
    let end_ms = spans.last()?.to_ms;
    let x = Scale::from_zero(std::iter::once(end_ms), EDGE, WIDTH - EDGE);
    let bar = |(place, span): (usize, &Span)| {
        let (left, right) = (x.place(span.from_ms), x.place(span.to_ms));
        view! {
            <rect
                class=format!("{} {}", class_of(span.work), if place % 2 == 0 { "even" } else { "odd" })
                x=left
                y=BAR_TOP
                width=(right - left).max(0.5)
                height=BAR_HEIGHT
            >
                <title>{told(span)}</title>
            </rect>
        }
    };
    let tick = |tick: f64| {
        let at = x.place(tick);
        // The last and the first word would stand beyond the edge.
        let anchor = if tick == 0.0 {
            "start"
        } else if at > WIDTH - 40.0 {
            "end"
        } else {
            "middle"
        };
        view! {
            <line class="grid" x1=at x2=at y1=BAR_TOP y2=BAR_TOP + BAR_HEIGHT + 6.0 />
            <text class="tick" x=at y=HEIGHT - 14.0 text-anchor=anchor>{words::time(tick)}</text>
        }
    };
    let sums = sums(&spans);
    let summary = sums.iter().map(|(_, words)| words.clone()).collect::<Vec<_>>().join("; ");
    let key = |(class, words): (&'static str, String)| {
        view! { <li><span class=format!("lab-key {class}") aria-hidden="true"></span>{words}</li> }
    };
    Some(view! {
        <figure class="bench-plot lab-timeline">
            <figcaption>"Where the time of the last run went"</figcaption>
            <svg viewBox=format!("0 0 {WIDTH} {HEIGHT}") role="img" aria-label=summary>
                {x.ticks().into_iter().map(tick).collect_view()}
                {spans.iter().enumerate().map(bar).collect_view()}
            </svg>
            <ul class="bench-keys">{sums.into_iter().map(key).collect_view()}</ul>
        </figure>
    })
}

fn class_of(work: Work) -> &'static str {
    match work {
        Work::Queue => "work-queue",
        Work::Prefill { .. } => "work-prefill",
        Work::Decode { .. } => "work-decode",
    }
}

/// What a span is, in words.
fn told(span: &Span) -> String {
    let time = words::time(span.to_ms - span.from_ms);
    match span.work {
        Work::Queue => format!("Queue: {time}"),
        Work::Prefill { n_tokens: 0 } => format!("Prefill: {time}"),
        Work::Prefill { n_tokens } => format!("Prefill of {}: {time}", words::tokens(n_tokens)),
        Work::Decode { n_tokens } => format!("Decode of {}: {time}", words::tokens(n_tokens)),
    }
}

/// What each kind of work took in all.
fn sums(spans: &[Span]) -> Vec<(&'static str, String)> {
    let (mut queue_ms, mut prefill_ms, mut decode_ms) = (0.0, 0.0, 0.0);
    let (mut n_read, mut n_written) = (0, 0);
    for span in spans {
        let ms = span.to_ms - span.from_ms;
        match span.work {
            Work::Queue => queue_ms += ms,
            Work::Prefill { n_tokens } => (prefill_ms, n_read) = (prefill_ms + ms, n_read + n_tokens),
            Work::Decode { n_tokens } => (decode_ms, n_written) = (decode_ms + ms, n_written + n_tokens),
        }
    }
    let mut sums = vec![("work-queue", format!("queue {}", words::time(queue_ms)))];
    let read = if n_read > 0 { format!(" of {}", words::tokens(n_read)) } else { String::new() };
    sums.push(("work-prefill", format!("prefill{read} {}", words::time(prefill_ms))));
    sums.extend((n_written > 0).then(|| {
        let each = words::time(decode_ms / f64::from(n_written));
        (
            "work-decode",
            format!("decode of {} {}, {each} each", words::tokens(n_written), words::time(decode_ms)),
        )
    }));
    sums
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_work_is_summed_up() {
        let span = |work, from_ms, to_ms| Span { work, from_ms, to_ms };
        let spans = [
            span(Work::Queue, 0.0, 5.0),
            span(Work::Prefill { n_tokens: 32 }, 5.0, 105.0),
            span(Work::Prefill { n_tokens: 8 }, 105.0, 145.0),
            span(Work::Decode { n_tokens: 1 }, 145.0, 165.0),
            span(Work::Decode { n_tokens: 2 }, 165.0, 205.0),
        ];
        let words: Vec<String> = sums(&spans).into_iter().map(|(_, words)| words).collect();
        assert_eq!(
            words,
            ["queue 5 ms", "prefill of 40 tokens 140 ms", "decode of 3 tokens 60 ms, 20 ms each"]
        );
        assert_eq!(told(&spans[3]), "Decode of 1 token: 20 ms");
    }
}
