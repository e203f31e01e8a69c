//! Five hundred requests of eight tabs with cancels at random: nothing is left of them.

use std::collections::BTreeMap;

use pagelm::protocol::{Event, FinishReason, GenerateOptions, IfFull, Request};

use crate::random::Random;
use crate::world::{World, context, greedy, sample_on_device};

const N_REQUESTS: u64 = 500;
const N_TABS: u64 = 8;

#[test]
fn five_hundred_requests_leave_nothing_behind() {
    for samples in [false, true] {
        sample_on_device(samples);
        answer_five_hundred_requests();
    }
}

fn answer_five_hundred_requests() {
    let mut random = Random::new(4);
    let mut world = World::new();
    for tab in 0..N_TABS {
        world.hello(tab);
        world.load(tab, "tiny", context(128), IfFull::Ask);
        world.ready(tab);
    }
    let loaded = world.status(0);
    let (mut asked, mut ended, mut seen) = (BTreeMap::new(), BTreeMap::new(), 0);
    let mut n_asked = 0;
    while (ended.len() as u64) < N_REQUESTS {
        if n_asked < N_REQUESTS && asked.len() < 24 {
            let tab = random.below(N_TABS as usize) as u64;
            let system =
                ["You are brief. ", "You are a poet who writes of the sea and the wind. "][random.below(2)];
            let prompt = format!("{}{n_asked}", system.repeat(1 + random.below(2)));
            let options = GenerateOptions {
                n: 1 + (random.below(8) / 7) as u32,
                ..greedy(1 + random.below(16) as u32)
            };
            world.ask(tab, n_asked, &[&prompt], &options);
            asked.insert(n_asked, tab);
            n_asked += 1;
        }
        if random.below(12) == 0
            && let Some((request, tab)) = asked.iter().nth(random.below(asked.len().max(1)))
        {
            world.send(*tab, &Request::Cancel { request: *request });
        }
        world.turn();
        for (_, event) in &world.events[seen..] {
            match event {
                Event::Finished { request, reason, n_left: 0, .. } => {
                    asked.remove(request);
                    ended.insert(*request, *reason);
                }
                Event::Failed { error, .. } => panic!("{error}"),
                _ => {}
            }
        }
        seen = world.events.len();
    }
    let n_cancelled = ended.values().filter(|reason| **reason == FinishReason::Cancelled).count();
    assert!((20..400).contains(&n_cancelled), "{n_cancelled} were cancelled");
    world.turns(5);
    let status = world.status(0);
    assert_eq!((status.running, status.waiting, status.free_blocks), (0, 0, status.n_blocks));
    assert_eq!((status.n_gpu_buffers, status.gpu_bytes), (loaded.n_gpu_buffers, loaded.gpu_bytes));
    assert_eq!((status.n_loads, status.n_losses), (1, 0));
}
