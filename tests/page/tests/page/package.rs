//! The package in a page of somebody's own: its files beside that page, and nothing else of ours.

use page_tests::server::Server;
use page_tests::{Gpu, in_page};
use serde_json::{Value, json};
use std::path::Path;
use std::time::{Duration, Instant};

/// Two engines on a busy machine, one of which compiles its kernels in software.
const LIMIT: Duration = Duration::from_secs(120);
/// Between two looks at the page.
const PAUSE: Duration = Duration::from_millis(200);
/// The processor and the GPU, each asked for all prompts at once; what they said becomes the page's title.
const PAGE: &str = r#"<!doctype html>
<title>Loading</title>
<script type="module">
  import { Engine } from "./index.js";
  const expected = await (await fetch("fixtures/llama-tiny/expected.json")).json();
  const options = { temperature: 0, maxTokens: 20, ignoreEos: true };
  const said = {};
  try {
    for (const device of ["cpu", "gpu"]) {
      const engine = await Engine.create({ device });
      const { deviceBackend } = await engine.load("fixtures/llama-tiny/", { precision: "exact", kv: "f32" });
      const answers = expected.prompts.map(({ prompt }) => engine.generate(prompt, options).whole());
      said[deviceBackend] = (await Promise.all(answers)).map(([{ ids }]) => ids);
      engine.close();
    }
  } catch (error) {
    said.error = String(error);
  }
  document.title = JSON.stringify(said);
</script>
"#;

#[test]
fn a_page_of_ones_own_has_an_engine_of_its_own() {
    in_page("package", Gpu::Software, |page| {
        let package = std::env::var("PAGELM_PACKAGE");
        let package = package
            .map_err(|error| format!("PAGELM_PACKAGE: {error}; run `cargo xtask test --only page`"))?;
        let path = page.write_file("index.html", PAGE.as_bytes())?;
        for entry in std::fs::read_dir(&package).map_err(|error| format!("{package}: {error}"))?.flatten() {
            let bytes = std::fs::read(entry.path())
                .map_err(|error| format!("{}: {error}", entry.path().display()))?;
            page.write_file(&entry.file_name().to_string_lossy(), &bytes)?;
        }
        let folder = path.parent().expect("a file is in a folder");
        let server = Server::start(folder, "/own/").map_err(|error| error.to_string())?;
        page.session().open(&server.url())?;
        let said = title(page)?;
        let greedy = greedy();
        assert_eq!(said, json!({ "cpu": greedy, "webgpu": greedy }));
        Ok(())
    });
}

/// What the page says once it is done.
fn title(page: &page_tests::Page) -> Result<Value, String> {
    let start = Instant::now();
    loop {
        let title = page.session().run("return document.title", json!([]))?;
        if let Some(said) = title.as_str().and_then(|title| serde_json::from_str(title).ok()) {
            return Ok(said);
        }
        if start.elapsed() > LIMIT {
            return Err(format!("the page says {title} after {} s", LIMIT.as_secs()));
        }
        std::thread::sleep(PAUSE);
    }
}

/// The reference's tokens, prompt by prompt.
fn greedy() -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/llama-tiny/expected.json");
    let text = std::fs::read_to_string(path).expect("a fixture");
    let expected: Value = serde_json::from_str(&text).expect("JSON");
    let prompts = expected["prompts"].as_array().expect("prompts");
    prompts.iter().map(|prompt| prompt["greedy"].clone()).collect()
}
