//! What Trunk cannot do to the page it built: the service worker is told the files and their hashes, and no script is inline.
//!
//! Invariant: a page that is built to be served by others has a service worker; one that `trunk serve` rebuilds has none, and
//! ends one that was there, so that nobody who develops it meets an older page.

use crate::process::Result;
use sha2::{Digest as _, Sha256, Sha384};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// Trunk says where it builds before the page takes the place of the one before.
const STAGING: &str = "TRUNK_STAGING_DIR";
const PAGE: &str = "index.html";
const SERVICE_WORKER: &str = "service_worker.js";
/// Ends the one of a page that was served at the same address before.
const NO_SERVICE_WORKER: &str = include_str!("no_service_worker.js");
/// Stands in the page for its service worker's script.
const MARK: &str = "<meta name=\"service-worker\" content=\"service_worker.js\" />";
/// The engine keeps models in a place of their own.
const MODELS: &str = "models";
/// A host may have other models than the build, so it has no hash.
const CATALOGUE: &str = "models.json";
/// In the script by which `trunk serve` has the page reload; it replaces them in HTML only.
const ADDRESS: &str = "'{{__TRUNK_ADDRESS__}}'";
const BASE: &str = "'{{__TRUNK_WS_BASE__}}'";
/// Where that script goes.
const RELOAD: &str = "autoreload.js";
const CONNECT: &str = "connect-src 'self'";

/// Finishes the page in Trunk's staging folder.
pub(crate) fn write() -> Result<()> {
    let folder = std::env::var_os(STAGING)
        .map(PathBuf::from)
        .ok_or_else(|| format!("{STAGING} is not set: Trunk runs this as it builds the page"))?;
    let page = read(&folder.join(PAGE))?;
    let page = if page.contains(ADDRESS) {
        put(&folder.join(SERVICE_WORKER), NO_SERVICE_WORKER)?;
        let (page, script) = without_inline_script(&page)?;
        put(&folder.join(RELOAD), &script)?;
        page
    } else {
        page
    };
    if let Some(script) = inline_script(&page) {
        return Err(format!("{PAGE} has an inline script, which its policy forbids: {script}"));
    }
    put(&folder.join(PAGE), &page)?;
    if page.contains(MARK) {
        // After the page was written: its hash is in the list.
        let worker = folder.join(SERVICE_WORKER);
        let script = read(&worker)?;
        put(&worker, &format!("{}{script}", list(&files(&folder)?)))?;
    }
    Ok(())
}

/// The page as `trunk serve` needs it: its script in a file, and no service worker.
fn without_inline_script(page: &str) -> Result<(String, String)> {
    const START: &str = "<script>";
    const END: &str = "</script>";
    let (before, rest) =
        page.split_once(START).ok_or("Trunk's script that reloads the page was not found")?;
    let (script, after) = rest.split_once(END).ok_or("Trunk's script that reloads the page has no end")?;
    let page = format!("{before}<script src=\"{RELOAD}\">{END}{after}").replace(MARK, "");
    // Older browsers do not count a socket to the same host as the same place.
    let page = page.replace(CONNECT, &format!("{CONNECT} ws:"));
    let script = script
        .replace(ADDRESS, "window.location.host")
        .replace(BASE, "new URL('.', document.baseURI).pathname");
    Ok((page, script))
}

/// The beginning of a script that stands in the page itself.
fn inline_script(page: &str) -> Option<&str> {
    let scripts = page.match_indices("<script").map(|(place, _)| &page[place..]);
    let tag = |script: &str| script.split('>').next().unwrap_or_default().to_owned();
    scripts.into_iter().find(|script| !tag(script).contains("src=")).and_then(|script| script.lines().next())
}

/// The page's own files by their addresses, each with its hash; no hash where the host may have another.
fn files(folder: &Path) -> Result<BTreeMap<String, Option<String>>> {
    let mut files = BTreeMap::new();
    let entries =
        fs::read_dir(folder).map_err(|error| format!("cannot list {}: {error}", folder.display()))?;
    for path in entries.filter_map(|entry| entry.ok().map(|entry| entry.path())) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name == SERVICE_WORKER || name == MODELS {
            continue;
        }
        if path.is_dir() {
            return Err(format!("the page has a folder {name}, whose files {SERVICE_WORKER} would not keep"));
        }
        let bytes = fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        let hash = (name != CATALOGUE).then(|| format!("sha384-{}", base64(&Sha384::digest(bytes))));
        files.insert(if name == PAGE { "./".into() } else { name }, hash);
    }
    Ok(files)
}

/// The list as the service worker reads it. The version is a name of all that is in it.
fn list(files: &BTreeMap<String, Option<String>>) -> String {
    let entry = |(name, hash): (&String, &Option<String>)| {
        let hash = hash.as_ref().map_or_else(|| "null".to_owned(), |hash| format!("{hash:?}"));
        format!("  {name:?}: {hash},\n")
    };
    let entries: String = files.iter().map(entry).collect();
    let digest = Sha256::digest(entries.as_bytes());
    let version = digest.iter().take(8).fold(String::new(), |mut version, byte| {
        let _ = write!(version, "{byte:02x}");
        version
    });
    format!("const VERSION = {version:?};\nconst FILES = {{\n{entries}}};\n\n")
}

/// Standard base64, padded.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().fold(0, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - group.len()));
        for place in 0..4 {
            let index = bits >> (18 - 6 * place) & 63;
            text.push(if place <= group.len() { char::from(ALPHABET[index as usize]) } else { '=' });
        }
    }
    text
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
}

fn put(path: &Path, text: &str) -> Result<()> {
    fs::write(path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_padded() {
        for (bytes, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            assert_eq!(base64(bytes.as_bytes()), text, "{bytes}");
        }
    }

    #[test]
    fn an_inline_script_is_found() {
        let page = "<script type=\"module\" src=\"./start.js\"></script><p>script</p>";
        assert_eq!(inline_script(page), None);
        let page = format!("{page}<script>\"use strict\"</script>");
        assert_eq!(inline_script(&page), Some("<script>\"use strict\"</script>"));
    }

    #[test]
    fn a_page_under_development_has_its_script_in_a_file_and_no_service_worker() {
        let page =
            format!("{CONNECT} https:; {MARK}<script>const a = {ADDRESS}, b = {BASE};</script></body>");
        let (page, script) = without_inline_script(&page).expect("a script");
        assert_eq!(page, "connect-src 'self' ws: https:; <script src=\"autoreload.js\"></script></body>");
        assert_eq!(script, "const a = window.location.host, b = new URL('.', document.baseURI).pathname;");
        assert_eq!(inline_script(&page), None);
    }

    #[test]
    fn the_version_names_what_is_in_the_list() {
        let files =
            |hash: &str| BTreeMap::from([("./".into(), Some(hash.into())), ("models.json".into(), None)]);
        let one = list(&files("sha384-a"));
        assert!(one.contains("  \"./\": \"sha384-a\",\n  \"models.json\": null,\n"), "{one}");
        assert_ne!(one.lines().next(), list(&files("sha384-b")).lines().next());
    }
}
