//! What is answered: batches, samples, resumed answers, statistics.

use pagelm::protocol::{Event, FinishReason, GenerateOptions, Request};

use crate::world::{Output, World, greedy, sample_on_device};

#[test]
fn prompts_and_samples_are_numbered_in_order_and_each_is_as_if_alone() {
    let mut world = World::with_tabs([1]);
    let texts = ["Once", "The capital of France is", "A"];
    let options = GenerateOptions { temperature: 1.0, seed: Some(7), n: 2, ..greedy(9) };
    let mut expected = Vec::new();
    for text in texts {
        for i in 0..2 {
            let request = 100 + expected.len() as u64;
            world.ask(1, request, &[text], &GenerateOptions { n: 1, seed: Some(7 + i), ..options.clone() });
            expected.push(world.finish(1, request).remove(0));
        }
    }
    world.ask(1, 1, &texts, &options);
    let outputs = world.finish(1, 1);
    assert_eq!(outputs.len(), 6);
    for (output, expected) in outputs.iter().zip(&expected) {
        assert_eq!((&output.ids, &output.text), (&expected.ids, &expected.text));
    }
    let mut left: Vec<u32> = outputs.iter().map(|output| output.finish.unwrap().2).collect();
    left.sort_unstable();
    assert_eq!(left, [0, 1, 2, 3, 4, 5]);
    let started = world.heard(1).find_map(|event| match event {
        Event::Started { request: 1, prompt_tokens, .. } => Some(prompt_tokens.clone()),
        _ => None,
    });
    assert_eq!(started.unwrap().len(), 3);
}

#[test]
fn a_request_is_taken_whole_or_not_at_all() {
    let mut world = World::with_tabs([1]);
    let long = "word ".repeat(3000);
    let refused = [
        (vec!["Once", "The", &long], greedy(4), "prompt 3: "),
        (vec![], greedy(4), "no prompt"),
        (vec!["Once"], GenerateOptions { n: 0, ..greedy(4) }, "n is 0"),
        (vec!["Once"], GenerateOptions { n: 65, ..greedy(4) }, "between 1 and 64"),
        (vec!["Once"; 17], GenerateOptions { n: 64, ..greedy(4) }, "1088 outputs"),
        (vec!["Once"], GenerateOptions { top_p: 3.0, ..greedy(4) }, "top_p"),
    ];
    for (request, (prompts, options, sentence)) in (0..).zip(refused) {
        world.ask(1, request, &prompts, &options);
        let (of, error) = world.failed(1);
        assert!(of == Some(request) && error.contains(sentence), "{error}");
        assert_eq!(world.status(1).own, 0, "nothing of it runs");
    }
}

#[test]
fn a_batch_of_the_largest_size_is_taken_and_what_comes_beside_it_is_told_that_the_engine_is_busy() {
    let mut world = World::with_tabs([1]);
    let options = GenerateOptions { n: 64, ..greedy(1) };
    world.ask(1, 1, &["Once"; 16], &options);
    world.ask(1, 2, &["Once"; 16], &options);
    let (of, error) = world.failed(1);
    assert!(of == Some(2) && error.contains("busy"), "{error}");
    assert_eq!(world.finish(1, 1).len(), 1024);
}

#[test]
fn cancel_ends_every_output_with_what_it_has() {
    let mut world = World::with_tabs([1]);
    world.ask(1, 1, &["Once", "The"], &GenerateOptions { n: 2, ..greedy(100) });
    world.until("tokens of all", |world| world.outputs(1, 1).len() == 4);
    world.send(1, &Request::Cancel { request: 1 });
    let outputs = world.finish(1, 1);
    assert!(outputs.iter().all(|output| output.reason() == Some(FinishReason::Cancelled)));
    assert!(outputs.iter().all(|output| !output.ids.is_empty() && output.ids.len() < 100));
    // Those of the step in flight come back with it.
    world.turns(5);
    let status = world.status(1);
    assert_eq!((status.own, status.free_blocks), (0, status.n_blocks));
}

