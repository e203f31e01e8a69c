//! What a tab has yet to be told: it is sent while the tab reads, and held back and joined while it does not.
//!
//! Invariant: at most [`CREDIT`] events are under way, and what waits is bounded, whatever the tab does. What is joined
//! says the same as its parts, and the events of an output keep their order.

use std::collections::VecDeque;

use crate::protocol::Event;

/// Events that may be sent and not yet acknowledged.
pub const CREDIT: u32 = 64;

/// Most events that wait. A tab that asks more and more and reads nothing is given up there.
const MAX_WAITING: usize = 4096;
/// Most bytes that wait, roughly.
const MAX_WAITING_BYTES: usize = 64 << 20;

/// Events of a connection, and what travels beside them.
#[derive(Debug)]
pub struct Outbox<A> {
    n_unacknowledged: u32,
    waiting: VecDeque<(Event, Vec<A>)>,
    n_bytes: usize,
}

impl<A> Default for Outbox<A> {
    fn default() -> Self {
        Self { n_unacknowledged: 0, waiting: VecDeque::new(), n_bytes: 0 }
    }
}

impl<A> Outbox<A> {
    /// One more event, and what travels beside it.
    pub fn push(&mut self, event: Event, attachments: Vec<A>) {
        if attachments.is_empty() {
            let Some(event) = self.join(event) else { return };
            self.n_bytes += n_bytes(&event);
            self.waiting.push_back((event, attachments));
        } else {
            self.waiting.push_back((event, attachments));
        }
    }

    /// The events to be sent now.
    pub fn take(&mut self) -> Vec<(Event, Vec<A>)> {
        let n = self.waiting.len().min((CREDIT.saturating_sub(self.n_unacknowledged)) as usize);
        self.n_unacknowledged += n as u32;
        let taken: Vec<_> = self.waiting.drain(..n).collect();
        if self.waiting.is_empty() {
            self.n_bytes = 0;
        } else {
            let bytes = taken.iter().map(|(event, _)| n_bytes(event)).sum();
            self.n_bytes = self.n_bytes.saturating_sub(bytes);
        }
        taken
    }

    /// The tab has read so many.
    pub fn acknowledge(&mut self, n_events: u32) {
        self.n_unacknowledged = self.n_unacknowledged.saturating_sub(n_events);
    }

    /// Whether more waits than a tab that reads would ever let wait.
    pub fn is_full(&self) -> bool {
        self.waiting.len() > MAX_WAITING || self.n_bytes > MAX_WAITING_BYTES
    }

    /// Events that wait.
    pub fn n_waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Joins an event with one that waits; gives it back where there is none.
    fn join(&mut self, event: Event) -> Option<Event> {
        let is_rival = |(waiting, _): &&mut (Event, Vec<A>)| Topic::of(waiting) == Topic::of(&event);
        let last = match Topic::of(&event) {
            Topic::Other => None,
            _ => self.waiting.iter_mut().rev().find(is_rival),
        };
        match (last.map(|(last, _)| last), event) {
            // Text without tokens is the last of its output. It stays by itself, so that a tab knows it if it comes again.
            (
                Some(Event::Tokens { text, ids, logprobs, .. }),
                Event::Tokens { text: more_text, ids: more_ids, logprobs: more_logprobs, .. },
            ) if !more_ids.is_empty() => {
                self.n_bytes += more_text.len() + more_ids.len() * 4 + logprob_bytes(&more_logprobs);
                text.push_str(&more_text);
                ids.extend(more_ids);
                logprobs.extend(more_logprobs);
                None
            }
            (Some(last @ Event::Prefilling { .. }), event @ Event::Prefilling { .. })
            | (Some(last @ Event::Loading { .. }), event @ Event::Loading { .. })
            | (Some(last @ Event::Status { .. }), event @ Event::Status { .. }) => {
                *last = event;
                None
            }
            (_, event) => Some(event),
        }
    }
}

/// What an event is about: an event is joined with the last one about the same.
#[derive(Debug, PartialEq, Eq)]
enum Topic {
    /// An output.
    Output(u64, u32),
    /// The tab's model.
    Model,
    /// How the engine stands, unasked.
    Status,
    Other,
}

impl Topic {
    fn of(event: &Event) -> Self {
        match event {
            Event::Prefilling { request, output, .. }
            | Event::PromptLogprobs { request, output, .. }
            | Event::Tokens { request, output, .. }
            | Event::Finished { request, output, .. } => Self::Output(*request, *output),
            Event::Loading { .. }
            | Event::Ready { .. }
            | Event::LoadFailed { .. }
            | Event::InUse { .. }
            | Event::Unloaded { .. } => Self::Model,
            Event::Status { request: None, .. } => Self::Status,
            Event::Welcome { .. }
            | Event::Unacquainted
            | Event::Started { .. }
            | Event::Tokenized { .. }
            | Event::OpTimes { .. }
            | Event::Status { request: Some(_), .. }
            | Event::Batch { .. }
            | Event::Failed { .. } => Self::Other,
        }
    }
}

/// Roughly the bytes that an event holds.
fn n_bytes(event: &Event) -> usize {
    size_of::<Event>()
        + match event {
            Event::Tokens { text, ids, logprobs, .. } => text.len() + ids.len() * 4 + logprob_bytes(logprobs),
            Event::PromptLogprobs { tokens, .. } => tokens.iter().flatten().map(token_bytes).sum(),
            Event::Tokenized { text, ids, pieces, bytes, .. } => {
                let pieces = pieces.iter().map(|piece| piece.len() + 24).sum::<usize>();
                text.len()
                    + ids.len() * 4
                    + pieces
                    + bytes.iter().map(|bytes| bytes.len() + 24).sum::<usize>()
            }
            Event::Batch { batch, .. } => size_of_val(&batch.sequences[..]),
            Event::Started { prompt_tokens, openings, .. } => {
                prompt_tokens.len() * 4 + openings.iter().map(|opening| opening.len() + 24).sum::<usize>()
            }
            Event::Failed { error, .. } => error.len(),
            _ => 0,
        }
}

