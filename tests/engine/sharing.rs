//! Cached prefixes: what is computed once is not computed again, and what is least recently used goes first.

use pagelm::engine::params::SamplingParams;
use pagelm::engine::{Budget, EngineConfig, SequenceId, SequenceRequest};
use pagelm::plan::batch::BLOCK_TOKENS;

use crate::world::{Random, World, alone, config, greedy, prompt, request, windowed};

const BUDGET: Budget = Budget { prefill_rows: 200 };

fn asks(client: u64, prompt: Vec<u32>, params: SamplingParams) -> SequenceRequest {
    SequenceRequest { client, prompt, generated: Vec::new(), params }
}

/// Answers a prompt, and says how many of its tokens were cached.
fn cached_of(world: &mut World, prompt: &[u32]) -> usize {
    let id = world.add(asks(0, prompt.to_vec(), greedy(1)));
    world.finish(BUDGET);
    world.answers[&id].cached.expect("it ran")
}

#[test]
fn the_second_turn_prefills_what_is_new_and_less_than_one_block_more() {
    for config in [config(80, 3000), windowed([80, 40], 3000)] {
        for n_answer in [1, 5, 24, 25, 26, 56, 57, 58, 100] {
            let mut random = Random(n_answer as u64);
            let mut world = World::new(config.clone());
            let first = request(1000, greedy(n_answer));
            let id = world.add(first.clone());
            world.finish(BUDGET);
            let history = [&first.prompt[..], &world.answers[&id].tokens].concat();
            // The token that was sampled last was never computed, so it is as new as the next question.
            let n_known = history.len() - 1;
            let second = asks(0, [history, prompt(&mut random, 50)].concat(), greedy(10));
            let id = world.add(second.clone());
            world.finish(BUDGET);
            let n_new = second.prompt.len() - n_known;
            let n_prefilled = world.n_prefilled[&id];
            assert!((n_new..n_new + BLOCK_TOKENS).contains(&n_prefilled), "{n_prefilled} for {n_new}");
            assert_eq!(world.answers[&id].cached, Some(second.prompt.len() - n_prefilled));
            assert_eq!(world.answers[&id].tokens, alone(&config, &second).tokens);
        }
    }
}

#[test]
fn samples_of_a_prompt_prefill_it_once() {
    for config in [config(80, 400), windowed([80, 60], 400)] {
        let mut world = World::new(config.clone());
        let sample = |seed| SequenceRequest {
            params: SamplingParams { temperature: 1.0, seed, ..greedy(30) },
            ..request(200, greedy(30))
        };
        let ids: Vec<SequenceId> = (0..5).map(|seed| world.add(sample(seed))).collect();
        world.finish(Budget { prefill_rows: 64 });
        let n_prefilled: Vec<usize> = ids.iter().map(|id| world.n_prefilled[id]).collect();
        assert_eq!(n_prefilled, [200, 8, 8, 8, 8], "all but its last 8 tokens are whole blocks");
        for (seed, id) in (0..).zip(&ids) {
            assert_eq!(world.answers[id].tokens, alone(&config, &sample(seed)).tokens);
        }
    }
}

#[test]
fn tabs_with_one_system_prompt_prefill_it_once() {
    let mut random = Random(3);
    let system = prompt(&mut random, 100);
    let mut world = World::new(config(80, 400));
    let ids: Vec<SequenceId> = (0..4)
        .map(|client| {
            let tokens = [&system[..], &prompt(&mut random, 20)].concat();
            world.add(asks(client, tokens, greedy(30)))
        })
        .collect();
    // The others wait for the first, and then all are read in one step.
    world.submit(BUDGET);
    assert_eq!((world.engine.stats().running, world.engine.stats().waiting), (1, 3));
    assert_eq!(world.submit(BUDGET), None);
    world.retire();
    let batch = world.submit(BUDGET).unwrap();
    assert_eq!((batch.n_decode, batch.n_prefill()), (1, 3 * 24));
    world.retire();
    world.finish(BUDGET);
    let cached: Vec<_> = ids.iter().map(|id| world.answers[id].cached).collect();
    assert_eq!(cached, [Some(0), Some(96), Some(96), Some(96)]);
}