/// Interrupts an answer after `n_kept` tokens, and has it resumed by another tab.
fn resumed(options: &GenerateOptions, n_kept: usize) {
    let mut world = World::with_tabs([1, 2]);
    let prompts = ["Once", "The capital of France is"];
    world.ask(1, 1, &prompts, options);
    let whole = world.finish(1, 1);
    let kept = whole.iter().map(|output| output.ids[..n_kept.min(output.ids.len())].to_vec()).collect();
    world.ask_again(2, 1, &prompts, options, kept);
    let rest = world.finish(2, 1);
    for (whole, rest) in whole.iter().zip(&rest) {
        let n_kept = n_kept.min(whole.ids.len());
        assert_eq!(rest.ids, whole.ids[n_kept..]);
        assert!(whole.text.ends_with(&rest.text), "{:?} of {:?}", rest.text, whole.text);
        assert_eq!(rest.reason(), whole.reason());
        let (rest_usage, usage) = (rest.finish.unwrap().1, whole.finish.unwrap().1);
        assert_eq!(rest_usage.generated_tokens, usage.generated_tokens);
        assert_eq!(rest_usage.prompt_tokens, usage.prompt_tokens);
    }
    // The text of the whole is that which was certain with the kept tokens, and the rest.
    let before = |of: usize| {
        let (mut text, mut n_tokens) = (String::new(), 0);
        for event in world.heard(1) {
            if let Event::Tokens { request: 1, output, text: more, ids, .. } = event
                && *output == of as u32
                && n_tokens < n_kept
            {
                text.push_str(more);
                n_tokens += ids.len();
            }
        }
        text
    };
    for (of, (whole, rest)) in whole.iter().zip(&rest).enumerate() {
        assert_eq!(before(of) + &rest.text, whole.text);
    }
}

#[test]
fn an_answer_that_another_engine_began_goes_on_as_if_nothing_had_happened() {
    resumed(&greedy(24), 10);
    resumed(&GenerateOptions { temperature: 1.0, seed: Some(3), ..greedy(24) }, 5);
    resumed(&GenerateOptions { temperature: 1.0, seed: Some(5), n: 2, ..greedy(12) }, 3);
}

#[test]
fn an_answer_that_was_complete_ends_at_once() {
    let mut world = World::with_tabs([1]);
    world.ask(1, 1, &["Once"], &greedy(6));
    let whole = world.finish(1, 1).remove(0);
    world.ask_again(1, 2, &["Once"], &greedy(6), vec![whole.ids.clone()]);
    let rest = world.finish(1, 2).remove(0);
    assert_eq!((rest.reason(), rest.ids.len()), (Some(FinishReason::Length), 0));
    let stop: String = whole.text.chars().skip(2).take(2).collect();
    let options = GenerateOptions { stop: vec![stop], ..greedy(6) };
    world.ask(1, 3, &["Once"], &options);
    let stopped = world.finish(1, 3).remove(0);
    assert_eq!(stopped.reason(), Some(FinishReason::Stop));
    world.ask_again(1, 4, &["Once"], &options, vec![stopped.ids.clone()]);
    let rest = world.finish(1, 4).remove(0);
    assert_eq!((rest.reason(), rest.text.as_str()), (Some(FinishReason::Stop), ""));
    assert_eq!(rest.finish.unwrap().1.generated_tokens as usize, stopped.ids.len());
}

#[test]
fn tokens_handed_back_are_checked() {
    let mut world = World::with_tabs([1]);
    world.ask_again(1, 1, &["Once"], &greedy(6), vec![vec![1], vec![2]]);
    assert!(world.failed(1).1.contains("tokens of 2 were handed back"));
    world.ask_again(1, 2, &["Once"], &greedy(6), vec![vec![1, 1_000_000]]);
    assert!(world.failed(1).1.contains("token 1 handed back for output 0 is id 1000000"));
}

#[test]
fn an_answer_tells_what_it_took() {
    let mut world = World::with_tabs([1]);
    world.ask(
        1,
        1,
        &["Once upon a time there was a king who had a horse and a house and a hat"],
        &greedy(10),
    );
    let usage = world.finish(1, 1)[0].finish.unwrap().1;
    assert_eq!(usage.generated_tokens, 10);
    assert!(usage.prompt_tokens > 10);
    assert!(usage.queue_ms >= 0.0 && usage.prefill_ms > 0.0 && usage.decode_ms > 0.0, "{usage:?}");
}

#[test]
fn tabs_are_told_how_things_stand_while_they_change_and_once_at_the_end() {
    let mut world = World::with_tabs([1, 2]);
    world.ask(1, 1, &["Once"], &greedy(60));
    while !world.is_done(1, 1) {
        world.pass(50.0);
    }
    world.pass(1000.0);
    let told: Vec<_> = world
        .heard(2)
        .filter_map(|event| match event {
            Event::Status { request: None, status } => Some(*status),
            _ => None,
        })
        .collect();
    assert!(told.iter().any(|status| status.running == 1 && status.own == 0 && status.tokens_per_sec > 0.0));
    let last = told.last().unwrap();
    assert_eq!((last.running, last.tokens_per_sec), (0, 0.0));
    assert_eq!((last.n_tabs, last.n_models, last.n_loads), (2, 1, 1));
    assert!(last.n_gpu_buffers > 10 && last.gpu_bytes > 0 && last.steps >= 60);
    // Until its last pipeline is made, something happens.
    while world.status(1).n_pipelines_left > 0 {
        world.pass(1500.0);
    }
    world.pass(1000.0);
    let n_told = world.events.len();
    world.pass(5000.0);
    assert_eq!(world.events.len(), n_told, "nothing is told while nothing happens");
}

