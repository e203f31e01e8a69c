//! Programs installed by `cargo install`, each at one version, which the program itself is asked for.

use super::Done;
use crate::process::{Context, Result, output, run};

/// A program from crates.io.
pub(super) struct Tool {
    /// The crate.
    package: &'static str,
    /// The program that says the version.
    program: &'static str,
    /// The version wanted.
    version: String,
    /// How far it is optimized.
    opt_level: &'static str,
}

/// These programs mostly wait for others: the minutes that optimizing them takes are not won back.
const SOME: &str = "1";

/// Builds and serves the page. Later versions want a compiler that Debian does not have.
pub(super) fn trunk() -> Tool {
    Tool { package: "trunk", program: "trunk", version: "0.21.14".into(), opt_level: SOME }
}

/// Runs the fuzz targets.
pub(super) fn cargo_fuzz() -> Tool {
    Tool { package: "cargo-fuzz", program: "cargo-fuzz", version: "0.13.2".into(), opt_level: SOME }
}

/// Drives Firefox: it passes on a few messages a second, and is built in a third of the time where nothing is optimized.
pub(super) fn geckodriver() -> Tool {
    Tool { package: "geckodriver", program: "geckodriver", version: "0.37.1".into(), opt_level: "0" }
}

/// Writes the page's JavaScript side; must be of the very version that the page links.
pub(super) fn wasm_bindgen(context: &Context) -> Result<Tool> {
    let path = context.root.join("Cargo.lock");
    let lock =
        std::fs::read_to_string(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let version = locked_version(&lock, "wasm-bindgen")
        .ok_or_else(|| format!("{} names no version of wasm-bindgen; restore it with git", path.display()))?;
    Ok(Tool {
        package: "wasm-bindgen-cli",
        program: "wasm-bindgen",
        version: version.into(),
        opt_level: SOME,
    })
}

/// The version of a package in the text of a Cargo.lock.
fn locked_version<'a>(lock: &'a str, package: &str) -> Option<&'a str> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().skip_while(|line| *line != name).skip(1);
    lines.next()?.strip_prefix("version = \"")?.strip_suffix('"')
}

/// Installs the program unless its version is there already.
pub(super) fn ensure(context: &Context, tool: &Tool) -> Result<Done> {
    if installed(context, tool) {
        return Ok(Done::Present(tool.version.clone()));
    }
    let wanted = format!("{}@{}", tool.package, tool.version);
    println!("   installing {wanted}; this takes some minutes");
    let install = |locked: bool| {
        let mut cargo = context.cargo(["install", "--quiet"]);
        if locked {
            cargo.arg("--locked");
        }
        cargo.envs([
            ("CARGO_PROFILE_RELEASE_LTO", "off"),
            ("CARGO_PROFILE_RELEASE_OPT_LEVEL", tool.opt_level),
        ]);
        cargo.envs([("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16"), ("CARGO_PROFILE_RELEASE_DEBUG", "0")]);
        run(cargo.arg(&wanted))
    };
    // A lock file may name a version that the registry has withdrawn.
    install(true).or_else(|sentence| {
        println!("   {sentence}; trying again without its lock file");
        install(false)
    })?;
    if installed(context, tool) {
        return Ok(Done::Made(tool.version.clone()));
    }
    Err(format!(
        "{wanted} was installed, but `{} --version` does not say so; is another one earlier in PATH?",
        tool.program
    ))
}

fn installed(context: &Context, tool: &Tool) -> bool {
    let said = output(context.command(tool.program).arg("--version"));
    said.is_ok_and(|text| text.split_whitespace().nth(1) == Some(tool.version.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_locked_version_is_that_of_the_very_package() {
        let lock = "[[package]]\nname = \"wasm-bindgen-futures\"\nversion = \"0.4.1\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\n";
        assert_eq!(locked_version(lock, "wasm-bindgen"), Some("0.2.130"));
        assert_eq!(locked_version(lock, "wasm"), None);
    }
}
