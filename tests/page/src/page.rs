//! What a person does with the page and sees in it. Controls are found as assistive technology finds them: by role and name.

use crate::browser::Hosting;
use crate::server::Server;
use crate::webdriver::{Element, Session};
use pagelm::protocol::{Event, Request, Status};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// The page starts within this, on a busy machine too.
const START: Duration = Duration::from_secs(60);
/// Fetching 98 MB from this machine, putting them on the device and compiling the kernels in software.
const LOAD: Duration = Duration::from_secs(300);
/// The first model of www/models.json.
const DEFAULT_MODEL: &str = "SmolLM2 135M Instruct";
/// Between two looks at the page.
const PAUSE: Duration = Duration::from_millis(200);

/// The keys that are not characters, as WebDriver names them.
pub mod keys {
    /// Enter.
    pub const ENTER: &str = "\u{e007}";
    /// Shift, held until the end of what is typed.
    pub const SHIFT: &str = "\u{e008}";
    /// Control, held until the end of what is typed, or until it comes again.
    pub const CONTROL: &str = "\u{e009}";
    /// Tab.
    pub const TAB: &str = "\u{e004}";
    /// Delete.
    pub const DELETE: &str = "\u{e017}";
    /// End.
    pub const END: &str = "\u{e010}";
    /// Esc.
    pub const ESCAPE: &str = "\u{e00c}";
}

/// The open page.
pub struct Page {
    session: Rc<Session>,
    window: String,
    server: Rc<Server>,
    scratch: PathBuf,
    hosting: Hosting,
    n_asked: Cell<u64>,
}

/// Requests on their way.
#[derive(Debug, Clone, Copy)]
pub struct Asked(u64);

impl Page {
    /// A page that `server` serves and `session` shows; files for it are made in `scratch`.
    pub(crate) fn new(session: Session, server: Rc<Server>, scratch: PathBuf, hosting: Hosting) -> Self {
        let window = session.window();
        let session = Rc::new(session);
        Self { session, window, server, scratch, hosting, n_asked: Cell::new(0) }
    }

    /// The same page in another tab.
    pub fn open_tab(&self) -> Result<Self, String> {
        let tab = self.open_window()?;
        tab.open_page()?;
        Ok(tab)
    }

    /// An empty tab of the same browser.
    pub fn open_window(&self) -> Result<Self, String> {
        Ok(Self {
            session: self.session.clone(),
            window: self.session.open_window()?,
            server: self.server.clone(),
            scratch: self.scratch.clone(),
            hosting: self.hosting,
            n_asked: Cell::new(0),
        })
    }

    /// Closes the tab.
    pub fn close(self) -> Result<(), String> {
        self.session().close_window()
    }

    /// Ends the process that shows the tab, and all that runs in it.
    pub fn crash(&self) {
        // The call cannot succeed: who would answer it?
        let _ = self.session().open("chrome://crash");
    }

    /// Where the engine runs.
    pub fn hosting(&self) -> Hosting {
        self.hosting
    }

    /// The browser, turned to this tab, for what only a test can do.
    pub fn session(&self) -> &Session {
        // Where the tab is gone, the call that follows says so.
        let _ = self.session.turn_to(&self.window);
        &self.session
    }

