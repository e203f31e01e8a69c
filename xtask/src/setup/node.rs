//! Node.js, which the package's tests run in, and what they take from npm's registry.

use super::{Done, system};
use crate::process::{Context, Result, output, run};
use sha2::{Digest as _, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The oldest that runs the tests; the package itself needs no more.
const OLDEST: u32 = 20;

/// The rules of accessibility, which run in the page: the very file, whatever the registry sends.
const AXE: &str = "axe-core/axe.min.js";
const AXE_SHA256: &str = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c";

/// Node.js, by apt where it is missing and apt is there.
pub(super) fn ensure(context: &Context) -> Result<Done> {
    if let Some(version) = recent(context) {
        return Ok(Done::Present(version));
    }
    if system::has_apt(context) {
        system::ensure_packages(context, &["nodejs", "npm"])?;
    }
    recent(context)
        .map(Done::Made)
        .ok_or_else(|| format!("install Node.js {OLDEST} or later with npm, and put both in PATH"))
}

/// Its version, if it is recent enough and has npm beside it.
fn recent(context: &Context) -> Option<String> {
    let version = output(context.command("node").arg("--version")).ok()?;
    let is_recent = major(&version).is_some_and(|major| major >= OLDEST);
    (is_recent && context.find("npm").is_some()).then(|| version.trim().to_owned())
}

/// 20 of `v20.20.2`.
fn major(version: &str) -> Option<u32> {
    version.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// Where the tests' tools are.
pub(crate) fn node_modules(context: &Context) -> Result<PathBuf> {
    Ok(folder(context)?.join("node_modules"))
}

fn folder(context: &Context) -> Result<PathBuf> {
    Ok(context.scratch()?.join("node"))
}

/// What tests/package/package.json names.
pub(super) fn ensure_modules(context: &Context) -> Result<Done> {
    let (folder, wanted) = (folder(context)?, context.root.join("tests/package/package.json"));
    let wanted =
        fs::read_to_string(&wanted).map_err(|error| format!("cannot read {}: {error}", wanted.display()))?;
    // Written last: what was interrupted is done again.
    let done = folder.join("installed.json");
    if fs::read_to_string(&done).is_ok_and(|installed| installed == wanted) {
        return Ok(Done::Present("all of tests/package/package.json".into()));
    }
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let write = |path: PathBuf| {
        fs::write(&path, &wanted).map_err(|error| format!("cannot write {}: {error}", path.display()))
    };
    write(folder.join("package.json"))?;
    let mut npm = context.command("npm");
    npm.args(["install", "--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]);
    run(npm.arg(&folder))?;
    check_axe(&folder.join("node_modules").join(AXE))?;
    write(done)?;
    Ok(Done::Made("installed all of tests/package/package.json".into()))
}

fn check_axe(path: &Path) -> Result<()> {
    let bytes = fs::read(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let found = Sha256::digest(bytes).iter().fold(String::new(), |mut found, byte| {
        let _ = write!(found, "{byte:02x}");
        found
    });
    if found == AXE_SHA256 {
        return Ok(());
    }
    Err(format!(
        "{} has the SHA-256 {found} and not {AXE_SHA256}: npm's registry, or what stands for it, sent another file",
        path.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_tells_its_age() {
        assert_eq!(major("v20.20.2\n"), Some(20));
        assert_eq!(major("20.1"), None);
    }
}
