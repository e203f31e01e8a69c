//! How the engine stands: who shares it, what it computes at once, and how full its memory for conversations is.

use leptos::prelude::*;

use super::{
    screen::Screen,
    state::{Engine, Part},
    words,
};
use crate::protocol::Status;

/// One quiet line; empty until the engine first tells.
#[component]
pub(crate) fn Live() -> impl IntoView {
    let screen = Screen::expect();
    let numbers = Memo::new(move |_| {
        screen.read(Part::Live, |state| state.live.map_or_else(Vec::new, |live| numbers(&live)))
    });
    let recovering = Memo::new(move |_| screen.read(Part::Live, |state| state.engine == Engine::Recovering));
    let number = |(text, title): (String, String)| view! { <span title=title>{text}</span> };
    view! {
        <p class="counts live" aria-label="Engine" aria-live="off" hidden=move || numbers.with(Vec::is_empty)>
            {move || numbers.get().into_iter().map(number).collect_view()}
        </p>
        <div role="status">
            <Show when=move || recovering.get()>
                <p class="warning">"The engine stopped and is starting again; answers go on."</p>
            </Show>
        </div>
    }
}

/// Each number, and what it means.
fn numbers(status: &Status) -> Vec<(String, String)> {
    let count = |n: u32| words::count(n.into());
    let mut numbers =
        vec![(words::counted(status.n_tabs, "tab", "tabs"), "Tabs that share this engine".to_owned())];
    if status.n_blocks == 0 {
        return numbers;
    }
    numbers.push((
        format!("{} in the batch", count(status.running)),
        format!(
            "Answers computed together now; running and waiting, {} are this tab's own",
            count(status.own)
        ),
    ));
    numbers.push((
        format!("{} waiting", count(status.waiting)),
        "Answers that wait for their turn or for room in the KV cache".to_owned(),
    ));
    let used_blocks = status.n_blocks.saturating_sub(status.free_blocks);
    numbers.push((
        format!("KV {} of {} blocks", count(used_blocks), count(status.n_blocks)),
        format!(
            "Blocks of the KV cache in use; {} of the free ones keep a beginning for whoever comes with it",
            count(status.cached_blocks)
        ),
    ));
    // Rates of nothing are left out.
    let is_busy = status.running + status.waiting > 0;
    numbers.extend(is_busy.then(|| {
        (
            format!(
                "{} in total, {} mine",
                words::speed(status.tokens_per_sec),
                words::speed(status.own_tokens_per_sec)
            ),
            "Tokens generated a second over the last seconds: all tabs together, and this tab alone"
                .to_owned(),
        )
    }));
    numbers
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(status: &Status) -> Vec<String> {
        numbers(status).into_iter().map(|(text, _)| text).collect()
    }

    #[test]
    fn every_number_has_its_place() {
        let status = Status {
            n_tabs: 2,
            running: 3,
            waiting: 1,
            own: 2,
            n_blocks: 1280,
            free_blocks: 1260,
            cached_blocks: 7,
            tokens_per_sec: 31.04,
            own_tokens_per_sec: 12.0,
            ..Status::default()
        };
        assert_eq!(
            texts(&status),
            [
                "2 tabs",
                "3 in the batch",
                "1 waiting",
                "KV 20 of 1\u{202f}280 blocks",
                "31.0 tok/s in total, 12.0 tok/s mine"
            ]
        );
        let titles: Vec<String> = numbers(&status).into_iter().map(|(_, title)| title).collect();
        assert!(titles[1].contains("2 are this tab's own") && titles[3].contains("7 of the free ones"));
    }

    #[test]
    fn rest_has_no_rate() {
        let status = Status { n_tabs: 1, n_blocks: 4, free_blocks: 4, ..Status::default() };
        assert_eq!(texts(&status), ["1 tab", "0 in the batch", "0 waiting", "KV 0 of 4 blocks"]);
    }

    #[test]
    fn without_a_model_there_are_only_tabs() {
        assert_eq!(texts(&Status { n_tabs: 1, ..Status::default() }), ["1 tab"]);
    }
}
