//! The wasm32 target: from rustup where its server answers, else Debian's compiler with a std built from its sources.
//!
//! "Works" always means that an optimized empty module was compiled and linked, never that a file exists.

use super::{Done, system};
use crate::process::{Context, Result, TemporaryFolder, output, run, run_within};
use std::path::{Path, PathBuf};
use std::time::Duration;

const TARGET: &str = "wasm32-unknown-unknown";
/// Name of the rustup toolchain that stands for Debian's compiler in /usr.
const DISTRO: &str = "distro";
/// Debian's packages for browsers: a recent compiler beside the old one. `rust-lld` points at lld-22, which nothing pulls in.
const PACKAGES: [&str; 7] =
    ["rustc-web", "cargo-web", "rust-web-src", "rust-web-llvm", "rust-web-clippy", "rustfmt-web", "lld-22"];
/// rustup's server answers within this or counts as unreachable.
const RUSTUP_LIMIT: Duration = Duration::from_secs(300);

/// Makes the target work, and notes in `context` the toolchain that has it.
pub(super) fn ensure(context: &mut Context) -> Result<Done> {
    if works(context)? {
        return Ok(Done::Present(version(context)));
    }
    let has_rustup = context.find("rustup").is_some();
    if has_rustup && has_distro(context)? && use_distro(context)? {
        override_folder(context)?;
        return Ok(Done::Present(version(context)));
    }
    if has_rustup {
        println!("   asking rustup for {TARGET}");
        if run_within(context.command("rustup").args(["target", "add", TARGET]), RUSTUP_LIMIT)?
            && works(context)?
        {
            return Ok(Done::Made("added by rustup".into()));
        }
        println!("   rustup's server could not be reached");
    }
    if !system::is_debian() {
        return Err(format!(
            "the {TARGET} target is missing and rustup could not add it; install Rust from https://rustup.rs, \
             make its server reachable, and run `rustup target add {TARGET}`"
        ));
    }
    build_from_debian(context, has_rustup)?;
    Ok(Done::Made(format!("built from Debian's sources, {}", version(context))))
}

/// rustfmt and clippy of the toolchain that was chosen.
pub(super) fn ensure_lints(context: &Context) -> Result<Done> {
    let has =
        || ["fmt", "clippy"].iter().all(|tool| output(&mut context.cargo([*tool, "--version"])).is_ok());
    if has() {
        return Ok(Done::Present("of the same toolchain".into()));
    }
    if context.toolchain.as_deref() == Some(DISTRO) || context.find("rustup").is_none() {
        system::ensure_packages(context, &["rust-web-clippy", "rustfmt-web"])?;
    } else {
        run(context.command("rustup").args(["component", "add", "rustfmt", "clippy"]))?;
    }
    if has() {
        Ok(Done::Made("installed".into()))
    } else {
        Err("`cargo fmt` or `cargo clippy` still does not start".into())
    }
}

fn version(context: &Context) -> String {
    output(context.command("rustc").arg("--version"))
        .map_or_else(|_| "works".into(), |text| text.trim().to_string())
}

/// Whether an empty module compiles and links with whole-program optimization, as the page is built.
fn works(context: &Context) -> Result<bool> {
    let folder = TemporaryFolder::new(&std::env::temp_dir(), "pagelm-probe")?;
    let source = folder.path().join("probe.rs");
    std::fs::write(&source, "//! Probe: tests are compiled for the target too.\n#[test]\nfn probe() {}\n")
        .map_err(|error| format!("cannot write {}: {error}", source.display()))?;
    let mut rustc = context.command("rustc");
    rustc.args(["--target", TARGET, "--test", "--edition", "2024", "-Clto=thin", "-Copt-level=1"]);
    Ok(output(rustc.arg("-o").arg(folder.path().join("probe.wasm")).arg(&source)).is_ok())
}

fn has_distro(context: &Context) -> Result<bool> {
    let list = output(context.command("rustup").args(["toolchain", "list"]))?;
    Ok(list.lines().any(|line| line.split_whitespace().next() == Some(DISTRO)))
}

