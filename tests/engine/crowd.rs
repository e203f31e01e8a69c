//! Alone = in a crowd: random arrivals, budgets, cancels, failures, shared beginnings and pools too small change no
//! sequence's answer.

use std::collections::BTreeMap;

use pagelm::engine::blocks::{CacheConfig, Window};
use pagelm::engine::params::SamplingParams;
use pagelm::engine::{Budget, EngineConfig, MAX_IN_FLIGHT, SequenceId, SequenceRequest};

use crate::world::{Answer, Random, VOCAB_SIZE, World, alone, config, prompt, sampling, windowed};

/// What happened in some schedules.
#[derive(Debug, Default)]
struct Tally {
    preemptions: u64,
    cached_tokens: usize,
    finished: usize,
    fed_rows: usize,
}

/// Requests whose prompts begin alike, go on with earlier answers, or resume one.
struct Requests {
    beginnings: Vec<Vec<u32>>,
    earlier: Vec<(SequenceRequest, Answer)>,
    max_prompt: usize,
    n_clients: usize,
}

impl Requests {
    fn new(random: &mut Random, config: &EngineConfig) -> Self {
        let most = config.caches.iter().map(CacheConfig::max_tokens).min().expect("a model has a cache");
        let beginnings = (0..2).map(|_| {
            let len = 20 + random.below(90);
            prompt(random, len)
        });
        Self {
            beginnings: beginnings.collect(),
            earlier: Vec::new(),
            max_prompt: (config.context - 1).min(most),
            n_clients: 1 + random.below(4),
        }
    }

    /// The next request, and what it is answered with alone.
    fn next(&mut self, random: &mut Random, config: &EngineConfig) -> (SequenceRequest, Answer) {
        let len = 1 + random.below(self.max_prompt);
        let beginning = match random.below(5) {
            0 => Vec::new(),
            1 if !self.earlier.is_empty() => {
                let (request, answer) = &self.earlier[random.below(self.earlier.len())];
                [&request.prompt[..], &request.generated, &answer.tokens].concat()
            }
            2 if !self.earlier.is_empty() => self.earlier[random.below(self.earlier.len())].0.prompt.clone(),
            _ => self.beginnings[random.below(self.beginnings.len())].clone(),
        };
        let end = if random.one_in(3) { prompt(random, len) } else { prompt(random, 1 + len % 8) };
        let mut tokens = [beginning, end].concat();
        tokens.truncate(self.max_prompt);
        let client = random.below(self.n_clients) as u64;
        let params = any_params(random);
        let mut request = SequenceRequest { client, prompt: tokens, generated: Vec::new(), params };
        let mut answer = alone(config, &request);
        if random.one_in(5) {
            // As much of it as another engine may have computed before it died, down to the last token.
            request.generated = answer.tokens[..random.below(answer.tokens.len() + 1)].to_vec();
            answer = alone(config, &request);
        }
        self.earlier.push((request.clone(), answer.clone()));
        (request, answer)
    }
}

fn any_params(random: &mut Random) -> SamplingParams {
    let mut params = SamplingParams {
        temperature: [0.0, 0.0, 0.7, 1.3][random.below(4)],
        top_k: [0, 0, 5][random.below(3)],
        top_p: [1.0, 0.8][random.below(2)],
        repetition_penalty: [1.0, 1.0, 1.2][random.below(3)],
        frequency_penalty: [0.0, 0.0, 0.3][random.below(3)],
        seed: random.below(1000) as u64,
        max_tokens: [Some(1), Some(20), Some(70), Some(100), None][random.below(5)],
        logprobs: [None, None, Some(0), Some(3)][random.below(4)],
        prompt_logprobs: [None, None, None, Some(2)][random.below(4)],
        ..SamplingParams::default()
    };
    if random.one_in(3) {
        params.eog_ids = vec![random.below(VOCAB_SIZE) as u32];
        params.stop_token_ids = vec![random.below(VOCAB_SIZE) as u32];
        params.min_tokens = params.max_tokens.unwrap_or(9).min(3);
    }
    params
}

