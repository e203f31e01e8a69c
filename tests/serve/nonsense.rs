//! Whatever tabs say, nothing panics: thousands of letters drawn at random, with no model, with one, and of no meaning.

use pagelm::host::serve::Letter;
use pagelm::protocol::{
    BUILD, Fault, GenerateOptions, IfFull, LoadOptions, Message, ModelSource, Prompt, Request, VERSION,
    encode,
};

use crate::random::Random;
use crate::world::{World, greedy, on_gpu, sample_on_device};

fn text(random: &mut Random) -> String {
    ["Once", "", "photo", "nothing", "\u{0}<|x|>\u{FEFF}", "The capital"][random.below(6)].into()
}

fn prompt(random: &mut Random) -> Prompt {
    match random.below(4) {
        0 => Prompt::Tokens((0..random.below(5)).map(|_| random.next() as u32 >> random.below(32)).collect()),
        1 => Prompt::Chat {
            messages: vec![Message::text("user", text(random))],
            tools: vec![text(random)],
            template_arguments: vec![(text(random), text(random))],
        },
        _ => Prompt::Text(text(random)),
    }
}

fn options(random: &mut Random) -> GenerateOptions {
    let odd = [0.0, -1.0, f32::NAN, f32::INFINITY, 1.0, 0.5];
    let mut options = greedy(1 + random.below(4) as u32);
    match random.below(8) {
        0 => options.temperature = odd[random.below(6)],
        1 => options.n = [0, 1, 3, 65, u32::MAX][random.below(5)],
        2 => options.stop = vec![text(random)],
        3 => options.logit_bias = vec![(random.next() as u32, odd[random.below(6)])],
        4 => options.bad_words = vec![text(random)],
        5 => options.logprobs = Some(random.below(30) as u32),
        6 => options.prompt_logprobs = Some(random.below(30) as u32),
        _ => options.max_tokens = [None, Some(0), Some(3)][random.below(3)],
    }
    options
}

fn request(random: &mut Random, loads: &[&str]) -> Request {
    let number = random.below(4) as u64;
    let model = [None, None, Some(1), Some(u32::MAX)][random.below(4)];
    match random.below(12) {
        0 => {
            let version = if random.below(4) == 0 { VERSION + 1 } else { VERSION };
            let build = if random.below(8) == 0 { text(random) } else { BUILD.into() };
            Request::Hello { version, build, lock: text(random) }
        }
        1 => Request::Load {
            source: ModelSource::Url { url: loads[random.below(loads.len())].into() },
            options: LoadOptions { context: [None, Some(0), Some(64)][random.below(3)], ..on_gpu() },
            if_full: [IfFull::Ask, IfFull::Wait, IfFull::Replace][random.below(3)],
        },
        2 => Request::Tokenize { request: number, model, prompt: prompt(random) },
        3 if random.below(2) == 0 => Request::Batch { request: number },
        3 => Request::Status { request: number },
        4 | 5 => Request::Cancel { request: number },
        6 => Request::Received { n_events: random.next() as u32 >> random.below(32) },
        7 => Request::Bye,
        8 if random.below(4) == 0 => {
            Request::Break { fault: [Fault::DestroyDevice, Fault::LoseDevice][random.below(2)] }
        }
        _ => Request::Generate {
            request: number,
            model,
            prompts: (0..random.below(3)).map(|_| prompt(random)).collect(),
            options: options(random),
            generated: (0..random.below(2)).map(|_| vec![random.next() as u32 >> random.below(32)]).collect(),
        },
    }
}

fn letter(random: &mut Random, loads: &[&str]) -> Letter<u32> {
    let connection = random.below(6) as u64;
    match random.below(16) {
        0 => Letter::Gone { connection },
        1 => Letter::Garbled { connection },
        other => {
            let mut bytes = encode(&request(random, loads));
            if other == 2 {
                let place = random.below(bytes.len());
                bytes[place] = random.next() as u8;
                bytes.truncate(1 + random.below(bytes.len()));
            }
            // A panic that is asked for is none of the engine's; the byte that was changed may ask for it.
            if bytes == encode(&Request::Break { fault: Fault::Panic }) {
                bytes.clear();
            }
            Letter::Message { connection, bytes, attachments: vec![1; random.below(2)] }
        }
    }
}

fn storm(seed: u64, n_letters: usize, loads: &[&str]) {
    let mut random = Random::new(seed);
    let mut world = World::new();
    for _ in 0..n_letters {
        if world.has_ended {
            world = World::new();
        }
        world.letter(letter(&mut random, loads));
        if random.below(3) == 0 {
            world.turn();
        }
        if random.below(200) == 0 {
            world.pass(400_000.0);
        }
        world.events.clear();
    }
    // Whatever happened, who greets is served.
    if world.has_ended {
        world = World::new();
    }
    world.hello(99);
    world.load(99, "tiny", on_gpu(), IfFull::Replace);
    world.ready(99);
    world.ask(99, 1, &["Once"], &greedy(3));
    assert_eq!(world.finish(99, 1)[0].ids.len(), 3);
}

#[test]
fn letters_at_random_without_a_model() {
    (0..10).for_each(|seed| storm(seed, 2000, &["photo", "nothing"]));
}

#[test]
fn letters_at_random_with_models() {
    (100..104).for_each(|seed| {
        sample_on_device(seed % 2 == 1);
        storm(seed, 400, &["tiny", "tiny", "other", "photo"]);
    });
}
