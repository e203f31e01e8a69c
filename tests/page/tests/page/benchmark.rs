//! The benchmark: chosen, run, stopped, and kept as JSON.

use crate::folders::{LOAD, fixture};
use page_tests::{Gpu, Page, in_page};
use pagelm::bench::report::Report;
use serde_json::json;
use std::time::Duration;

/// A tiny model, few tokens.
const RUN: Duration = Duration::from_secs(240);

#[test]
fn a_small_benchmark_is_measured_and_kept() {
    in_page("benchmark", Gpu::Software, |page| {
        page.choose_setting("device", "gpu")?;
        page.choose_folder(&fixture("llama-tiny"))?;
        page.wait_for_button("Model: llama-tiny", LOAD)?;
        page.press("Benchmark")?;
        for (id, text) in
            [("bench-prompt", "9"), ("bench-answer", "5"), ("bench-sequences", "1, 2"), ("bench-runs", "2")]
        {
            write(page, id, text)?;
        }
        page.press("Start the benchmark")?;
        page.wait_for_button("Start the benchmark", RUN)?;
        let report = page.within(RUN, "the report", || exported(page))?;

        let wanted: Vec<(u32, bool)> = vec![(1, true), (2, true), (1, false)];
        let found: Vec<(u32, bool)> =
            report.results.iter().map(|result| (result.sequences, result.kv_cache)).collect();
        assert_eq!(found, wanted);
        for result in &report.results {
            assert_eq!((result.prompt_tokens, result.max_tokens, result.runs), (9, 5, 2));
            assert_eq!((result.position_ms.len(), result.cached_tokens), (4, 0), "{result:?}");
            assert!(result.first_token_ms.is_some() && result.total_tokens_per_sec > 0.0, "{result:?}");
        }
        assert!(report.device.is_software && report.device.kind == "software", "{:?}", report.device);
        assert_eq!((report.model.name.as_str(), report.kv.as_str()), ("llama-tiny", "f16"));
        let shown = page.shown()?;
        assert!(shown.contains(&report.device.name) && shown.contains("This adapter is software"), "{shown}");
        let plots = "return [...document.querySelectorAll('.bench-plot svg')].map(svg => svg.querySelectorAll('circle').length)";
        assert_eq!(page.session().run(plots, json!([]))?, json!([8, 2]), "points of both plots");

        // What has no room is said, and nothing is begun.
        write(page, "bench-answer", "900000")?;
        page.press("Start the benchmark")?;
        assert!(page.see_alert(LOAD)?.contains("900009 tokens"));
        // A stop leaves the engine free, and the page for the chat.
        write(page, "bench-answer", "400")?;
        write(page, "bench-sequences", "1")?;
        page.press("Start the benchmark")?;
        page.press("Stop the benchmark")?;
        page.wait_for_status(RUN, "an engine at rest", |status| status.running + status.waiting == 0)?;
        page.press("Back to the chat")?;
        page.type_message("a")
    });
}

/// What the file holds that the page offers.
fn exported(page: &Page) -> Result<Option<Report>, String> {
    let script = "const link = document.querySelector('a[download]');
        return link && decodeURIComponent(link.href.slice(link.href.indexOf(',') + 1))";
    let text = page.session().run(script, json!([]))?;
    let report = text.as_str().map(serde_json::from_str::<Report>).transpose();
    report.map_err(|error| format!("not a report: {error}: {text}"))
}

fn write(page: &Page, id: &str, text: &str) -> Result<(), String> {
    let script = "const [id, text] = arguments;
        const box = document.getElementById(id);
        box.value = text;
        box.dispatchEvent(new Event('input', { bubbles: true }));";
    page.session().run(script, json!([id, text])).map(drop)
}
