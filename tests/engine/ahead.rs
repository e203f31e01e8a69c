//! Steps ahead of what the host has seen: a sequence goes on with the token that only the device knows.

use pagelm::engine::params::SamplingParams;
use pagelm::engine::{Budget, EngineConfig, FinishReason, SequenceRequest};
use pagelm::plan::batch::{SampledAt, Token};

use crate::world::{Answer, Random, World, alone, config, greedy, prompt, request, sampling, windowed};

const BUDGET: Budget = Budget { prefill_rows: 64 };

/// Greedy, but not for a device.
fn by_host(max_tokens: usize) -> SamplingParams {
    SamplingParams { frequency_penalty: 0.1, ..greedy(max_tokens) }
}

#[test]
fn a_token_goes_on_before_the_host_has_seen_it() {
    let mut world = World::new(sampling(config(20, 300)));
    let requests = [request(40, greedy(5)), request(10, greedy(5))];
    let ids = requests.clone().map(|request| world.add(request));
    // The first step reads both prompts; the second goes on with the tokens of its two rows with logits.
    let first = world.submit(BUDGET).unwrap();
    assert_eq!((first.n_decode, first.n_prefill(), first.n_sampled()), (0, 50, 2));
    let second = world.submit(BUDGET).unwrap();
    let fed = |slot_of_step, logit_row| Token::Sampled(SampledAt { slot_of_step, logit_row });
    assert_eq!((second.tokens, second.positions), (vec![fed(0, 0), fed(0, 1)], vec![40, 10]));
    assert_eq!(world.submit(BUDGET), None, "two are in flight");
    world.retire();
    let third = world.submit(BUDGET).unwrap();
    assert_eq!((third.tokens, third.slot_of_step), (vec![fed(1, 0), fed(1, 1)], 0));
    world.retire();
    world.retire();
    let fourth = world.submit(BUDGET).unwrap();
    assert!(fourth.tokens.iter().all(|token| token.known().is_some()), "the host has seen all");
    world.overlap(BUDGET);
    for (id, request) in ids.iter().zip(&requests) {
        assert_eq!(world.answers[id], alone(&config(20, 300), request));
    }
}

#[test]
fn a_prompt_is_read_on_while_its_chunk_before_is_in_flight() {
    for config in [config(20, 300), windowed([20, 12], 300)] {
        let mut world = World::new(sampling(config.clone()));
        let request = request(150, SamplingParams { prompt_logprobs: Some(1), ..greedy(3) });
        let id = world.add(request.clone());
        let budget = Budget { prefill_rows: 16 };
        world.submit(budget).unwrap();
        assert_eq!(world.submit(budget).unwrap().positions, (16..32).collect::<Vec<u32>>());
        world.overlap(budget);
        assert_eq!(world.answers[&id], alone(&config, &request));
    }
}

#[test]
fn no_row_is_computed_past_a_length_and_one_past_a_stop_is_dropped() {
    let long = alone(&config(20, 100), &request(30, greedy(60)));
    let stop = long.tokens[8];
    let at = long.tokens.iter().position(|&token| token == stop).unwrap() + 1;
    let stops = SamplingParams { stop_token_ids: vec![stop], ..greedy(60) };
    let unbounded = SamplingParams { max_tokens: None, ..greedy(1) };
    for (params, n_tokens, n_past, reason) in [
        (greedy(1), 1, 0, FinishReason::Length),
        (greedy(2), 2, 0, FinishReason::Length),
        (greedy(20), 20, 0, FinishReason::Length),
        // The context.
        (unbounded, 70, 0, FinishReason::Length),
        (stops.clone(), at, 1, FinishReason::Stop),
        (SamplingParams { max_tokens: Some(at), ..stops }, at, 0, FinishReason::Stop),
    ] {
        let mut world = World::new(sampling(config(20, 100)));
        let id = world.add(request(30, params.clone()));
        let mut n_decoded = 0;
        loop {
            while let Some(batch) = world.submit(BUDGET) {
                n_decoded += batch.n_decode;
            }
            if world.device.computed.is_empty() {
                break;
            }
            world.retire();
            let stats = world.engine.stats();
            let is_dropped = world.answers[&id].finished.is_some() && stats.steps_in_flight == 0;
            assert_eq!(
                stats.free_blocks == stats.n_blocks,
                is_dropped,
                "blocks are free when no step uses them"
            );
        }
        let answer = &world.answers[&id];
        assert_eq!((answer.tokens.len(), answer.finished), (n_tokens, Some(reason)), "{params:?}");
        assert_eq!(answer.tokens, alone(&config(20, 100), &request(30, params)).tokens);
        assert_eq!(n_decoded, n_tokens - 1 + n_past);
    }
}

