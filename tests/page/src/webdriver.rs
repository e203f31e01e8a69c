//! A WebDriver client over one local connection a call: the driver and its browser end with the value that started them.

use crate::driver::{Browser, Driver};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// No single call takes longer; what takes minutes is polled.
const CALL_LIMIT: Duration = Duration::from_secs(120);
/// The name under which the protocol passes elements.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A browser window driven through chromedriver or geckodriver.
pub struct Session {
    driver: Driver,
    id: String,
    browser_process: Option<u64>,
    /// Of Chromium's own developer tools.
    tools_port: Option<u16>,
    /// The window that calls are about.
    window: RefCell<String>,
}

/// An element of the page that is open.
#[derive(Debug, Clone)]
pub struct Element(String);

impl Session {
    /// Starts a driver on a free port, and a headless browser with a fresh profile.
    pub fn start(browser: &Browser<'_>) -> Result<Self, String> {
        let driver = Driver::start(browser)?;
        let mut session = Self {
            driver,
            id: String::new(),
            browser_process: None,
            tools_port: None,
            window: RefCell::default(),
        };
        let created = session.call(
            "POST",
            "/session",
            Some(json!({ "capabilities": { "alwaysMatch": browser.capabilities() } })),
        )?;
        session.id = created["sessionId"].as_str().ok_or("the driver named no session")?.to_string();
        let capabilities = &created["capabilities"];
        let process = ["goog:processID", "moz:processID"].iter().find_map(|name| capabilities[name].as_u64());
        session.browser_process = process;
        let tools = capabilities["goog:chromeOptions"]["debuggerAddress"].as_str();
        session.tools_port = tools.and_then(|address| address.rsplit(':').next()?.parse().ok());
        session.window.replace(session.first_window()?);
        Ok(session)
    }

    /// Opens a URL and waits for its load event.
    pub fn open(&self, url: &str) -> Result<(), String> {
        self.post("url", json!({ "url": url })).map(drop)
    }

    /// The window that is open at the start.
    fn first_window(&self) -> Result<String, String> {
        self.get("window")?.as_str().map(str::to_string).ok_or_else(|| "there is no window".into())
    }

    /// The window that calls are about.
    pub fn window(&self) -> String {
        self.window.borrow().clone()
    }

    /// Opens another window, in a process of its own where the browser may, and turns to it.
    pub fn open_window(&self) -> Result<String, String> {
        let opened = self.post("window/new", json!({ "type": "tab" }))?;
        let window = opened["handle"].as_str().ok_or("the new window has no name")?.to_string();
        self.turn_to(&window)?;
        Ok(window)
    }

    /// Makes the calls that follow be about a window.
    pub fn turn_to(&self, window: &str) -> Result<(), String> {
        if *self.window.borrow() != window {
            self.post("window", json!({ "handle": window }))?;
            self.window.replace(window.to_string());
        }
        Ok(())
    }

    /// Closes the window that calls are about; turn to another one then.
    pub fn close_window(&self) -> Result<(), String> {
        self.call("DELETE", &format!("/session/{}/window", self.id), None)?;
        self.window.take();
        Ok(())
    }

    /// A command of the developer tools' protocol for the window.
    pub fn tool(&self, command: &str, parameters: Value) -> Result<Value, String> {
        self.post("goog/cdp/execute", json!({ "cmd": command, "params": parameters }))
    }

    /// The shared workers that run, by names that are never used again.
    pub fn shared_workers(&self) -> Result<Vec<String>, String> {
        let (_, answer) = exchange(self.tools_port()?, "GET", "/json/list", "").map_err(|e| e.to_string())?;
        let targets: Vec<Value> = serde_json::from_slice(&answer).map_err(|error| error.to_string())?;
        let workers = targets.iter().filter(|target| target["type"] == "shared_worker");
        Ok(workers.filter_map(|target| target["id"].as_str()).map(str::to_string).collect())
    }

    fn tools_port(&self) -> Result<u16, String> {
        self.tools_port.ok_or_else(|| "the driver named no address of the developer tools".into())
    }

    /// Ends a shared worker, as the browser's own task manager does.
    pub fn end_worker(&self, id: &str) -> Result<(), String> {
        let ended = exchange(self.tools_port()?, "GET", &format!("/json/close/{id}"), "");
        match ended.map_err(|error| error.to_string())? {
            (200, _) => Ok(()),
            (status, _) => Err(format!("the worker was not ended (HTTP {status})")),
        }
    }

