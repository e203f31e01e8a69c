//! What an answer took: in a few numbers below it, and spelled out for whoever asks.

use leptos::prelude::*;

use super::{tally::tokens_per_sec, words};
use crate::protocol::Usage;

/// The numbers below an answer. They are no news: nothing reads them aloud by itself.
#[component]
pub(crate) fn UsageView(usage: Usage) -> impl IntoView {
    view! {
        <span class="usage" aria-live="off" title=spelled_out(&usage)>
            {numbers(&usage)}
        </span>
    }
}

/// Tokens, rate, and the time to the first token.
fn numbers(usage: &Usage) -> String {
    let mut numbers = vec![words::tokens(usage.generated_tokens)];
    numbers.extend(tokens_per_sec(usage.generated_tokens, usage.decode_ms).map(words::speed));
    numbers.push(format!("first after {}", words::time(usage.queue_ms + usage.prefill_ms)));
    numbers.join(" · ")
}

/// The same, and where the time went.
fn spelled_out(usage: &Usage) -> String {
    let rate = tokens_per_sec(usage.generated_tokens, usage.decode_ms)
        .map_or_else(String::new, |rate| format!(", {}", words::speed(rate)));
    format!(
        "Prompt: {}, of these {} found in the cache. Waited {} for its turn; first token after {}. \
         Generated: {} in {}{rate}.",
        words::tokens(usage.prompt_tokens),
        words::count(usage.cached_tokens.into()),
        words::time(usage.queue_ms),
        words::time(usage.queue_ms + usage.prefill_ms),
        words::tokens(usage.generated_tokens),
        words::time(usage.queue_ms + usage.prefill_ms + usage.decode_ms),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_summed_up() {
        let usage = Usage {
            prompt_tokens: 1200,
            cached_tokens: 1152,
            generated_tokens: 31,
            queue_ms: 20.0,
            prefill_ms: 400.0,
            decode_ms: 3000.0,
        };
        assert_eq!(numbers(&usage), "31 tokens · 10.0 tok/s · first after 420 ms");
        assert_eq!(
            spelled_out(&usage),
            "Prompt: 1\u{202f}200 tokens, of these 1\u{202f}152 found in the cache. Waited 20 ms for its turn; \
             first token after 420 ms. Generated: 31 tokens in 3.4 s, 10.0 tok/s."
        );
    }

    #[test]
    fn one_token_has_no_rate() {
        let usage = Usage { generated_tokens: 1, prefill_ms: 1500.0, ..Usage::default() };
        assert_eq!(numbers(&usage), "1 token · first after 1.5 s");
        assert!(spelled_out(&usage).ends_with("Generated: 1 token in 1.5 s."));
    }
}
