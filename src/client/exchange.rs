//! One request as JSON and all its events as JSON, for tests and developers: over the page's own connection.

use std::{mem, ops::ControlFlow, rc::Rc};

use js_sys::Promise;
use serde_json::{Value, json};
use wasm_bindgen::JsValue;

use super::{Client, Incoming};
use crate::protocol::{Event, Request, RequestId};

impl Client {
    /// Sends a request given as JSON; its id is chosen here, whatever it says. The promise resolves with the JSON array of
    /// the request's events, the last one included, and rejects with a sentence where the text is no such request or no
    /// engine is coming. What has no answer, as a cancel, resolves at once with an empty array.
    pub fn exchange(self: &Rc<Self>, json: &str) -> Promise {
        let request_id = self.next_request();
        let request = match request_from_json(json, request_id) {
            Ok(request) => request,
            Err(sentence) => return Promise::reject(&JsValue::from_str(&sentence)),
        };
        if matches!(request, Request::Break { .. } | Request::Cancel { .. }) {
            self.send(&request, &[]);
            return Promise::resolve(&JsValue::from_str("[]"));
        }
        let awaited = if matches!(request, Request::Load { .. }) { None } else { Some(request_id) };
        Promise::new(&mut |resolve, reject| {
            let client = Rc::downgrade(self);
            let mut events = Vec::new();
            self.listen(move |incoming| {
                let (settle, value) = match incoming {
                    Incoming::Interrupted(_) => return ControlFlow::Continue(()),
                    Incoming::Lost(sentence) => {
                        // Nobody waits for it any more.
                        if let Some(client) = client.upgrade() {
                            client.withdraw(request_id);
                        }
                        (&reject, sentence.clone())
                    }
                    Incoming::Event(event) => match answer_to(event, awaited) {
                        None => return ControlFlow::Continue(()),
                        Some(last) => {
                            events.push(json!(event));
                            if !last {
                                return ControlFlow::Continue(());
                            }
                            (&resolve, Value::Array(mem::take(&mut events)).to_string())
                        }
                    },
                };
                // A promise's own resolver does not throw.
                let _ = settle.call1(&JsValue::UNDEFINED, &JsValue::from_str(&value));
                ControlFlow::Break(())
            });
            self.send(&request, &[]);
        })
    }
}

/// Whether an event answers the request, or the load where there is no request, and if so whether it is the last one.
fn answer_to(event: &Event, request_id: Option<RequestId>) -> Option<bool> {
    let (request, last) = match event {
        Event::Started { request, .. }
        | Event::PromptLogprobs { request, .. }
        | Event::Prefilling { request, .. }
        | Event::OpTimes { request, .. }
        | Event::Tokens { request, .. } => (Some(*request), false),
        Event::Tokenized { request, .. } | Event::Batch { request, .. } => (Some(*request), true),
        Event::Finished { request, n_left, .. } => (Some(*request), *n_left == 0),
        Event::Status { request: Some(request), .. } | Event::Failed { request: Some(request), .. } => {
            (Some(*request), true)
        }
        Event::Ready { .. } | Event::LoadFailed { .. } | Event::InUse { .. } => (None, true),
        Event::Loading { .. } => (None, false),
        Event::Unacquainted
        | Event::Unloaded { .. }
        | Event::Welcome { .. }
        | Event::Status { request: None, .. }
        | Event::Failed { request: None, .. } => return None,
    };
    (request == request_id).then_some(last)
}

/// A request from its JSON, under the given id where it has one. The error is a sentence.
fn request_from_json(json: &str, request_id: RequestId) -> Result<Request, String> {
    let mut value: Value = serde_json::from_str(json).map_err(|error| format!("not JSON: {error}"))?;
    let (variant, body) = value
        .as_object_mut()
        .and_then(|variants| variants.iter_mut().next())
        .and_then(|(variant, body)| Some((variant.clone(), body.as_object_mut()?)))
        .ok_or("not a request: expected an object such as {\"Tokenize\": {\"prompt\": …}}")?;
    match variant.as_str() {
        "Generate" => {
            body.entry("generated").or_insert_with(|| json!([]));
            body.insert("request".to_owned(), json!(request_id));
        }
        "Tokenize" | "Status" | "Batch" => _ = body.insert("request".to_owned(), json!(request_id)),
        _ => {}
    }
    match serde_json::from_value(value) {
        Ok(Request::Hello { .. } | Request::Received { .. } | Request::Bye) => {
            Err("the connection's own messages are not for others to send".to_owned())
        }
        Ok(request) => Ok(request),
        Err(error) => Err(format!("not a request: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Fault, FinishReason, GenerateOptions, Prompt, Usage};

    #[test]
    fn a_request_gets_the_clients_id() {
        let json = r#"{"Tokenize": {"request": 99, "prompt": {"Text": "hi"}}}"#;
        let prompt = Prompt::Text("hi".to_owned());
        assert_eq!(request_from_json(json, 7), Ok(Request::Tokenize { request: 7, model: None, prompt }));

        let json = r#"{"Generate": {"prompts": [{"Text": "hi"}], "options": {"temperature": 0.0}}}"#;
        let Ok(Request::Generate { request, options, .. }) = request_from_json(json, 8) else { panic!() };
        assert_eq!((request, options.temperature), (8, 0.0));
        assert_eq!(options.max_tokens, GenerateOptions::default().max_tokens);

        let broken = request_from_json(r#"{"Break": {"fault": "Panic"}}"#, 9);
        assert_eq!(broken, Ok(Request::Break { fault: Fault::Panic }));
        let cancel = request_from_json(r#"{"Cancel": {"request": 1}}"#, 9);
        assert_eq!(cancel, Ok(Request::Cancel { request: 1 }));
    }

    #[test]
    fn what_is_no_such_request_is_refused() {
        for (json, part) in [
            ("", "not JSON"),
            ("[]", "not a request"),
            ("{}", "not a request"),
            (r#""Bye""#, "not a request"),
            (r#"{"Sing": {}}"#, "Sing"),
            (r#"{"Generate": {"prompts": [{"Text": "hi"}], "options": {"heat": 1}}}"#, "heat"),
            (r#"{"Hello": {"version": 1, "build": "", "lock": ""}}"#, "connection's own"),
        ] {
            let error = request_from_json(json, 1).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn only_the_requests_own_events_count() {
        let finished = |request| Event::Finished {
            request,
            output: 0,
            reason: FinishReason::Stop,
            usage: Usage::default(),
            n_left: 0,
        };
        let started = Event::Started { request: 3, prompt_tokens: vec![1], openings: vec![] };
        assert_eq!(answer_to(&started, Some(3)), Some(false));
        assert_eq!(answer_to(&finished(3), Some(3)), Some(true));
        assert_eq!(answer_to(&finished(4), Some(3)), None);
        let failed = |request| Event::Failed { request, error: String::new() };
        assert_eq!(answer_to(&failed(Some(3)), Some(3)), Some(true));
        assert_eq!(answer_to(&failed(None), Some(3)), None);
        let load_failed = Event::LoadFailed { error: String::new(), unloaded: false };
        assert_eq!(answer_to(&load_failed, Some(3)), None);
        assert_eq!(answer_to(&load_failed, None), Some(true));
    }
}
