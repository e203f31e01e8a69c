//! Gives the build a name made from its source, so that a page and an engine of different builds can tell.

use std::path::{Path, PathBuf};

fn main() -> std::io::Result<()> {
    let mut files = Vec::new();
    for root in ["src", "www/engine_worker.js", "Cargo.lock"] {
        println!("cargo::rerun-if-changed={root}");
        collect(Path::new(root), &mut files)?;
    }
    files.sort();
    // FNV-1a (Fowler, Noll and Vo): the same on every machine, and no dependency.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for file in files {
        for byte in std::fs::read(file)? {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=PAGELM_BUILD={hash:016x}");
    Ok(())
}

fn collect(path: &Path, files: &mut Vec<PathBuf>) -> std::io::Result<()> {
    if path.is_dir() {
        for entry in std::fs::read_dir(path)? {
            collect(&entry?.path(), files)?;
        }
    } else {
        files.push(path.to_owned());
    }
    Ok(())
}