#[test]
fn one_that_waits_for_a_prefix_is_in_nobodys_way() {
    let budget = Budget { prefill_rows: 64 };
    for is_cancelled in [false, true] {
        let mut world = World::new(config(200, 1000));
        let first = world.add(request(640, greedy(1)));
        let same = world.add(request(640, greedy(1)));
        let other = world.add(request(50, greedy(1)));
        for _ in 0..4 {
            world.submit(budget);
            world.retire();
        }
        assert!(world.answers[&other].finished.is_some() && world.answers[&same].cached.is_none());
        let n_read = world.answers[&first].n_read;
        if is_cancelled {
            world.cancel(first);
        }
        world.finish(budget);
        let expected = if is_cancelled { n_read } else { 640 - BLOCK_TOKENS };
        assert_eq!(world.answers[&same].cached, Some(expected));
    }
}

#[test]
fn prompt_logprobs_are_computed_however_much_is_cached() {
    let config = config(80, 400);
    let mut world = World::new(config.clone());
    cached_of(&mut world, &request(100, greedy(1)).prompt);
    let wants = request(100, SamplingParams { prompt_logprobs: Some(1), ..greedy(20) });
    let id = world.add(wants.clone());
    let without = world.add(request(100, greedy(20)));
    world.finish(BUDGET);
    assert_eq!(world.answers[&id], alone(&config, &wants));
    assert_eq!(world.answers[&without].cached, Some(96));
}

#[test]
fn of_one_sequence_the_last_blocks_go_first() {
    let kept = request(128, greedy(1)).prompt;
    // All of the pool but a block is cached; each of these takes the empty one, and one more of them.
    for (n, expected) in [(33, 96), (65, 64), (97, 32)] {
        let mut world = World::new(config(5, 300));
        assert_eq!(cached_of(&mut world, &kept), 0);
        assert_eq!(world.engine.stats().cached_blocks, 4);
        world.add(request(n, greedy(1)));
        world.finish(BUDGET);
        let longer = [&kept[..], &[1]].concat();
        assert_eq!(cached_of(&mut world, &longer), expected, "after one of {n} tokens");
    }
}

#[test]
fn the_least_recently_used_prefix_goes_first() {
    let prompts = [40, 41, 42].map(|len| request(len, greedy(1)).prompt);
    let mut world = World::new(config(5, 300));
    for prompt in &prompts {
        assert_eq!(cached_of(&mut world, prompt), 0);
    }
    assert_eq!((world.engine.stats().free_blocks, world.engine.stats().cached_blocks), (5, 3));
    assert_eq!(cached_of(&mut world, &prompts[0]), 32, "the first is used again");
    // Of three blocks, two are empty; the third is what the second left.
    cached_of(&mut world, &request(80, greedy(1)).prompt);
    assert_eq!([0, 2].map(|i| cached_of(&mut world, &prompts[i])), [32, 32]);
    assert_eq!(cached_of(&mut world, &prompts[1]), 0);
}

#[test]
fn a_preempted_sequence_goes_on_from_what_is_left_of_it() {
    let config = EngineConfig { max_sequences: 2, ..config(20, 300) };
    let mut world = World::new(config.clone());
    let requests = [(1, 100), (1, 101), (2, 60)]
        .map(|(client, len)| SequenceRequest { client, ..request(len, greedy(60)) });
    let [_, young] = [0, 1].map(|i| world.add(requests[i].clone()));
    for _ in 0..8 {
        world.submit(BUDGET);
        world.retire();
    }
    let n_before = world.n_prefilled[&young];
    world.add(requests[2].clone());
    world.finish(BUDGET);
    assert_eq!(world.engine.stats().preemptions, 1, "one of two makes room for another client's");
    assert!(world.n_prefilled[&young] - n_before < 2 * BLOCK_TOKENS, "most of its blocks were left");
    for (id, request) in world.answers.keys().zip(&requests) {
        assert_eq!(world.answers[id].tokens, alone(&config, request).tokens);
    }
}

/// Who does without what is cached computes all of its prompt, and gets the same tokens.
#[test]
fn a_prefix_is_not_reused_by_who_does_not_want_it() {
    let config = config(80, 400);
    let mut world = World::new(config.clone());
    let wants = |reuse_prefix| SequenceRequest {
        params: SamplingParams { reuse_prefix, ..greedy(5) },
        ..request(100, greedy(5))
    };
    let first = world.add(wants(true));
    let beside = world.add(wants(false));
    world.finish(BUDGET);
    let (later, again) = (world.add(wants(false)), world.add(wants(true)));
    world.finish(BUDGET);
    let cached = [first, beside, later, again].map(|id| world.answers[&id].cached);
    assert_eq!(cached, [Some(0), Some(0), Some(0), Some(96)]);
    let tokens = alone(&config, &wants(true)).tokens;
    assert!([first, beside, later, again].iter().all(|id| world.answers[id].tokens == tokens));
}
