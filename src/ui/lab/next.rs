//! The ten likeliest next tokens as bars: one is taken by a click or a key, or the model takes them itself.

use leptos::prelude::*;

use super::{Act, PanelView, has_tokens, percent, read, tinted::TextSoFar, visible::visible};
use crate::{
    protocol::{FinishReason, TokenLogprob},
    ui::{
        screen::Screen,
        state::{
            Part,
            lab::{Lab, N_LIKELY, Next, Panel, Sampling, Shaped, reshape},
        },
        words,
    },
};

#[component]
pub(super) fn NextTokens(obstacle: Memo<Option<&'static str>>) -> impl IntoView {
    let screen = Screen::expect();
    let has_tokens = has_tokens();
    let is_begun = read(Panel::Next, |lab| lab.next.is_begun());
    let is_busy = read(Panel::Next, |lab| lab.next.is_busy());
    let is_running = read(Panel::Next, |lab| lab.next.is_running());
    let change = move |change: fn(&mut Next)| screen.change_lab(Panel::Next, |lab| change(&mut lab.next));
    let is_off = Signal::derive(move || is_busy.get() || obstacle.get().is_some());
    let can_undo = read(Panel::Next, |lab| !lab.next.taken.is_empty());
    let cost = read(Panel::Next, |lab| cost(&lab.next));
    let is_outdated = Memo::new(move |_| {
        let text = screen
            .read(Part::Lab(Panel::Tokens), |state| state.lab.read.as_ref().map(|read| read.text.clone()));
        let own = screen.read(Part::Lab(Panel::Next), |state| state.lab.next.prompt_text.clone());
        is_begun.get() && text.is_some_and(|text| text != own)
    });
    let on_key = move |event: web_sys::KeyboardEvent| {
        if event.ctrl_key() || event.meta_key() || event.alt_key() || is_off.get_untracked() {
            return;
        }
        if let Some(rank) = rank_of_key(&event.key()) {
            event.prevent_default();
            screen.change_lab(Panel::Next, |lab| lab.next.take(rank));
        } else if event.key() == "Backspace" {
            event.prevent_default();
            change(Next::undo);
        }
    };
    view! {
        <div on:keydown=on_key>
            <PanelView
                panel=Panel::Next
                id="lab-next"
                title="One token at a time"
                about="From all tokens so far the model computes how likely each token of its vocabulary is to come next. One is taken, and the next step begins: writing is nothing else. Press 1 to 9, or 0 for the tenth, to take one, Backspace to take it back."
            >
                <div class="lab-acts">
                    <Act
                        class="primary"
                        label="Predict the next token"
                        is_off=Signal::derive(move || !has_tokens.get() || is_off.get())
                        act=move || screen.change_lab(Panel::Next, Lab::predict)
                    />
                    <Act
                        label="Undo"
                        is_off=Signal::derive(move || !can_undo.get() || is_off.get())
                        act=move || change(Next::undo)
                    />
                    <Act
                        label="Run greedily"
                        is_off=Signal::derive(move || !is_begun.get() || is_off.get())
                        act=move || change(|next| next.run(true))
                    />
                    <Act
                        label="Run by sampling"
                        is_off=Signal::derive(move || !is_begun.get() || is_off.get())
                        act=move || change(|next| next.run(false))
                    />
                    <Show when=move || is_running.get()>
                        <button
                            type="button"
                            class="stop"
                            on:click=move |_| screen.change_lab(Panel::Next, Lab::stop_run)
                        >
                            "Stop the run"
                        </button>
                    </Show>
                </div>
                <p class="lab-note" role="status">
                    {move || is_outdated.get().then_some("The text above was changed; predict again to go on from it.")}
                </p>
                <div hidden=move || !is_begun.get()>
                    <TextSoFar />
                    <div class="lab-columns">
                        <Bars is_off />
                        <Sliders />
                    </div>
                    <p class="lab-note" role="status">{move || cost.get()}</p>
                </div>
            </PanelView>
        </div>
    }
}

/// The likeliest token that a key stands for.
fn rank_of_key(key: &str) -> Option<usize> {
    match key.as_bytes() {
        [digit @ b'1'..=b'9'] => Some(usize::from(digit - b'1')),
        [b'0'] => Some(9),
        _ => None,
    }
}

/// What the last look or run cost, and how a run ended.
fn cost(next: &Next) -> String {
    let cost = next.reading.map(|reading| {
        format!(
            "Keys and values of {} were found in the cache, which keeps whole blocks of 32; those of {} were computed.",
            words::tokens(reading.cached_tokens),
            words::count(reading.computed_tokens.into())
        )
    });
    let end = next.ended.map(|reason| match reason {
        FinishReason::Stop => "The model ended its text.",
        FinishReason::Length => "The run is over; run it again to go on.",
        FinishReason::Cancelled => "Stopped.",
        FinishReason::Unmet => "No token fits the form that was asked for.",
    });
    [end.map(str::to_owned), cost].into_iter().flatten().collect::<Vec<_>>().join(" ")
}

