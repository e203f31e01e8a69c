//! A model that answers at once, a token every ten milliseconds for each it has to read or write.

use super::*;
use crate::protocol::{FinishReason, OpTime, Usage};

/// An engine without a model: what it was asked, and its clock.
struct Toy {
    now_ms: f64,
    last_id: RequestId,
    asked: Vec<(usize, u32, bool)>,
}

impl Toy {
    fn new() -> Self {
        Self { now_ms: 1000.0, last_id: 0, asked: Vec::new() }
    }

    /// Goes on until nothing is due.
    fn answer(&mut self, bench: &mut Bench) {
        loop {
            let last_id = &mut self.last_id;
            let requests = bench.due(self.now_ms, &mut || {
                *last_id += 1;
                *last_id
            });
            if requests.is_empty() {
                return;
            }
            for request in requests {
                self.answer_one(bench, request);
            }
        }
    }

    fn answer_one(&mut self, bench: &mut Bench, request: Request) {
        let Request::Generate { request, prompts, options, .. } = request else { panic!("{request:?}") };
        let [Prompt::Tokens(prompt)] = &prompts[..] else { panic!("{prompts:?}") };
        let max_tokens = options.max_tokens.unwrap();
        self.asked.push((prompt.len(), max_tokens, options.reuse_prefix));
        assert!(
            bench.hear(&Event::Started { request, prompt_tokens: vec![], openings: vec![] }, self.now_ms)
        );
        self.now_ms += 10.0 * (prompt.len() - 1) as f64;
        for id in 0..max_tokens {
            self.now_ms += 10.0;
            let (text, ids) = (String::new(), vec![id]);
            bench.hear(&Event::Tokens { request, output: 0, text, ids, logprobs: vec![] }, self.now_ms);
        }
        if options.time_ops {
            let op = |name: &str, ms| OpTime { name: name.into(), dispatches: 1, ms, weight_bytes: 0 };
            let ops = vec![op("norm", 1.0), op("matmul", 2.0)];
            bench.hear(&Event::OpTimes { request, position: prompt.len() as u32, ops }, self.now_ms);
        }
        let usage = Usage { generated_tokens: max_tokens, ..Usage::default() };
        let reason = FinishReason::Length;
        bench.hear(&Event::Finished { request, output: 0, reason, usage, n_left: 0 }, self.now_ms);
    }
}

fn plan() -> Plan {
    Plan {
        runs: 2,
        prompt_tokens: vec![5],
        max_tokens: vec![4],
        sequences: vec![1],
        without_cache: true,
        ..Plan::default()
    }
}

#[test]
fn with_and_without_the_cache() {
    let (mut toy, mut bench) = (Toy::new(), Bench::new(plan(), 100));
    assert_eq!(bench.progress().unwrap().n_runs, 6);
    toy.answer(&mut bench);
    assert!(bench.is_over() && bench.failure().is_none() && bench.progress().is_none());
    let warm_up_without = [(5, 1, false), (6, 1, false), (7, 1, false)];
    let without = [&warm_up_without[..], &[(8, 1, false)]].concat();
    let with = [(5, 3, true), (5, 4, true), (5, 4, true)];
    assert_eq!(toy.asked, [&with[..], &warm_up_without, &without, &without].concat());

    let [with, without] = bench.results() else { panic!() };
    assert_eq!((with.kv_cache, without.kv_cache, with.runs, without.runs), (true, false, 2, 2));
    assert_eq!(with.position_ms, [10.0; 3]);
    assert_eq!(without.position_ms, [60.0, 70.0, 80.0]);
    assert_eq!((with.decode_tokens_per_sec, with.speedup), (Some(100.0), Some(1.0)));
    assert_eq!(without.first_token_ms, with.first_token_ms);
    assert_eq!(without.speedup, Some(0.143));
}

#[test]
fn an_answer_that_ends_early_is_a_failure() {
    let mut bench = Bench::new(plan(), 100);
    assert_eq!(bench.due(0.0, &mut || 7).len(), 1);
    assert!(bench.due(0.0, &mut || 8).is_empty(), "it waits");
    let finished = |request| Event::Finished {
        request,
        output: 0,
        reason: FinishReason::Cancelled,
        usage: Usage::default(),
        n_left: 0,
    };
    assert!(!bench.hear(&finished(8), 1.0), "another's request");
    assert!(bench.hear(&finished(7), 1.0) && bench.is_over());
    assert!(bench.failure().unwrap().contains("0 of 3 tokens (cancelled)"), "{:?}", bench.failure());
    assert!(bench.due(2.0, &mut || 9).is_empty());
}

#[test]
fn a_stop_cancels_what_runs_and_keeps_what_was_measured() {
    let plan = Plan { warm_up: 0, runs: 1, sequences: vec![1, 2], without_cache: false, ..plan() };
    let (mut toy, mut bench) = (Toy::new(), Bench::new(plan, 100));
    let first = bench.due(0.0, &mut || 1);
    toy.answer_one(&mut bench, first.into_iter().next().unwrap());
    let mut last_id = 1;
    let second = bench.due(0.0, &mut || {
        last_id += 1;
        last_id
    });
    assert_eq!(second.len(), 2);
    assert_eq!(bench.progress().unwrap().what, "2 sequences of 5 + 4 tokens: run 1 of 1");
    assert_eq!(bench.stop(), [2, 3].map(|request| Request::Cancel { request }));
    assert!(bench.is_over() && bench.failure().is_none());
    assert_eq!(bench.results().len(), 1);
}

#[test]
fn operations_are_timed_last_and_once() {
    let plan = Plan { without_cache: false, time_ops: true, ..plan() };
    let (mut toy, mut bench) = (Toy::new(), Bench::new(plan, 100));
    assert_eq!(bench.progress().unwrap().n_runs, 4);
    toy.answer(&mut bench);
    assert_eq!(toy.asked, [(5, 3, true), (5, 4, true), (5, 4, true), (5, 2, true)]);
    let ops = bench.ops().unwrap();
    assert_eq!((ops.position, ops.ops[0].name.as_str(), ops.sum_ms()), (5, "matmul", 3.0));
    assert_eq!(bench.results().len(), 1, "what is timed by operation is no measurement");
}
