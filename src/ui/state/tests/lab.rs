//! The laboratory: a text is read, goes on token by token and by itself, is raced, and the batch is watched.

use super::*;
use crate::{
    protocol::{BatchStatus, Message, SequenceStatus},
    ui::state::lab::{Cell, Lab, PAUSE_MS, Panel, Sampling, strip},
};

/// What is due, with ids from 10 on; the last of them.
fn due(state: &mut State, now_ms: f64) -> Vec<Request> {
    let mut last_id = 10 + now_ms as RequestId;
    state.lab_due(now_ms, || {
        last_id += 1;
        last_id
    })
}

fn id_of(request: &Request) -> RequestId {
    if let Request::Generate { request, .. }
    | Request::Tokenize { request, .. }
    | Request::Batch { request } = request
    {
        return *request;
    }
    panic!("{request:?}")
}

/// The only request that is due, and its id.
fn only(state: &mut State, now_ms: f64) -> (Request, RequestId) {
    let mut requests = due(state, now_ms);
    assert_eq!(requests.len(), 1, "{requests:?}");
    let request = requests.remove(0);
    let id = id_of(&request);
    (request, id)
}

/// A request to go on after tokens, and how.
fn generate(request: Request) -> (Vec<u32>, GenerateOptions) {
    let Request::Generate { mut prompts, options, .. } = request else { panic!("{request:?}") };
    let Some(Prompt::Tokens(ids)) = prompts.pop() else { panic!("{prompts:?}") };
    (ids, options)
}

fn tokenized(request: RequestId, ids: &[u32]) -> Event {
    let pieces = ids.iter().map(|id| format!("p{id}")).collect();
    let bytes = ids.iter().map(|id| vec![*id as u8]).collect();
    Event::Tokenized { request, text: "text".to_owned(), ids: ids.to_vec(), pieces, bytes }
}

/// A token with others beside it.
fn likely(request: RequestId, id: u32) -> Event {
    let one = |id: u32| TokenLogprob { id, text: format!("t{id}"), logprob: -(id as f32), top: Vec::new() };
    let logprobs = vec![TokenLogprob { top: vec![one(id), one(id + 1), one(id + 2)], ..one(id) }];
    Event::Tokens { request, output: 0, text: String::new(), ids: vec![id], logprobs }
}

fn texts_taken(state: &State) -> Vec<u32> {
    state.lab.next.taken.iter().map(|taken| taken.id).collect()
}

/// The laboratory with the tokens 1, 2, 3 read.
fn read() -> State {
    let mut state = ready();
    state.lab.is_open = true;
    let (_, id) = only(&mut state, 0.0);
    state.apply(tokenized(id, &[1, 2, 3]), 1.0);
    state
}

/// The same, and its next tokens seen: 5, 6, 7.
fn predicted() -> State {
    let mut state = read();
    state.change_lab(Panel::Next, Lab::predict);
    let (_, id) = only(&mut state, 100.0);
    state.apply(likely(id, 5), 101.0);
    state.apply(finished(id, FinishReason::Length), 101.0);
    state
}

#[test]
fn a_text_is_read_once_nobody_types() {
    let mut state = State::new(Preferences::default());
    assert!(due(&mut state, 0.0).is_empty(), "there is no model to read it");
    state.apply(ready_from(info("tiny"), url()), 1.0);
    let (request, id) = only(&mut state, 2.0);
    let first = Prompt::Text("The capital of France is".to_owned());
    assert_eq!(request, Request::Tokenize { request: id, model: None, prompt: first });
    state.change_lab(Panel::Tokens, |lab| lab.write("Hi".to_owned(), 10.0));
    assert!(due(&mut state, 500.0).is_empty(), "one at a time");
    state.take_changed();
    state.apply(tokenized(id, &[4]), 501.0);
    assert_eq!(state.take_changed(), [Part::Lab(Panel::Tokens)]);
    assert_eq!(state.lab.current_ids(), None, "of another text");

    state.change_lab(Panel::Tokens, |lab| lab.write("Hi you".to_owned(), 600.0));
    assert!(due(&mut state, 600.0 + PAUSE_MS / 2.0).is_empty(), "more may be typed");
    let (request, id) = only(&mut state, 600.0 + PAUSE_MS);
    assert!(matches!(&request, Request::Tokenize { prompt: Prompt::Text(text), .. } if text == "Hi you"));
    state.apply(tokenized(id, &[7, 8]), 800.0);
    assert_eq!(state.lab.current_ids(), Some(vec![7, 8]));
    assert_eq!(state.lab.read.as_ref().unwrap().tokens[1].bytes, [8]);

    state.change_lab(Panel::Tokens, |lab| lab.put_in_chat(true, 900.0));
    let (request, id) = only(&mut state, 900.0);
    let Request::Tokenize { prompt: Prompt::Chat { messages, .. }, .. } = request else { panic!() };
    assert_eq!(messages, [Message::text("user", "Hi you")]);
    state.apply(failed(Some(id), "no template"), 901.0);
    assert_eq!(state.lab.problem_of(Panel::Tokens).as_deref(), Some("no template"));
    assert_eq!((state.lab.problem_of(Panel::Next), state.lab.read.is_none()), (None, true));
    state.change_lab(Panel::Tokens, |lab| lab.write(String::new(), 950.0));
    assert_eq!(state.lab.problem, None);
}

