//! The page as an application: under any path, without a network, in a new version, and asking nobody else for anything.

use crate::folders::LOAD;
use page_tests::browser::{built_page, serve};
use page_tests::views::KEEP_CHAT;
use page_tests::{Mood, Page, in_firefox, in_page_of, in_watched_page};
use serde_json::{Value, json};
use std::path::Path;
use std::time::Duration;

/// A tiny model, below the page.
const ADDRESS: &str = "./fixtures/llama-tiny/model.safetensors";
const FILE: &str = "model.safetensors";
const BEGINNING: &str = "Once upon a time";
const ANSWER: Duration = Duration::from_secs(120);
/// What the page itself does comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
const NEWS: &str = "A new version of this page is ready";

#[test]
fn the_page_starts_without_its_server() {
    in_page_of("offline", serve(&built_page(false), "/some/path/"), starts_without_its_server);
}

#[test]
fn the_page_starts_without_its_server_in_firefox() {
    in_firefox("firefox-offline", starts_without_its_server);
}

fn starts_without_its_server(page: &Page) -> Result<(), String> {
    load_tiny_model(page)?;
    wait_until_kept(page)?;
    page.server().set_mood(Mood::Gone);
    // Twice: the first start must not use up what the second needs.
    for _ in 0..2 {
        page.session().open("about:blank")?;
        page.open_page()?;
        let controller =
            page.session().run("return Boolean(navigator.serviceWorker.controller)", json!([]))?;
        assert_eq!(controller, json!(true), "the page came from somewhere else");
    }
    page.wait_for_button(&format!("Load {FILE} from this browser"), AT_ONCE)?;
    page.press(&format!("Load {FILE} from this browser"))?;
    answers(page)
}

#[test]
fn the_page_works_under_the_path_that_it_was_built_for() {
    in_page_of("public-url", serve(&built_page(true), "/x/"), |page| {
        page.wait_for_button("Load SmolLM2 135M Instruct", AT_ONCE)?;
        load_tiny_model(page)?;
        answers(page)?;
        wait_until_kept(page)?;
        let missing = page.server().missing();
        // A model may come with these or without.
        let missing: Vec<_> = missing.iter().filter(|path| !path.contains("/fixtures/")).collect();
        assert!(missing.is_empty(), "{missing:?}");
        let manifest = page.session().run(MANIFEST, json!([]))?;
        assert_eq!(manifest["start_url"], page.server().url());
        assert_eq!(manifest["icons"], json!([true, true, true]));
        Ok(())
    });
}

#[test]
fn a_new_version_waits_until_no_other_tab_runs_the_older_one() {
    let folder = std::env::temp_dir().join(format!("pagelm-new-version-{}", std::process::id()));
    copy(&built_page(false), &folder).expect("a copy of the page");
    in_page_of("new-version", serve(&folder, "/"), |page| {
        wait_until_kept(page)?;
        let other = page.open_tab()?;
        put_second_version(page, &folder)?;
        assert!(!is_second_version(page)?);
        // The older one is shown once more; the new one comes meanwhile.
        reload(page)?;
        see_news(page)?;
        see_news(&other)?;
        page.press("Reload")?;
        page.wait_for_page()?;
        see_news(page)?;
        assert!(!is_second_version(page)?, "tabs of two versions run at once");
        other.close()?;
        reload(page)?;
        page.within(AT_ONCE, "the new version", || Ok(is_second_version(page)?.then_some(())))?;
        page.wait_for_page()?;
        assert!(!page.shown()?.contains(NEWS));
        page.within(AT_ONCE, "the end of the older files", || {
            let names = page.session().run("return caches.keys()", json!([]))?;
            let of_files = names.as_array().into_iter().flatten().filter(|name| is_of_files(name));
            Ok((of_files.count() == 1).then_some(()))
        })?;
        page.server().set_mood(Mood::Gone);
        reload(page)?;
        page.wait_for_page()?;
        assert!(is_second_version(page)?);
        Ok(())
    });
    std::fs::remove_dir_all(&folder).expect("the copy is there");
}

