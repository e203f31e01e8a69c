//! Where the engine of this page's address is found: names that two copies of the page on one origin do not share.

use js_sys::{Math, Reflect};

use super::envelope::Heard;

/// Where the engine's worker script lies, relative to the page.
pub(super) const WORKER_SCRIPT: &str = "engine_worker.js";

/// The path below which the page's files are.
fn base() -> String {
    let uri = web_sys::window().and_then(|window| window.document()?.base_uri().ok().flatten());
    uri.as_deref().map_or_else(String::new, |uri| folder(uri).to_owned())
}

/// The path of a URL without its last part.
fn folder(url: &str) -> &str {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let path = url.split_once("://").and_then(|(_, rest)| rest.find('/').map(|start| &rest[start..]));
    path.and_then(|path| path.rfind('/').map(|end| &path[..=end])).unwrap_or("/")
}

/// A lock, channel or note of this page's address. www/engine_worker.js and the engine make the same names.
pub(super) fn name(what: &str) -> String {
    format!("pagelm {what} {}", base())
}

/// A name that nothing else has.
pub(super) fn random_name(what: &str) -> String {
    let part = || (Math::random() * 4_294_967_296.0) as u32;
    format!("pagelm {what} {:08x}{:08x}{:08x}", part(), part(), part())
}

/// The number of the engine that tabs use now: a person who gives up on a silent one makes it greater, for all tabs.
/// Kept where all tabs of the origin see it; 0 where that is not to be had.
pub(super) fn generation() -> u32 {
    storage()
        .and_then(|storage| storage.get_item(&name("generation")).ok().flatten()?.parse().ok())
        .unwrap_or(0)
}

/// Makes the number greater. Other tabs hear a `storage` event.
pub(super) fn next_generation() {
    let next = generation().wrapping_add(1).to_string();
    // Where nothing can be kept, the silent engine stays the only one.
    let _ = storage().map(|storage| storage.set_item(&name("generation"), &next));
}

fn storage() -> Option<web_sys::Storage> {
    web_sys::window().and_then(|window| window.local_storage().ok().flatten())
}

/// What an error event of a worker means. Its text is empty where the script itself could not be fetched.
pub(super) fn worker_error(event: &web_sys::Event) -> Heard {
    // An `Event`, not an `ErrorEvent`, comes where the script is missing, and has no such field.
    let message = Reflect::get(event, &"message".into()).ok().and_then(|message| message.as_string());
    match message.filter(|message| !message.is_empty()) {
        Some(message) => Heard::Fatal(format!("The engine stopped: {message}.")),
        None => Heard::Broken(format!(
            "The engine did not start: {WORKER_SCRIPT} beside this page could not be loaded; reload the page."
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_known_by_its_folder() {
        for (url, path) in [
            ("http://localhost:8080/", "/"),
            ("https://a.example", "/"),
            ("https://a.example/some/path/", "/some/path/"),
            ("https://a.example/some/path/index.html?x=/y/#/z", "/some/path/"),
        ] {
            assert_eq!(folder(url), path, "{url}");
        }
    }
}
