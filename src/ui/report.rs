//! What helps whoever mends a fault: versions, device, limits, storage and the last errors.
//!
//! Invariant: nothing that a person or a model wrote is in it: no turn, no title, no system prompt.

use leptos::{html, prelude::*};
use wasm_bindgen_futures::JsFuture;

use super::{
    browser,
    screen::Screen,
    state::{Engine, State},
};
use crate::protocol::{BUILD, LoadOptions, ModelInfo, Status, VERSION};

/// The button that copies it, and the report itself once it was made.
#[component]
pub(crate) fn Report() -> impl IntoView {
    let screen = Screen::expect();
    let made = RwSignal::new(String::new());
    let outcome = RwSignal::new("");
    let shown = NodeRef::<html::Textarea>::new();
    let copy = move |_| {
        outcome.set("");
        leptos::task::spawn_local(async move {
            let lines = browser::lines().await;
            let report = screen.peek(|state| report(state, &lines));
            made.set(report.clone());
            // Elsewhere there is no clipboard at all.
            let is_written = window().is_secure_context()
                && JsFuture::from(window().navigator().clipboard().write_text(&report)).await.is_ok();
            outcome.set(if is_written {
                "Copied: paste it where you report the fault."
            } else {
                "The browser allows no copying here: select the text and copy it yourself."
            });
            if let Some(shown) = shown.get_untracked().filter(|_| !is_written) {
                shown.select();
            }
        });
    };
    view! {
        <fieldset class="report">
            <legend>"Something went wrong?"</legend>
            <button type="button" class="quiet" aria-describedby="report-about" on:click=copy>"Copy report"</button>
            <p id="report-about" class="about">
                "Versions, device, limits, storage and the last errors, for a report of a fault. Nothing that you or a model wrote."
            </p>
            <p class="about" role="status">{move || outcome.get()}</p>
            <div class="field" hidden=move || made.with(String::is_empty)>
                <textarea
                    aria-label="Report"
                    readonly
                    rows="8"
                    node_ref=shown
                    prop:value=move || made.get()
                ></textarea>
            </div>
        </fieldset>
    }
}

/// The report, with what the browser says of itself.
fn report(state: &State, browser: &[String]) -> String {
    let mut lines = vec![format!("pagelm, protocol {VERSION}, build {BUILD}")];
    lines.extend_from_slice(browser);
    let engine = match state.engine {
        Engine::Starting => "starting",
        Engine::Running => "running",
        Engine::Recovering => "recovering",
        Engine::Lost => "lost",
    };
    lines.push(format!("Engine: {engine}"));
    match &state.model {
        Some(model) => model_lines(&model.info, &mut lines),
        None => lines.push("Model: none".to_owned()),
    }
    lines.push(format!("To be loaded with: {}", spoken(&state.preferences.load)));
    lines.extend(state.live.as_ref().map(standing));
    lines.push(if state.told.is_empty() {
        "Last errors: none".to_owned()
    } else {
        "Last errors:".to_owned()
    });
    lines.extend(state.told.iter().map(|told| format!("- {told}")));
    lines.join("\n") + "\n"
}

fn model_lines(info: &ModelInfo, lines: &mut Vec<String>) {
    lines.push(format!(
        "Model: {}, {}, {}, {} parameters, {} layers, {} words, file {} bytes, weights {} bytes",
        info.name,
        info.architecture,
        info.quantization,
        info.n_parameters,
        info.n_layers,
        info.vocab_size,
        info.file_bytes,
        info.weight_bytes
    ));
    lines.push(format!(
        "Device: {} ({}, {}), {}",
        info.device_name,
        info.device_backend,
        info.device_kind.name(),
        info.precision.name()
    ));
    lines.push(format!("Kernels and limits: {}", info.device_details));
    lines.push(format!(
        "KV cache: {} tokens, {} bytes; context {}",
        info.kv_tokens, info.kv_bytes, info.context
    ));
    let notes = [&info.device_note, &info.kv_note, &info.storage_note].into_iter().flatten();
    lines.extend(notes.map(|note| format!("Note: {note}")));
}

fn spoken(options: &LoadOptions) -> String {
    let context = options.context.map_or_else(|| "auto".to_owned(), |n_tokens| n_tokens.to_string());
    format!(
        "context {context}, KV cache {}, device {}, arithmetic {}, weights {:?}",
        options.kv.name(),
        options.device.name(),
        options.precision.name(),
        options.quantize
    )
}

