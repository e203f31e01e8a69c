//! Answers of a tiny model whose right text is known: what it said when it was asked alone.

use page_tests::{Hosting, Page};
use pagelm::protocol::{
    DeviceChoice, Event, GenerateOptions, IfFull, KvType, LoadOptions, ModelSource, Precision, Prompt,
    Request, Status, TokenLogprob,
};
use serde_json::json;
use std::time::Duration;

/// A tiny model is on the device within this, its kernels compiled in software; also where that begins anew.
pub(crate) const LOAD: Duration = Duration::from_secs(240);
/// Where the model's files are, below the page.
pub(crate) const FILES: &str = "fixtures/llama-tiny/";
/// What the tabs ask, each its own.
pub(crate) const TEXTS: [&str; 4] =
    ["Once upon a time", "The weather of tomorrow", "0 1 2 3 4 5 6 7 8", "fn main() { println!("];
/// After a loss the other kind of kernel has computed the tokens: where the two likeliest lie closer, either may come.
const NEAR_TIE: f32 = 2e-3;

/// Has a tab load the tiny model, and waits until it answers.
pub(crate) fn load(page: &Page) -> Result<(), String> {
    let answers = page.request(&[load_request()], LOAD)?;
    match answers[0].last() {
        Some(Event::Ready { .. }) => Ok(()),
        other => Err(format!("the tiny model was not loaded: {other:?}")),
    }
}

pub(crate) fn load_request() -> Request {
    // Single precision: what is computed again differs least.
    let (kv, precision, device) = (KvType::F32, Precision::Exact, DeviceChoice::Gpu);
    let options = LoadOptions { kv, precision, device, ..LoadOptions::default() };
    let source = ModelSource::Url { url: format!("{FILES}model.safetensors") };
    Request::Load { source, options, if_full: IfFull::Ask }
}

pub(crate) fn generate(text: &str, n_tokens: u32) -> Request {
    let options = GenerateOptions {
        temperature: 0.0,
        ignore_eos: true,
        max_tokens: Some(n_tokens),
        logprobs: Some(2),
        ..GenerateOptions::default()
    };
    let prompts = vec![Prompt::Text(text.into())];
    Request::Generate { request: 0, model: None, prompts, options, generated: Vec::new() }
}

/// An answer: its tokens, and how much likelier each was than the next best.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Answer {
    ids: Vec<u32>,
    gaps: Vec<f32>,
}

impl Answer {
    pub(crate) fn of(events: &[Event]) -> Result<Self, String> {
        let mut answer = Self { ids: Vec::new(), gaps: Vec::new() };
        for event in events {
            match event {
                Event::Tokens { ids, logprobs, .. } => {
                    answer.ids.extend(ids);
                    answer.gaps.extend(logprobs.iter().map(gap));
                }
                Event::Failed { error, .. } => return Err(format!("the answer failed: {error}")),
                _ => (),
            }
        }
        match events.last() {
            Some(Event::Finished { n_left: 0, usage, .. })
                if usage.generated_tokens as usize == answer.ids.len() =>
            {
                Ok(answer)
            }
            last => Err(format!("an answer of {} tokens ended with {last:?}", answer.ids.len())),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ids.len()
    }

    /// The same tokens, whatever ran beside it.
    pub(crate) fn is(&self, alone: &Self) -> Result<(), String> {
        if self.ids == alone.ids {
            return Ok(());
        }
        Err(format!("the answer is {:?}, alone it was {:?}", self.ids, alone.ids))
    }

    /// The same tokens up to the first near tie.
    pub(crate) fn recovers(&self, alone: &Self) -> Result<(), String> {
        let same = self.ids.iter().zip(&alone.ids).take_while(|(a, b)| a == b).count();
        let is_right = self.len() == alone.len() && alone.gaps.get(same).is_none_or(|gap| *gap < NEAR_TIE);
        if is_right { Ok(()) } else { self.is(alone) }
    }
}

fn gap(token: &TokenLogprob) -> f32 {
    match &token.top[..] {
        [first, second, ..] => first.logprob - second.logprob,
        _ => f32::INFINITY,
    }
}

/// What the model says to a text when nothing else runs.
pub(crate) fn alone(page: &Page, text: &str, n_tokens: u32) -> Result<Answer, String> {
    Answer::of(&page.request(&[generate(text, n_tokens)], LOAD)?[0])
}

/// Waits until this tab's own answers run and the engine has done some steps for them.
pub(crate) fn wait_until_mid_answer(page: &Page) -> Result<(), String> {
    status_when(page, "status.own > 0 && status.steps >= first.steps + 8").map(drop)
}

/// How the engine stands as soon as a condition holds, for what would be over between two looks from outside. `first` is how
/// it stood when this tab's answers ran first.
pub(crate) fn status_when(page: &Page, condition: &str) -> Result<Status, String> {
    let script = format!(
        "const look = async () => {{
            const events = JSON.parse(await window.wasmBindings.request('{{\"Status\": {{\"request\": 0}}}}'));
            return events.at(-1).Status.status;
        }};
        const wait = async () => {{
            let first = null;
            for (const end = Date.now() + 60000; Date.now() < end;) {{
                const status = await look();
                if (!first && status.own > 0) first = status;
                if (first && ({condition})) return status;
            }}
            return null;
        }};
        return wait();"
    );
    let status = page.session().run(&script, json!([]))?;
    serde_json::from_value(status)
        .map_err(|error| format!("the engine never stood so that {condition} ({error})"))
}

/// Whether the engine lives on when the tab that had it is gone.
pub(crate) fn outlives_its_tab(page: &Page) -> bool {
    page.hosting() == Hosting::Shared
}
