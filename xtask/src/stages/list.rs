//! The stages in order: what is quick and fails often comes first. Feature sets are few, for each compiles the crates anew.

use crate::process::{Context, Result, run};
use crate::{package, serve, setup};
use std::path::PathBuf;
use std::process::Command;

/// Whether a stage's tests are counted, or the stage itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Passes or fails as a whole.
    Check,
    /// Its commands are test runners.
    Tests,
}

/// One check of the project.
pub(super) struct Stage {
    /// The name for `--only`.
    pub(super) name: &'static str,
    /// What it checks.
    pub(super) what: &'static str,
    /// How it is counted.
    pub(super) kind: Kind,
    /// Its commands, given the filters on test names.
    pub(super) commands: fn(&Context, &[String]) -> Result<Vec<Command>>,
}

/// The stage that builds the page.
pub(super) const PAGE_BUILD: &str = "page-build";
/// The stages that need the built page.
pub(super) const ON_PAGE: [&str; 2] = [PACKAGE_TESTS, PAGE_TESTS];
const PACKAGE_TESTS: &str = "package";
const PAGE_TESTS: &str = "page";

/// Every stage, in the order in which they run.
pub(super) const STAGES: &[Stage] = &[
    Stage { name: "fmt", what: "every file is formatted", kind: Kind::Check, commands: fmt },
    Stage { name: "core", what: "tests that need no feature", kind: Kind::Tests, commands: core },
    Stage { name: "xtask", what: "tests of xtask itself", kind: Kind::Tests, commands: xtask },
    Stage {
        name: "clippy",
        what: "no warning, natively, without features and with the usual ones",
        kind: Kind::Check,
        commands: clippy,
    },
    Stage {
        name: "clippy-wasm",
        what: "no warning in what runs in the browser",
        kind: Kind::Check,
        commands: clippy_wasm,
    },
    Stage {
        name: "native",
        what: "the engine on Vulkan, Metal or DX12, and the page's state",
        kind: Kind::Tests,
        commands: native,
    },
    Stage { name: "fuzz", what: "readers meet bounded nonsense", kind: Kind::Check, commands: fuzz },
    Stage {
        name: "wasm",
        what: "kernels and models in Chromium, whose WGSL compiler is another",
        kind: Kind::Tests,
        commands: wasm,
    },
    Stage {
        name: PAGE_BUILD,
        what: "Trunk builds the page, and no larger than it may be",
        kind: Kind::Check,
        commands: page_build,
    },
    Stage {
        name: PACKAGE_TESTS,
        what: "a program uses the engine in Node, which answers as the native one",
        kind: Kind::Tests,
        commands: package_tests,
    },
    Stage {
        name: PAGE_TESTS,
        what: "a person uses the page, in Chromium and in Firefox",
        kind: Kind::Tests,
        commands: page_tests,
    },
];

const PACKAGE: [&str; 3] = ["--locked", "--package", "pagelm"];
const WEB: [&str; 3] = ["--no-default-features", "--features", "engine"];
const WASM: [&str; 2] = ["--target", "wasm32-unknown-unknown"];
const DENY: [&str; 3] = ["--", "--deny", "warnings"];
/// Integration tests that also run in a browser.
const BROWSER_TESTS: [&str; 12] = [
    "--test",
    "blocks",
    "--test",
    "cpu_matrix",
    "--test",
    "host_time",
    "--test",
    "kernels",
    "--test",
    "models",
    "--test",
    "sample",
];
/// Tests of the package, in tests/package.
const PACKAGE_FILES: [&str; 5] = ["messages", "types", "answers", "models", "webgpu"];
/// How long one run of the fuzzer is: executions, and seconds where those come first.
const FUZZ: [&str; 5] =
    ["-runs=2000000", "-max_total_time=30", "-seed=1", "-verbosity=0", "-print_final_stats=1"];