#[test]
fn tokens_are_taken_and_taken_back() {
    let mut state = read();
    state.change_lab(Panel::Next, Lab::predict);
    let (request, id) = only(&mut state, 100.0);
    let (ids, options) = generate(request);
    assert_eq!((ids, options.temperature, options.max_tokens), (vec![1, 2, 3], 0.0, Some(1)));
    assert_eq!((options.logprobs, options.reuse_prefix), (Some(10), true));
    state.change_lab(Panel::Next, |lab| lab.next.take(0));
    assert!(texts_taken(&state).is_empty(), "nothing is there to be taken yet");
    state.apply(likely(id, 5), 101.0);
    let usage = Usage { prompt_tokens: 3, cached_tokens: 2, ..Usage::default() };
    let reason = FinishReason::Length;
    state.apply(Event::Finished { request: id, output: 0, reason, usage, n_left: 0 }, 102.0);
    let reading = state.lab.next.reading.unwrap();
    assert_eq!((reading.cached_tokens, reading.computed_tokens), (2, 1));

    state.change_lab(Panel::Next, |lab| lab.next.take(9));
    assert!(texts_taken(&state).is_empty(), "there is no tenth");
    state.change_lab(Panel::Next, |lab| lab.next.take(1));
    let (request, id) = only(&mut state, 110.0);
    assert_eq!(generate(request).0, [1, 2, 3, 6]);
    state.apply(likely(id, 20), 111.0);
    state.apply(finished(id, FinishReason::Length), 111.0);
    let taken = &state.lab.next.taken[0];
    assert_eq!((taken.text.as_str(), taken.logprob, taken.likely.len()), ("t6", -6.0, 3));
    assert_eq!(state.lab.next.likely[0].id, 20);

    state.change_lab(Panel::Next, |lab| lab.next.undo());
    assert_eq!((texts_taken(&state), state.lab.next.likely[0].id), (vec![], 5));
    assert!(due(&mut state, 120.0).is_empty(), "what was seen is not asked again");
}

#[test]
fn a_run_writes_by_itself_until_it_is_stopped() {
    let mut state = predicted();
    state.change_lab(Panel::Next, |lab| {
        lab.next.sampling = Sampling { temperature: 0.5, top_k: Some(4), top_p: 0.9 };
        lab.next.run(false);
    });
    let (request, id) = only(&mut state, 200.0);
    let (ids, options) = generate(request);
    assert_eq!((ids, options.temperature, options.top_k, options.top_p), (vec![1, 2, 3], 0.5, 4, 0.9));
    assert!(state.lab.next.is_running() && !options.ignore_eos);
    state.apply(Event::Started { request: id, prompt_tokens: vec![3], openings: vec![] }, 201.0);
    state.apply(likely(id, 30), 205.0);
    state.apply(likely(id, 31), 207.0);
    assert_eq!(texts_taken(&state), [30, 31]);
    state.change_lab(Panel::Next, |lab| lab.stop_run());
    state.change_lab(Panel::Next, |lab| lab.stop_run());
    assert_eq!(due(&mut state, 208.0), [Request::Cancel { request: id }], "once");
    state.apply(finished(id, FinishReason::Cancelled), 209.0);
    assert_eq!(state.lab.next.timeline.as_ref().unwrap().spans().len(), 3, "queue, prefill, a token");
    // It looks on from there.
    let (request, id) = only(&mut state, 210.0);
    assert_eq!(generate(request).0, [1, 2, 3, 30, 31]);
    state.apply(failed(Some(id), "the context is full"), 211.0);
    assert_eq!(state.lab.problem_of(Panel::Next).as_deref(), Some("the context is full"));
    assert!(!state.lab.next.is_busy());

    state.change_lab(Panel::Next, |lab| lab.next.run(true));
    let (request, _) = only(&mut state, 220.0);
    assert_eq!(generate(request).1.temperature, 0.0, "greedy, whatever is chosen");
}