    /// Has a shared worker's loop run for ever.
    pub fn hang_worker(&self, id: &str) -> Result<(), String> {
        let attached = self.tool("Target.attachToTarget", json!({ "targetId": id, "flatten": false }))?;
        let endless =
            json!({ "id": 1, "method": "Runtime.evaluate", "params": { "expression": "for (;;);" } });
        let message = json!({ "sessionId": attached["sessionId"], "message": endless.to_string() });
        self.tool("Target.sendMessageToTarget", message).map(drop)
    }

    /// Kills the browser, as a crash or a power cut would. Nothing can be asked of it any more.
    pub fn kill_browser(&self) -> Result<(), String> {
        let id = self.browser_process.ok_or("the driver named no process of its browser")?;
        let status = Command::new("kill").args(["-KILL", &id.to_string()]).status();
        match status.map_err(|error| format!("cannot run kill: {error}"))?.success() {
            true => Ok(()),
            false => Err(format!("the browser's process {id} could not be killed")),
        }
    }

    /// Goes back to the page before, as the browser's own button does.
    pub fn back(&self) -> Result<(), String> {
        self.post("back", json!({})).map(drop)
    }

    /// Runs a function body in the page and returns what it returns.
    pub fn run(&self, script: &str, arguments: Value) -> Result<Value, String> {
        self.post("execute/sync", json!({ "script": script, "args": arguments }))
    }

    /// All elements that a CSS selector names, in document order.
    pub fn find(&self, selector: &str) -> Result<Vec<Element>, String> {
        let found = self.post("elements", json!({ "using": "css selector", "value": selector }))?;
        let elements = found.as_array().ok_or("the driver returned no list of elements")?;
        Ok(elements
            .iter()
            .filter_map(|element| element[ELEMENT].as_str())
            .map(|id| Element(id.into()))
            .collect())
    }

    /// What assistive technology calls the element.
    pub fn label(&self, element: &Element) -> Result<String, String> {
        self.text_of(element, "computedlabel")
    }

    /// What assistive technology takes the element for.
    pub fn role(&self, element: &Element) -> Result<String, String> {
        self.text_of(element, "computedrole")
    }

    /// The element's text as it is shown.
    pub fn text(&self, element: &Element) -> Result<String, String> {
        self.text_of(element, "text")
    }

    /// Whether the element is shown and reacts.
    pub fn is_usable(&self, element: &Element) -> Result<bool, String> {
        let enabled = self.get(&format!("element/{}/enabled", element.0))?;
        let shown = self.get(&format!("element/{}/displayed", element.0))?;
        Ok(enabled == Value::Bool(true) && shown == Value::Bool(true))
    }

    /// Presses the element with the mouse.
    pub fn click(&self, element: &Element) -> Result<(), String> {
        self.post(&format!("element/{}/click", element.0), json!({})).map(drop)
    }

    /// Types into the element; for a file input, names a file.
    pub fn type_into(&self, element: &Element, text: &str) -> Result<(), String> {
        self.post(&format!("element/{}/value", element.0), json!({ "text": text })).map(drop)
    }

    /// Presses and releases keys, one after the other, wherever the focus is. Shift is held until the end.
    pub fn press_keys(&self, keys: &str) -> Result<(), String> {
        let press = |key: char| {
            let key = key.to_string();
            let down = json!({ "type": "keyDown", "value": key });
            let up = json!({ "type": "keyUp", "value": key });
            if key == crate::page::keys::SHIFT { vec![down] } else { vec![down, up] }
        };
        let actions: Vec<Value> = keys.chars().flat_map(press).collect();
        self.post("actions", json!({ "actions": [{ "type": "key", "id": "keys", "actions": actions }] }))?;
        self.call("DELETE", &format!("/session/{}/actions", self.id), None).map(drop)
    }

    /// Shows the page as somebody sees it who prefers such colours and, if `is_still`, less motion.
    pub fn prefer(&self, scheme: &str, is_still: bool) -> Result<(), String> {
        let motion = if is_still { "reduce" } else { "no-preference" };
        let features = json!([
            { "name": "prefers-color-scheme", "value": scheme },
            { "name": "prefers-reduced-motion", "value": motion },
        ]);
        self.tool("Emulation.setEmulatedMedia", json!({ "features": features })).map(drop)
    }

