//! README's tables of speeds, from the bench's own JSON: nobody copies a number.

use std::fmt::Write as _;

use super::report::{Measured, Report};

/// What stands before the tables in README.
const BEGIN: &str = "<!-- speed: written by `cargo xtask speed` from tests/speed/*.json -->\n";
/// What stands behind them.
const END: &str = "<!-- end of speed -->\n";
/// Below this heading they are put first.
const HEADING: &str = "\n## Speed\n\n";

/// A README with the tables of these reports in place of those before.
pub fn written(readme: &str, reports: &[Report]) -> Result<String, String> {
    let section = format!("{BEGIN}\n{}{END}", tables(reports));
    if let Some((before, rest)) = readme.split_once(BEGIN) {
        let (_, after) = rest.split_once(END).ok_or_else(|| {
            format!("README.md has {:?} and not {:?} behind it; put it back", BEGIN.trim(), END.trim())
        })?;
        return Ok([before, &section, after].concat());
    }
    let (before, after) =
        readme.split_once(HEADING).ok_or("README.md has no heading `## Speed` below which the tables go")?;
    Ok([before, HEADING, &section, "\n", after].concat())
}

/// A table for each report.
fn tables(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let Report { device, model, precision, kv, date, pagelm, .. } = report;
        let kind = if device.is_software { ", the processor imitating a GPU" } else { "" };
        let _ = write!(
            text,
            "{} ({}{kind}), {}, {precision}, {kv} KV cache, pagelm {pagelm}, {date}:\n\n\
             | sequences | prompt + answer | KV cache | prefill, tokens/s | decode, tokens/s | × one | ms a token: mean, p50, p95, p99 | ms to the first: p50 |\n\
             | --- | --- | --- | --- | --- | --- | --- | --- |\n",
            device.name, device.backend, model.name
        );
        report.results.iter().for_each(|result| row(&mut text, result));
        text.push('\n');
    }
    text
}

fn row(text: &mut String, result: &Measured) {
    let number = |number: Option<f64>| number.map_or("–".to_owned(), |number| format!("{number:.2}"));
    let times = result.token_ms.map_or("–".to_owned(), |times| {
        format!("{:.1}, {:.1}, {:.1}, {:.1}", times.mean, times.p50, times.p95, times.p99)
    });
    let first = result.first_token_ms.map_or("–".to_owned(), |times| format!("{:.0}", times.p50));
    let _ = writeln!(
        text,
        "| {} | {} + {} | {} | {} | {} | {} | {times} | {first} |",
        result.sequences,
        result.prompt_tokens,
        result.max_tokens,
        if result.kv_cache { "yes" } else { "no" },
        number(Some(result.prefill_tokens_per_sec)),
        number(result.decode_tokens_per_sec),
        number(result.speedup),
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::percentiles::Percentiles;
    use crate::bench::report::{Device, Model};

    fn report() -> Report {
        let times = Percentiles { mean: 50.04, p50: 50.0, p95: 60.0, p99: 61.0 };
        let result = Measured {
            sequences: 1,
            prompt_tokens: 64,
            max_tokens: 32,
            runs: 3,
            kv_cache: false,
            prefill_tokens_per_sec: 100.0,
            decode_tokens_per_sec: Some(20.0),
            speedup: None,
            total_tokens_per_sec: 19.0,
            cached_tokens: 0,
            token_ms: Some(times),
            first_token_ms: Some(times),
            position_ms: Vec::new(),
        };
        let device = Device {
            name: "llvmpipe".into(),
            kind: "software".into(),
            backend: "vulkan".into(),
            is_software: true,
        };
        Report {
            pagelm: "0.1.0".into(),
            date: "2026-11-30".into(),
            device,
            model: Model { name: "M".into(), architecture: "llama".into(), parameters: 1, weight_bytes: 1 },
            precision: "exact".into(),
            kv: "f16".into(),
            results: vec![result],
            ops: None,
        }
    }

    #[test]
    fn tables_are_put_below_their_heading_and_replaced_there() {
        let readme = "# pagelm\n\n## Speed\n\nWords.\n\n## Tests\n";
        let first = written(readme, &[report()]).unwrap();
        assert!(first.starts_with("# pagelm\n\n## Speed\n\n<!-- speed"), "{first}");
        assert!(first.ends_with("<!-- end of speed -->\n\nWords.\n\n## Tests\n"), "{first}");
        let row = "| 1 | 64 + 32 | no | 100.00 | 20.00 | – | 50.0, 50.0, 60.0, 61.0 | 50 |\n";
        let title = "llvmpipe (vulkan, the processor imitating a GPU), M, exact, f16 KV cache, pagelm 0.1.0, 2026-11-30:\n";
        assert!(first.contains(row) && first.contains(title), "{first}");
        assert_eq!(written(&first, &[report()]).unwrap(), first, "written twice is written once");
        let none = written(&first, &[]).unwrap();
        assert!(!none.contains("llvmpipe") && none.ends_with("Words.\n\n## Tests\n"), "{none}");
    }

    #[test]
    fn without_a_place_a_sentence_says_so() {
        assert!(written("# pagelm\n", &[]).unwrap_err().contains("## Speed"));
        assert!(written(&format!("# pagelm\n{BEGIN}"), &[]).unwrap_err().contains("end of speed"));
    }
}
