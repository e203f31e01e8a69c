//! The host of a terminal with a tiny model: several requests, cancelling, replacing, and a device that goes away.
#![cfg(feature = "native")]
#![allow(missing_docs, clippy::unwrap_used, reason = "a test that cannot go on says so by panicking")]

#[path = "support/gguf_writer.rs"]
mod gguf_writer;
#[path = "support/memory_source.rs"]
mod memory_source;

use std::rc::Rc;

use gguf_writer::llama_tiny_gguf;
use memory_source::MemorySource;
use pagelm::format::gguf::{Header, Parsed};
use pagelm::gpu::Gpu;
use pagelm::host::native::surroundings;
use pagelm::host::{ConnectionId, Host};
use pagelm::protocol::{
    Event, FinishReason, GenerateOptions, KvType, LoadOptions, Precision, Prompt, Quantize,
};

fn load(host: &mut Host) {
    let source = MemorySource::new("llama-tiny.gguf", llama_tiny_gguf());
    pollster::block_on(host.load(vec![source], &LoadOptions::default(), |_, _| {})).unwrap();
}

/// A device that chooses tokens or does not.
fn gpu(samples: bool) -> Rc<Gpu> {
    Rc::new(pollster::block_on(Gpu::open(None)).unwrap().with_sampling(samples))
}

fn host(samples: bool) -> Host {
    let mut host = Host::new(surroundings(), None).with_gpu(gpu(samples));
    load(&mut host);
    host
}

fn greedy(max_tokens: u32) -> GenerateOptions {
    let max_tokens = Some(max_tokens);
    GenerateOptions { temperature: 0.0, ignore_eos: true, max_tokens, ..GenerateOptions::default() }
}

fn prompt(text: &str) -> Prompt {
    Prompt::Text(text.into())
}

fn run(host: &mut Host) -> Vec<(ConnectionId, Event)> {
    let mut events = host.take_events();
    while host.has_work() {
        pollster::block_on(host.step());
        events.extend(host.take_events());
    }
    events
}

/// The tokens of a request.
fn ids(events: &[(ConnectionId, Event)], of: (ConnectionId, u64)) -> Vec<u32> {
    let tokens = events.iter().filter_map(|(connection, event)| match event {
        Event::Tokens { request, ids, .. } if (*connection, *request) == of => Some(ids.clone()),
        _ => None,
    });
    tokens.flatten().collect()
}

#[test]
fn requests_of_several_connections_are_one_batch_and_each_gets_its_own() {
    let texts = ["Once", "The capital of France is", "Once"];
    let mut alone = Vec::new();
    for samples in [false, true] {
        let mut host = host(samples);
        if alone.is_empty() {
            for text in texts {
                host.generate(0, 1, &prompt(text), &greedy(12));
                alone.push(ids(&run(&mut host), (0, 1)));
            }
        }
        for (connection, text) in texts.iter().enumerate() {
            host.generate(connection as ConnectionId, 7, &prompt(text), &greedy(12));
        }
        let events = run(&mut host);
        for (connection, alone) in alone.iter().enumerate() {
            assert_eq!(alone.len(), 12);
            assert_eq!(&ids(&events, (connection as ConnectionId, 7)), alone, "connection {connection}");
        }
    }
}

#[test]
fn a_step_is_submitted_before_the_one_before_it_is_read_where_the_device_chooses() {
    for samples in [false, true] {
        let mut host = host(samples);
        host.generate(1, 1, &prompt("Once"), &greedy(20));
        host.generate(2, 1, &prompt("The"), &GenerateOptions { frequency_penalty: 0.5, ..greedy(9) });
        let mut n_overlaps = 0;
        while host.has_work() {
            pollster::block_on(host.step());
            n_overlaps += host.hosted().unwrap().engine.stats().steps_in_flight;
        }
        // After each step but those that end the answer, which are known ahead.
        assert_eq!(n_overlaps, if samples { 19 } else { 0 });
        let n_steps = host.hosted().unwrap().n_steps();
        assert!(
            n_steps <= 21,
            "{n_steps} steps: nothing is computed past the end, and nobody waits for the other"
        );
        assert_eq!(ids(&host.take_events(), (1, 1)).len(), 20);
    }
}

#[test]
fn a_cancelled_answer_ends_and_no_step_follows() {
    for samples in [false, true] {
        let mut host = host(samples);
        host.generate(3, 1, &prompt("Once"), &greedy(200));
        for _ in 0..5 {
            pollster::block_on(host.step());
        }
        let steps = host.hosted().unwrap().n_steps();
        host.cancel(3, 1);
        let events = run(&mut host);
        let last = events.last().unwrap();
        assert!(matches!(last, (3, Event::Finished { reason: FinishReason::Cancelled, .. })), "{last:?}");
        assert!(!host.has_work());
        assert_eq!(host.hosted().unwrap().n_steps(), steps, "no step after Stop");
        let stats = host.hosted().unwrap().engine.stats();
        assert_eq!(stats.free_blocks, stats.n_blocks, "its blocks are free again");
    }
}