/// What several tabs are answered whose tokens the device may choose, and whose the host must see first.
fn mixed_answers() -> Vec<(Vec<u32>, String)> {
    let mut world = World::with_tabs([1, 2]);
    let plain = GenerateOptions { temperature: 0.8, seed: Some(3), ..greedy(25) };
    let all = [
        greedy(25),
        plain.clone(),
        GenerateOptions { repetition_penalty: 1.3, ..greedy(25) },
        GenerateOptions { top_k: 9, top_p: 0.9, n: 2, ..plain.clone() },
        GenerateOptions { logprobs: Some(3), prompt_logprobs: Some(1), ..plain.clone() },
        GenerateOptions { stop: vec!["e".into()], ..greedy(25) },
        GenerateOptions { min_tokens: 9, ignore_eos: false, ..plain },
    ];
    let mut asked = Vec::new();
    for (request, options) in (0..).zip(&all) {
        world.ask(request % 2 + 1, request, &["Once upon a time"], options);
        asked.push((request % 2 + 1, request));
        world.turns(request as usize);
    }
    let of = |output: Output| (output.ids, output.text);
    let answers = asked.into_iter().flat_map(|(tab, request)| world.finish(tab, request)).map(of).collect();
    world.turns(5);
    let status = world.status(1);
    assert_eq!((status.running, status.free_blocks), (0, status.n_blocks));
    answers
}

#[test]
fn answers_are_the_same_whoever_chooses_their_tokens() {
    let by_host = mixed_answers();
    sample_on_device(true);
    assert_eq!(mixed_answers(), by_host);
}

#[test]
fn a_stop_and_a_cancel_with_two_steps_in_flight_end_at_once_and_leave_nothing() {
    sample_on_device(true);
    let mut world = World::with_tabs([1]);
    for n_tokens in [1, 2, 7] {
        world.ask(1, 1, &["Once"], &greedy(200));
        world.until("tokens", |world| world.outputs(1, 1).iter().any(|output| output.ids.len() >= n_tokens));
        let n_before = world.outputs(1, 1)[0].ids.len();
        world.send(1, &Request::Cancel { request: 1 });
        let outputs = world.finish(1, 1);
        assert_eq!(outputs[0].reason(), Some(FinishReason::Cancelled));
        assert!(outputs[0].ids.len() <= n_before + 1, "nothing in flight is told");
        world.turns(5);
        let status = world.status(1);
        assert_eq!((status.running, status.free_blocks), (0, status.n_blocks));
        world.events.clear();
    }
}

#[test]
fn who_looks_sees_whose_rows_and_blocks_there_are_and_nobody_else_is_told() {
    let mut world = World::with_tabs([1, 5]);
    let n_blocks = world.status(1).n_blocks;
    world.ask(1, 1, &["Once upon a time"], &greedy(60));
    world.ask(5, 1, &["Once upon a time"], &greedy(60));
    world.until("two that decode", |world| {
        [1, 5].iter().all(|tab| world.outputs(*tab, 1).iter().any(|output| output.ids.len() > 2))
    });
    let batch = world.batch(5);
    let whose: Vec<_> = batch.sequences.iter().map(|sequence| (sequence.tab, sequence.is_own)).collect();
    assert_eq!(whose, [(1, false), (2, true)], "tabs by their order, and the own one marked");
    for sequence in &batch.sequences {
        assert_eq!((sequence.is_running, sequence.decode_rows, sequence.prefill_rows), (true, 1, 0));
        assert!(sequence.n_tokens > sequence.prompt_tokens + 2 && sequence.alone_blocks > 0, "{sequence:?}");
    }
    let all = batch.alone_blocks + batch.shared_blocks + batch.cached_blocks + batch.empty_blocks;
    assert_eq!(all, n_blocks);
    world.finish(1, 1);
    world.finish(5, 1);
    world.turns(5);
    let rest = world.batch(5);
    assert!(rest.sequences.is_empty() && rest.alone_blocks + rest.shared_blocks == 0, "{rest:?}");
    let n_told =
        |connection| world.heard(connection).filter(|event| matches!(event, Event::Batch { .. })).count();
    assert_eq!((n_told(1), n_told(5)), (0, 2), "as often as it was asked");
}