/// A crowd with random arrivals, budgets, cancels and failures.
fn run_crowd(seed: u64, config: &EngineConfig, tally: &mut Tally) {
    let mut random = Random(seed << 32);
    let mut world = World::new(config.clone());
    let mut requests = Requests::new(&mut random, config);
    let mut expected = BTreeMap::new();
    let mut to_arrive = 10;
    let (may_cancel, may_fail, in_flight) = (random.one_in(2), random.one_in(3), random.below(3));
    for _ in 0..20_000 {
        if to_arrive > 0 && random.one_in(3) {
            to_arrive -= 1;
            let (request, answer) = requests.next(&mut random, config);
            expected.insert(world.add(request), answer);
        }
        if may_cancel && random.one_in(40) {
            let ids: Vec<SequenceId> = expected.keys().copied().collect();
            if !ids.is_empty() {
                world.cancel(ids[random.below(ids.len())]);
            }
        }
        if may_fail && random.one_in(80) {
            world.lose_device(config.clone());
        }
        let submitted = world.submit(Budget { prefill_rows: [0, 1, 20, 64, 200][random.below(5)] }).is_some();
        if may_fail && submitted && random.one_in(40) {
            world.fail_last();
        }
        // One step in flight, one or two, or always two where there is anything to do.
        let is_full = world.device.computed.len() == MAX_IN_FLIGHT || !submitted;
        if in_flight == 0 || is_full || in_flight == 1 && random.one_in(2) {
            world.retire();
        }
        if to_arrive == 0 && world.engine.is_idle() {
            break;
        }
    }
    let stats = world.engine.stats();
    assert!(world.engine.is_idle(), "seed {seed} does not end: {stats:?}");
    assert_eq!((stats.free_blocks, stats.running), (stats.n_blocks, 0), "seed {seed} leaks");
    tally.preemptions += stats.preemptions;
    tally.fed_rows += world.n_fed_rows;
    for (id, expected) in &expected {
        let found = &world.answers[id];
        tally.cached_tokens += found.cached.unwrap_or(0);
        if world.cancelled.contains(id) {
            assert!(expected.tokens.starts_with(&found.tokens), "seed {seed}, {id:?}");
        } else {
            tally.finished += 1;
            let found = Answer { cached: expected.cached, ..found.clone() };
            assert_eq!(found, *expected, "seed {seed}, {id:?}");
        }
    }
}

/// Where the host samples, and where the device does but for those whose tokens the host must see.
fn check_crowds(config: &EngineConfig, n_schedules: u64, check: impl Fn(&Tally)) {
    for config in [config.clone(), sampling(config.clone())] {
        let mut tally = Tally::default();
        for seed in 0..n_schedules {
            // One to nine at once.
            let max_sequences = config.max_sequences.min(1 + seed as usize % 9);
            run_crowd(seed, &EngineConfig { max_sequences, ..config.clone() }, &mut tally);
        }
        assert!(tally.finished as u64 > 4 * n_schedules, "{tally:?}");
        assert_eq!(tally.fed_rows as u64 > 5 * n_schedules, config.samples_on_device, "{tally:?}");
        check(&tally);
    }
}

#[test]
fn roomy_pools_are_shared() {
    for config in [config(400, 200), windowed([400, 100], 200)] {
        let config = EngineConfig { max_sequences: 9, ..config };
        check_crowds(&config, 270, |tally| assert!(tally.cached_tokens > 15_000, "{tally:?}"));
    }
}

#[test]
fn small_pools_preempt_and_are_shared() {
    for config in [
        config(7, 200),
        config(4, 1000),
        EngineConfig { max_logit_rows: 3, ..config(9, 150) },
        EngineConfig { max_sequences: 100, max_logit_rows: 100, ..config(12, 120) },
    ] {
        check_crowds(&EngineConfig { max_sequences: 9, ..config }, 270, |tally| {
            assert!(tally.preemptions > 50 && tally.cached_tokens > 15_000, "{tally:?}");
        });
    }
}

#[test]
fn small_pools_with_a_window_preempt_and_are_shared() {
    // Prompts are longer than what they may own of the second cache at once, while others share and keep parts of it.
    let mut narrow = windowed([24, 7], 300);
    narrow.caches[1].window = Some(Window { tokens: 20, blocks: 3 });
    // All layers have the same window.
    let mut alike = windowed([9, 5], 300);
    alike.caches = vec![CacheConfig { n_blocks: 5, window: Some(Window { tokens: 33, blocks: 4 }) }];
    for config in [windowed([12, 9], 180), windowed([14, 14], 180), windowed([9, 4], 180), narrow, alike] {
        check_crowds(&EngineConfig { max_sequences: 9, ..config }, 180, |tally| {
            assert!(tally.preemptions > 10 && tally.cached_tokens > 5_000, "{tally:?}");
        });
    }
}

#[test]
fn the_smallest_pools_serve_all() {
    check_crowds(&EngineConfig { max_logit_rows: 1, ..config(3, 90) }, 60, |_| {});
    // One block can never be shared: its last token is computed anew.
    check_crowds(&EngineConfig { max_sequences: 1, ..config(1, 90) }, 60, |tally| {
        assert_eq!(tally.cached_tokens, 0);
    });
    // Two blocks hold what a row of a window sees, and no more.
    let mut least = config(2, 300);
    least.caches[0].window = Some(Window { tokens: 33, blocks: 2 });
    check_crowds(&EngineConfig { max_sequences: 1, ..least }, 60, |_| {});
}
