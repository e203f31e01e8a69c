//! The engine against a fake device: what a sequence generates never depends on what else runs, and every step keeps
//! its bounds.

mod ahead;
mod crowd;
mod fairness;
mod form;
mod looking;
mod resuming;
mod sharing;
mod world;

use pagelm::engine::params::{ParamError, SamplingParams};
use pagelm::engine::{AddError, Budget, Engine, EngineConfig, FinishReason, SequenceRequest};

use pagelm::plan::batch::BLOCK_TOKENS;
use world::{Random, World, alone, config, greedy, model, prompt, request, windowed};

#[test]
fn alone_is_what_the_model_says() {
    let config = config(10, 300);
    for len in [1, 2, 31, 32, 33, 64, 100] {
        let request = request(len, SamplingParams { logprobs: Some(1), ..greedy(40) });
        let answer = alone(&config, &request);
        let mut tokens = request.prompt;
        for (&token, logprobs) in answer.tokens.iter().zip(&answer.logprobs) {
            let logits = model(tokens.iter().copied());
            let largest = logits.iter().copied().fold(f32::MIN, f32::max);
            assert_eq!(logits[token as usize], largest);
            assert_eq!((logprobs.chosen.token, logprobs.top[0]), (token, logprobs.chosen));
            tokens.push(token);
        }
        assert_eq!((answer.tokens.len(), answer.n_read), (40, len));
        assert_eq!(answer.finished, Some(FinishReason::Length));
    }
}

#[test]
fn decodes_go_on_and_short_prompts_get_their_turn_while_a_long_one_is_read() {
    let budget = Budget { prefill_rows: 128 };
    let mut world = World::new(config(400, 5000));
    let early: Vec<_> = (0..3).map(|i| world.add(request(20 + i, greedy(200)))).collect();
    world.submit(budget);
    world.retire();
    let long = world.add(request(4000, greedy(5)));
    let mut late = Vec::new();
    let mut n_steps = 0;
    while world.answers[&long].tokens.is_empty() {
        n_steps += 1;
        if n_steps % 5 == 0 && late.len() < 4 {
            late.push((world.add(request(100, greedy(500))), n_steps));
        }
        let n_before: Vec<_> = world.answers.values().map(|answer| answer.tokens.len()).collect();
        let batch = world.submit(budget).unwrap();
        world.retire();
        let n_ready = n_before.iter().filter(|&&n| n > 0).count();
        assert_eq!(batch.n_decode, n_ready, "every sequence that decodes has a row in every step");
        for (n_before, answer) in n_before.iter().zip(world.answers.values()) {
            assert_eq!(answer.tokens.len() > *n_before, *n_before > 0 || !answer.tokens.is_empty());
        }
        for (id, arrived) in &late {
            assert!(
                n_steps < arrived + 2 || !world.answers[id].tokens.is_empty(),
                "a short prompt waits two steps"
            );
        }
    }
    // 4000 rows at 128 a step, and some of four steps for the late prompts.
    assert!((32..=36).contains(&n_steps), "{n_steps} steps");
    assert_eq!(late.len(), 4);
    assert!(early.iter().all(|id| world.answers[id].tokens.len() == n_steps + 1));
}

#[test]
fn a_long_prompt_gets_its_turn_among_endless_short_ones() {
    let budget = Budget { prefill_rows: 64 };
    let mut world = World::new(EngineConfig { max_sequences: 100, max_logit_rows: 100, ..config(200, 2000) });
    let long = world.add(request(640, greedy(1)));
    let mut random = Random(64);
    for _ in 0..40 {
        for _ in 0..2 {
            world.add(SequenceRequest { prompt: prompt(&mut random, 64), ..request(64, greedy(1)) });
        }
        world.submit(budget);
        world.retire();
    }
    // They come twice as fast as they are read; but only those that came before its last chunk go before its next.
    assert_eq!(world.answers[&long].n_read, 4 * 64);
    world.finish(budget);
    assert_eq!(world.answers[&long].tokens.len(), 1);
}

#[test]
fn chunks_end_at_multiples_of_a_block() {
    let mut world = World::new(config(100, 2000));
    world.add(request(150, greedy(1)));
    world.add(request(90, greedy(1)));
    let ends = [100, 100, 40, 20, 100].map(|prefill_rows| {
        let batch = world.submit(Budget { prefill_rows }).unwrap();
        world.retire();
        assert_eq!(batch.block_tables.len(), 1);
        batch.positions[batch.n_rows() - 1] + 1
    });
    // Of the first prompt 96, since 100 is within a block; all of the second, not begun with the 4 rows that were left;
    // then the first again, within a block only where the budget has less than one.
    assert_eq!(ends, [96, 90, 128, 148, 150]);
    world.finish(Budget { prefill_rows: 100 });
}