/// Switches to the linked toolchain; back again if it lacks the target.
fn use_distro(context: &mut Context) -> Result<bool> {
    let before = context.toolchain.replace(DISTRO.into());
    if works(context)? {
        return Ok(true);
    }
    context.toolchain = before;
    Ok(false)
}

/// Makes bare `cargo` and `trunk` in this folder use the linked toolchain.
fn override_folder(context: &Context) -> Result<()> {
    run(context.command("rustup").args(["override", "set", DISTRO]))
}

/// The recipe of a Debian machine that reaches package registries only.
fn build_from_debian(context: &mut Context, has_rustup: bool) -> Result<()> {
    system::ensure_packages(context, &PACKAGES)?;
    if has_rustup {
        if !has_distro(context)? {
            run(context.command("rustup").args(["toolchain", "link", DISTRO, "/usr"]))?;
        }
        context.toolchain = Some(DISTRO.into());
    }
    if !works(context)? {
        build_std(context)?;
    }
    if !works(context)? {
        return Err(format!(
            "std for {TARGET} was built, and still an empty module does not compile; \
             `rustc --target {TARGET} --test` with an empty file shows why"
        ));
    }
    if has_rustup { override_folder(context) } else { Ok(()) }
}

/// Builds std for the target with an empty crate outside the project, and puts it where the compiler looks.
fn build_std(context: &Context) -> Result<()> {
    let folder = TemporaryFolder::new(&std::env::temp_dir(), "pagelm-std")?;
    let seed = folder.path();
    let write = |name: &str, text: &str| {
        std::fs::write(seed.join(name), text)
            .map_err(|error| format!("cannot write {name} in {}: {error}", seed.display()))
    };
    std::fs::create_dir_all(seed.join("src")).map_err(|error| error.to_string())?;
    write(
        "Cargo.toml",
        "[package]\nname = \"seed\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[lib]\ncrate-type = [\"cdylib\"]\n",
    )?;
    write("src/lib.rs", "//! Nothing: the crates it depends on are what is wanted.\n")?;
    println!("   building std for {TARGET}; this takes about a minute");
    let mut cargo =
        context.cargo(["build", "-Zbuild-std=std,panic_abort,test", "--target", TARGET, "--release"]);
    // Without bitcode in the libraries, link-time optimization fails.
    cargo.current_dir(seed).env("RUSTFLAGS", "-Cembed-bitcode=yes").env("RUSTC_BOOTSTRAP", "1");
    cargo.env("CARGO_TARGET_DIR", seed.join("target")).env_remove("CARGO_ENCODED_RUSTFLAGS");
    run(&mut cargo)?;
    let libraries = rlibs(&seed.join("target").join(TARGET).join("release/deps"))?;
    let mut rustc = context.command("rustc");
    let destination = output(rustc.args(["--print", "target-libdir", "--target", TARGET]))?;
    let destination = Path::new(destination.trim());
    remove_stale(context, destination)?;
    run(system::as_root(context, "mkdir")?.arg("-p").arg(destination))?;
    println!("   copying {} libraries to {}", libraries.len(), destination.display());
    output(system::as_root(context, "cp")?.args(&libraries).arg(destination))?;
    // What was built against another std cannot be used any more (E0460).
    let ours = context.target().join(TARGET);
    if ours.exists() {
        println!("   removing {}: it was built against another std", ours.display());
        std::fs::remove_dir_all(&ours)
            .map_err(|error| format!("cannot remove {}: {error}", ours.display()))?;
    }
    Ok(())
}

/// Two versions of one library would be an error (E0464).
fn remove_stale(context: &Context, folder: &Path) -> Result<()> {
    let stale = if folder.is_dir() { rlibs(folder)? } else { Vec::new() };
    if stale.is_empty() { Ok(()) } else { output(system::as_root(context, "rm")?.args(&stale)).map(drop) }
}

/// The libraries in a folder.
fn rlibs(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries =
        std::fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    let paths = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    Ok(paths.filter(|path| path.extension().is_some_and(|extension| extension == "rlib")).collect())
}
