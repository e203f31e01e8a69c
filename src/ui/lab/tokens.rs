//! A text becomes tokens while it is typed: each with its id and its bytes.

use leptos::prelude::*;

use super::{
    PanelView, drive_after, focus, led_to, read,
    visible::{hex, of_bytes},
};
use crate::ui::{
    screen::{Screen, now_ms},
    state::{
        Part, State,
        lab::{PAUSE_MS, Panel, ReadText, ReadToken},
    },
    words,
};

/// Most tokens that are shown one by one.
const MOST_CHIPS: usize = 500;

#[component]
pub(super) fn Tokens() -> impl IntoView {
    let screen = Screen::expect();
    let text = screen.peek(|state| state.lab.text.clone());
    let as_chat = read(Panel::Tokens, |lab| lab.as_chat);
    let only_continues = Memo::new(move |_| screen.read(Part::Models, State::only_continues));
    let template =
        read(Panel::Tokens, |lab| lab.read.as_ref().filter(|_| lab.as_chat).map(|read| read.text.clone()));
    let put = move |as_chat: bool| {
        screen.change_lab(Panel::Tokens, |lab| lab.put_in_chat(as_chat, now_ms()));
    };
    view! {
        <PanelView
            panel=Panel::Tokens
            id="lab-tokens"
            title="Text to tokens"
            about="A model reads no letters but tokens: pieces of text that stand in its vocabulary under a number. A word is often one token, a rare word several, and a space mostly belongs to the word after it."
        >
            <div class="field">
                <label for="lab-text">"Text"</label>
                <textarea
                    id="lab-text"
                    rows="3"
                    spellcheck="false"
                    on:input:target=move |event| {
                        let text = event.target().value();
                        screen.change_lab(Panel::Tokens, |lab| lab.write(text, now_ms()));
                        drive_after(screen, PAUSE_MS);
                    }
                >
                    {text}
                </textarea>
            </div>
            <fieldset class="lab-choice">
                <legend class="visually-hidden">"Read the text as"</legend>
                <label>
                    <input
                        type="radio"
                        name="lab-as"
                        prop:checked=move || !as_chat.get()
                        on:change=move |_| put(false)
                    />
                    "Raw text"
                </label>
                <label>
                    <input
                        type="radio"
                        name="lab-as"
                        prop:checked=move || as_chat.get()
                        disabled=move || only_continues.get()
                        on:change=move |_| put(true)
                    />
                    "As a chat"
                </label>
            </fieldset>
            {move || {
                template
                    .get()
                    .map(|text| {
                        view! {
                            <p class="lab-note">"In the model's chat template it reads:"</p>
                            <pre class="lab-template" tabindex="0" role="region" aria-label="Chat template">{text}</pre>
                        }
                    })
            }}
            <Chips />
        </PanelView>
    }
}

/// The tokens, and the one that is looked at.
#[component]
fn Chips() -> impl IntoView {
    let tokens = read(Panel::Tokens, |lab| lab.read.clone().unwrap_or_default());
    let n_tokens = move || tokens.with(|read| read.tokens.len());
    let picked = RwSignal::new(0_usize);
    let at = Memo::new(move |_| picked.get().min(n_tokens().saturating_sub(1)));
    let on_key = move |event: web_sys::KeyboardEvent| {
        if let Some(place) = led_to(&event.key(), at.get_untracked(), n_tokens().min(MOST_CHIPS)) {
            event.prevent_default();
            picked.set(place);
            focus(&chip_id(place));
        }
    };
    let chips = move || {
        let chip = |(place, token): (usize, &ReadToken)| {
            view! {
                <li>
                    <button
                        type="button"
                        class="lab-chip"
                        class:even=place % 2 == 0
                        id=chip_id(place)
                        aria-pressed=move || if at.get() == place { "true" } else { "false" }
                        tabindex=move || if at.get() == place { "0" } else { "-1" }
                        on:mouseenter=move |_| picked.set(place)
                        on:focus=move |_| picked.set(place)
                        on:click=move |_| picked.set(place)
                    >
                        <span class="lab-piece">{of_bytes(&token.bytes)}</span>
                        <span class="visually-hidden">", id "</span>
                        <span class="lab-id">{token.id}</span>
                    </button>
                </li>
            }
        };
        tokens.with(|read| read.tokens.iter().take(MOST_CHIPS).enumerate().map(chip).collect_view())
    };
    view! {
        <p class="lab-counts" role="status">
            {move || tokens.with(counts)}
        </p>
        <ol class="lab-chips" aria-label="Tokens" on:keydown=on_key>
            {chips}
        </ol>
        {move || {
            let n_more = n_tokens().saturating_sub(MOST_CHIPS);
            (n_more > 0).then(|| view! { <p class="lab-note">{format!("and {} more", words::count(n_more as u64))}</p> })
        }}
        {move || tokens.with(|read| read.tokens.get(at.get()).map(|token| details(at.get(), token)))}
    }
}

fn chip_id(place: usize) -> String {
    format!("lab-token-{place}")
}

/// Tokens and characters.
fn counts(read: &ReadText) -> String {
    let n_tokens = u32::try_from(read.tokens.len()).unwrap_or(u32::MAX);
    let n_chars = u32::try_from(read.text.chars().count()).unwrap_or(u32::MAX);
    format!("{} · {}", words::tokens(n_tokens), words::counted(n_chars, "character", "characters"))
}

/// All that is known of one token.
fn details(place: usize, token: &ReadToken) -> impl IntoView + use<> {
    view! {
        <dl class="lab-details">
            <div>
                <dt>"Token"</dt>
                <dd>{place + 1}</dd>
            </div>
            <div>
                <dt>"Text"</dt>
                <dd>{of_bytes(&token.bytes)}</dd>
            </div>
            <div>
                <dt>"In the vocabulary"</dt>
                <dd>{token.piece.clone()}</dd>
            </div>
            <div>
                <dt>"Id"</dt>
                <dd>{token.id}</dd>
            </div>
            <div>
                <dt>"Bytes"</dt>
                <dd class="lab-bytes">{hex(&token.bytes)}</dd>
            </div>
        </dl>
    }
}
