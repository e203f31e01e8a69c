//! Measures the built page's engine in Chromium, with the page's own benchmark and the options of `pagelm bench`. The JSON
//! goes to stdout, or to a file.

use page_tests::{Gpu, Page, in_page};
use serde_json::json;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(3600);

/// An option, the page's box for it, and what is measured where nothing is said.
const OPTIONS: [(&str, &str, &str); 4] = [
    ("--prompt-tokens", "bench-prompt", "64"),
    ("--max-tokens", "bench-answer", "32"),
    ("--sequences", "bench-sequences", "1,2,4,8"),
    ("--runs", "bench-runs", "3"),
];

const USAGE: &str =
    "usage: cargo xtask bench [--prompt-tokens P,P…] [--max-tokens N,N…] [--sequences S,S…] [--runs R]
    [--precision auto|exact|fast] [--device auto|gpu|cpu] [--no-cache] [--out FILE]";

fn main() -> std::process::ExitCode {
    let asked = match parse(std::env::args().skip(1)) {
        Ok(asked) => asked,
        Err(sentence) => {
            eprintln!("{sentence}\n{USAGE}");
            return std::process::ExitCode::from(2);
        }
    };
    measure(&asked);
    std::process::ExitCode::SUCCESS
}

fn measure(Asked { texts, choices, without_cache, out }: &Asked) {
    in_page("bench", Gpu::Software, |page| {
        for (id, value) in choices {
            page.choose_setting(id, value)?;
        }
        page.load_default_model()?;
        page.press("Benchmark")?;
        choose(page, texts, *without_cache)?;
        page.press("Start the benchmark")?;
        page.wait_for_button("Start the benchmark", LIMIT)?;
        if let Some(alert) = page.alerts()?.first() {
            return Err(format!("the benchmark failed: {alert}"));
        }
        let script = "const link = document.querySelector('a[download]');
            return link && decodeURIComponent(link.href.slice(link.href.indexOf(',') + 1))";
        let text = page.session().run(script, json!([]))?;
        let text = text.as_str().ok_or("the page exports nothing")?;
        match out {
            None => print!("{text}"),
            Some(path) => {
                std::fs::write(path, text).map_err(|error| format!("cannot write {path}: {error}"))?;
            }
        }
        Ok(())
    });
}

/// What the command line asks for.
struct Asked {
    /// Of each box.
    texts: Vec<String>,
    /// Settings to load the model with, each by its box.
    choices: Vec<(&'static str, String)>,
    without_cache: bool,
    out: Option<String>,
}

fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Asked, String> {
    let texts = OPTIONS.map(|(_, _, text)| text.to_owned()).to_vec();
    let mut asked = Asked { texts, choices: Vec::new(), without_cache: false, out: None };
    while let Some(name) = arguments.next() {
        if name == "--no-cache" {
            asked.without_cache = true;
            continue;
        }
        let value = arguments.next().ok_or_else(|| format!("{name} has no value"))?;
        let names = OPTIONS.map(|(option, ..)| option);
        match names.iter().position(|option| *option == name) {
            Some(option) => asked.texts[option] = value,
            None if name == "--precision" => asked.choices.push(("precision", value)),
            None if name == "--device" => asked.choices.push(("device", value)),
            None if name == "--out" => asked.out = Some(value),
            None => return Err(format!("there is no option {name}")),
        }
    }
    Ok(asked)
}

fn choose(page: &Page, texts: &[String], without_cache: bool) -> Result<(), String> {
    let script = "const [ids, texts, withoutCache] = arguments;
        ids.forEach((id, index) => {
            const box = document.getElementById(id);
            box.value = texts[index];
            box.dispatchEvent(new Event('input', { bubbles: true }));
        });
        const cache = document.getElementById('bench-cache');
        if (cache.checked != withoutCache) cache.click();";
    let ids = OPTIONS.map(|(_, id, _)| id);
    page.session().run(script, json!([ids, texts, without_cache])).map(drop)
}
