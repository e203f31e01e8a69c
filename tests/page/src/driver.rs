//! The process that drives a browser. It ends with the value that started it, and the browser with its session.

use serde_json::{Value, json};
use std::collections::VecDeque;
use std::io::{BufRead as _, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A driver names its port within this.
const START: Duration = Duration::from_secs(60);
/// How often it is started where it finds no port.
const MOST_STARTS: usize = 3;
/// Lines that are kept of what it and its browser say.
const MOST_LINES: usize = 1000;

/// A browser and its driver, and how they are started.
pub struct Browser<'a> {
    /// Which one.
    pub kind: Kind<'a>,
    /// chromedriver or geckodriver.
    pub driver: &'a Path,
    /// The browser.
    pub program: &'a Path,
    /// A folder for its profile.
    pub profile: &'a Path,
    /// Whether pages may keep anything; Chromium alone can be told not to let them.
    pub stores: bool,
}

/// The browsers that the page is used in.
#[derive(Debug, Clone, Copy)]
pub enum Kind<'a> {
    /// Chromium, or Chrome, with these switches.
    Chromium(&'a [&'a str]),
    /// Firefox as it comes.
    Firefox,
}

impl Browser<'_> {
    /// What a session is asked to be.
    pub(crate) fn capabilities(&self) -> Value {
        match self.kind {
            Kind::Chromium(switches) => {
                let profile = format!("--user-data-dir={}", self.profile.display());
                let switches: Vec<&str> = switches.iter().copied().chain([profile.as_str()]).collect();
                // What blocks cookies blocks every kind of storage.
                let cookies = if self.stores { 1 } else { 2 };
                let prefs = json!({ "profile.default_content_setting_values.cookies": cookies });
                json!({
                    "goog:chromeOptions": { "binary": self.program, "args": switches, "prefs": prefs },
                    "goog:loggingPrefs": { "browser": "ALL" },
                    "unhandledPromptBehavior": "ignore",
                })
            }
            Kind::Firefox => json!({
                "moz:firefoxOptions": {
                    "binary": self.program,
                    "args": ["-headless"],
                    "prefs": { "devtools.console.stdout.content": true },
                },
                "unhandledPromptBehavior": "ignore",
            }),
        }
    }

    fn driver_arguments(&self) -> Vec<String> {
        match self.kind {
            Kind::Chromium(_) => ["--port=0".into()].into(),
            Kind::Firefox => {
                let profile = self.profile.display().to_string();
                ["--port", "0", "--websocket-port", "0", "--profile-root", &profile].map(String::from).into()
            }
        }
    }

    /// What stands before the port where the driver names it.
    fn before_port(&self) -> &'static str {
        match self.kind {
            Kind::Chromium(_) => "started successfully on port ",
            Kind::Firefox => "Listening on 127.0.0.1:",
        }
    }
}

/// A driver that listens.
pub(crate) struct Driver {
    child: Child,
    port: u16,
    /// Whether the browser's console is among what it says.
    tells_console: bool,
    said: Said,
}

/// The last lines that were said.
type Said = Arc<Mutex<VecDeque<String>>>;

impl Driver {
    /// Starts it on a free port. Chromium's takes one for IPv6 and then may find that of IPv4 taken: it is started again.
    pub(crate) fn start(browser: &Browser<'_>) -> Result<Self, String> {
        let mut started = Self::try_to_start(browser);
        for _ in 1..MOST_STARTS {
            if started.is_err() {
                started = Self::try_to_start(browser);
            }
        }
        started
    }

    fn try_to_start(browser: &Browser<'_>) -> Result<Self, String> {
        std::fs::create_dir_all(browser.profile)
            .map_err(|error| format!("cannot make {}: {error}", browser.profile.display()))?;
        let cannot_start = |error| format!("cannot start {}: {error}", browser.driver.display());
        let mut child = Command::new(browser.driver)
            .args(browser.driver_arguments())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(cannot_start)?;
        let (sender, ports) = channel();
        let said = Arc::default();
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        read(
            stdout.ok_or("the driver's stdout was not piped")?,
            &said,
            Some((browser.before_port(), sender)),
        );
        read(stderr.ok_or("the driver's stderr was not piped")?, &said, None);
        let tells_console = matches!(browser.kind, Kind::Firefox);
        let mut driver = Self { child, port: 0, tells_console, said };
        driver.port = driver.named(&ports)?;
        Ok(driver)
    }

    fn named(&mut self, ports: &Receiver<u16>) -> Result<u16, String> {
        ports.recv_timeout(START).map_err(|_late| {
            self.end();
            format!("the driver named no port, but said: {}", self.take_said().join("\n"))
        })
    }

    /// Where it listens.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Whether the browser's console is among what it says.
    pub(crate) fn tells_console(&self) -> bool {
        self.tells_console
    }

    /// What it said since the last call.
    pub(crate) fn take_said(&self) -> Vec<String> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }

    /// Ends it.
    pub(crate) fn end(&mut self) {
        // One that ended by itself cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads to the end, so that the driver never blocks on a full pipe; the port goes to whoever waits for it.
fn read(output: impl Read + Send + 'static, said: &Said, mut port: Option<(&'static str, Sender<u16>)>) {
    let said = said.clone();
    std::thread::spawn(move || {
        for bytes in BufReader::new(output).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&bytes).into_owned();
            if let Some((before, sender)) = &port
                && let Some((_, number)) = line.split_once(before)
                && let Ok(number) = number.trim_end_matches('.').parse()
            {
                // Nobody waits any more where the driver was too slow.
                let _ = sender.send(number);
                port = None;
            }
            let mut said = said.lock().unwrap_or_else(PoisonError::into_inner);
            if said.len() == MOST_LINES {
                said.pop_front();
            }
            said.push_back(line);
        }
    });
}