#[test]
fn prompt_logprobs_are_those_of_the_model_within_the_bound() {
    let config = EngineConfig { max_logit_rows: 5, ..config(20, 300) };
    let mut world = World::new(config.clone());
    let request = request(70, SamplingParams { prompt_logprobs: Some(2), ..greedy(4) });
    let id = world.add(request.clone());
    let other = world.add(self::request(50, greedy(30)));
    let mut n_steps = 0;
    while world.answers[&id].tokens.is_empty() {
        let batch = world.submit(Budget { prefill_rows: 1000 }).unwrap();
        assert!(batch.logit_rows.len() <= 5);
        world.retire();
        n_steps += 1;
    }
    assert!(n_steps >= 70 / 5, "{n_steps} steps");
    assert!(!world.answers[&other].tokens.is_empty(), "the other prompt had its turn");
    world.finish(Budget { prefill_rows: 1000 });

    let answer = &world.answers[&id];
    let found = answer.prompt_logprobs.as_ref().unwrap();
    assert_eq!((found.len(), &found[0], answer.tokens.len()), (70, &None, 4));
    for (i, found) in found.iter().enumerate().skip(1) {
        let found = found.as_ref().unwrap();
        let logits = model(request.prompt[..i].iter().copied());
        let log_sum = logits.iter().map(|&logit| f64::from(logit).exp()).sum::<f64>().ln();
        assert_eq!(found.chosen.token, request.prompt[i]);
        let expected = f64::from(logits[request.prompt[i] as usize]) - log_sum;
        assert!((f64::from(found.chosen.logprob) - expected).abs() < 1e-5);
        assert_eq!(found.top.len(), 2);
        assert!(
            found.top[0].logprob >= found.top[1].logprob && found.top[1].logprob >= -log_sum as f32 - 3.0
        );
    }
    // A prompt of one token has nothing to predict it.
    let one = alone(&config, &self::request(1, SamplingParams { prompt_logprobs: Some(2), ..greedy(1) }));
    assert_eq!(one.prompt_logprobs, Some(vec![None]));
}

#[test]
fn only_rows_of_use_want_logits() {
    let mut world = World::new(config(20, 300));
    world.add(request(70, greedy(3)));
    let budget = Budget { prefill_rows: 64 };
    let wanted: Vec<_> = std::iter::from_fn(|| {
        let batch = world.submit(budget)?;
        world.retire();
        Some((batch.n_decode, batch.n_prefill(), batch.logit_rows))
    })
    .collect();
    assert_eq!(wanted, [(0, 64, vec![]), (0, 6, vec![5]), (1, 0, vec![0]), (1, 0, vec![0])]);
}

#[test]
fn why_a_sequence_ends() {
    let check = |config: EngineConfig, request: &SequenceRequest, n_tokens: usize, reason| {
        let answer = alone(&config, request);
        assert_eq!((answer.tokens.len(), answer.finished), (n_tokens, Some(reason)), "{request:?}");
        answer
    };
    let unbounded = SamplingParams { max_tokens: None, ..greedy(1) };
    check(config(10, 300), &request(50, greedy(1)), 1, FinishReason::Length);
    check(config(10, 300), &request(50, greedy(20)), 20, FinishReason::Length);
    // The context: prompt and output together.
    let free = check(config(10, 300), &request(50, unbounded.clone()), 250, FinishReason::Length);
    check(config(10, 300), &request(299, unbounded.clone()), 1, FinishReason::Length);
    // The pool: two blocks hold 64 tokens, and one more is sampled from them.
    check(config(2, 300), &request(50, unbounded.clone()), 15, FinishReason::Length);
    check(config(2, 300), &request(64, unbounded.clone()), 1, FinishReason::Length);
    // A token that stops is the last one, also where it is the last that may come.
    let stop = free.tokens[6];
    let place = free.tokens.iter().position(|&token| token == stop).unwrap() + 1;
    for (eog_ids, stop_token_ids) in [(vec![stop], vec![]), (vec![], vec![stop])] {
        let params = SamplingParams { eog_ids, stop_token_ids, ..unbounded.clone() };
        let answer = check(config(10, 300), &request(50, params.clone()), place, FinishReason::Stop);
        assert_eq!(answer.tokens, free.tokens[..place]);
        let at_once = SamplingParams { max_tokens: Some(place), ..params.clone() };
        check(config(10, 300), &request(50, at_once), place, FinishReason::Stop);
        let later = SamplingParams { min_tokens: place, ..params };
        let answer = alone(&config(10, 300), &request(50, later));
        assert!(answer.tokens.len() > place && !answer.tokens[..place].contains(&stop));
    }
}