#[test]
fn what_was_likely_before_cannot_be_taken_again() {
    let look = || {
        let mut state = predicted();
        state.change_lab(Panel::Next, |lab| lab.next.take(0));
        let (_, id) = only(&mut state, 200.0);
        (state, id)
    };
    let failed_look = |state: &mut State, id| state.apply(failed(Some(id), "the context is full"), 201.0);
    let empty_look = |state: &mut State, id| state.apply(finished(id, FinishReason::Length), 201.0);
    let lost = |state: &mut State, _| state.interrupt(201.0);
    let disturbed = |state: &mut State, _| state.start_bench("2026-11-30".to_owned(), 7);
    for end in [failed_look, empty_look, lost, disturbed] as [fn(&mut State, RequestId); 4] {
        let (mut state, id) = look();
        end(&mut state, id);
        assert!(!state.lab.next.is_busy());
        state.change_lab(Panel::Next, |lab| lab.next.take(0));
        assert_eq!((texts_taken(&state), state.lab.next.likely.len()), (vec![5], 0));
        state.change_lab(Panel::Next, |lab| lab.next.undo());
        assert_eq!((texts_taken(&state), state.lab.next.likely.len()), (vec![], 3));
    }
    // What is not being looked at stays.
    let mut state = predicted();
    state.interrupt(201.0);
    assert_eq!(state.lab.next.likely.len(), 3);
}

#[test]
fn a_race_writes_the_same_twice() {
    let mut state = read();
    state.change_lab(Panel::Race, |lab| lab.start_race(2));
    let (request, id) = only(&mut state, 100.0);
    let (ids, options) = generate(request);
    assert_eq!((ids, options.max_tokens, options.reuse_prefix), (vec![1, 2, 3], Some(2), false));
    state.apply(tokens(id, "", &[8]), 130.0);
    state.apply(tokens(id, "", &[9]), 140.0);
    state.apply(finished(id, FinishReason::Length), 140.0);
    let mut now_ms = 200.0;
    for (token, prompt) in [(8, vec![1, 2, 3]), (9, vec![1, 2, 3, 8])] {
        assert_eq!(state.lab.race.ratio(), None);
        let (request, id) = only(&mut state, now_ms);
        let (ids, options) = generate(request);
        assert_eq!((ids, options.max_tokens, options.reuse_prefix), (prompt, Some(1), false));
        state.apply(tokens(id, "", &[token]), now_ms + 40.0);
        state.apply(finished(id, FinishReason::Length), now_ms + 40.0);
        now_ms += 100.0;
    }
    let race = &state.lab.race;
    assert_eq!((&race.with.times_ms, &race.without.times_ms), (&vec![30.0, 10.0], &vec![40.0, 40.0]));
    assert_eq!((race.ratio(), race.n_alike(), race.is_running()), (Some(2.0), 2, false));
    assert!(due(&mut state, now_ms).is_empty());

    state.change_lab(Panel::Race, |lab| lab.start_race(2));
    let (_, id) = only(&mut state, 500.0);
    state.change_lab(Panel::Race, Lab::stop_race);
    assert_eq!(due(&mut state, 501.0), [Request::Cancel { request: id }]);
    state.change_lab(Panel::Race, |lab| lab.start_race(2));
    let (_, id) = only(&mut state, 510.0);
    state.apply(finished(id, FinishReason::Cancelled), 511.0);
    assert!(state.lab.problem_of(Panel::Race).unwrap().contains("0 of 2 tokens (cancelled)"));
    assert!(due(&mut state, 512.0).is_empty() && !state.lab.race.is_running());
}

