//! `pagelm bench --floor`: an adapter measured without a model.

use super::{keys, run};
use serde_json::Value;

#[test]
fn the_floor_is_measured_without_a_model() {
    let ran = run(&["bench", "--floor", "--json"]);
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let found: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(keys(&found), ["device", "dispatch_us", "bandwidth_gb_per_sec", "buffer_bytes"]);
    for name in ["dispatch_us", "bandwidth_gb_per_sec", "buffer_bytes"] {
        let number = found[name].as_f64().unwrap();
        assert!(number.is_finite() && number > 0.0, "{name}: {found}");
    }
    assert_eq!(keys(&found["device"]), ["name", "backend", "kind"]);
}

#[test]
fn the_floor_and_a_model_are_measured_one_at_a_time() {
    let ran = run(&["bench", "--ops", "--floor"]);
    assert!(ran.code == Some(2) && ran.stderr.contains("--ops and --floor are both given"), "{}", ran.stderr);
}
