//! Writes a message of every kind, as the engine encodes it and as JSON, for the test of what JavaScript reads and writes.
//!
//! Invariant: no two fields of a message have the same value, so that none can be taken for another.

use pagelm::protocol::{
    AttachedFile, BUILD, BatchStatus, ContentPart, DeviceChoice, DeviceKind, Event, Fault, FinishReason,
    GenerateOptions, IfFull, KvType, LoadOptions, Message, ModelInfo, ModelSource, ModelUse, OpTime,
    Precision, Prompt, Quantize, Request, SequenceStatus, Status, Structure, TokenLogprob, ToolCall, Usage,
    VERSION, encode,
};
use serde_json::{Value, json};

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("messages: name the file to write")?;
    let requests = std::iter::successors(Some(first_request()), next_request);
    let events = std::iter::successors(Some(first_event()), next_event);
    let more = [
        load(
            ModelSource::Url { url: "https://models.example/ü.gguf".into() },
            LoadOptions::default(),
            IfFull::Ask,
        ),
        generate(vec![Prompt::Tokens(vec![0, 127, 128, u32::MAX])], GenerateOptions::default()),
        in_form(Structure::Json),
        in_form(Structure::Grammar("start: \"a\"".into())),
        // The words that no other message has.
        load(
            files(),
            LoadOptions {
                kv: KvType::F32,
                precision: Precision::Exact,
                device: DeviceChoice::Cpu,
                quantize: Quantize::Q8,
                ..LoadOptions::default()
            },
            IfFull::Wait,
        ),
        Request::Break { fault: Fault::DestroyDevice },
        Request::Break { fault: Fault::LoseDevice },
        Request::Break { fault: Fault::Noise },
    ];
    let file = json!({
        "requests": requests.chain(more).map(|request| both(encode(&request), json!(request))).collect::<Vec<_>>(),
        "events": events.map(|event| both(encode(&event), json!(event))).collect::<Vec<_>>(),
        "generate": GenerateOptions::default(),
        "load": LoadOptions::default(),
        "build": BUILD,
    });
    std::fs::write(&path, file.to_string()).map_err(|error| format!("messages: cannot write {path}: {error}"))
}

fn both(bytes: Vec<u8>, message: Value) -> Value {
    json!({ "bytes": bytes, "message": message })
}

fn first_request() -> Request {
    Request::Hello { version: VERSION, build: BUILD.into(), lock: "lock".into() }
}

/// Each kind names the next, so that a new one cannot be forgotten.
fn next_request(request: &Request) -> Option<Request> {
    Some(match request {
        Request::Hello { .. } => load(
            files(),
            LoadOptions {
                context: Some(300),
                kv: KvType::Q8,
                precision: Precision::Fast,
                device: DeviceChoice::Gpu,
                quantize: Quantize::Q4,
                keep_unused_secs: Some(0),
            },
            IfFull::Replace,
        ),
        Request::Load { .. } => Request::GiveUpLoad,
        Request::GiveUpLoad => generate(
            vec![
                Prompt::Text("Каждое".into()),
                Prompt::Chat {
                    messages: vec![Message {
                        role: "assistant".into(),
                        content: vec![ContentPart::Text("one".into()), ContentPart::Text("two".into())],
                        tool_calls: vec![ToolCall {
                            id: "call".into(),
                            name: "look".into(),
                            arguments: "{}".into(),
                        }],
                    }],
                    tools: vec!["{\"name\":\"look\"}".into()],
                    template_arguments: vec![("enable_thinking".into(), "true".into())],
                },
            ],
            generate_options(),
        ),
        Request::Generate { .. } => {
            Request::Tokenize { request: 7, model: Some(8), prompt: Prompt::Text(String::new()) }
        }
        Request::Tokenize { .. } => Request::Status { request: 1 << 40 },
        Request::Status { .. } => Request::Batch { request: 12 },
        Request::Batch { .. } => Request::Cancel { request: (1 << 53) - 1 },
        Request::Cancel { .. } => Request::Received { n_events: 16 },
        Request::Received { .. } => Request::Bye,
        Request::Bye => Request::Break { fault: Fault::Panic },
        Request::Break { .. } => return None,
    })
}

fn load(source: ModelSource, options: LoadOptions, if_full: IfFull) -> Request {
    Request::Load { source, options, if_full }
}

fn generate(prompts: Vec<Prompt>, options: GenerateOptions) -> Request {
    Request::Generate { request: 5, model: None, prompts, options, generated: vec![vec![], vec![1, 2]] }
}

fn in_form(structure: Structure) -> Request {
    let options = GenerateOptions { structure: Some(structure), ..GenerateOptions::default() };
    generate(vec![Prompt::Tokens(vec![1])], options)
}

fn files() -> ModelSource {
    let file =
        |name: &str, len_bytes, modified_ms| AttachedFile { name: name.into(), len_bytes, modified_ms };
    ModelSource::Attachments {
        files: vec![file("a/config.json", 1, 2), file("b", 5_000_000_000, 1_700_000_000_000)],
    }
}