#[test]
fn the_batch_is_looked_at_once_at_a_time() {
    let mut state = read();
    state.change_lab(Panel::Batch, |lab| lab.watch.look());
    let (request, id) = only(&mut state, 1.0);
    assert_eq!(request, Request::Batch { request: id });
    state.change_lab(Panel::Batch, |lab| lab.watch.look());
    assert!(due(&mut state, 2.0).is_empty(), "it has not answered");
    let sequence = SequenceStatus { decode_rows: 1, alone_blocks: 3, ..SequenceStatus::default() };
    let batch = BatchStatus {
        steps: 9,
        sequences: vec![sequence, SequenceStatus { prefill_rows: 5, alone_blocks: 1, ..sequence }],
        alone_blocks: 4,
        shared_blocks: 2,
        cached_blocks: 0,
        empty_blocks: 94,
    };
    for _ in 0..2 {
        state.apply(Event::Batch { request: id, batch: batch.clone() }, 3.0);
        state.change_lab(Panel::Batch, |lab| lab.watch.look());
        assert_eq!(due(&mut state, (id - 11) as f64).len(), 1);
    }
    let [step] = state.lab.watch.steps[..] else { panic!("a step counts once") };
    assert_eq!((step.step, step.prefill, step.decode), (9, 5, 2));

    let cells = |n_most| strip(&batch, n_most);
    let own = |alone: [u32; 2], rest: [u32; 2]| {
        vec![
            (Cell::Alone(0), alone[0]),
            (Cell::Alone(1), alone[1]),
            (Cell::Shared, rest[0]),
            (Cell::Empty, rest[1]),
        ]
    };
    assert_eq!(cells(256), (own([3, 1], [2, 94]), 1));
    assert_eq!(cells(50), (own([2, 1], [1, 47]), 2), "what there is of a kind is seen");
    assert_eq!(strip(&BatchStatus::default(), 256), (vec![], 1));

    state.change_lab(Panel::Batch, Lab::fill_batch);
    let (request, id) = only(&mut state, 300.0);
    assert_eq!(generate(request).1.n, 4);
    state.change_lab(Panel::Batch, Lab::fill_batch);
    assert!(due(&mut state, 301.0).is_empty() && state.lab.watch.is_crowded());
    state.apply(finished(id, FinishReason::Length), 302.0);
    assert!(!state.lab.watch.is_crowded());
}

#[test]
fn another_model_forgets_what_was_seen() {
    let mut state = predicted();
    state.change_lab(Panel::Next, |lab| lab.next.take(0));
    let (_, step) = only(&mut state, 300.0);
    // The same one, as after a loss of its GPU: the client asks again by itself.
    state.apply(ready_from(info("tiny"), url()), 301.0);
    assert!(state.lab.next.is_busy() && due(&mut state, 302.0).is_empty());
    state.apply(ready_from(ModelInfo { vocab_size: 9, ..info("tiny") }, url()), 303.0);
    let requests = due(&mut state, 304.0);
    let [cancel, Request::Tokenize { .. }] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(*cancel, Request::Cancel { request: step });
    assert!(texts_taken(&state).is_empty() && !state.lab.next.is_begun() && state.lab.read.is_none());
    assert_eq!(state.lab.text, "The capital of France is");
}

#[test]
fn what_measures_is_ended_by_a_loss_and_keeps_off_a_benchmark() {
    let mut state = read();
    state.change_lab(Panel::Race, |lab| lab.start_race(2));
    let (_, id) = only(&mut state, 300.0);
    state.interrupt(301.0);
    assert!(state.lab.problem_of(Panel::Race).unwrap().contains("try it again"));
    assert_eq!(due(&mut state, 302.0), [Request::Cancel { request: id }]);

    state.change_lab(Panel::Batch, Lab::fill_batch);
    let (_, crowd) = only(&mut state, 400.0);
    state.start_bench("2026-11-30".to_owned(), 7);
    assert_eq!(due(&mut state, 401.0), [Request::Cancel { request: crowd }]);
    state.change_lab(Panel::Next, Lab::predict);
    assert!(due(&mut state, 303.0).is_empty(), "it would disturb it");
    assert!(state.lab_obstacle().unwrap().contains("benchmark"));
    state.stop_bench();
    assert_eq!(due(&mut state, 304.0).len(), 1);
}