#[test]
fn cancelled_blocks_are_free_at_once_or_when_their_step_retires() {
    let mut world = World::new(config(10, 300));
    let budget = Budget { prefill_rows: 100 };
    let [first, second] = [64, 40].map(|len| world.add(request(len, greedy(50))));
    let free = |world: &World| world.engine.stats().free_blocks;
    world.submit(budget);
    world.retire();
    assert_eq!(free(&world), 7, "of the second, one block fits in the budget");
    world.submit(Budget { prefill_rows: 0 });
    world.cancel(second);
    assert_eq!((free(&world), world.engine.stats().cached_blocks), (7, 1), "the second is gone at once");
    world.cancel(second);
    world.retire();
    assert_eq!(free(&world), 7);
    world.cancel(first);
    assert!(world.engine.is_idle());
    let waits = world.add(request(10, greedy(5)));
    world.cancel(waits);
    assert!(world.engine.is_idle(), "one that waits is gone at once");
    assert_eq!(free(&world), 10);

    let in_flight = world.add(request(10, greedy(5)));
    world.submit(budget).unwrap();
    world.cancel(in_flight);
    assert!(!world.engine.is_idle() && free(&world) == 9, "its step still writes to its block");
    assert_eq!(world.submit(budget), None);
    world.retire();
    assert!(world.engine.is_idle() && free(&world) == 10);
}

#[test]
fn two_steps_are_in_flight_at_most_and_share_no_sequence() {
    let mut world = World::new(config(20, 300));
    let budget = Budget { prefill_rows: 32 };
    for len in [30, 31, 32] {
        world.add(request(len, greedy(4)));
    }
    let first = world.submit(budget).unwrap();
    let second = world.submit(budget).unwrap();
    assert_ne!(first.block_tables[0], second.block_tables[0]);
    assert_eq!(world.submit(budget), None, "the third waits");
    world.retire();
    let third = world.submit(budget).unwrap();
    assert_eq!((third.n_decode, third.n_prefill()), (1, 32));
    world.retire();
    world.retire();
    world.finish(budget);
    assert!(world.answers.values().all(|answer| answer.tokens.len() == 4));
}

#[test]
fn the_latest_arrival_is_preempted_and_goes_on_unnoticed() {
    let config = config(4, 200);
    let budget = Budget { prefill_rows: 200 };
    let mut world = World::new(config.clone());
    let requests =
        [30, 31].map(|len| request(len, SamplingParams { prompt_logprobs: Some(1), ..greedy(60) }));
    let ids = requests.clone().map(|request| world.add(request));
    let third = world.add(request(5, greedy(1)));
    while world.engine.stats().preemptions == 0 {
        world.submit(budget).unwrap();
        world.retire();
    }
    let [first, second] = ids.map(|id| world.answers[&id].tokens.len());
    assert!(first > second && second > 0, "{first} and {second} tokens");
    assert_eq!(world.engine.stats().waiting, 2, "the second waits again, before the third");
    while world.engine.stats().waiting == 2 {
        world.submit(budget).unwrap();
        world.retire();
    }
    assert!(world.answers[&third].tokens.is_empty() && world.answers[&ids[0]].finished.is_some());
    world.finish(budget);
    for (id, request) in ids.iter().zip(&requests) {
        assert_eq!(world.answers[id], alone(&config, request));
    }
    assert_eq!(world.answers[&third].tokens.len(), 1);
}

#[test]
fn of_several_later_arrivals_the_latest_is_preempted() {
    let mut world = World::new(config(5, 200));
    let requests = [greedy(100), greedy(5), greedy(5)].map(|params| request(30, params));
    let ids = requests.clone().map(|request| world.add(request));
    // Both others own a block for their prompts, but have no turn: the first alone goes on, and takes what is free.
    world.submit(Budget { prefill_rows: 30 });
    world.retire();
    while world.engine.stats().preemptions == 0 {
        world.submit(Budget { prefill_rows: 0 }).unwrap();
        world.retire();
    }
    assert_eq!((world.answers[&ids[0]].tokens.len(), world.engine.stats().waiting), (68, 1));
    let budget = Budget { prefill_rows: 100 };
    world.submit(budget);
    world.retire();
    let [first, second, third] = ids.map(|id| world.answers[&id].tokens.len());
    assert_eq!((first, second, third), (69, 1, 0), "the second kept its block");
    world.finish(budget);
    for (id, request) in ids.iter().zip(&requests) {
        assert_eq!(world.answers[id], alone(&config(5, 200), request));
    }
}

