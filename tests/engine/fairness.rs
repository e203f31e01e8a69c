//! Clients in turn: nobody starves, however much another asks.

use pagelm::engine::{AddError, Budget, EngineConfig, SequenceId, SequenceRequest};

use crate::world::{Random, World, config, greedy, prompt, request};

const BUDGET: Budget = Budget { prefill_rows: 64 };

fn asks(random: &mut Random, client: u64, len: usize, max_tokens: usize) -> SequenceRequest {
    SequenceRequest { client, prompt: prompt(random, len), ..request(1, greedy(max_tokens)) }
}

/// Steps until a sequence has its first token.
fn steps_to_first_token(world: &mut World, id: SequenceId) -> usize {
    for n_steps in 1..10_000 {
        world.submit(BUDGET).expect("a sequence waits");
        world.retire();
        if !world.answers[&id].tokens.is_empty() {
            return n_steps;
        }
    }
    panic!("{id:?} starves: {:?}", world.engine.stats());
}

#[test]
fn one_request_among_twenty_of_another_client_is_answered_soon() {
    // Slots are few, then blocks, then neither: a prompt of two chunks takes turns with those of the other client.
    for (config, preemptions) in [
        (EngineConfig { max_sequences: 4, ..config(400, 500) }, 1),
        (EngineConfig { max_sequences: 30, max_logit_rows: 30, ..config(24, 500) }, 1),
        (EngineConfig { max_sequences: 30, max_logit_rows: 30, ..config(400, 500) }, 0),
    ] {
        for n_steps_before in [0, 3, 20, 60] {
            let mut random = Random(9);
            let mut world = World::new(config.clone());
            for _ in 0..20 {
                world.add(asks(&mut random, 1, 150, 100));
            }
            for _ in 0..n_steps_before {
                world.submit(BUDGET);
                world.retire();
            }
            let before = world.engine.stats().preemptions;
            let id = world.add(asks(&mut random, 2, 100, 50));
            let n_steps = steps_to_first_token(&mut world, id);
            assert!(n_steps <= 4, "{n_steps} steps for two chunks, which take turns with the other's");
            assert!(n_steps_before < 20 || world.engine.stats().preemptions - before >= preemptions);
            world.finish(BUDGET);
            assert!(world.answers.values().all(|answer| answer.finished.is_some()));
        }
    }
}

#[test]
fn clients_run_the_same_number() {
    let mut random = Random(4);
    let mut world = World::new(EngineConfig { max_sequences: 6, ..config(400, 500) });
    let mut ids = Vec::new();
    for client in [1, 2, 3] {
        for _ in 0..8 {
            ids.push((client, world.add(asks(&mut random, client, 40, 30))));
        }
        world.submit(BUDGET);
        world.retire();
    }
    // Two of the first went for those of the second, and one more of each for the third: 6, then 3 and 3, then 2 each.
    world.submit(BUDGET);
    world.retire();
    assert_eq!((world.engine.stats().running, world.engine.stats().preemptions), (6, 3 + 2));
    world.finish(BUDGET);
    assert_eq!(world.engine.stats().preemptions, 5, "from there on there is balance");
}

#[test]
fn newcomers_pass_nobody_by() {
    let mut random = Random(5);
    let mut world = World::new(EngineConfig { max_sequences: 1, ..config(40, 200) });
    world.add(asks(&mut random, 0, 40, 5));
    let waits = [0; 2].map(|_| world.add(asks(&mut random, 1, 40, 5)));
    // Another client comes whenever one is done.
    for n_steps in 0.. {
        world.submit(BUDGET).unwrap();
        world.retire();
        if waits.iter().all(|id| world.answers[id].finished.is_some()) {
            break;
        }
        assert!(n_steps < 40, "each runs for 5 steps, and no more than 3 clients were there before");
        if n_steps % 5 == 0 {
            world.add(asks(&mut random, 2 + n_steps, 40, 5));
        }
    }
}

#[test]
fn a_client_keeps_its_order_and_those_that_were_preempted_come_first() {
    let mut random = Random(6);
    let mut world = World::new(EngineConfig { max_sequences: 2, ..config(40, 200) });
    let own: Vec<_> = (0..4).map(|_| world.add(asks(&mut random, 0, 20, 30))).collect();
    world.submit(BUDGET);
    world.retire();
    let other = world.add(asks(&mut random, 1, 20, 3));
    let mut ended = Vec::new();
    while world.submit(BUDGET).is_some() {
        world.retire();
        let answers = world.answers.iter().filter(|(_, answer)| answer.finished.is_some());
        let new: Vec<_> = answers.map(|(&id, _)| id).filter(|id| !ended.contains(id)).collect();
        ended.extend(new);
    }
    assert_eq!(world.engine.stats().preemptions, 1);
    assert_eq!(ended, [other, own[0], own[1], own[2], own[3]]);
}

#[test]
fn a_full_queue_is_told() {
    let mut random = Random(7);
    let mut world =
        World::new(EngineConfig { max_sequences: 2, max_waiting_of_client: 3, ..config(40, 200) });
    let ids: Vec<_> = (0..3).map(|_| world.add(asks(&mut random, 0, 20, 3))).collect();
    let error = world.engine.add(asks(&mut random, 0, 20, 3)).unwrap_err();
    assert_eq!(error, AddError::Busy { waiting: 3 });
    assert!(error.to_string().contains("3 requests"), "{error}");
    world.add(asks(&mut random, 1, 20, 3));
    world.submit(BUDGET);
    world.add(asks(&mut random, 0, 20, 3));
    world.retire();
    world.cancel(ids[2]);
    world.finish(BUDGET);
    world.add(asks(&mut random, 0, 20, 3));
    world.finish(BUDGET);
}