#[test]
fn who_waits_for_the_host_is_waited_for_by_nobody() {
    let config = sampling(config(20, 300));
    let mut world = World::new(config.clone());
    let requests = [request(20, greedy(40)), request(21, by_host(15))];
    let ids = requests.clone().map(|request| world.add(request));
    let mut n_steps = 0;
    while world.answers[&ids[0]].finished.is_none() {
        assert!(world.overlap_once(BUDGET));
        n_steps += 1;
    }
    assert_eq!(n_steps, 40, "a token a step");
    assert_eq!(world.answers[&ids[1]].tokens.len(), 15, "and one every second step");
    world.finish(BUDGET);
    for (id, request) in ids.iter().zip(&requests) {
        assert_eq!(world.answers[id], alone(&config, request));
    }
}

#[test]
fn those_that_all_wait_for_the_host_stay_in_one_step() {
    for config in [config(20, 300), sampling(config(20, 300))] {
        let mut world = World::new(config);
        world.add(request(20, by_host(30)));
        for i in 0..5 {
            world.overlap_once(BUDGET);
            world.add(request(30 + i, by_host(30)));
        }
        for _ in 0..3 {
            world.overlap_once(BUDGET);
        }
        assert_eq!(world.engine.stats().steps_in_flight, 0);
        assert_eq!(world.submit(BUDGET).unwrap().n_decode, 6, "they were not split in two");
        assert!(!world.engine.may_overlap());
        world.retire();
        world.overlap(BUDGET);
    }
}

#[test]
fn min_tokens_keeps_a_sequence_with_the_host_until_they_are_out() {
    let config = sampling(config(20, 300));
    let mut world = World::new(config.clone());
    let request = request(20, SamplingParams { eog_ids: vec![1, 2, 3], min_tokens: 4, ..greedy(20) });
    let id = world.add(request.clone());
    let mut n_host = 0;
    while let Some(batch) = world.submit(BUDGET) {
        n_host += batch.n_host_rows();
        world.retire();
    }
    assert_eq!(n_host, 4);
    assert_eq!(world.answers[&id], alone(&config, &request));
}

#[test]
fn a_senior_takes_the_blocks_of_a_junior_that_is_always_in_flight() {
    let config = sampling(config(4, 200));
    let mut world = World::new(config.clone());
    let requests = [30, 31].map(|len| request(len, greedy(60)));
    let ids = requests.clone().map(|request| world.add(request));
    let mut n_steps = 0;
    while world.engine.stats().preemptions == 0 {
        assert!(world.overlap_once(BUDGET));
        n_steps += 1;
    }
    let [first, second] = ids.map(|id| world.answers[&id].tokens.len());
    assert!(first >= second && n_steps < 40, "{first} and {second} tokens after {n_steps} steps");
    while world.answers[&ids[0]].finished.is_none() {
        assert!(world.overlap_once(BUDGET));
        n_steps += 1;
    }
    assert!(n_steps <= 60 + 3, "{n_steps} steps: the senior lost no more than what it waited for");
    world.overlap(BUDGET);
    for (id, request) in ids.iter().zip(&requests) {
        assert_eq!(world.answers[id], Answer { cached: world.answers[id].cached, ..alone(&config, request) });
    }
}

#[test]
fn clients_come_to_their_share_of_sequences_that_are_always_in_flight() {
    let mut random = Random(4);
    let config = EngineConfig { max_sequences: 6, ..sampling(config(400, 500)) };
    let mut world = World::new(config);
    let mut asks =
        |client, len| SequenceRequest { client, prompt: prompt(&mut random, len), ..request(1, greedy(80)) };
    for _ in 0..20 {
        world.add(asks(1, 40));
    }
    for _ in 0..20 {
        world.overlap_once(BUDGET);
    }
    let late = world.add(asks(2, 40));
    let mut n_steps = 0;
    while world.answers[&late].tokens.is_empty() {
        assert!(world.overlap_once(BUDGET));
        n_steps += 1;
    }
    assert!(n_steps <= 5, "{n_steps} steps until another client's sequence is answered");
    assert_eq!(world.engine.stats().preemptions, 1);
    world.overlap(BUDGET);
    assert!(world.answers.values().all(|answer| answer.finished.is_some()));
}

#[test]
fn a_step_that_failed_takes_what_follows_it_along() {
    // The later of two, or the earlier: its tokens never come, and what the later made of them is dropped.
    let config = sampling(config(20, 300));
    let requests = [40, 33].map(|len| request(len, greedy(30)));
    for fails_first in [false, true] {
        let mut world = World::new(config.clone());
        let ids = requests.clone().map(|request| world.add(request));
        for n in 0..60 {
            while world.submit(BUDGET).is_some() {}
            if n % 7 == 3 && !world.device.computed.is_empty() {
                if fails_first { world.fail_first() } else { world.fail_last() }
            }
            world.retire();
        }
        world.overlap(BUDGET);
        for (id, request) in ids.iter().zip(&requests) {
            assert_eq!(world.answers[id], alone(&config, request));
        }
    }
}
