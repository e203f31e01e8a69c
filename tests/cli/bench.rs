//! `pagelm bench`: what it measures, counts and times, and the forms of its JSON.

use serde_json::{Value, json};

use crate::{file, json_of, keys, pagelm, ran, run};

#[test]
fn bench_measures_each_number_of_sequences() {
    let load = ["--prompt-tokens", "40", "--max-tokens", "24", "--sequences", "8,1", "--runs", "2"];
    let options = [&load[..], &["--precision", "exact"]].concat();
    let found = json_of("bench", "tiny.gguf", &options);
    assert_eq!(keys(&found), ["pagelm", "date", "device", "model", "precision", "kv", "results"]);
    assert_eq!(keys(&found["device"]), ["name", "kind", "backend", "is_software"]);
    assert_eq!((&found["precision"], &found["kv"]), (&json!("exact"), &json!("f16")));
    assert_eq!((&found["model"]["name"], found["date"].as_str().unwrap().len()), (&json!("llama-tiny"), 10));
    let results = found["results"].as_array().unwrap();
    assert_eq!(
        results.iter().map(|result| result["sequences"].as_u64().unwrap()).collect::<Vec<_>>(),
        [8, 1]
    );
    let decode = |i: usize| results[i]["decode_tokens_per_sec"].as_f64().unwrap();
    assert!((results[0]["speedup"].as_f64().unwrap() - decode(0) / decode(1)).abs() < 1e-2, "{found}");
    assert_eq!(results[1]["speedup"], 1.0);
    for result in results {
        let rates = ["prefill_tokens_per_sec", "decode_tokens_per_sec", "speedup", "total_tokens_per_sec"];
        let load = ["sequences", "prompt_tokens", "max_tokens", "runs", "kv_cache"];
        let times = ["cached_tokens", "token_ms", "first_token_ms", "position_ms"];
        assert_eq!(keys(result), [&load[..], &rates, &times].concat());
        assert_eq!((&result["prompt_tokens"], &result["max_tokens"]), (&json!(40), &json!(24)));
        assert_eq!((&result["runs"], &result["kv_cache"]), (&json!(2), &json!(true)));
        assert_eq!(result["position_ms"].as_array().unwrap().len(), 23);
        assert_eq!(result["cached_tokens"], 0, "no prompt begins like another");
        let rate = |name: &str| result[name].as_f64().unwrap();
        assert!(rates.iter().all(|name| rate(name) > 0.0), "{result}");
        for times in ["token_ms", "first_token_ms"] {
            assert_eq!(keys(&result[times]), ["mean", "p50", "p95", "p99"]);
            let [p50, p95, p99] = ["p50", "p95", "p99"].map(|p| result[times][p].as_f64().unwrap());
            assert!(0.0 < p50 && p50 <= p95 && p95 <= p99, "{result}");
        }
    }
    let alone = json_of("bench", "tiny.gguf", &["--sequences", "2", "--runs", "1"]);
    assert_eq!(alone["results"][0]["speedup"], Value::Null, "one sequence was not measured");
    let text = run(&["bench", "--model", &file("tiny.gguf"), "--sequences", "1", "--runs", "1"]);
    assert!(text.code == Some(0) && text.stdout.contains("  1.00  "), "{}", text.stdout);
}

/// Answers of any length modulo a block: the chat's blocks that are whole are found, the rest is prefilled.
#[test]
fn a_later_turn_prefills_its_new_tokens_and_less_than_a_block() {
    for prompt_tokens in [200, 212, 213] {
        let (prompt, max_tokens) = (prompt_tokens.to_string(), 12);
        let options = ["--turns", "3", "--prompt-tokens", &prompt, "--max-tokens", "12", "--runs", "2"];
        let found = json_of("bench", "tiny.gguf", &options);
        assert_eq!(keys(&found), ["device", "turns"]);
        let turns = found["turns"].as_array().unwrap();
        assert_eq!(turns.len(), 3);
        let mut n_read = 0;
        for (i, turn) in turns.iter().enumerate() {
            let count = |name: &str| turn[name].as_u64().unwrap();
            let prompt = prompt_tokens + i as u64 * (max_tokens + 24);
            assert_eq!((count("turn"), count("prompt_tokens")), (i as u64 + 1, prompt));
            assert_eq!(count("new_tokens"), prompt - n_read, "{turn}");
            assert_eq!(count("cached_tokens"), n_read / 32 * 32, "{turn}");
            assert_eq!(count("prefilled_tokens"), prompt - count("cached_tokens"), "{turn}");
            assert!(count("prefilled_tokens") < count("new_tokens") + 32, "{turn}");
            assert!(turn["first_token_ms"]["p50"].as_f64().unwrap() > 0.0);
            n_read = prompt + max_tokens - 1;
        }
    }
    let text = run(&["bench", "--model", &file("tiny.gguf"), "--turns", "2", "--prompt-tokens", "100"]);
    assert!(text.code == Some(0) && text.stdout.lines().count() == 4, "{}{}", text.stdout, text.stderr);
}

