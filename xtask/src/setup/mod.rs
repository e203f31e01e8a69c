//! Set-up: every step looks first, does only what is missing, and says how long it took.

mod model;
mod node;
mod system;
mod tokenizers;
mod tools;
mod wasm_target;

use crate::process::{Context, Result, output, run, spoken};
use std::time::Instant;

pub(crate) use node::node_modules;
pub(crate) use system::{chromedriver, chromium, firefox, geckodriver};

/// What a step found or did.
enum Done {
    /// It was there; in a few words, what.
    Present(String),
    /// It was missing and is there now; in a few words, what.
    Made(String),
}

/// What building and serving the page needs.
pub(crate) fn page(context: &mut Context) -> Result<()> {
    let start = Instant::now();
    println!("Set-up");
    step("wasm32 target", || wasm_target::ensure(context))?;
    step("crates", || fetch_crates(context))?;
    step("trunk", || tools::ensure(context, &tools::trunk()))?;
    let bindgen = tools::wasm_bindgen(context)?;
    step("wasm-bindgen", || tools::ensure(context, &bindgen))?;
    step("default model", || model::ensure(context))?;
    println!("Set-up took {}\n", spoken(start.elapsed()));
    Ok(())
}

/// Python 3, by the name that this machine has for it.
pub(crate) fn python(context: &Context) -> Option<&'static str> {
    ["python3", "python"].into_iter().find(|name| output(context.command(name).arg("--version")).is_ok())
}

/// What the tests need beyond [`page`].
pub(crate) fn tests(context: &mut Context) -> Result<()> {
    page(context)?;
    let start = Instant::now();
    println!("Set-up for the tests");
    step("published tokenizers", || tokenizers::ensure(context))?;
    step("Node.js", || node::ensure(context))?;
    step("Node's modules", || node::ensure_modules(context))?;
    step("rustfmt and clippy", || wasm_target::ensure_lints(context))?;
    step("Chromium and its driver", || system::ensure_browser(context))?;
    step("Firefox", || system::ensure_firefox(context))?;
    step("geckodriver", || tools::ensure(context, &tools::geckodriver()))?;
    step("Vulkan", || system::ensure_vulkan(context))?;
    step("C++ compiler for the fuzzer", || system::ensure_cxx(context))?;
    step("cargo-fuzz", || tools::ensure(context, &tools::cargo_fuzz()))?;
    println!("Set-up for the tests took {}\n", spoken(start.elapsed()));
    Ok(())
}

fn step(name: &str, work: impl FnOnce() -> Result<Done>) -> Result<()> {
    let start = Instant::now();
    let done = work().map_err(|sentence| format!("set-up of {name}: {sentence}"))?;
    let took = spoken(start.elapsed());
    match done {
        Done::Present(what) => println!(" - {name}: {what} ({took})"),
        Done::Made(what) => println!(" + {name}: {what}, done in {took}"),
    }
    Ok(())
}

/// Trunk builds offline, so every crate of the lock file must be there beforehand.
fn fetch_crates(context: &Context) -> Result<Done> {
    if output(&mut context.cargo(["fetch", "--locked", "--offline"])).is_ok() {
        return Ok(Done::Present("all of Cargo.lock".into()));
    }
    run(&mut context.cargo(["fetch", "--locked"]))?;
    Ok(Done::Made("fetched all of Cargo.lock".into()))
}
