//! The engine as an npm-style package: the page's own wasm and its glue, and what www/package puts around them.

use crate::process::{Context, Result, run};
use crate::{serve, setup};
use std::fs;
use std::path::PathBuf;

/// What the page's build makes of the engine.
const BUILT: [&str; 2] = ["engine.js", "engine_bg.wasm"];
/// What stands in the repository's root.
const LICENCES: [&str; 2] = ["LICENSE-APACHE", "LICENSE-MIT"];

/// Sets up, builds the page where it is not built yet, and puts the package together.
pub(crate) fn build(context: &mut Context) -> Result<()> {
    setup::page(context)?;
    run(&mut serve::build_for_tests(context, &dist(context)?))?;
    let folder = assemble(context)?;
    println!("The package is in {}: `npm pack {0}` makes an archive of it", folder.display());
    Ok(())
}

/// Where the tests' page is built.
pub(crate) fn dist(context: &Context) -> Result<PathBuf> {
    let folder = context.scratch()?.join("dist");
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    Ok(folder)
}

/// Puts the package together from the built page, anew; its folder.
pub(crate) fn assemble(context: &Context) -> Result<PathBuf> {
    let (dist, folder) = (dist(context)?, context.scratch()?.join("package"));
    if folder.exists() {
        fs::remove_dir_all(&folder)
            .map_err(|error| format!("cannot remove {}: {error}", folder.display()))?;
    }
    fs::create_dir_all(&folder).map_err(|error| format!("cannot make {}: {error}", folder.display()))?;
    let written = context.root.join("www/package");
    let entries =
        fs::read_dir(&written).map_err(|error| format!("cannot list {}: {error}", written.display()))?;
    let written = entries.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let built = BUILT.iter().map(|file| dist.join(file));
    let licences = LICENCES.iter().map(|file| context.root.join(file));
    for path in written.chain(built).chain(licences) {
        let name = path.file_name().ok_or_else(|| format!("{} has no name", path.display()))?;
        fs::copy(&path, folder.join(name))
            .map_err(|error| format!("cannot copy {} into the package: {error}", path.display()))?;
    }
    Ok(folder)
}