#[test]
fn a_sequence_waits_for_blocks_in_flight_rather_than_lose_its_own() {
    let mut world = World::new(config(5, 200));
    let first = world.add(request(62, greedy(100)));
    world.add(request(64, greedy(1)));
    world.submit(Budget { prefill_rows: 62 });
    world.retire();
    while world.answers[&first].tokens.len() < 34 {
        world.submit(Budget { prefill_rows: 0 }).unwrap();
        world.retire();
    }
    world.submit(Budget { prefill_rows: 0 }).unwrap();
    world.submit(Budget { prefill_rows: 32 }).unwrap();
    world.retire();
    // The first is at position 96, the block that is free is promised to the second, and the second's is in flight.
    assert_eq!((world.engine.stats().free_blocks, world.engine.stats().steps_in_flight), (1, 1));
    assert_eq!(world.submit(Budget { prefill_rows: 0 }), None);
    assert_eq!(world.engine.stats().preemptions, 0);
    world.retire();
    assert_eq!(world.submit(Budget { prefill_rows: 0 }).unwrap().positions, [96]);
    assert_eq!((world.engine.stats().preemptions, world.engine.stats().waiting), (1, 1));
    world.retire();
    world.finish(Budget { prefill_rows: 64 });
}

#[test]
fn abandoned_steps_and_a_lost_cache_are_computed_again() {
    let config = config(20, 300);
    let budget = Budget { prefill_rows: 40 };
    let requests =
        [70, 10, 33].map(|len| request(len, SamplingParams { prompt_logprobs: Some(0), ..greedy(20) }));
    let mut world = World::new(config.clone());
    let ids = requests.clone().map(|request| world.add(request));
    for i in 0.. {
        if world.submit(budget).is_none() {
            break;
        }
        if i < 40 && i % 3 == 0 {
            world.submit(budget);
            world.fail_last();
        }
        if i == 30 {
            world.lose_device(config.clone());
        }
        while !world.device.computed.is_empty() {
            world.retire();
        }
    }
    assert!(world.engine.is_idle());
    for (id, request) in ids.iter().zip(&requests) {
        assert_eq!(world.answers[id], alone(&config, request));
    }
}

#[test]
fn requests_that_can_never_run_are_refused() {
    let mut engine = Engine::new(config(3, 100));
    let check = |engine: &mut Engine, request: SequenceRequest, expected: AddError, says: &[&str]| {
        let error = engine.add(request).unwrap_err();
        assert_eq!(error, expected);
        says.iter().for_each(|says| assert!(error.to_string().contains(says), "{error}"));
    };
    check(&mut engine, request(0, greedy(1)), AddError::EmptyPrompt, &["no tokens"]);
    for prompt_tokens in [100, 101, 5000] {
        let expected = AddError::PromptExceedsContext { prompt_tokens, context: 100 };
        let says = [&*format!("{prompt_tokens} tokens"), "100", "shorten"];
        check(&mut engine, request(prompt_tokens, greedy(1)), expected, &says);
    }
    let expected = AddError::PromptExceedsPool { prompt_tokens: 97, needed: 4, n_blocks: 3 };
    check(
        &mut engine,
        request(97, greedy(1)),
        expected,
        &["97 tokens", "4 blocks", "has 3", "larger KV cache"],
    );
    let strange =
        SequenceRequest { client: 0, prompt: vec![1, 61], generated: Vec::new(), params: greedy(1) };
    let expected = AddError::TokenOutOfVocabulary { index: 1, token: 61, vocab_size: 61 };
    check(&mut engine, strange, expected, &["token 1 is id 61", "end at 60"]);
    let params = SamplingParams { top_p: 0.0, ..greedy(1) };
    let error = ParamError {
        field: "top_p",
        range: "greater than 0 and at most 1".to_owned(),
        found: "0".to_owned(),
    };
    check(&mut engine, request(5, params), AddError::Params(error), &["top_p must be greater than 0"]);
    assert!(engine.is_idle(), "a refused request leaves nothing behind");
    engine.add(request(96, greedy(1))).unwrap();
}

#[test]
fn blocks_behind_a_window_serve_again() {
    let config = windowed([40, 12], 1200);
    let ring = config.caches[1].window.expect("it has a window").blocks;
    for prefill_rows in [1, 64, 200, 1000] {
        let mut world = World::new(config.clone());
        let request = request(700, greedy(400));
        let id = world.add(request.clone());
        while let Some(batch) = world.submit(Budget { prefill_rows }) {
            let stats = world.engine.stats();
            let last = *batch.positions.last().unwrap() as usize;
            let in_window = stats.n_blocks - stats.free_blocks - (last / BLOCK_TOKENS + 1);
            assert!(in_window <= if batch.n_decode > 0 { 3 } else { ring }, "{in_window} blocks");
            world.retire();
        }
        assert_eq!(world.answers[&id], alone(&config, &request));
    }
}