#[test]
fn nobody_else_is_asked_for_anything() {
    let mut origin = String::new();
    let asked = in_watched_page("watched", |page| {
        origin = page.server().url();
        page.session().run(KEEP_CHAT, json!(["pictures", "Pictures", "Show", PICTURES]))?;
        let heard = json!({ "source": HEAR_VIOLATIONS });
        page.session().tool("Page.addScriptToEvaluateOnNewDocument", heard)?;
        page.open_page()?;
        load_tiny_model(page)?;
        answers(page)?;
        page.press("Chats")?;
        page.press("Close")?;
        page.press("Benchmark")?;
        page.press("Benchmark")?;
        page.press("Settings")?;
        page.press("Copy report")?;
        page.within(AT_ONCE, "the report", || Ok(report(page)?.contains("build").then_some(())))?;
        page.press("Close")?;
        page.session().run("location.hash = '#chat=pictures'", json!([]))?;
        page.see("A table of pictures", AT_ONCE)?;
        wait_until_kept(page)?;
        assert_eq!(page.session().run("return violations", json!([]))?, json!([]), "against the policy");
        // So that the silence means something: what is asked for on purpose is seen, and what the policy forbids is not asked.
        page.session().run(TRESPASS, json!([]))?;
        page.within(AT_ONCE, "violations", || {
            let violations = page.session().run("return violations", json!([]))?;
            let directives: Vec<&str> =
                violations.as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            let all = ["connect-src", "img-src", "script-src-elem", "style-src-attr"];
            Ok(all.iter().all(|directive| directives.contains(directive)).then_some(()))
        })
    });
    assert!(asked.iter().any(|url| url.ends_with("engine_bg.wasm")), "workers are not watched: {asked:?}");
    assert!(asked.iter().any(|url| url.ends_with("models.json")), "the page is not watched: {asked:?}");
    let others: Vec<_> = asked.iter().filter(|url| !url.starts_with(&origin)).collect();
    assert_eq!(others, [ON_PURPOSE], "{asked:?}");
}

#[test]
fn a_report_tells_of_the_page_and_nothing_of_its_chats() {
    in_page_of("report", serve(&built_page(false), "/some/path/"), |page| {
        load_tiny_model(page)?;
        answers(page)?;
        page.press("Settings")?;
        page.press("Copy report")?;
        let report =
            page.within(AT_ONCE, "a report", || Ok(Some(report(page)?).filter(|report| !report.is_empty())))?;
        for part in
            ["pagelm, protocol ", "Browser: Mozilla/", "WebGPU: ", "Storage: ", "Engine: running", "Model: "]
        {
            assert!(report.contains(part), "{part}: {report}");
        }
        assert!(report.contains("(cpu, cpu), fast") && report.contains("Kernels and limits: "), "{report}");
        assert!(!report.contains(BEGINNING), "{report}");
        Ok(())
    });
}

fn report(page: &Page) -> Result<String, String> {
    let script = "return document.querySelector('.report textarea').value";
    Ok(page.session().run(script, json!([]))?.as_str().unwrap_or_default().to_owned())
}

/// Loads it by its address, so that the browser keeps it.
fn load_tiny_model(page: &Page) -> Result<(), String> {
    let script =
        "const box = document.getElementById('address'); box.value = arguments[0]; box.form.requestSubmit()";
    page.session().run(script, json!([ADDRESS]))?;
    page.within(LOAD, "the tiny model", || Ok((page.engine_status()?.n_models == 1).then_some(())))
}

fn answers(page: &Page) -> Result<(), String> {
    page.wait_for_button("Model: llama-tiny", LOAD)?;
    page.ask(BEGINNING)?;
    page.see_answer_of(1, BEGINNING, ANSWER)
}

/// Waits until the service worker has all files.
fn wait_until_kept(page: &Page) -> Result<(), String> {
    let script = "return navigator.serviceWorker.getRegistration().then((r) => r?.active?.state ?? '')";
    page.within(AT_ONCE, "a service worker that has the page's files", || {
        Ok((page.session().run(script, json!([]))? == "activated").then_some(()))
    })
}

