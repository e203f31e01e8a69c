//! Looking: at every moment of random schedules the blocks add up, each has its owners, and rows are those of the last step.

use pagelm::engine::snapshot::Snapshot;
use pagelm::engine::{Budget, EngineConfig, SequenceId};
use pagelm::plan::batch::Batch;

use crate::world::{Random, World, config, greedy, prompt, request, sampling, windowed};

/// How often something was seen.
#[derive(Debug, Default)]
struct Seen {
    shared: usize,
    cached: usize,
    waiting: usize,
    mixed_steps: usize,
}

fn look(world: &World, seen: &mut Seen) -> Snapshot {
    let (snapshot, stats) = (world.engine.snapshot(), world.engine.stats());
    let blocks = snapshot.blocks;
    assert_eq!(blocks.alone + blocks.shared + blocks.cached + blocks.empty, stats.n_blocks);
    assert_eq!((blocks.cached, blocks.cached + blocks.empty), (stats.cached_blocks, stats.free_blocks));
    let sum = |of: fn(&pagelm::engine::snapshot::Held) -> usize| -> usize {
        snapshot.sequences.iter().map(|sequence| of(&sequence.held)).sum()
    };
    assert_eq!(sum(|held| held.alone), blocks.alone, "who owns a block alone owns it");
    assert!(sum(|held| held.shared) >= 2 * blocks.shared, "a shared block has two owners or more");
    assert_eq!(sum(|held| held.shared) == 0, blocks.shared == 0);
    let n_running = snapshot.sequences.iter().filter(|sequence| sequence.is_running).count();
    assert_eq!((n_running, snapshot.sequences.len() - n_running), (stats.running, stats.waiting));
    for sequence in &snapshot.sequences {
        assert!(sequence.prompt_tokens <= sequence.n_tokens);
        let held = sequence.held.alone + sequence.held.shared;
        assert!(sequence.is_running || (held, sequence.cached_tokens) == (0, 0), "{sequence:?}");
    }
    seen.shared += usize::from(blocks.shared > 0);
    seen.cached += usize::from(blocks.cached > 0);
    seen.waiting += usize::from(stats.waiting > 0);
    snapshot
}

/// Right after a step was submitted all its sequences are there.
fn look_at_rows(snapshot: &Snapshot, batch: &Batch, seen: &mut Seen) {
    let decode: usize = snapshot.sequences.iter().map(|sequence| sequence.rows.decode).sum();
    let prefill: usize = snapshot.sequences.iter().map(|sequence| sequence.rows.prefill).sum();
    assert_eq!((decode, prefill), (batch.n_decode, batch.n_prefill()));
    let with_rows =
        snapshot.sequences.iter().filter(|sequence| sequence.rows.decode + sequence.rows.prefill > 0);
    assert_eq!(with_rows.count(), batch.block_tables.len());
    seen.mixed_steps += usize::from(decode > 0 && prefill > 0);
}

fn run(seed: u64, config: &EngineConfig, seen: &mut Seen) {
    let mut random = Random(seed << 32);
    let mut world = World::new(config.clone());
    let beginning = prompt(&mut random, 64);
    let mut ids: Vec<SequenceId> = Vec::new();
    for _ in 0..20_000 {
        if ids.len() < 12 && random.one_in(3) {
            let mut asked = request(1 + random.below(80), greedy(1 + random.below(40)));
            asked.client = random.below(3) as u64;
            if random.one_in(2) {
                asked.prompt = [&beginning[..], &asked.prompt[..5.min(asked.prompt.len())]].concat();
            }
            ids.push(world.add(asked));
            look(&world, seen);
        }
        if !ids.is_empty() && random.one_in(40) {
            world.cancel(ids[random.below(ids.len())]);
            look(&world, seen);
        }
        if random.one_in(200) {
            world.lose_device(config.clone());
            look(&world, seen);
        }
        let batch = world.submit(Budget { prefill_rows: [1, 20, 64, 200][random.below(4)] });
        let snapshot = look(&world, seen);
        if let Some(batch) = &batch {
            look_at_rows(&snapshot, batch, seen);
            if random.one_in(60) {
                world.fail_last();
            }
        }
        world.retire();
        look(&world, seen);
        if ids.len() == 12 && world.engine.is_idle() {
            return;
        }
    }
    panic!("seed {seed} does not end");
}

#[test]
fn blocks_and_rows_add_up_at_every_moment() {
    for config in [config(40, 200), config(7, 200), windowed([14, 9], 180)] {
        for config in [config.clone(), sampling(config)] {
            let mut seen = Seen::default();
            (0..60)
                .for_each(|seed| run(seed, &EngineConfig { max_sequences: 5, ..config.clone() }, &mut seen));
            assert!(seen.shared > 100 && seen.cached > 100 && seen.waiting > 100, "{seen:?}");
            assert!(seen.mixed_steps > 100, "{seen:?}");
        }
    }
}
