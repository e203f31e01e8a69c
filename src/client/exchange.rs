//! One request as JSON and all its events as JSON, for tests and developers: over the page's own connection.

use std::{mem, ops::ControlFlow};

use js_sys::Promise;
use serde_json::{Value, json};
use wasm_bindgen::JsValue;

use super::{Client, Incoming};
use crate::protocol::{Event, Request, RequestId};

impl Client {
    /// Sends a `Generate` or `Tokenize` given as JSON; its id is chosen here, whatever it says. The promise resolves
    /// with the JSON array of the request's events, the last one included, and rejects with a sentence where the text
    /// is no such request or the engine is lost.
    pub fn exchange(&self, json: &str) -> Promise {
        let request_id = self.next_request();
        let request = match request_from_json(json, request_id) {
            Ok(request) => request,
            Err(sentence) => return Promise::reject(&JsValue::from_str(&sentence)),
        };
        Promise::new(&mut |resolve, reject| {
            let mut events = Vec::new();
            self.listen(move |incoming| {
                let (settle, value) = match incoming {
                    Incoming::Lost(sentence) => (&reject, sentence.clone()),
                    Incoming::Event(event) => match answer_to(event, request_id) {
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

/// Whether an event answers the request, and if so whether it is the last one.
fn answer_to(event: &Event, request_id: RequestId) -> Option<bool> {
    let (request, last) = match event {
        Event::Started { request, .. }
        | Event::PromptLogprobs { request, .. }
        | Event::Prefilling { request, .. }
        | Event::Tokens { request, .. } => (Some(*request), false),
        Event::Tokenized { request, .. } => (Some(*request), true),
        Event::Finished { request, n_left, .. } => (Some(*request), *n_left == 0),
        Event::Status { request, .. } | Event::Failed { request, .. } => (*request, true),
        Event::Unacquainted
        | Event::InUse { .. }
        | Event::Unloaded { .. }
        | Event::Welcome { .. }
        | Event::Loading { .. }
        | Event::Ready { .. }
        | Event::LoadFailed { .. } => (None, false),
    };
    (request == Some(request_id)).then_some(last)
}

/// A `Generate`, `Tokenize` or `Status` from its JSON, under the given id. The error is a sentence.
fn request_from_json(json: &str, request_id: RequestId) -> Result<Request, String> {
    let mut value: Value = serde_json::from_str(json).map_err(|error| format!("not JSON: {error}"))?;
    let body = value
        .as_object_mut()
        .and_then(|variants| variants.values_mut().next())
        .and_then(Value::as_object_mut)
        .ok_or("not a request: expected an object such as {\"Tokenize\": {\"prompt\": …}}")?;
    body.insert("request".to_owned(), json!(request_id));
    match serde_json::from_value(value) {
        Ok(request @ (Request::Generate { .. } | Request::Tokenize { .. } | Request::Status { .. })) => {
            Ok(request)
        }
        Ok(_) => Err("only Generate, Tokenize and Status have an answer of their own".to_owned()),
        Err(error) => Err(format!("not a request: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{FinishReason, GenerateOptions, Prompt, Usage};

    #[test]
    fn a_request_gets_the_clients_id() {
        let json = r#"{"Tokenize": {"request": 99, "prompt": {"Text": "hi"}}}"#;
        let expected = Request::Tokenize { request: 7, prompt: Prompt::Text("hi".to_owned()) };
        assert_eq!(request_from_json(json, 7), Ok(expected));

        let json = r#"{"Generate": {"prompt": {"Text": "hi"}, "options": {"temperature": 0.0}}}"#;
        let Ok(Request::Generate { request, options, .. }) = request_from_json(json, 8) else { panic!() };
        assert_eq!((request, options.temperature), (8, 0.0));
        assert_eq!(options.max_tokens, GenerateOptions::default().max_tokens);
    }

    #[test]
    fn what_is_no_such_request_is_refused() {
        for (json, part) in [
            ("", "not JSON"),
            ("[]", "not a request"),
            ("{}", "not a request"),
            (r#""Hello""#, "not a request"),
            (r#"{"Sing": {}}"#, "Sing"),
            (r#"{"Generate": {"prompt": {"Text": "hi"}, "options": {"heat": 1}}}"#, "heat"),
            (r#"{"Cancel": {"request": 1}}"#, "only Generate, Tokenize and Status"),
            (r#"{"Hello": {"version": 1}}"#, "only Generate, Tokenize and Status"),
        ] {
            let error = request_from_json(json, 1).unwrap_err();
            assert!(error.contains(part), "{json}: {error}");
        }
    }

    #[test]
    fn only_the_requests_own_events_count() {
        let finished =
            |request| Event::Finished { request, reason: FinishReason::Stop, usage: Usage::default() };
        assert_eq!(answer_to(&Event::Started { request: 3, prompt_tokens: 1 }, 3), Some(false));
        assert_eq!(answer_to(&finished(3), 3), Some(true));
        assert_eq!(answer_to(&finished(4), 3), None);
        assert_eq!(answer_to(&Event::Failed { request: Some(3), error: String::new() }, 3), Some(true));
        assert_eq!(answer_to(&Event::Failed { request: None, error: String::new() }, 3), None);
        assert_eq!(answer_to(&Event::Welcome { version: 1 }, 3), None);
    }
}