/// Without the cache nothing is found in it, and each token costs all before it.
#[test]
fn bench_measures_without_the_cache_too() {
    let options =
        ["--no-cache", "--prompt-tokens", "40,70", "--max-tokens", "6", "--sequences", "2", "--runs", "1"];
    let found = json_of("bench", "tiny.gguf", &options);
    let results = found["results"].as_array().unwrap();
    let of = |result: &Value| {
        let number = |name: &str| result[name].as_u64().unwrap();
        (number("prompt_tokens"), number("sequences"), result["kv_cache"].as_bool().unwrap())
    };
    let wanted = [40, 70].map(|n| [(n, 2, true), (n, 1, true), (n, 1, false)]).concat();
    assert_eq!(results.iter().map(of).collect::<Vec<_>>(), wanted);
    for result in results {
        assert_eq!(result["cached_tokens"], 0, "{result}");
        assert_eq!(result["position_ms"].as_array().unwrap().len(), 5, "{result}");
        assert!(result["speedup"].as_f64().unwrap() > 0.0, "{result}");
    }
}

/// The costs of a token need no GPU, and have one form.
#[test]
fn a_plan_is_counted_without_a_gpu() {
    let model = file("tiny.gguf");
    let without_gpu = |options: &[&str]| {
        let mut command = pagelm(&[&["bench", "--model", &model], options].concat());
        command.env("VK_DRIVER_FILES", "/nowhere.json").env("VK_ICD_FILENAMES", "/nowhere.json");
        let ran = ran(command);
        assert_eq!(ran.code, Some(0), "{options:?}: {}", ran.stderr);
        ran.stdout
    };
    let found: Value = serde_json::from_str(&without_gpu(&["--plan", "--json", "--position", "9"])).unwrap();
    let costs =
        ["layers", "dispatches", "submits", "host_writes", "gpu_objects_created", "weight_bytes", "kv_bytes"];
    assert_eq!(keys(&found), costs);
    // 2 layers of 2 KV heads of 16, keys and values, 2 bytes each.
    assert_eq!((&found["layers"], &found["kv_bytes"]), (&json!(2), &json!(10 * 256)));
    assert_eq!((&found["submits"], &found["host_writes"]), (&json!(1), &json!(1)));
    assert_eq!(found["gpu_objects_created"], 0);
    let text = without_gpu(&["--plan", "--position", "9", "--bandwidth", "0.001"]);
    let floor_ms = (found["weight_bytes"].as_f64().unwrap() + 2560.0) / 1e6 * 1000.0;
    assert!(text.contains("gpu kernels") && text.contains(&format!("at least {floor_ms:.3} ms")), "{text}");
    assert!(without_gpu(&["--plan", "--kernels", "software"]).contains("at position 511"), "the last");

    let host: Value = serde_json::from_str(&without_gpu(&["--host", "--json"])).unwrap();
    assert_eq!(keys(&host), ["kernels", "layers", "dispatches", "steps", "host_ms"]);
    assert_eq!((&host["kernels"], &host["dispatches"]), (&json!("gpu"), &found["dispatches"]));
    assert!(host["host_ms"]["p50"].as_f64().unwrap() > 0.0, "{host}");
}

/// All dispatches of a decode step are timed, and together they read what the plan says.
#[test]
fn operations_are_timed() {
    let found = json_of("bench", "tiny.gguf", &["--ops", "--prompt-tokens", "9"]);
    assert_eq!((&found["results"], &found["ops"]["position"]), (&json!([]), &json!(9)));
    let ops = found["ops"]["ops"].as_array().unwrap();
    let sum = |name: &str| ops.iter().map(|op| op[name].as_f64().unwrap()).sum::<f64>();
    let kernels = if found["device"]["kind"] == "software" { "software" } else { "gpu" };
    let plan = json_of("bench", "tiny.gguf", &["--plan", "--kernels", kernels]);
    assert_eq!(Some(sum("dispatches")), plan["dispatches"].as_f64());
    assert!(
        sum("ms") > 0.0
            && sum("weight_bytes") > 0.0
            && sum("weight_bytes") <= plan["weight_bytes"].as_f64().unwrap()
    );
    assert!(ops.iter().all(|op| keys(op) == ["name", "dispatches", "ms", "weight_bytes"]), "{found}");
    assert!(ops.iter().any(|op| op["name"].as_str().unwrap().ends_with(" ffn_down")), "{found}");
}