    /// The server that the page came from.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// A file of this name for the page to open.
    pub fn write_file(&self, name: &str, bytes: &[u8]) -> Result<PathBuf, String> {
        let path = self.scratch.join("files").join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(&path))
            .and_then(|()| std::fs::write(&path, bytes))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        Ok(path)
    }

    /// Opens the page and waits for its text box.
    pub fn open_page(&self) -> Result<(), String> {
        if self.hosting == Hosting::Led {
            let hide = json!({ "source": "delete window.SharedWorker;" });
            self.session().tool("Page.addScriptToEvaluateOnNewDocument", hide)?;
        }
        self.session().open(&self.server.url())?;
        self.wait_for_page()
    }

    /// Waits for the text box of a page that is being opened.
    pub fn wait_for_page(&self) -> Result<(), String> {
        self.within(START, "the text box \"Message\"", || Ok(self.message_box()?.map(drop)))
    }

    /// Loads the default model with the picker and waits until it answers.
    pub fn load_default_model(&self) -> Result<(), String> {
        self.start_loading()?;
        self.wait_for_model()
    }

    /// Sets one of the settings with which the next model is loaded, by the id of its box.
    pub fn choose_setting(&self, id: &str, value: &str) -> Result<(), String> {
        let script = "const box = document.getElementById(arguments[0]);
            box.value = arguments[1];
            box.dispatchEvent(new Event('change', { bubbles: true }));
            return box.value === arguments[1]";
        if self.session().run(script, json!([id, value]))? != json!(true) {
            return Err(format!("the page has no {id} {value}"));
        }
        Ok(())
    }

    /// Presses the default model's button in the picker.
    pub fn start_loading(&self) -> Result<(), String> {
        for alert in self.session().find("[role=alert] button")? {
            self.session().click(&alert)?;
        }
        self.press(&format!("Load {DEFAULT_MODEL}"))
    }

    /// Waits until the default model answers.
    pub fn wait_for_model(&self) -> Result<(), String> {
        self.within(LOAD, &format!("{DEFAULT_MODEL} as the model that answers"), || {
            if let Some(alert) = self.alerts()?.first() {
                return Err(format!("loading failed: {alert}"));
            }
            Ok(self.button(&format!("Model: {DEFAULT_MODEL}"))?.map(drop))
        })
    }

    /// Types a message and sends it.
    pub fn ask(&self, text: &str) -> Result<(), String> {
        self.type_message(text)?;
        self.press("Send")
    }

    /// Types into the text box "Message".
    pub fn type_message(&self, text: &str) -> Result<(), String> {
        let message_box = self.message_box()?.ok_or("there is no text box \"Message\"")?;
        self.session().type_into(&message_box, text)
    }

    /// Empties the text box "Message".
    pub fn clear_message(&self) -> Result<(), String> {
        let message_box = self.message_box()?.ok_or("there is no text box \"Message\"")?;
        self.session.type_into(&message_box, &format!("{}a{}{}", keys::CONTROL, keys::CONTROL, keys::DELETE))
    }

    /// What stands in the text box "Message".
    pub fn message(&self) -> Result<String, String> {
        let script = "return document.querySelector('#message').value";
        Ok(self.session().run(script, json!([]))?.as_str().unwrap_or_default().to_string())
    }

    /// Presses a button by its name, once it can be pressed.
    pub fn press(&self, name: &str) -> Result<(), String> {
        let button =
            self.within(START, &format!("a button {name:?} that can be pressed"), || self.button(name))?;
        self.session().click(&button)
    }

    /// Whether a button of this name can be pressed now.
    pub fn offers(&self, name: &str) -> Result<bool, String> {
        Ok(self.button(name)?.is_some())
    }

    /// Waits until a button of this name can be pressed.
    pub fn wait_for_button(&self, name: &str, limit: Duration) -> Result<(), String> {
        self.within(limit, &format!("a button {name:?} that can be pressed"), || {
            Ok(self.button(name)?.map(drop))
        })
    }

    /// Waits until the conversation contains a text.
    pub fn see(&self, text: &str, limit: Duration) -> Result<(), String> {
        self.within(limit, &format!("{text:?} in the conversation"), || {
            // A page that is being opened has none yet.
            Ok(self.conversation().is_ok_and(|shown| shown.contains(text)).then_some(()))
        })
    }

    /// Waits until an answer grew beyond so many characters, whatever they are.
    pub fn see_answer_of(&self, n_chars: usize, question: &str, limit: Duration) -> Result<(), String> {
        self.within(limit, &format!("an answer of {n_chars} characters"), || {
            let conversation = self.conversation()?;
            let after = conversation.split_once(question).map_or("", |(_, after)| after);
            // What the page says of how far it is is no answer.
            let words = after.lines().filter(|line| !line.starts_with("Reading ")).collect::<String>();
            Ok((words.trim().chars().count() >= n_chars).then_some(()))
        })
    }

    /// Waits for an alert, and returns it.
    pub fn see_alert(&self, limit: Duration) -> Result<String, String> {
        self.within(limit, "an alert", || Ok(self.alerts()?.into_iter().next()))
    }

    /// What the page warns of now.
    pub fn alerts(&self) -> Result<Vec<String>, String> {
        let mut texts = Vec::new();
        for alert in self.session().find("[role=alert]")? {
            // It may vanish between the two calls.
            let text = self.session().text(&alert).unwrap_or_default();
            if !text.trim().is_empty() {
                texts.push(text);
            }
        }
        Ok(texts)
    }

    /// The conversation's text.
    pub fn conversation(&self) -> Result<String, String> {
        let log = self
            .session()
            .find("[role=log]")?
            .into_iter()
            .next()
            .ok_or("there is no region with role `log`")?;
        self.session().text(&log)
    }

    /// All text that is shown.
    pub fn shown(&self) -> Result<String, String> {
        let body = self.session().find("body")?.into_iter().next().ok_or("the document has no body")?;
        self.session().text(&body)
    }

    /// Opens a local file with the page's file input.
    pub fn choose_file(&self, path: &std::path::Path) -> Result<(), String> {
        self.choose_files(&[path.to_owned()])
    }

    /// Opens local files together.
    pub fn choose_files(&self, paths: &[PathBuf]) -> Result<(), String> {
        let paths: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        let input =
            self.session().find("input[type=file]")?.into_iter().next().ok_or("there is no file input")?;
        self.session().type_into(&input, &paths.join("\n"))
    }

    /// Opens a local folder with the page's other file input.
    pub fn choose_folder(&self, path: &std::path::Path) -> Result<(), String> {
        let input =
            self.session().find("input[type=file]")?.into_iter().nth(1).ok_or("there is no folder input")?;
        self.session().type_into(&input, &path.display().to_string())
    }

    /// Drops a file on the page, as dragging it from a folder does.
    pub fn drop_file(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let script = "
            const [name, bytes] = arguments;
            const transfer = new DataTransfer();
            transfer.items.add(new File([new Uint8Array(bytes)], name));
            const target = document.elementFromPoint(innerWidth / 2, innerHeight / 2) ?? document.body;
            for (const type of ['dragenter', 'dragover', 'drop']) {
                target.dispatchEvent(new DragEvent(type, { dataTransfer: transfer, bubbles: true, cancelable: true }));
            }";
        self.session().run(script, json!([name, bytes])).map(drop)
    }

    /// Sends requests of the protocol at once, and returns each one's events when all are answered.
    pub fn request(&self, requests: &[Request], limit: Duration) -> Result<Vec<Vec<Event>>, String> {
        self.answers(self.ask_engine(requests)?, limit)
    }

    /// Sends requests of the protocol at once.
    pub fn ask_engine(&self, requests: &[Request]) -> Result<Asked, String> {
        let texts: Vec<String> = requests
            .iter()
            .map(|request| serde_json::to_string(request).map_err(|error| error.to_string()))
            .collect::<Result<_, _>>()?;
        self.n_asked.set(self.n_asked.get() + 1);
        let asked = self.n_asked.get();
        let script = "
            const [asked, texts] = arguments;
            const state = { left: texts.length, answers: [], error: null };
            (window.asked ??= {})[asked] = state;
            texts.forEach((text, index) => window.wasmBindings.request(text).then(
                answer => { state.answers[index] = answer; state.left -= 1; },
                error => { state.error = String(error); }));";
        self.session().run(script, json!([asked, texts]))?;
        Ok(Asked(asked))
    }

    /// Each request's events, when all are answered.
    pub fn answers(&self, asked: Asked, limit: Duration) -> Result<Vec<Vec<Event>>, String> {
        let state = self.within(limit, "the engine's answers", || {
            // They are large, and looked for often.
            let script = "const s = window.asked[arguments[0]]; return s.left && !s.error ? null : s";
            let state = self.session().run(script, json!([asked.0]))?;
            match &state["error"] {
                Value::Null => Ok((!state.is_null()).then_some(state)),
                error => Err(format!("the engine refused a request: {error}")),
            }
        })?;
        let answers = state["answers"].as_array().ok_or("the page kept no answers")?;
        let events = |answer: &Value| {
            let text = answer.as_str().ok_or("an answer is not text")?;
            serde_json::from_str(text)
                .map_err(|error| format!("an answer is no list of events: {error}: {text}"))
        };
        answers.iter().map(events).collect()
    }

    /// Waits until the engine stands as wanted.
    pub fn wait_for_status(
        &self,
        limit: Duration,
        awaited: &str,
        is_wanted: impl Fn(&Status) -> bool,
    ) -> Result<Status, String> {
        self.within(limit, awaited, || Ok(Some(self.engine_status()?).filter(&is_wanted)))
    }

    /// How the engine stands.
    pub fn engine_status(&self) -> Result<Status, String> {
        let answers = self.request(&[Request::Status { request: 0 }], START)?;
        match answers.first().and_then(|events| events.last()) {
            Some(Event::Status { status, .. }) => Ok(*status),
            other => Err(format!("the engine's status was answered by {other:?}")),
        }
    }

    fn message_box(&self) -> Result<Option<Element>, String> {
        self.control("textarea, input", "textbox", "Message")
    }

    fn button(&self, name: &str) -> Result<Option<Element>, String> {
        match self.control("button", "button", name)? {
            Some(button) if self.session().is_usable(&button)? => Ok(Some(button)),
            _ => Ok(None),
        }
    }

    /// The control of this role and name. One that vanishes between two calls was not the one.
    fn control(&self, selector: &str, role: &str, name: &str) -> Result<Option<Element>, String> {
        for element in self.session().find(selector)? {
            let label = self.session().label(&element).unwrap_or_default();
            if label == name && self.session().role(&element).unwrap_or_default() == role {
                return Ok(Some(element));
            }
        }
        Ok(None)
    }

    /// Looks again and again until there is something; the error says what was awaited and what is shown.
    pub fn within<T>(
        &self,
        limit: Duration,
        awaited: &str,
        mut look: impl FnMut() -> Result<Option<T>, String>,
    ) -> Result<T, String> {
        let start = Instant::now();
        loop {
            if let Some(found) = look()? {
                return Ok(found);
            }
            if start.elapsed() > limit {
                let shown = self.shown().unwrap_or_else(|sentence| sentence);
                return Err(format!("waited {} s for {awaited}; the page shows:\n{shown}", limit.as_secs()));
            }
            std::thread::sleep(PAUSE);
        }
    }
}