/// A bar for each of the ten. They stay in their places, so that the focus does.
#[component]
fn Bars(is_off: Signal<bool>) -> impl IntoView {
    let likely = read(Panel::Next, |lab| lab.next.likely.clone());
    let sampling = read(Panel::Next, |lab| lab.next.sampling);
    let shaped = Memo::new(move |_| {
        let logprobs: Vec<f32> = likely.with(|likely| likely.iter().map(|token| token.logprob).collect());
        reshape(&logprobs, sampling.get())
    });
    let bar = move |rank: usize| view! { <Bar rank likely shaped is_off /> };
    let about = move || {
        let rest = likely.with(|likely| 1.0 - likely.iter().map(plain).sum::<f64>()).clamp(0.0, 1.0);
        let is_plain = sampling.get() == Sampling::default();
        match (is_plain, shaped.with(|shaped| shaped.is_exact)) {
            (true, _) => format!("The rest of the vocabulary has {} together.", percent(rest)),
            (false, true) => "Exactly what the sampler draws from; thin lines mark the model's own probabilities.".to_owned(),
            (false, false) => "Shares among these ten alone: the rest of the vocabulary counts too, and is not known here. Thin lines mark the model's own probabilities.".to_owned(),
        }
    };
    view! {
        <div class="lab-bars-box">
            <ol class="lab-bars" aria-label="Likeliest next tokens" aria-busy=move || if is_off.get() { "true" } else { "false" }>
                {(0..N_LIKELY as usize).map(bar).collect_view()}
            </ol>
            <p class="about">{about}</p>
        </div>
    }
}

fn plain(token: &TokenLogprob) -> f64 {
    f64::from(token.logprob).exp()
}

#[component]
fn Bar(
    rank: usize,
    likely: Memo<Vec<TokenLogprob>>,
    shaped: Memo<Shaped>,
    is_off: Signal<bool>,
) -> impl IntoView {
    let screen = Screen::expect();
    let token = Memo::new(move |_| likely.with(|likely| likely.get(rank).cloned()));
    let share = Memo::new(move |_| shaped.with(|shaped| shaped.shares.get(rank).copied().unwrap_or(0.0)));
    let text =
        move || token.with(|token| token.as_ref().map_or_else(String::new, |token| visible(&token.text)));
    let own = move || token.with(|token| token.as_ref().map_or(0.0, plain));
    view! {
        <li hidden=move || token.with(Option::is_none)>
            <button
                type="button"
                class="lab-bar"
                aria-label=move || format!("Take {}, {}", text(), percent(share.get()))
                aria-disabled=move || is_off.get().then_some("true")
                data-id=move || token.with(|token| token.as_ref().map(|token| token.id))
                data-logprob=move || token.with(|token| token.as_ref().map(|token| token.logprob))
                on:click=move |_| {
                    if !is_off.get_untracked() {
                        screen.change_lab(Panel::Next, |lab| lab.next.take(rank));
                    }
                }
            >
                <kbd aria-hidden="true">{(rank + 1) % 10}</kbd>
                <span class="lab-bar-text">{text}</span>
                <span class="lab-bar-track">
                    <span class="lab-bar-fill" style:width=move || format!("{:.2}%", share.get() * 100.0)></span>
                    <span class="lab-bar-own" style:left=move || format!("{:.2}%", own() * 100.0)></span>
                </span>
                <span class="lab-bar-share">{move || percent(share.get())}</span>
            </button>
        </li>
    }
}

/// Temperature, top-k and top-p.
#[component]
fn Sliders() -> impl IntoView {
    let screen = Screen::expect();
    let sampling = read(Panel::Next, |lab| lab.next.sampling);
    let set = move |edit: &dyn Fn(&mut Sampling)| {
        screen.change_lab(Panel::Next, |lab| edit(&mut lab.next.sampling));
    };
    let all = N_LIKELY + 1;
    view! {
        <div class="lab-sliders" role="group" aria-label="Sampling">
            <Slider
                id="lab-temperature"
                name="Temperature"
                range=("0", "2", "0.05")
                value=Signal::derive(move || format!("{}", sampling.get().temperature))
                shown=Signal::derive(move || format!("{:.2}", sampling.get().temperature))
                set=move |text| set(&|sampling| sampling.temperature = text.parse().unwrap_or(1.0))
            />
            <Slider
                id="lab-top-k"
                name="Top-k"
                range=("1", "11", "1")
                value=Signal::derive(move || sampling.get().top_k.unwrap_or(all).to_string())
                shown=Signal::derive(move || {
                    sampling.get().top_k.map_or_else(|| "all".to_owned(), |k| k.to_string())
                })
                set=move |text| {
                    set(&|sampling| sampling.top_k = text.parse().ok().filter(|k| *k < all));
                }
            />
            <Slider
                id="lab-top-p"
                name="Top-p"
                range=("0.05", "1", "0.05")
                value=Signal::derive(move || format!("{}", sampling.get().top_p))
                shown=Signal::derive(move || format!("{:.2}", sampling.get().top_p))
                set=move |text| set(&|sampling| sampling.top_p = text.parse().unwrap_or(1.0))
            />
            <p class="about">
                "A low temperature sharpens the bars, a high one evens them out; top-k and top-p cut off what is unlikely."
            </p>
        </div>
    }
}

#[component]
fn Slider(
    id: &'static str,
    name: &'static str,
    range: (&'static str, &'static str, &'static str),
    value: Signal<String>,
    shown: Signal<String>,
    set: impl Fn(String) + 'static,
) -> impl IntoView {
    let (min, max, step) = range;
    view! {
        <div class="lab-slider">
            <label for=id>{name}</label>
            <input
                type="range"
                id=id
                min=min
                max=max
                step=step
                prop:value=move || value.get()
                aria-valuetext=move || shown.get()
                on:input:target=move |event| set(event.target().value())
            />
            <output for=id>{move || shown.get()}</output>
        </div>
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stand_for_ranks() {
        let ranks = ["1", "9", "0", "a", "10", "Enter"].map(rank_of_key);
        assert_eq!(ranks, [Some(0), Some(8), Some(9), None, None, None]);
    }
}
