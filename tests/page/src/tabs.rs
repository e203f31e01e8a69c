//! Tabs of the one browser, and what a page meets when it is opened in one: calls go to the tab that is shown.

use crate::webdriver::Session;
use serde_json::json;

impl Session {
    /// The tab that is shown.
    pub fn tab(&self) -> Result<String, String> {
        self.get("window")?.as_str().map(str::to_string).ok_or_else(|| "chromedriver named no tab".into())
    }

    /// Opens an empty tab and shows it.
    pub fn open_tab(&self) -> Result<String, String> {
        let opened = self.post("window/new", json!({ "type": "tab" }))?;
        let tab = opened["handle"].as_str().ok_or("chromedriver named no tab")?.to_string();
        self.show_tab(&tab)?;
        Ok(tab)
    }

    /// Shows another tab.
    pub fn show_tab(&self, tab: &str) -> Result<(), String> {
        self.post("window", json!({ "handle": tab })).map(drop)
    }

    /// The URL of the page that is shown.
    pub fn url(&self) -> Result<String, String> {
        self.get("url")?.as_str().map(str::to_string).ok_or_else(|| "chromedriver named no URL".into())
    }

    /// Loads the page anew.
    pub fn reload(&self) -> Result<(), String> {
        self.post("refresh", json!({})).map(drop)
    }

    /// Runs a function body in the page, until it calls its last argument.
    pub fn run_until_done(&self, script: &str) -> Result<(), String> {
        self.post("execute/async", json!({ "script": script, "args": [] })).map(drop)
    }

    /// From now on, runs a script in this tab before any page's own.
    pub fn run_before_pages(&self, script: &str) -> Result<(), String> {
        let command =
            json!({ "cmd": "Page.addScriptToEvaluateOnNewDocument", "params": { "source": script } });
        self.post("goog/cdp/execute", command).map(drop)
    }
}