fn logprob_bytes(logprobs: &[crate::protocol::TokenLogprob]) -> usize {
    logprobs.iter().map(token_bytes).sum()
}

fn token_bytes(token: &crate::protocol::TokenLogprob) -> usize {
    size_of_val(token) + token.text.len() + logprob_bytes(&token.top)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FinishReason, Status, Usage};

    fn tokens(request: u64, output: u32, text: &str, id: u32) -> Event {
        Event::Tokens { request, output, text: text.into(), ids: vec![id], logprobs: Vec::new() }
    }

    /// What was held back until the end.
    fn tail(request: u64) -> Event {
        Event::Tokens { request, output: 0, text: "z".into(), ids: Vec::new(), logprobs: Vec::new() }
    }

    fn finished(request: u64) -> Event {
        let (reason, usage) = (FinishReason::Stop, Usage::default());
        Event::Finished { request, output: 0, reason, usage, n_left: 0 }
    }

    fn prefilling(done_tokens: u32) -> Event {
        Event::Prefilling { request: 1, output: 0, done_tokens, total_tokens: 100 }
    }

    fn loading(done_bytes: u64) -> Event {
        Event::Loading { stage: "Loading".into(), done_bytes, total_bytes: 9 }
    }

    fn taken(outbox: &mut Outbox<()>) -> Vec<Event> {
        outbox.take().into_iter().map(|(event, _)| event).collect()
    }

    /// One that has no credit left.
    fn stalled() -> Outbox<()> {
        let mut outbox = Outbox::default();
        for n in 0..CREDIT {
            outbox.push(Event::Status { request: Some(n.into()), status: Status::default() }, Vec::new());
        }
        assert_eq!(outbox.take().len(), CREDIT as usize);
        outbox
    }

    #[test]
    fn no_more_is_under_way_than_was_acknowledged() {
        let mut outbox = stalled();
        for request in 0..100 {
            outbox.push(finished(request), Vec::new());
        }
        assert!(outbox.take().is_empty());
        outbox.acknowledge(16);
        let first: Vec<Event> = taken(&mut outbox);
        assert_eq!(first, (0..16).map(finished).collect::<Vec<_>>());
        assert!(outbox.take().is_empty());
        outbox.acknowledge(u32::MAX);
        assert_eq!(outbox.take().len(), 64, "more acknowledged than sent is no credit");
    }

    #[test]
    fn what_waits_is_joined_and_says_the_same() {
        let mut outbox = stalled();
        for event in [
            loading(1),
            prefilling(32),
            prefilling(64),
            loading(2),
            tokens(1, 0, "a", 1),
            tokens(2, 0, "x", 7),
            tokens(1, 1, "A", 4),
            tokens(1, 0, "b", 2),
            finished(1),
            tokens(2, 0, "y", 8),
            tokens(1, 0, "of another of the same number", 9),
            tail(2),
            finished(2),
        ] {
            outbox.push(event, Vec::new());
        }
        outbox.acknowledge(CREDIT);
        let joined = |request, text: &str, ids| Event::Tokens {
            request,
            output: 0,
            text: text.into(),
            ids,
            logprobs: Vec::new(),
        };
        assert_eq!(
            taken(&mut outbox),
            [
                loading(2),
                prefilling(64),
                joined(1, "ab", vec![1, 2]),
                joined(2, "xy", vec![7, 8]),
                tokens(1, 1, "A", 4),
                finished(1),
                tokens(1, 0, "of another of the same number", 9),
                tail(2),
                finished(2),
            ]
        );
    }

    #[test]
    fn an_asked_status_is_not_replaced_and_a_told_one_is() {
        let mut outbox = stalled();
        let status =
            |request, n_tabs| Event::Status { request, status: Status { n_tabs, ..Status::default() } };
        for event in [status(None, 1), status(Some(3), 1), status(None, 2), status(Some(4), 2)] {
            outbox.push(event, Vec::new());
        }
        outbox.acknowledge(CREDIT);
        assert_eq!(taken(&mut outbox), [status(None, 2), status(Some(3), 1), status(Some(4), 2)]);
    }

    #[test]
    fn a_tab_that_never_reads_costs_bounded_memory() {
        let mut outbox = stalled();
        for id in 0..100_000 {
            outbox.push(tokens(1, id % 4, "word ", id), Vec::new());
            outbox.push(loading(u64::from(id)), Vec::new());
        }
        assert_eq!(outbox.n_waiting(), 5);
        assert!(!outbox.is_full());
        (0..=MAX_WAITING as u64).for_each(|request| outbox.push(finished(request), Vec::new()));
        assert!(outbox.is_full(), "and one that goes on asking is given up");
    }

    #[test]
    fn long_texts_fill_it_too() {
        let mut outbox = stalled();
        (0..65).for_each(|request| outbox.push(tokens(request, 0, &"x".repeat(1 << 20), 0), Vec::new()));
        assert!(outbox.is_full());
        outbox.acknowledge(CREDIT);
        assert_eq!(outbox.take().len(), CREDIT as usize);
        assert!(!outbox.is_full());
    }
}