    /// Sets the size of the page's view in CSS pixels, also below what a window allows.
    pub fn set_view(&self, width: u32, height: u32) -> Result<(), String> {
        let parameters = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.tool("Emulation.setDeviceMetricsOverride", parameters).map(drop)
    }

    /// What the console said since the last call, one entry a line.
    pub fn console(&self) -> Result<Vec<String>, String> {
        if self.driver.tells_console() {
            return Ok(self.driver.take_said());
        }
        let entries = self.post("se/log", json!({ "type": "browser" }))?;
        let entries = entries.as_array().ok_or("the driver returned no log")?;
        let line = |entry: &Value| {
            format!("{} {}", entry["level"].as_str().unwrap_or("?"), entry["message"].as_str().unwrap_or("?"))
        };
        Ok(entries.iter().map(line).collect())
    }

    /// What is shown, as a PNG file.
    pub fn picture(&self) -> Result<Vec<u8>, String> {
        let taken = self.get("screenshot")?;
        taken.as_str().and_then(decode_base64).ok_or_else(|| "the driver returned no picture".into())
    }

    fn text_of(&self, element: &Element, what: &str) -> Result<String, String> {
        let text = self.get(&format!("element/{}/{what}", element.0))?;
        text.as_str().map(str::to_string).ok_or_else(|| format!("the driver returned no {what}"))
    }

    fn get(&self, path: &str) -> Result<Value, String> {
        self.call("GET", &format!("/session/{}/{path}", self.id), None)
    }

    fn post(&self, path: &str, body: Value) -> Result<Value, String> {
        self.call("POST", &format!("/session/{}/{path}", self.id), Some(body))
    }

    /// One call; the `value` of its answer, or the driver's message.
    fn call(&self, method: &str, path: &str, body: Option<Value>) -> Result<Value, String> {
        let body = body.map_or_else(String::new, |body| body.to_string());
        let (status, answer) = exchange(self.driver.port(), method, path, &body)
            .map_err(|error| format!("the driver did not answer {method} {path}: {error}"))?;
        let mut answer: Value = serde_json::from_slice(&answer).map_err(|error| {
            format!("the driver's answer to {method} {path} (HTTP {status}) is not JSON: {error}")
        })?;
        let value = answer["value"].take();
        if status == 200 {
            return Ok(value);
        }
        // The first line says it; the rest is the driver's own stack.
        let message =
            value["message"].as_str().and_then(|message| message.lines().next()).unwrap_or_default();
        Err(format!(
            "{method} {path}: {}: {message}",
            value["error"].as_str().unwrap_or("no WebDriver error")
        ))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // A browser ends with its session; whatever does not is ended by its id.
        if !self.id.is_empty() {
            let _ = self.call("DELETE", &format!("/session/{}", self.id), None);
        }
        self.driver.end();
        if let Some(id) = self.browser_process.filter(|id| Path::new(&format!("/proc/{id}")).exists()) {
            let _ = Command::new("kill").args(["-KILL", &id.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// Standard base64, padding optional; nothing where a character is foreign.
fn decode_base64(text: &str) -> Option<Vec<u8>> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut n_bits) = (0_u32, 0);
    for character in text.trim_end_matches('=').bytes() {
        let value = ALPHABET.iter().position(|letter| *letter == character)?;
        bits = bits << 6 | u32::try_from(value).ok()?;
        n_bits += 6;
        if n_bits >= 8 {
            n_bits -= 8;
            bytes.push(u8::try_from(bits >> n_bits & 0xff).ok()?);
        }
    }
    Some(bytes)
}

/// One HTTP exchange with a server that states the length of its answer: the answer's status and body.
fn exchange(port: u16, method: &str, path: &str, body: &str) -> std::io::Result<(u16, Vec<u8>)> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(CALL_LIMIT))?;
    write!(
        stream,
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    )?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let status = line.split_whitespace().nth(1).and_then(|word| word.parse().ok()).unwrap_or_default();
    let mut n_bytes = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            n_bytes = value.trim().parse().map_err(std::io::Error::other)?;
        }
        if line.trim().is_empty() {
            break;
        }
    }
    let mut answer = Vec::new();
    reader.take(n_bytes).read_to_end(&mut answer)?;
    Ok((status, answer))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(decode_base64("aGVsbG8="), Some(b"hello".to_vec()));
        assert_eq!(decode_base64("aGVsbG8h"), Some(b"hello!".to_vec()));
        assert_eq!(decode_base64("a-b"), None);
    }
}