fn generate_options() -> GenerateOptions {
    GenerateOptions {
        n: 2,
        temperature: 0.5,
        top_k: -1,
        top_p: 0.25,
        min_p: 0.125,
        repetition_penalty: 1.5,
        presence_penalty: -0.75,
        frequency_penalty: 1.75,
        seed: Some(1 << 52),
        max_tokens: None,
        min_tokens: 3,
        stop: vec!["stop".into()],
        stop_token_ids: vec![9],
        include_stop_str_in_output: true,
        ignore_eos: false,
        bad_words: vec!["bad".into(), "words".into()],
        logit_bias: vec![(10, -100.0)],
        logprobs: Some(11),
        prompt_logprobs: Some(12),
        skip_special_tokens: false,
        reuse_prefix: true,
        time_ops: false,
        structure: Some(Structure::JsonSchema("{\"type\":\"null\"}".into())),
    }
}

fn first_event() -> Event {
    Event::Welcome { version: 300, build: "build".into(), epoch: "epoch".into() }
}

fn next_event(event: &Event) -> Option<Event> {
    let (request, output) = (21, 22);
    Some(match event {
        Event::Welcome { .. } => Event::Unacquainted,
        Event::Unacquainted => {
            Event::Loading { stage: "stage".into(), done_bytes: 1 << 33, total_bytes: 1 << 34 }
        }
        Event::Loading { .. } => {
            Event::Ready { model: model(), source: files(), options: LoadOptions::default() }
        }
        Event::Ready { .. } => Event::LoadFailed { error: "error".into(), unloaded: true },
        Event::LoadFailed { .. } => Event::InUse {
            models: vec![ModelUse { name: "name".into(), n_bytes: 1, n_tabs: 2, n_sequences: 3 }],
        },
        Event::InUse { .. } => Event::Unloaded { reason: "reason".into() },
        Event::Unloaded { .. } => {
            Event::Started { request, prompt_tokens: vec![1, 2], openings: vec!["<think>".into()] }
        }
        Event::Started { .. } => {
            Event::PromptLogprobs { request, output, tokens: vec![None, Some(logprob())] }
        }
        Event::PromptLogprobs { .. } => {
            Event::Prefilling { request, output, done_tokens: 1, total_tokens: 2 }
        }
        Event::Prefilling { .. } => {
            Event::Tokens {
                request, output, text: "👩".into(), ids: vec![49151], logprobs: vec![logprob()]
            }
        }
        Event::Tokens { .. } => Event::OpTimes {
            request,
            position: 1,
            ops: vec![OpTime { name: "matmul".into(), dispatches: 2, ms: 0.1, weight_bytes: 1 << 35 }],
        },
        Event::OpTimes { .. } => {
            let bytes = vec![vec![], vec![0, 127, 128, 255]];
            Event::Tokenized {
                request,
                text: "text".into(),
                ids: vec![1],
                pieces: vec!["piece".into()],
                bytes,
            }
        }
        Event::Tokenized { .. } => Event::Status { request: Some(1), status: status() },
        Event::Status { .. } => Event::Batch { request, batch: batch() },
        Event::Batch { .. } => Event::Finished {
            request,
            output,
            reason: FinishReason::Unmet,
            usage: Usage {
                prompt_tokens: 1,
                cached_tokens: 2,
                generated_tokens: 3,
                queue_ms: 4.5,
                prefill_ms: 0.1,
                decode_ms: 1e9,
            },
            n_left: 4,
        },
        Event::Finished { .. } => Event::Failed { request: None, error: "error".into() },
        Event::Failed { .. } => return None,
    })
}

fn batch() -> BatchStatus {
    let sequence = SequenceStatus {
        tab: 1,
        is_own: true,
        is_running: true,
        prompt_tokens: 2,
        n_tokens: 300,
        cached_tokens: 4,
        prefill_rows: 5,
        decode_rows: 6,
        alone_blocks: 7,
        shared_blocks: 8,
    };
    BatchStatus {
        steps: 1 << 40,
        sequences: vec![sequence, SequenceStatus::default()],
        alone_blocks: 9,
        shared_blocks: 10,
        cached_blocks: 11,
        empty_blocks: 1200,
    }
}

fn logprob() -> TokenLogprob {
    let top = TokenLogprob { id: 1, text: "a".into(), logprob: -0.5, top: Vec::new() };
    TokenLogprob { id: 2, text: "b".into(), logprob: -1.5, top: vec![top] }
}

fn model() -> ModelInfo {
    ModelInfo {
        id: 1,
        name: "name".into(),
        architecture: "architecture".into(),
        quantization: "quantization".into(),
        license: Some("license".into()),
        n_parameters: 1 << 36,
        file_bytes: 1 << 37,
        storage_note: None,
        weight_bytes: 1 << 38,
        context: 2,
        kv_tokens: 3,
        kv_bytes: 4,
        kv_note: Some("kv note".into()),
        device_name: "device".into(),
        device_backend: "backend".into(),
        device_kind: DeviceKind::Software,
        device_note: None,
        device_details: "details".into(),
        precision: Precision::Exact,
        n_layers: 5,
        vocab_size: 6,
        has_chat_template: true,
        template_arguments: vec!["enable_thinking".into()],
    }
}

fn status() -> Status {
    Status {
        n_tabs: 1,
        n_models: 2,
        n_loads: 3,
        n_losses: 4,
        n_gpu_buffers: 5,
        gpu_bytes: 6,
        n_pipelines_left: 7,
        memory_bytes: Some(8),
        running: 9,
        waiting: 10,
        own: 11,
        free_blocks: 12,
        cached_blocks: 13,
        n_blocks: 14,
        steps: 15,
        preemptions: 16,
        tokens_per_sec: 17.5,
        own_tokens_per_sec: 18.5,
    }
}