#[test]
fn a_lost_device_ends_the_answer_and_the_next_load_works() {
    for samples in [false, true] {
        let gpu = gpu(samples);
        let mut host = Host::new(surroundings(), None).with_gpu(Rc::clone(&gpu));
        load(&mut host);
        host.generate(4, 1, &prompt("Once"), &greedy(50));
        pollster::block_on(host.step());
        host.take_events();
        gpu.destroy();
        let events = run(&mut host);
        let failed = |(_, event): &(ConnectionId, Event)| match event {
            Event::Failed { request: Some(1), error } => error.contains("the GPU was lost"),
            _ => false,
        };
        assert!(events.iter().any(failed), "{events:?}");
        assert!(host.hosted().is_none());

        load(&mut host);
        host.generate(4, 2, &prompt("Once"), &greedy(3));
        assert_eq!(ids(&run(&mut host), (4, 2)).len(), 3);
    }
}

/// llama-tiny, with every value of one tensor replaced.
fn llama_tiny_with(tensor: &str, value: f32) -> MemorySource {
    let mut file = llama_tiny_gguf();
    let Parsed::Complete(header) = Header::parse(&file, file.len() as u64).unwrap() else {
        panic!("the whole file is there");
    };
    let info = header.tensor(tensor).unwrap();
    for at in (info.offset_bytes as usize..info.end_bytes() as usize).step_by(4) {
        file[at..at + 4].copy_from_slice(&value.to_le_bytes());
    }
    MemorySource::new("damaged.gguf", file)
}

#[test]
fn weights_that_are_no_numbers_are_refused_by_file_and_tensor() {
    for (tensor, value) in [
        ("output_norm.weight", f32::NAN),
        ("blk.1.ffn_down.weight", f32::INFINITY),
        ("token_embd.weight", f32::NEG_INFINITY),
    ] {
        let mut host = Host::new(surroundings(), None);
        let sources = vec![llama_tiny_with(tensor, value)];
        let error = pollster::block_on(host.load(sources, &LoadOptions::default(), |_, _| {})).unwrap_err();
        let error = error.to_string();
        assert!(error.contains("damaged.gguf") && error.contains(tensor), "{error}");
        assert!(host.hosted().is_none());
    }
}

#[test]
fn a_model_that_computes_no_numbers_ends_the_answer_with_a_sentence() {
    const F16: KvType = KvType::F16;
    let table = [
        (false, Precision::Exact, F16),
        (true, Precision::Exact, F16),
        (false, Precision::Fast, F16),
        (true, Precision::Fast, F16),
        (true, Precision::Exact, KvType::Q8),
        (false, Precision::Fast, KvType::Q8),
    ];
    for (samples, precision, kv) in table {
        // Floats are never packed.
        let quantize = if precision == Precision::Fast { Quantize::Q8 } else { Quantize::None };
        let options = LoadOptions { precision, kv, quantize, ..LoadOptions::default() };
        let mut host = Host::new(surroundings(), None).with_gpu(gpu(samples));
        // Each value is a number, and their products are not.
        let sources = vec![llama_tiny_with("blk.0.attn_norm.weight", f32::MAX)];
        pollster::block_on(host.load(sources, &options, |_, _| {})).unwrap();
        // The second time with a step in flight that nobody asked for any more.
        for request in 1..3 {
            host.generate(1, request, &prompt("Once"), &greedy(5));
            let events = run(&mut host);
            let failed = |(_, event): &(ConnectionId, Event)| match event {
                Event::Failed { request: Some(of), error } => *of == request && error.contains("no number"),
                _ => false,
            };
            assert!(events.iter().any(failed), "{events:?}");
            assert!(ids(&events, (1, request)).is_empty());
            let stats = host.hosted().unwrap().engine.stats();
            assert_eq!(stats.free_blocks, stats.n_blocks, "its blocks are free again");
        }
    }
}

#[test]
fn a_wrong_file_disturbs_no_answer_and_another_model_ends_it() {
    let mut host = host(true);
    host.generate(1, 1, &prompt("Once"), &greedy(6));
    pollster::block_on(host.step());
    let photo = MemorySource::new("photo.png", b"\x89PNG\r\n".to_vec());
    let refused = pollster::block_on(host.load(vec![photo], &LoadOptions::default(), |_, _| {}));
    assert!(refused.is_err_and(|error| error.to_string().contains("photo.png")));
    let events = run(&mut host);
    assert_eq!(ids(&events, (1, 1)).len(), 6, "the answer went on");

    host.generate(1, 2, &prompt("Once"), &greedy(100));
    pollster::block_on(host.step());
    load(&mut host);
    let last = host.take_events().pop();
    let Some((1, Event::Finished { request: 2, reason: FinishReason::Cancelled, .. })) = last else {
        panic!("{last:?}")
    };
    assert!(!host.has_work());
}
