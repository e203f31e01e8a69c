//! The benchmark: chosen, measured to the end, stopped, and interrupted.

use super::*;
use crate::protocol::OpTime;

fn choose(state: &mut State, [prompt, answer, sequences, runs]: [&str; 4], without_cache: bool) {
    state.choose_bench(|choices| {
        choices.prompt_tokens = prompt.to_owned();
        choices.max_tokens = answer.to_owned();
        choices.sequences = sequences.to_owned();
        choices.runs = runs.to_owned();
        choices.without_cache = without_cache;
    });
}

/// Answers what is due until nothing is; how many requests there were.
fn answer_all(state: &mut State, now_ms: &mut f64) -> usize {
    let mut n_requests = 0;
    loop {
        let mut last_id = 100 + n_requests as RequestId;
        let due = state.bench_due(*now_ms, || {
            last_id += 1;
            last_id
        });
        if due.is_empty() {
            return n_requests;
        }
        n_requests += due.len();
        for request in due {
            let Request::Generate { request, options, .. } = request else { panic!("{request:?}") };
            for id in 0..options.max_tokens.unwrap() {
                *now_ms += 10.0;
                state.apply(tokens(request, "", &[id]), *now_ms);
            }
            if options.time_ops {
                let op = OpTime { name: "norm".to_owned(), dispatches: 1, ms: 1.0, weight_bytes: 0 };
                state.apply(Event::OpTimes { request, position: 3, ops: vec![op] }, *now_ms);
            }
            state.apply(finished(request, FinishReason::Length), *now_ms);
        }
    }
}

#[test]
fn a_benchmark_awaits_the_kernels() {
    let mut state = ready();
    let left = |n_pipelines_left| Event::Status {
        request: None,
        status: Status { n_pipelines_left, ..Status::default() },
    };
    state.apply(left(2), 1.0);
    choose(&mut state, ["3", "2", "1", "1"], false);
    state.start_bench("2026-11-30".to_owned(), 7);
    assert_eq!(answer_all(&mut state, &mut 5.0), 0, "it would measure the compiler too");
    assert_eq!(state.bench_progress().unwrap().what, "compiling the GPU's kernels: 2 left");
    state.take_changed();
    state.apply(left(0), 6.0);
    assert!(state.take_changed().contains(&Part::Benchmark));
    assert_ne!(answer_all(&mut state, &mut 7.0), 0);
}

#[test]
fn a_benchmark_ends_in_a_report() {
    let mut state = ready();
    choose(&mut state, ["3", "2", "1,2", "1"], true);
    state.start_bench("2026-11-30".to_owned(), 7);
    assert!(state.benchmark.is_running() && state.may_be_due());
    assert!(state.obstacle().unwrap().contains("benchmark"), "a chat would disturb it");
    assert!(state.take_changed().contains(&Part::Benchmark));
    let mut now_ms = 5.0;
    // A warm-up and a run each: one sequence, two, and two tokens without the cache; then the operations.
    assert_eq!(answer_all(&mut state, &mut now_ms), 2 + 4 + 4 + 1);
    assert!(!state.benchmark.is_running() && !state.may_be_due() && state.obstacle().is_none());
    let report = state.benchmark.report.as_ref().unwrap();
    let found: Vec<_> = report.results.iter().map(|result| (result.sequences, result.kv_cache)).collect();
    assert_eq!(found, [(1, true), (2, true), (1, false)]);
    assert_eq!((report.date.as_str(), report.device.backend.as_str()), ("2026-11-30", "webgpu"));
    assert!(report.device.is_software && report.ops.is_some());
    assert_eq!((&state.benchmark.problem, state.turns.len()), (&None, 0));
}

#[test]
fn what_cannot_be_measured_is_said() {
    let mut state = State::new(Preferences::default());
    state.start_bench(String::new(), 0);
    assert_eq!(state.benchmark.problem.as_deref(), Some("Load a model first."));
    let mut state = ready();
    for (choices, part) in [
        (["x", "2", "1", "1"], "Prompt tokens must be whole numbers"),
        (["3", "", "1", "1"], "Answer tokens"),
        (["3", "2", "1,65", "1"], "Sequences at once"),
        (["3", "2", "1", "1,2"], "Runs must be one"),
        // Timing the operations takes two tokens, whatever is asked.
        (["4096", "1", "1", "1"], "4098 tokens"),
        (["2000", "96", "2", "1"], "2 sequences"),
    ] {
        choose(&mut state, choices, false);
        state.start_bench(String::new(), 0);
        let problem = state.benchmark.problem.take().unwrap();
        assert!(problem.contains(part) && !state.benchmark.is_running(), "{choices:?}: {problem}");
    }
    let mut state = asked("hello");
    state.start_bench(String::new(), 0);
    assert!(state.benchmark.problem.unwrap().contains("answer is on its way"));
}

#[test]
fn a_stopped_or_interrupted_benchmark_leaves_nothing_behind() {
    let begun = || {
        let mut state = ready();
        choose(&mut state, ["3", "2", "2", "1"], false);
        state.start_bench(String::new(), 0);
        let mut id = 10;
        let due = state.bench_due(0.0, || {
            id += 1;
            id
        });
        assert_eq!(due.len(), 2);
        state
    };
    let cancels = [11, 12].map(|request| Request::Cancel { request });
    let mut stopped = begun();
    stopped.stop_bench();
    assert!(stopped.may_be_due());
    assert_eq!(stopped.bench_due(1.0, || 1), cancels);
    assert!(!stopped.may_be_due() && stopped.benchmark.problem.is_none());
    // What still comes of it changes nothing.
    stopped.apply(tokens(11, "x", &[1]), 2.0);
    assert!(stopped.turns.is_empty());

    let interruptions: [fn(&mut State); 4] = [
        |state| state.interrupt(1.0),
        |state| _ = state.lose_engine("gone".to_owned()),
        |state| state.apply(Event::Unloaded { reason: "unused".to_owned() }, 1.0),
        |state| state.apply(ready_from(info("other"), url()), 1.0),
    ];
    for interrupt in interruptions {
        let mut state = begun();
        interrupt(&mut state);
        assert!(state.benchmark.problem.as_ref().unwrap().contains("run it again"));
        assert_eq!(state.bench_due(1.0, || 1), cancels);
    }
}