fn standing(status: &Status) -> String {
    format!(
        "Standing: {} tabs, {} models, {} loads, {} lost devices, {} GPU buffers of {} bytes, {} bytes of wasm memory, \
         {} of {} blocks free, {} steps, {} preemptions",
        status.n_tabs,
        status.n_models,
        status.n_loads,
        status.n_losses,
        status.n_gpu_buffers,
        status.gpu_bytes,
        status.memory_bytes.unwrap_or_default(),
        status.free_blocks,
        status.n_blocks,
        status.steps,
        status.preemptions
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        protocol::{DeviceKind, Event, ModelSource},
        ui::preferences::Preferences,
    };

    const SECRET: &str = "my neighbour's name is Zyx";

    fn info() -> ModelInfo {
        ModelInfo {
            kv_note: Some("the GPU's memory holds 2048 tokens of the 4096 asked for".into()),
            storage_note: Some("tiny.gguf is fetched but not kept".into()),
            device_name: "Adapter X".into(),
            device_kind: DeviceKind::Gpu,
            device_note: Some("Adapter X computes wrongly with its kernels of subgroups".into()),
            device_details: "kernels Workgroup, largest binding 134217728 bytes".into(),
            ..ModelInfo::example("Tiny")
        }
    }

    /// A screen with a chat, a system prompt and an error.
    fn state() -> State {
        let mut state = State::new(Preferences::default());
        state.edit(|preferences| preferences.system_prompt = format!("Remember: {SECRET}"));
        let source = ModelSource::Url { url: "models/tiny.gguf".into() };
        state.apply(Event::Ready { model: info(), source, options: LoadOptions::default() }, 0.0);
        let welcome = Event::Welcome { version: VERSION, build: BUILD.into(), epoch: String::new() };
        state.apply(welcome, 0.0);
        state.edit(|preferences| {
            preferences.edit_options(|options| options.stop = vec![SECRET.to_owned()]);
        });
        assert!(state.submit(&format!("Once more: {SECRET}"), 1).is_some());
        let text = format!("You said: {SECRET}");
        let tokens = Event::Tokens { request: 1, output: 0, text, ids: vec![1], logprobs: Vec::new() };
        state.apply(tokens, 1.0);
        state.apply(Event::Status { request: None, status: Status { n_tabs: 3, ..Status::default() } }, 2.0);
        state.notify("The GPU was lost.".into());
        let notice = state.notices[0].id;
        state.dismiss(notice);
        // The first words of the chat become its title.
        assert!(state.take_unsaved(3.0).is_some());
        let why = "cannot be deleted now.";
        let title = state.chat.title.clone().unwrap();
        state.notify_naming(format!("“{title}” {why}"), &format!("A chat {why}"));
        state.refuse_naming(format!("{title}.json holds no chats."), "A file holds no chats.");
        state
    }

    #[test]
    fn nothing_that_was_written_is_in_it() {
        let state = state();
        assert_eq!(state.turns.len(), 2);
        let report = report(&state, &["Browser: test".into()]);
        for turn in &state.turns {
            assert!(!turn.text.is_empty() && !report.contains(&turn.text), "{report}");
        }
        assert!(!report.contains("Zyx"), "{report}");
        let title = state.chat.title.as_deref().unwrap();
        assert!(!title.is_empty() && !report.contains(title), "{report}");
    }

    #[test]
    fn it_says_what_a_fault_may_depend_on() {
        let report = report(&state(), &["Browser: test".into(), "Storage: 1 of 2".into()]);
        for part in [
            &format!("protocol {VERSION}, build {BUILD}"),
            "Browser: test\nStorage: 1 of 2\n",
            "Engine: running",
            "Device: Adapter X (webgpu, gpu), exact",
            "largest binding 134217728 bytes",
            "Note: Adapter X computes wrongly",
            "Note: the GPU's memory holds 2048",
            "Note: tiny.gguf is fetched but not kept",
            "Model: Tiny, llama, Q4_1,",
            "Standing: 3 tabs",
            "Last errors:\n- The GPU was lost.\n- A chat cannot be deleted now.\n- A file holds no chats.\n",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }

    #[test]
    fn without_a_model_it_says_so() {
        let report = report(&State::new(Preferences::default()), &[]);
        assert!(report.contains("Engine: starting\nModel: none\n"), "{report}");
        assert!(report.contains("Last errors: none\n"), "{report}");
    }
}