fn cargo(context: &Context, parts: &[&[&str]]) -> Command {
    let mut command = context.cargo(parts.concat());
    if std::env::var_os("CI").is_some() {
        // A fresh clone is built once: what serves the next build only costs.
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// A test run that goes on after a failure, for the tests that the filters name.
fn cargo_test(context: &Context, parts: &[&[&str]], filters: &[String], runner: &[&str]) -> Command {
    let mut command = cargo(context, &[&["test", "--no-fail-fast"], &parts.concat()]);
    command.arg("--").args(runner).args(filters);
    command
}

fn fmt(context: &Context, _: &[String]) -> Result<Vec<Command>> {
    Ok(vec![
        cargo(context, &[&["fmt", "--all", "--check"]]),
        cargo(context, &[&["fmt", "--manifest-path", "fuzz/Cargo.toml", "--check"]]),
    ])
}

fn core(context: &Context, filters: &[String]) -> Result<Vec<Command>> {
    Ok(vec![cargo_test(context, &[&PACKAGE, &["--no-default-features"]], filters, &[])])
}

fn xtask(context: &Context, filters: &[String]) -> Result<Vec<Command>> {
    Ok(vec![cargo_test(context, &[&["--locked", "--package", "xtask"]], filters, &[])])
}

fn clippy(context: &Context, _: &[String]) -> Result<Vec<Command>> {
    let command = |parts: &[&[&str]]| cargo(context, &[&["clippy", "--all-targets"], &parts.concat(), &DENY]);
    Ok(vec![
        command(&[&PACKAGE, &["--no-default-features"]]),
        command(&[&PACKAGE]),
        command(&[&["--locked", "--package", "xtask", "--package", "page-tests"]]),
    ])
}

fn clippy_wasm(context: &Context, _: &[String]) -> Result<Vec<Command>> {
    Ok(vec![cargo(context, &[&["clippy", "--lib", "--bins"], &BROWSER_TESTS, &PACKAGE, &WEB, &WASM, &DENY])])
}

/// All features: the page's state has no browser in it, and one build serves both.
fn native(context: &Context, filters: &[String]) -> Result<Vec<Command>> {
    Ok(vec![cargo_test(context, &[&PACKAGE, &["--all-features"]], filters, &[])])
}

fn fuzz(context: &Context, _: &[String]) -> Result<Vec<Command>> {
    let listed = crate::process::output(&mut cargo(context, &[&["fuzz", "list"]]))?;
    let targets: Vec<&str> = listed.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if targets.is_empty() {
        return Err("`cargo fuzz list` names no target; fuzz/Cargo.toml should have one".into());
    }
    let run = |target: &&str| {
        // What is found goes to the first folder; the seeds are well-formed files.
        let (corpus, seeds) = (format!("fuzz/corpus/{target}"), format!("fuzz/seeds/{target}"));
        std::fs::create_dir_all(context.root.join(&corpus))
            .map_err(|error| format!("cannot make {corpus}: {error}"))?;
        Ok(cargo(context, &[&["fuzz", "run", "--sanitizer", "none", target, &corpus, &seeds, "--"], &FUZZ]))
    };
    targets.iter().map(run).collect()
}

fn wasm(context: &Context, filters: &[String]) -> Result<Vec<Command>> {
    let (_, driver) = browser(context)?;
    let capabilities = context.scratch()?.join("webdriver.json");
    std::fs::write(&capabilities, capabilities_json(context)?)
        .map_err(|error| format!("cannot write {}: {error}", capabilities.display()))?;
    // The page's own profile and features, so that both stages share every crate.
    let parts: [&[&str]; 5] = [&["--profile", "web"], &BROWSER_TESTS, &PACKAGE, &WEB, &WASM];
    let mut command = cargo_test(context, &parts, filters, &[]);
    command.env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_RUNNER", "wasm-bindgen-test-runner");
    command.env("WASM_BINDGEN_TEST_WEBDRIVER_JSON", &capabilities).env("CHROMEDRIVER", driver);
    command.env("WASM_BINDGEN_TEST_TIMEOUT", "1800").env("WASM_BINDGEN_TEST_ONLY_WEB", "1");
    Ok(vec![command])
}

fn page_build(context: &Context, _: &[String]) -> Result<Vec<Command>> {
    let dist = package::dist(context)?;
    let python = setup::python(context).ok_or("Python 3, which measures the page, is gone")?;
    let mut sizes = context.command(python);
    sizes.arg("tests/page/sizes.py").arg(&dist);
    // All but the page's addresses is built by then.
    let mut for_path_x = serve::build_for_tests(context, &dist.with_file_name("dist-x"));
    for_path_x.args(["--release", "--public-url", "/x/"]);
    Ok(vec![serve::build_for_tests(context, &dist), sizes, for_path_x])
}

fn package_tests(context: &Context, filters: &[String]) -> Result<Vec<Command>> {
    check_page(context)?;
    let folder = package::assemble(context)?;
    // As the native tests are built, so that they have done it.
    run(&mut cargo(context, &[&["build", "--bin", "pagelm"], &PACKAGE, &["--all-features"]]))?;
    let messages = context.scratch()?.join("messages.json");
    let write = ["run", "--quiet", "--locked", "--package", "page-tests", "--bin", "messages", "--"];
    run(cargo(context, &[&write]).arg(&messages))?;
    let binary = context.target().join("debug").join(format!("pagelm{}", std::env::consts::EXE_SUFFIX));

    let mut node = context.command("node");
    // One file at a time: each computes on all cores.
    node.args(["--test", "--test-concurrency=1", "--test-reporter=./tests/package/reporter.mjs"]);
    node.args(filters.iter().map(|filter| format!("--test-name-pattern={filter}")));
    node.args(PACKAGE_FILES.map(|file| format!("tests/package/{file}.mjs")));
    node.env("PAGELM_PACKAGE", folder).env("PAGELM_MESSAGES", messages).env("PAGELM_NATIVE", binary);
    node.env("PAGELM_MODULES", setup::node_modules(context)?);
    Ok(vec![node])
}

fn page_tests(context: &Context, filters: &[String]) -> Result<Vec<Command>> {
    check_page(context)?;
    // One browser at a time: each computes on all cores.
    let parts: [&[&str]; 1] = [&["--locked", "--package", "page-tests"]];
    let mut command = cargo_test(context, &parts, filters, &["--test-threads=1", "--nocapture"]);
    with_page(context, &mut command)?;
    command.env("PAGELM_PACKAGE", package::assemble(context)?);
    Ok(vec![command])
}

fn check_page(context: &Context) -> Result<()> {
    let dist = package::dist(context)?;
    if dist.join("index.html").is_file() {
        return Ok(());
    }
    Err(format!("there is no built page in {}: the stage {PAGE_BUILD} failed", dist.display()))
}

/// What writes README's speeds.
pub(super) fn speed(context: &Context) -> Command {
    let mut command =
        cargo(context, &[&["run", "--quiet", "--locked", "--package", "page-tests", "--bin", "speed", "--"]]);
    command.args(["README.md", "tests/speed"]);
    command
}

/// What measures the built page in Chromium: tokens, or with `reload` first the first one after a reload.
pub(super) fn page_bench(context: &Context, options: &[String]) -> Result<Vec<Command>> {
    let (bin, options) = match options {
        [first, rest @ ..] if first == "reload" => ("reload", rest),
        _ => ("bench", options),
    };
    let mut command =
        cargo(context, &[&["run", "--quiet", "--locked", "--package", "page-tests", "--bin", bin]]);
    command.arg("--").args(options);
    with_page(context, &mut command)?;
    let mut commands = page_build(context, &[])?;
    commands.push(command);
    Ok(commands)
}

/// What takes pictures of every view of the built page.
pub(super) fn shots(context: &Context, folder: &[String]) -> Result<Vec<Command>> {
    let folder = match folder {
        [] => context.scratch()?.join("shots"),
        [folder] => context.root.join(folder),
        _ => return Err("`shots` takes one folder".into()),
    };
    let mut command = page_bin(context, "shots")?;
    command.arg(folder);
    let mut commands = page_build(context, &[])?;
    commands.push(command);
    Ok(commands)
}

/// What draws the icons.
pub(super) fn icons(context: &Context) -> Result<Command> {
    page_bin(context, "icons")
}

/// A program that uses the built page in a browser.
fn page_bin(context: &Context, name: &str) -> Result<Command> {
    let mut command =
        cargo(context, &[&["run", "--quiet", "--locked", "--package", "page-tests", "--bin", name, "--"]]);
    with_page(context, &mut command)?;
    Ok(command)
}

/// Tells a command where the built page and the browsers are.
fn with_page(context: &Context, command: &mut Command) -> Result<()> {
    let (browser, driver) = browser(context)?;
    command.env("PAGELM_DIST", package::dist(context)?).env("PAGELM_SCRATCH", context.scratch()?);
    command.env("CHROMIUM", browser).env("CHROMEDRIVER", driver);
    command.env("PAGELM_MODULES", setup::node_modules(context)?);
    let firefox = setup::firefox(context).ok_or("Firefox is gone")?;
    let driver = setup::geckodriver(context).ok_or("geckodriver is gone")?;
    command.env("FIREFOX", firefox).env("GECKODRIVER", driver);
    Ok(())
}

fn browser(context: &Context) -> Result<(PathBuf, PathBuf)> {
    setup::chromium(context)
        .zip(setup::chromedriver(context))
        .ok_or_else(|| "Chromium or chromedriver is gone".into())
}

/// How the browser is started: WebGPU on Chromium's software device, and nothing contacted.
fn capabilities_json(context: &Context) -> Result<String> {
    let (browser, _) = browser(context)?;
    let switches = include_str!("../../../tests/page/chromium-switches.txt");
    let switches: Vec<String> = switches.lines().map(|switch| format!("{switch:?}")).collect();
    Ok(format!(
        "{{\"goog:chromeOptions\": {{\"binary\": {:?}, \"args\": [{}]}}}}\n",
        browser.display().to_string(),
        switches.join(", ")
    ))
}
