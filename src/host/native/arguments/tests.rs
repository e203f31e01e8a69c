//! Command lines, and what becomes of them.

use super::*;

/// What becomes of a command line.
fn parsed(line: &[&str]) -> Result<(Command, Arguments), String> {
    match parse(line.iter().map(OsString::from)) {
        Ok(Asked::Command(command, arguments)) => Ok((command, *arguments)),
        Ok(other) => panic!("{line:?}: {other:?}"),
        Err(error) => Err(error.to_string()),
    }
}

fn sampled(options: &[&str]) -> GenerateOptions {
    let line = [&["generate", "--model", "m", "--prompt", "p"], options].concat();
    parsed(&line).unwrap().1.sampling(Some(16))
}

#[test]
fn nothing_said_is_vllms_defaults() {
    assert_eq!(sampled(&[]), GenerateOptions::default());
}

#[test]
fn each_sampling_option_sets_its_field() {
    type Change = fn(&mut GenerateOptions);
    let table: [(&[&str], Change); 22] = [
        (&["--n", "64"], |o| o.n = 64),
        (&["--temperature", "0.5"], |o| o.temperature = 0.5),
        (&["--top-k=-1"], |o| o.top_k = -1),
        (&["--top-p", "0.9"], |o| o.top_p = 0.9),
        (&["--min-p", "0.1"], |o| o.min_p = 0.1),
        (&["--repetition-penalty", "1.5"], |o| o.repetition_penalty = 1.5),
        (&["--presence-penalty", "-1"], |o| o.presence_penalty = -1.0),
        (&["--frequency-penalty", "2"], |o| o.frequency_penalty = 2.0),
        (&["--seed", "18446744073709551615"], |o| o.seed = Some(u64::MAX)),
        (&["--max-tokens", "7"], |o| o.max_tokens = Some(7)),
        (&["--min-tokens", "3"], |o| o.min_tokens = 3),
        (&["--stop", "a,b", "--stop", "-c"], |o| o.stop = vec!["a,b".into(), "-c".into()]),
        (&["--stop-token-ids", "1, 2", "--stop-token-ids", "3"], |o| o.stop_token_ids = vec![1, 2, 3]),
        (&["--include-stop-str-in-output"], |o| o.include_stop_str_in_output = true),
        (&["--ignore-eos"], |o| o.ignore_eos = true),
        (&["--ignore-eos", "--ignore-eos=false"], |_| {}),
        (&["--bad-words", "x y", "--bad-words", "z"], |o| o.bad_words = vec!["x y".into(), "z".into()]),
        (&["--logit-bias", "5=-2.5", "--logit-bias", "6=1"], |o| {
            o.logit_bias = vec![(5, -2.5), (6, 1.0)];
        }),
        (&["--logprobs", "20"], |o| o.logprobs = Some(20)),
        (&["--prompt-logprobs", "0"], |o| o.prompt_logprobs = Some(0)),
        (&["--keep-special-tokens"], |o| o.skip_special_tokens = false),
        (&["--skip-special-tokens=false"], |o| o.skip_special_tokens = false),
    ];
    for (options, change) in table {
        let mut expected = GenerateOptions::default();
        change(&mut expected);
        assert_eq!(sampled(options), expected, "{options:?}");
    }
}

#[test]
fn a_text_may_look_like_an_option() {
    let (_, arguments) = parsed(&["tokenize", "--model", "m", "--", "--json"]).unwrap();
    assert_eq!((arguments.positional.as_deref(), arguments.json), (Some("--json"), false));
    let (_, arguments) = parsed(&["generate", "--model", "m", "--prompt", "--json"]).unwrap();
    assert_eq!((arguments.prompt.as_deref(), arguments.json), (Some("--json"), false));
}

#[test]
fn bench_counts() {
    let bench = |options: &[&str]| parsed(&[&["bench", "--model", "m"], options].concat());
    let (_, arguments) =
        bench(&["--sequences", "3,1", "--runs", "2", "--warm-up", "0", "--max-tokens", "5,6"]).unwrap();
    assert_eq!((arguments.sequences, arguments.runs, arguments.warm_up), (vec![3, 1], Some(2), Some(0)));
    assert_eq!((arguments.answer_tokens, arguments.max_tokens), (vec![5, 6], Some(5)));
    assert_eq!(bench(&["--plan", "--json"]).unwrap().1.measured, Measured::Plan);
    assert_eq!(bench(&["--plan=false"]).unwrap().1.measured, Measured::Speed);
    assert_eq!(bench(&["--turns", "2", "--prompt-tokens", "9"]).unwrap().1.measured, Measured::Turns(2));
    for (options, found) in [
        (&["--plan", "--turns", "2"][..], "--plan and --turns"),
        (&["--ops", "--no-cache"], "--no-cache and --ops"),
        (&["--turns", "2", "--prompt-tokens", "1,2"], "--prompt-tokens with several"),
        (&["--bandwidth", "0"], "above 0"),
        (&["--kernels", "fpga"], "gpu, software"),
    ] {
        let error = bench(options).unwrap_err();
        assert!(error.contains(found), "{options:?}: {error}");
    }
    let several = parsed(&["generate", "--model", "m", "--prompt", "p", "--max-tokens", "1,2"]).unwrap_err();
    assert!(several.contains("one whole number"), "{several}");
}
