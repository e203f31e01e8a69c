//! Alone = in a crowd: random arrivals, budgets, cancels, failures and pools too small change no sequence's answer.

use std::collections::BTreeMap;

use pagelm::engine::blocks::CacheConfig;
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{Budget, EngineConfig, MAX_IN_FLIGHT, SequenceRequest};

use crate::world::{Random, VOCAB_SIZE, World, alone, config, prompt, windowed};

fn any_request(random: &mut Random, max_prompt: usize) -> SequenceRequest {
    let len = if random.one_in(4) { 1 + random.below(3) } else { 1 + random.below(max_prompt) };
    let mut params = SamplingParams {
        temperature: [0.0, 0.0, 0.7, 1.3][random.below(4)],
        top_k: [0, 0, 5][random.below(3)],
        top_p: [1.0, 0.8][random.below(2)],
        repetition_penalty: [1.0, 1.2][random.below(2)],
        frequency_penalty: [0.0, 0.3][random.below(2)],
        seed: random.below(1000) as u64,
        max_tokens: [Some(1), Some(5), Some(70), Some(100), None][random.below(5)],
        logprobs: [None, None, Some(0), Some(3)][random.below(4)],
        prompt_logprobs: [None, None, Some(0), Some(2)][random.below(4)],
        ..SamplingParams::default()
    };
    if random.one_in(3) {
        params.eog_ids = vec![random.below(VOCAB_SIZE) as u32];
        params.stop_token_ids = vec![random.below(VOCAB_SIZE) as u32];
        params.min_tokens = params.max_tokens.unwrap_or(9).min(3);
    }
    SequenceRequest { client: 0, generated: Vec::new(), prompt: prompt(random, len), params }
}

/// A crowd with random arrivals, budgets, cancels and failures, its steps one or two in flight.
fn check_crowd(seed: u64, config: &EngineConfig) -> u64 {
    let mut random = Random(seed << 32);
    let mut world = World::new(config.clone());
    let mut expected = BTreeMap::new();
    let most = config.caches.iter().map(CacheConfig::max_tokens).min().expect("a model has a cache");
    let mut to_arrive = 14;
    let may_cancel = random.one_in(2);
    let may_fail = random.one_in(3);
    for _ in 0..20_000 {
        if to_arrive > 0 && random.one_in(6) {
            to_arrive -= 1;
            let request = any_request(&mut random, (config.context - 1).min(most));
            expected.insert(world.add(request.clone()), alone(config, &request));
        }
        if may_cancel && random.one_in(60) {
            let ids: Vec<_> = expected.keys().copied().collect();
            if !ids.is_empty() {
                world.cancel(ids[random.below(ids.len())]);
            }
        }
        if may_fail && random.one_in(80) {
            world.device.slots.iter_mut().for_each(|slots| slots.fill(None));
            world.device.computed.clear();
            world.engine.forget_cache();
        }
        let submitted = world.submit(Budget { prefill_rows: [0, 1, 20, 64, 200][random.below(5)] }).is_some();
        if may_fail && submitted && random.one_in(40) {
            let (step, _) = world.device.computed.pop().expect("a step was just submitted");
            world.engine.abandon(step);
        }
        if world.device.computed.len() == MAX_IN_FLIGHT || random.one_in(2) {
            world.retire();
        }
        if to_arrive == 0 && world.engine.is_idle() {
            break;
        }
    }
    assert!(world.engine.is_idle(), "seed {seed} does not end: {:?}", world.engine.stats());
    let stats = world.engine.stats();
    assert_eq!(stats.free_blocks, stats.n_blocks, "seed {seed} leaks");
    for (id, expected) in &expected {
        let found = &world.answers[id];
        if world.cancelled.contains(id) {
            assert!(expected.tokens.starts_with(&found.tokens), "seed {seed}, {id:?}");
            assert!(found.finished.is_none() || found == expected, "seed {seed}, {id:?}");
        } else {
            assert_eq!(found, expected, "seed {seed}, {id:?}");
        }
    }
    world.engine.stats().preemptions
}

#[test]
fn alone_is_as_in_a_crowd() {
    let roomy = config(200, 300);
    assert_eq!((0..12).map(|seed| check_crowd(seed, &roomy)).sum::<u64>(), 0, "a roomy pool preempts nobody");
    for config in [
        config(7, 200),
        config(4, 1000),
        EngineConfig { max_logit_rows: 3, ..config(9, 150) },
        EngineConfig { max_sequences: 3, ..config(5, 160) },
        EngineConfig { max_sequences: 100, max_logit_rows: 100, ..config(12, 120) },
        windowed([12, 9], 400),
        windowed([14, 14], 400),
        windowed([9, 4], 400),
    ] {
        let preemptions: u64 = (0..16).map(|seed| check_crowd(seed, &config)).sum();
        assert!(preemptions > 0, "{config:?} is to preempt");
    }
    check_crowd(0, &EngineConfig { max_logit_rows: 1, ..config(3, 90) });
    check_crowd(0, &EngineConfig { max_sequences: 1, ..config(1, 90) });
}
