//! Answers that another engine began, and engines that move to another device: nothing is lost, and nothing comes twice.

use pagelm::engine::params::SamplingParams;
use pagelm::engine::{AddError, Budget, Engine, FinishReason, Progress, SequenceRequest};

use pagelm::plan::StepOutput;

use crate::world::{Answer, World, alone, config, greedy, request, windowed};

const BUDGET: Budget = Budget { prefill_rows: 64 };

fn resumed(request: &SequenceRequest, generated: &[u32]) -> SequenceRequest {
    SequenceRequest { generated: generated.to_vec(), ..request.clone() }
}

#[test]
fn a_resumed_answer_goes_on_as_if_nothing_had_happened() {
    let params = SamplingParams {
        temperature: 1.0,
        seed: 8,
        repetition_penalty: 1.2,
        frequency_penalty: 0.3,
        presence_penalty: 0.2,
        min_tokens: 30,
        eog_ids: (0..20).collect(),
        bad_words: vec![vec![21], vec![22, 23]],
        prompt_logprobs: Some(1),
        logprobs: Some(2),
        ..greedy(70)
    };
    for config in [config(20, 300), windowed([20, 12], 300)] {
        let request = request(50, params.clone());
        let whole = alone(&config, &request);
        assert!(whole.tokens.len() >= 30 && whole.finished == Some(FinishReason::Stop), "{whole:?}");
        for n in 0..whole.tokens.len() {
            let (before, after) = whole.tokens.split_at(n);
            let rest = alone(&config, &resumed(&request, before));
            let logprobs = whole.logprobs[n..].to_vec();
            assert_eq!(
                rest,
                Answer { tokens: after.to_vec(), logprobs, ..whole.clone() },
                "after {n} tokens"
            );
        }
    }
}

#[test]
fn an_answer_that_had_ended_ends_at_once() {
    let mut engine = Engine::new(config(20, 100));
    let check = |engine: &mut Engine, request: SequenceRequest, reason| {
        let id = engine.add(request).unwrap();
        assert!(!engine.is_idle(), "there is an end to tell of");
        assert_eq!(engine.next_step(BUDGET), None);
        assert_eq!(engine.take_settled(), [Progress::Finished { sequence: id, reason }]);
        assert!(engine.is_idle());
    };
    let stops = SamplingParams { stop_token_ids: vec![7], eog_ids: vec![8], ..greedy(10) };
    let request = request(50, stops);
    check(&mut engine, resumed(&request, &[1, 2, 7]), FinishReason::Stop);
    check(&mut engine, resumed(&request, &[8]), FinishReason::Stop);
    check(&mut engine, resumed(&request, &[1; 10]), FinishReason::Length);
    check(&mut engine, resumed(&request, &[1; 12]), FinishReason::Length);
    let unbounded = SequenceRequest { params: SamplingParams { max_tokens: None, ..greedy(1) }, ..request };
    check(&mut engine, resumed(&unbounded, &[1; 50]), FinishReason::Length);

    let id = engine.add(resumed(&unbounded, &[1; 50])).unwrap();
    engine.cancel(id);
    assert!(engine.is_idle() && engine.take_settled().is_empty(), "nothing is told of a cancelled one");

    // Who does not ask hears with the next step.
    let ended = engine.add(resumed(&unbounded, &[1; 50])).unwrap();
    engine.add(unbounded.clone()).unwrap();
    let step = engine.next_step(BUDGET).unwrap();
    let output = StepOutput { logits: vec![0.0; 61 * step.batch.logit_rows.len()], sampled: Vec::new() };
    let progress = engine.retire(step.id, &output);
    assert_eq!(progress[0], Progress::Finished { sequence: ended, reason: FinishReason::Length });
    assert!(matches!(progress[1], Progress::Admitted { cached_tokens: 0, .. }));
}

#[test]
fn what_cannot_be_resumed_is_refused() {
    let mut engine = Engine::new(config(3, 100));
    let request = request(50, greedy(90));
    let error = engine.add(resumed(&request, &[1; 48])).unwrap_err();
    let expected = AddError::GeneratedExceedsContext { prompt_tokens: 50, generated_tokens: 48, limit: 97 };
    assert_eq!(error, expected);
    assert!(
        ["50 tokens", "so far 48", "97", "larger context"]
            .iter()
            .all(|says| error.to_string().contains(says))
    );
    let error = engine.add(resumed(&request, &[3, 61])).unwrap_err();
    assert_eq!(error, AddError::GeneratedOutOfVocabulary { index: 1, token: 61, vocab_size: 61 });
    assert!(["token 1", "id 61", "end at 60"].iter().all(|says| error.to_string().contains(says)));
    assert!(engine.is_idle());
}

#[test]
fn answers_go_on_after_a_move_to_another_device() {
    for (before, after) in [
        (config(20, 300), config(40, 300)),
        (config(20, 300), config(6, 300)),
        (windowed([30, 20], 300), windowed([7, 8], 300)),
    ] {
        let requests = [70, 71, 90].map(|len| request(len, greedy(60)));
        let mut world = World::new(before.clone());
        let ids = requests.clone().map(|request| world.add(request));
        let cancelled = world.add(request(20, greedy(60)));
        for _ in 0..30 {
            world.submit(BUDGET);
            world.retire();
        }
        // With steps in flight, which are lost, and one cancelled in them.
        world.submit(BUDGET).unwrap();
        world.cancel(cancelled);
        world.lose_device(after);
        assert_eq!(world.engine.stats().waiting, 3);
        world.finish(BUDGET);
        for (id, request) in ids.iter().zip(&requests) {
            assert_eq!(world.answers[id], alone(&before, request));
        }
    }
}

#[test]
fn what_no_longer_fits_after_a_move_has_ended() {
    let before = config(20, 300);
    let mut world = World::new(before.clone());
    let requests = [(100, 80), (20, 80), (64, 80)].map(|(len, n)| request(len, greedy(n)));
    let ids = requests.clone().map(|request| world.add(request));
    while world.answers[&ids[1]].tokens.len() < 10 {
        world.submit(BUDGET);
        world.retire();
    }
    world.lose_device(config(2, 300));
    let ended = ids.map(|id| world.answers[&id].finished);
    assert_eq!(ended, [Some(FinishReason::Length), None, Some(FinishReason::Length)]);
    world.finish(BUDGET);
    for (id, request) in ids.iter().zip(&requests) {
        let whole = alone(&before, request);
        assert!(whole.tokens.starts_with(&world.answers[id].tokens) && !world.answers[id].tokens.is_empty());
    }
    // Two blocks hold 64 tokens, and one more is sampled from them.
    assert_eq!(world.answers[&ids[1]].tokens.len(), 65 - 20);
}
