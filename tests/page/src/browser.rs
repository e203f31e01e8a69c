//! One test, one browser: a fresh profile, the built page under a sub-path, and evidence kept when the test fails.

use crate::driver::{Browser, Kind};
use crate::page::Page;
use crate::server::Server;
use crate::webdriver::Session;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Where the page is on its server: not at the root, as on many a host.
const BASE: &str = "/some/path/";
/// Names the folder of the built page.
const DIST: &str = "PAGELM_DIST";
/// How the kernel tests start the browser too.
const SWITCHES: &str = include_str!("../chromium-switches.txt");

/// Whether the browser has WebGPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gpu {
    /// Chromium's software device.
    Software,
    /// None at all.
    Missing,
}

/// Where the engine runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hosting {
    /// In a worker that all tabs share.
    Shared,
    /// In a worker of the tab that leads, because the browser has no shared ones.
    Led,
}

/// Both ways of hosting, each with its part of a test's name.
pub const HOSTINGS: [(Hosting, &str); 2] = [(Hosting::Shared, "shared"), (Hosting::Led, "led")];

/// Opens the page in a browser of its own and runs a test in it. A failure saves `NAME.png` and `NAME.log` first.
///
/// # Panics
/// If the test returns a sentence or panics.
pub fn in_page(name: &str, gpu: Gpu, test: impl FnOnce(&Page) -> Result<(), String>) {
    in_chromium(name, gpu, Hosting::Shared, test);
}

/// The same in Firefox, which on Linux has no WebGPU.
///
/// # Panics
/// If the test returns a sentence or panics.
pub fn in_firefox(name: &str, test: impl FnOnce(&Page) -> Result<(), String>) {
    in_browser(name, Kind::Firefox, Hosting::Shared, own_server(), test);
}

/// The same without a GPU, with a server of the test's own: another build of the page, or at another path.
///
/// # Panics
/// If the test returns a sentence or panics.
pub fn in_page_of(name: &str, server: Server, test: impl FnOnce(&Page) -> Result<(), String>) {
    in_browser(name, Kind::Chromium(&switches(Gpu::Missing)), Hosting::Shared, server, test);
}

/// The same in a browser that writes down all that is asked of any host, by pages, workers and itself, and reaches none but
/// this machine. Gives the addresses that any origin's page or worker asked for.
///
/// # Panics
/// If the test returns a sentence or panics, or nothing was written down.
pub fn in_watched_page(name: &str, test: impl FnOnce(&Page) -> Result<(), String>) -> Vec<String> {
    let log = folder_from("PAGELM_SCRATCH").join(format!("{name}-{}.netlog", std::process::id()));
    let log_switch = format!("--log-net-log={}", log.display());
    let mut switches = switches(Gpu::Missing);
    switches.extend([log_switch.as_str(), "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]);
    in_browser(name, Kind::Chromium(&switches), Hosting::Shared, own_server(), test);
    let text = std::fs::read_to_string(&log).unwrap_or_else(|error| panic!("{}: {error}", log.display()));
    // It is of this run alone.
    let _ = std::fs::remove_file(&log);
    asked_by_pages(&text)
}

/// The addresses in a log of Chromium's network that were asked for by an origin; what the browser asks for itself has none.
fn asked_by_pages(log: &str) -> Vec<String> {
    // An event a line; the last closes the list.
    let event = |line: &str| serde_json::from_str(line.trim_end_matches(',').trim_end_matches(']')).ok();
    let asked = |event: serde_json::Value| {
        let params = &event["params"];
        let by_origin = params["initiator"].as_str()?.contains("://");
        params["url"].as_str().filter(|_| by_origin).map(str::to_owned)
    };
    log.lines().filter_map(event).filter_map(asked).collect()
}

/// The same for a test with several tabs, once for each way of hosting the engine.
pub fn in_tabs(name: &str, test: impl Fn(&Page) -> Result<(), String>) {
    for (hosting, part) in HOSTINGS {
        let start = std::time::Instant::now();
        in_chromium(&format!("{name}-{part}"), Gpu::Software, hosting, &test);
        println!("{name}, {part}: {:.0} s", start.elapsed().as_secs_f64());
    }
}

/// The same in a browser that lets pages keep nothing.
///
/// # Panics
/// If the test returns a sentence or panics.
pub fn in_page_without_storage(name: &str, gpu: Gpu, test: impl FnOnce(&Page) -> Result<(), String>) {
    Place::new(name, own_server(), false).run(Kind::Chromium(&switches(gpu)), Hosting::Shared, test);
}

/// Two tests in one profile on one server: after the first, the browser is killed.
///
/// # Panics
/// If a test returns a sentence or panics.
pub fn in_two_lives(
    name: &str,
    gpu: Gpu,
    first: impl FnOnce(&Page) -> Result<(), String>,
    second: impl FnOnce(&Page) -> Result<(), String>,
) {
    let (place, switches) = (Place::new(name, own_server(), true), switches(gpu));
    let kind = Kind::Chromium(&switches);
    place.run(kind, Hosting::Shared, |page| first(page).and_then(|()| page.session().kill_browser()));
    place.run(kind, Hosting::Shared, second);
}

/// The folder of the page that was built for this path; as it is built by default, it works under any.
///
/// # Panics
/// If the variable that names it is not set.
pub fn built_page(is_for_path_x: bool) -> PathBuf {
    let folder = folder_from(DIST);
    if is_for_path_x { folder.with_file_name("dist-x") } else { folder }
}

/// A server of a folder at a path.
///
/// # Panics
/// If no port is free.
pub fn serve(folder: &Path, base: &'static str) -> Server {
    Server::start(folder, base).expect("a free port on 127.0.0.1")
}

fn in_chromium(name: &str, gpu: Gpu, hosting: Hosting, test: impl FnOnce(&Page) -> Result<(), String>) {
    in_browser(name, Kind::Chromium(&switches(gpu)), hosting, own_server(), test);
}

fn in_browser(
    name: &str,
    kind: Kind<'_>,
    hosting: Hosting,
    server: Server,
    test: impl FnOnce(&Page) -> Result<(), String>,
) {
    Place::new(name, server, true).run(kind, hosting, test);
}

/// A server of the built page.
fn own_server() -> Server {
    serve(&folder_from(DIST), BASE)
}

/// Where a test's browsers live, one after the other.
struct Place<'a> {
    name: &'a str,
    scratch: PathBuf,
    profile: Profile,
    server: Rc<Server>,
    stores: bool,
}

impl<'a> Place<'a> {
    fn new(name: &'a str, server: Server, stores: bool) -> Self {
        let scratch = folder_from("PAGELM_SCRATCH");
        let profile = Profile::new(&scratch, name);
        Self { name, scratch, profile, server: Rc::new(server), stores }
    }

    fn run(&self, kind: Kind<'_>, hosting: Hosting, test: impl FnOnce(&Page) -> Result<(), String>) {
        let Self { name, scratch, stores, .. } = self;
        let (driver, program) = match kind {
            Kind::Chromium(_) => (program("CHROMEDRIVER"), program("CHROMIUM")),
            Kind::Firefox => (program("GECKODRIVER"), program("FIREFOX")),
        };
        let profile = &self.profile.0;
        let browser = Browser { kind, driver: &driver, program: &program, profile, stores: *stores };
        let session = Session::start(&browser);
        let session = session.unwrap_or_else(|sentence| panic!("{name}: no browser: {sentence}"));
        let page = Page::new(session, Rc::clone(&self.server), scratch.clone(), hosting);
        let result = catch_unwind(AssertUnwindSafe(|| page.open_page().and_then(|()| test(&page))));
        if let Ok(Ok(())) = result {
            return;
        }
        save_evidence(&page, scratch, name);
        match result {
            Ok(Err(sentence)) => panic!("{name}: {sentence}"),
            Err(panic) => resume_unwind(panic),
            Ok(Ok(())) => unreachable!("returned above"),
        }
    }
}

fn switches(gpu: Gpu) -> Vec<&'static str> {
    let about_gpu = |switch: &str| switch.contains("webgpu");
    let mut switches: Vec<&str> =
        SWITCHES.lines().filter(|switch| gpu == Gpu::Software || !about_gpu(switch)).collect();
    if gpu == Gpu::Missing {
        switches.push("--disable-gpu");
    }
    switches
}

