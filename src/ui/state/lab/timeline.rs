//! When what happened to one answer, as the page heard of it.
//!
//! Invariant: its spans follow each other without gap, from the moment it was asked for.

use crate::protocol::{Event, Usage};

/// What a span was spent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// It waited for its turn.
    Queue,
    /// So many tokens of the prompt were read together.
    Prefill {
        /// Their number.
        n_tokens: u32,
    },
    /// So many tokens were written; one, unless the page heard of several at once.
    Decode {
        /// Their number.
        n_tokens: u32,
    },
}

/// A stretch of time, from the moment the answer was asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Span {
    pub(crate) work: Work,
    pub(crate) from_ms: f64,
    pub(crate) to_ms: f64,
}

/// An answer's time so far.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Timeline {
    sent_ms: f64,
    started_ms: Option<f64>,
    /// When so many tokens of the prompt were read.
    read: Vec<(f64, u32)>,
    /// When so many tokens came.
    came: Vec<(f64, u32)>,
    usage: Option<Usage>,
}

impl Timeline {
    /// Of an answer that is asked for at `now_ms`.
    pub(super) fn begin(now_ms: f64) -> Self {
        Self { sent_ms: now_ms, started_ms: None, read: Vec::new(), came: Vec::new(), usage: None }
    }

    /// Notes what the engine said of the answer at `now_ms`.
    pub(super) fn note(&mut self, event: &Event, now_ms: f64) {
        let elapsed_ms = now_ms - self.sent_ms;
        match event {
            Event::Started { .. } => self.started_ms = Some(elapsed_ms),
            Event::Prefilling { done_tokens, .. } => self.read.push((elapsed_ms, *done_tokens)),
            Event::Tokens { ids, .. } if !ids.is_empty() => self.came.push((elapsed_ms, ids.len() as u32)),
            Event::Finished { usage, .. } => self.usage = Some(*usage),
            _ => {}
        }
    }

    /// What the time went to, in order.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let Some(started_ms) = self.started_ms else { return Vec::new() };
        let queue_ms = started_ms + self.usage.map_or(0.0, |usage| usage.queue_ms);
        let mut spans = Vec::new();
        let mut at_ms = 0.0;
        let mut push = |work, to_ms: f64| {
            if to_ms > at_ms {
                spans.push(Span { work, from_ms: at_ms, to_ms });
                at_ms = to_ms;
            }
        };
        let first_ms = self.read.iter().chain(&self.came).map(|(ms, _)| *ms).fold(f64::INFINITY, f64::min);
        push(Work::Queue, queue_ms.min(first_ms));
        let mut n_read = self.usage.map_or(0, |usage| usage.cached_tokens);
        for &(ms, done) in &self.read {
            push(Work::Prefill { n_tokens: done.saturating_sub(n_read) }, ms);
            n_read = done;
        }
        for (place, &(ms, n_tokens)) in self.came.iter().enumerate() {
            // The last rows of the prompt bring the first token.
            let work = if place == 0 && self.read.is_empty() {
                Work::Prefill { n_tokens: 0 }
            } else {
                Work::Decode { n_tokens }
            };
            push(work, ms);
        }
        spans
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::FinishReason;

    fn read(done_tokens: u32) -> Event {
        Event::Prefilling { request: 1, output: 0, done_tokens, total_tokens: 80 }
    }

    fn token(n: usize) -> Event {
        Event::Tokens { request: 1, output: 0, text: String::new(), ids: vec![7; n], logprobs: Vec::new() }
    }

    #[test]
    fn its_spans_follow_each_other() {
        let mut timeline = Timeline::begin(1000.0);
        assert_eq!(timeline.spans(), []);
        timeline.note(&Event::Started { request: 1, prompt_tokens: vec![80], openings: vec![] }, 1002.0);
        for (event, ms) in [
            (read(64), 1050.0),
            (read(80), 1070.0),
            (token(1), 1070.0),
            (token(1), 1080.0),
            (token(2), 1095.0),
        ] {
            timeline.note(&event, ms);
        }
        let usage = Usage { queue_ms: 8.0, cached_tokens: 32, ..Usage::default() };
        let reason = FinishReason::Length;
        timeline.note(&Event::Finished { request: 1, output: 0, reason, usage, n_left: 0 }, 1096.0);
        let span = |work, from_ms, to_ms| Span { work, from_ms, to_ms };
        assert_eq!(
            timeline.spans(),
            [
                span(Work::Queue, 0.0, 10.0),
                span(Work::Prefill { n_tokens: 32 }, 10.0, 50.0),
                span(Work::Prefill { n_tokens: 16 }, 50.0, 70.0),
                span(Work::Decode { n_tokens: 1 }, 70.0, 80.0),
                span(Work::Decode { n_tokens: 2 }, 80.0, 95.0),
            ]
        );
    }

    #[test]
    fn a_long_queue_ends_where_work_is_seen() {
        let mut timeline = Timeline::begin(0.0);
        timeline.note(&Event::Started { request: 1, prompt_tokens: vec![1], openings: vec![] }, 1.0);
        timeline.note(&token(1), 5.0);
        let usage = Usage { queue_ms: 50.0, ..Usage::default() };
        let reason = FinishReason::Length;
        timeline.note(&Event::Finished { request: 1, output: 0, reason, usage, n_left: 0 }, 6.0);
        assert_eq!(timeline.spans(), [Span { work: Work::Queue, from_ms: 0.0, to_ms: 5.0 }]);
    }
}
