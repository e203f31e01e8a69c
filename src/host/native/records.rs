//! Which GPUs compute rightly, in files of the user's cache folder: one a verdict.
//!
//! Invariant: a file that is not whole, or of another key, is none; a folder that cannot be written loses time alone.

use std::env;
use std::fs;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::PathBuf;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, ready};

use crate::host::check::Records;

/// Verdicts in a folder.
#[derive(Debug)]
pub struct FileRecords {
    folder: PathBuf,
}

impl FileRecords {
    /// In this folder, which need not be there yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self { folder: folder.into() }
    }

    /// In the folder that the system has for what can be made anew, if it names one; `PAGELM_CACHE_DIR` names another.
    pub fn of_user() -> Option<Self> {
        let folder =
            |variable: &str| env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        let of_home = |below: &str| folder("HOME").map(|home| home.join(below));
        let of_system = || match env::consts::OS {
            "windows" => folder("LOCALAPPDATA"),
            "macos" => of_home("Library/Caches"),
            _ => folder("XDG_CACHE_HOME").or_else(|| of_home(".cache")),
        };
        let own = folder("PAGELM_CACHE_DIR").or_else(|| Some(of_system()?.join("pagelm")));
        own.map(|own| Self::new(own.join("checks")))
    }

    fn path(&self, key: &str) -> PathBuf {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        self.folder.join(format!("{:016x}.txt", hasher.finish()))
    }

    fn write(&self, key: &str, text: &str) -> std::io::Result<()> {
        fs::create_dir_all(&self.folder)?;
        let path = self.path(key);
        // Another process may read meanwhile.
        let unfinished = path.with_extension(format!("{}.part", std::process::id()));
        fs::write(&unfinished, format!("{key}\n{text}"))?;
        fs::rename(unfinished, path)
    }
}

impl Records for FileRecords {
    fn recall<'a>(&'a self, key: &'a str) -> LocalBoxFuture<'a, Option<String>> {
        let kept = fs::read_to_string(self.path(key)).ok();
        let text = kept.and_then(|kept| Some(kept.strip_prefix(key)?.strip_prefix('\n')?.to_owned()));
        ready(text).boxed_local()
    }

    fn keep<'a>(&'a self, key: &'a str, text: &'a str) -> LocalBoxFuture<'a, ()> {
        // Where nothing can be kept, it is found again each time.
        let _ = self.write(key, text);
        ready(()).boxed_local()
    }
}