/// The console and a picture, as far as the browser still answers.
fn save_evidence(page: &Page, scratch: &Path, name: &str) {
    let folder = scratch.join("failures");
    let console = page.session().console().unwrap_or_else(|sentence| vec![sentence]);
    let shown = page.shown().unwrap_or_else(|sentence| sentence);
    let missing = page.server().missing().join("\n");
    let log =
        format!("Console\n{}\n\nNot found on the server\n{missing}\n\nShown\n{shown}\n", console.join("\n"));
    eprintln!("{name} failed; see {}\n{log}", folder.join(name).display());
    let picture = page.session().picture().ok();
    let written = std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(folder.join(format!("{name}.log")), &log))
        .and_then(|()| std::fs::write(folder.join(format!("{name}.png")), picture.unwrap_or_default()));
    if let Err(error) = written {
        eprintln!("cannot write to {}: {error}", folder.display());
    }
}

fn folder_from(variable: &str) -> PathBuf {
    let folder = std::env::var_os(variable).map(PathBuf::from);
    folder.unwrap_or_else(|| {
        panic!("{variable} is not set; run these tests with `cargo xtask test --only page`")
    })
}

fn program(variable: &str) -> PathBuf {
    folder_from(variable)
}

/// A browser profile that is removed at the end.
struct Profile(PathBuf);

impl Profile {
    fn new(scratch: &Path, name: &str) -> Self {
        Self(scratch.join("profiles").join(format!("{name}-{}", std::process::id())))
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        // The browser may still be writing its last file; what is left is overwritten by nobody.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_pages_ask_for_is_told_from_what_the_browser_does() {
        let log = "{\"constants\":{},\n\"events\": [\n\
            {\"params\":{\"initiator\":\"http://a.example\",\"url\":\"http://b.example/\"},\"type\":2},\n\
            {\"params\":{\"initiator\":\"not an origin\",\"url\":\"http://c.example/\"},\"type\":2},\n\
            {\"phase\":1,\"type\":3},\n\
            {\"params\":{\"initiator\":\"https://a.example\",\"url\":\"https://d.example/\"},\"type\":2}],\n\
            \"polledData\": {}}";
        assert_eq!(asked_by_pages(log), ["http://b.example/", "https://d.example/"]);
    }

    #[test]
    fn without_a_gpu_no_switch_gives_one() {
        assert!(switches(Gpu::Software).iter().any(|switch| switch.contains("swiftshader")));
        assert!(!switches(Gpu::Missing).iter().any(|switch| switch.contains("webgpu")));
    }
}