fn reload(page: &Page) -> Result<(), String> {
    let url = page.session().run("return location.href", json!([]))?;
    page.session().open("about:blank")?;
    page.session().open(url.as_str().unwrap_or_default())?;
    page.wait_for_page()
}

fn see_news(page: &Page) -> Result<(), String> {
    page.within(AT_ONCE, NEWS, || Ok(page.shown()?.contains(NEWS).then_some(())))
}

fn is_of_files(name: &Value) -> bool {
    name.as_str().is_some_and(|name| name.starts_with("pagelm files"))
}

fn is_second_version(page: &Page) -> Result<bool, String> {
    let script = "return Boolean(document.querySelector('meta[name=second]'))";
    Ok(page.session().run(script, json!([]))? == true)
}

/// Changes the page, as a host does that is given another one, and the list of its files with it.
fn put_second_version(page: &Page, folder: &Path) -> Result<(), String> {
    let change = |name: &str, change: &dyn Fn(String) -> String| {
        let path = folder.join(name);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        let text = change(text);
        std::fs::write(&path, &text).map_err(|error| format!("{}: {error}", path.display()))?;
        Ok::<String, String>(text)
    };
    let text = change("index.html", &|text| text.replacen("<title>", "<meta name=\"second\"><title>", 1))?;
    let hash = page.session().run(HASH, json!([text]))?;
    let hash = hash.as_str().ok_or("the browser made no hash")?.to_owned();
    change("service_worker.js", &|text| {
        let start = text.find("\"./\": \"").expect("a hash of the page") + 7;
        let end = start + text[start..].find('"').expect("its end");
        let text = format!("{}{hash}{}", &text[..start], &text[end..]);
        text.replacen("const VERSION = \"", "const VERSION = \"2-", 1)
    })
    .map(drop)
}

fn copy(from: &Path, to: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        // Models are large, and no part of this.
        if entry.file_type()?.is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

const HASH: &str = "
    const digest = crypto.subtle.digest('SHA-384', new TextEncoder().encode(arguments[0]));
    return digest.then((bytes) => `sha384-${btoa(String.fromCharCode(...new Uint8Array(bytes)))}`);";

const MANIFEST: &str = "
    const link = document.querySelector('link[rel=manifest]').href;
    const icon = ({ src, sizes }) => createImageBitmap
        ? fetch(new URL(src, link)).then((r) => r.blob()).then(createImageBitmap).then((i) => `${i.width}x${i.height}` === sizes)
        : false;
    return fetch(link).then((r) => r.json()).then(async (manifest) => ({
        start_url: new URL(manifest.start_url, link).href,
        icons: await Promise.all(manifest.icons.map(icon)),
    }));";

/// An answer with all that might be fetched.
const PICTURES: &str = "A table of pictures:\n\n![a cat](https://pictures.example/cat.png)\n\n\
    <img src=\"https://pictures.example/dog.png\"> <script src=\"https://scripts.example/x.js\"></script>\n\n\
    | a | b | c |\n|:--|:-:|--:|\n| 1 | 2 | 3 |\n\n[a link](https://links.example/)\n";

const HEAR_VIOLATIONS: &str = "
    window.violations = [];
    addEventListener('securitypolicyviolation', (event) => violations.push(event.effectiveDirective));";

const ON_PURPOSE: &str = "https://on-purpose.example/model.gguf";
/// What a script that got into the page might try; addresses by https may be asked for models.
const TRESPASS: &str = "
    const asked = fetch('https://on-purpose.example/model.gguf').catch(() => {});
    fetch('http://plain.example/').catch(() => {});
    new Image().src = 'https://pictures.example/spy.png';
    const script = document.createElement('script');
    script.textContent = 'window.trespassed = true';
    document.body.append(script);
    document.body.setAttribute('style', 'color: red');
    return asked.then(() => null);";
