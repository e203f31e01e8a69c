//! Every event and every intent, told as a person would: what they did, what came, what the screen shows.

use super::*;
use crate::{
    protocol::{
        FinishReason, GenerateOptions, IfFull, KvType, LoadOptions, ModelInfo, ModelSource, ModelUse, Prompt,
        Request, RequestId, TokenLogprob, Usage,
    },
    ui::{catalogue::default_options, turn::Speaker},
};

mod bench;
mod chats;
mod context;
mod lab;
mod models;
mod turns;

fn info(name: &str) -> ModelInfo {
    ModelInfo::example(name)
}

fn url() -> ModelSource {
    ModelSource::Url { url: "models/tiny.gguf".to_owned() }
}

fn tokens(request: RequestId, text: &str, ids: &[u32]) -> Event {
    Event::Tokens { request, output: 0, text: text.to_owned(), ids: ids.to_vec(), logprobs: Vec::new() }
}

fn finished(request: RequestId, reason: FinishReason) -> Event {
    let usage = Usage { prompt_tokens: 12, generated_tokens: 3, decode_ms: 1000.0, ..Usage::default() };
    Event::Finished { request, output: 0, reason, usage, n_left: 0 }
}

fn failed(request: Option<RequestId>, error: &str) -> Event {
    Event::Failed { request, error: error.to_owned() }
}

fn welcome(build: &str) -> Event {
    Event::Welcome { version: VERSION, build: build.to_owned(), epoch: String::new() }
}

fn ready_from(model: ModelInfo, source: ModelSource) -> Event {
    Event::Ready { model, source, options: LoadOptions::default() }
}

/// A screen on which the model "Tiny" answers.
fn ready() -> State {
    let mut state = State::new(Preferences::default());
    state.apply(welcome(BUILD), 0.0);
    state.load("Tiny", url(), Some(default_options()), 0.0);
    state.apply(ready_from(info("tiny"), url()), 1.0);
    state.take_changed();
    state
}

/// The same, with the answer to request 1 on its way.
fn asked(text: &str) -> State {
    let mut state = ready();
    assert!(state.submit(text, 1).is_some());
    state.take_changed();
    state
}

/// The roles and texts of a request's conversation.
fn conversation(request: Option<Request>) -> Vec<(String, String)> {
    let Some(Request::Generate { prompts, .. }) = request else { panic!("no request") };
    let [Prompt::Chat { messages, .. }] = &prompts[..] else { panic!("no chat: {prompts:?}") };
    messages.iter().map(|message| (message.role.clone(), message.joined_text())).collect()
}

fn pairs(turns: &[(&str, &str)]) -> Vec<(String, String)> {
    turns.iter().map(|&(role, text)| (role.to_owned(), text.to_owned())).collect()
}

fn texts(state: &State) -> Vec<&str> {
    state.turns.iter().map(|turn| turn.text.as_str()).collect()
}

fn notices(state: &State) -> Vec<&str> {
    state.notices.iter().map(|notice| notice.text.as_str()).collect()
}

#[test]
fn an_answer_streams() {
    let mut state = asked("Hi");
    state.apply(Event::Started { request: 1, prompt_tokens: vec![12], openings: vec![] }, 0.0);
    state.apply(Event::Prefilling { request: 1, output: 0, done_tokens: 6, total_tokens: 12 }, 0.0);
    assert_eq!(state.turns[1].stage, Stage::Reading { done_tokens: 6, total_tokens: 12 });
    state.take_changed();

    state.apply(tokens(1, "Hel", &[1]), 1000.0);
    state.apply(tokens(1, "", &[2]), 1500.0);
    state.apply(tokens(1, "lo", &[3]), 2000.0);
    let answer_id = state.turns[1].id;
    assert_eq!(state.take_changed(), [Part::Turn(answer_id), Part::Status], "a token touches nothing else");
    assert_eq!((texts(&state), state.turns[1].stage), (vec!["Hi", "Hello"], Stage::Growing));
    let tally = state.tally.unwrap();
    assert_eq!((tally.context_tokens(), tally.tokens_per_sec()), (15, Some(2.0)));

    state.apply(finished(1, FinishReason::Stop), 2000.0);
    assert_eq!(state.turns[1].stage, Stage::Done(FinishReason::Stop));
    assert_eq!((state.answering, state.obstacle()), (None, None));
}

#[test]
fn what_the_prompt_began_is_the_answers_too() {
    let mut state = asked("Hi");
    let started = |opening: &str| Event::Started {
        request: 1,
        prompt_tokens: vec![12],
        openings: vec![opening.to_owned()],
    };
    state.apply(started("<think>\n"), 0.0);
    state.apply(tokens(1, "", &[1]), 0.0);
    assert_eq!(texts(&state), ["Hi", ""], "nothing is there before the first word");
    state.apply(tokens(1, "So", &[2]), 0.0);
    // An engine that came back begins nothing anew.
    state.apply(started("<think>\n"), 0.0);
    state.apply(tokens(1, " it", &[3]), 0.0);
    assert_eq!(texts(&state), ["Hi", "<think>\nSo it"]);
    state.apply(finished(1, FinishReason::Stop), 0.0);
    let said = conversation(state.submit("More", 2));
    let thought = "<think>\nSo it\n</think>\n\n";
    let expected = pairs(&[("user", "Hi"), ("assistant", thought), ("user", "More")]);
    assert_eq!(said, expected, "templates decide what the model reads of it");
}

#[test]
fn the_system_prompt_stands_first_unless_it_is_empty() {
    for (system_prompt, expected) in [
        ("", &[("user", "Hi")][..]),
        (" \n", &[("user", "Hi")]),
        ("Be brief.", &[("system", "Be brief."), ("user", "Hi")]),
    ] {
        let mut state = ready();
        state.edit(|preferences| system_prompt.clone_into(&mut preferences.system_prompt));
        assert_eq!(conversation(state.submit("Hi", 1)), pairs(expected));
    }
}

#[test]
fn a_stopped_answer_stays_and_is_told_to_the_next() {
    let mut state = asked("Tell me a story");
    state.apply(tokens(1, "Once upon", &[1, 2]), 0.0);
    assert_eq!(state.stop(0.0), Some(Request::Cancel { request: 1 }));
    assert!(state.answering.unwrap().stopping);
    assert_eq!(state.stop(0.0), None, "once is enough");

    state.apply(tokens(1, " a", &[3]), 1.0);
    state.apply(finished(1, FinishReason::Cancelled), 2.0);
    assert_eq!(state.turns[1].stage, Stage::Done(FinishReason::Cancelled));
    assert_eq!(state.stop(0.0), None, "nothing runs");
    let expected = [("user", "Tell me a story"), ("assistant", "Once upon a"), ("user", "Go on")];
    assert_eq!(conversation(state.submit("Go on", 2)), pairs(&expected));
}

#[test]
fn a_request_that_fails_at_once_gives_its_text_back() {
    let mut state = asked("A long question");
    state.apply(failed(Some(1), "The prompt is longer than the context."), 0.0);
    assert_eq!((state.turns.len(), state.answering, state.tally), (0, None, None));
    assert_eq!(notices(&state), ["The prompt is longer than the context."]);
    assert_eq!(state.take_returned().as_deref(), Some("A long question"));
    assert_eq!(state.take_returned(), None);
    assert_eq!(state.obstacle(), None);
}

#[test]
fn a_request_that_fails_midway_keeps_what_came() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    state.apply(failed(Some(1), "The device was lost."), 0.0);
    assert_eq!((texts(&state), state.turns[1].stage), (vec!["Hi", "Hel"], Stage::Broken));
    assert_eq!(state.take_returned(), None);
}

#[test]
fn a_lost_engine_ends_everything_and_a_load_revives_it() {
    let mut state = ready();
    state.load("Other", url(), None, 0.0);
    state.submit("Hi", 1);
    let cancel = state.lose_engine("The engine stopped.".to_owned());
    assert_eq!(cancel, Some(Request::Cancel { request: 1 }), "another engine must not take it up");
    assert_eq!(state.engine, Engine::Lost);
    assert_eq!((state.loading.is_none(), state.model.is_none(), state.answering), (true, true, None));
    assert_eq!(state.take_returned().as_deref(), Some("Hi"));
    assert!(state.obstacle().unwrap().contains("Load a model"));

    state.lose_engine("The engine is not running.".to_owned());
    assert_eq!(notices(&state), ["The engine stopped."], "said once");

    state.load("Tiny", url(), None, 0.0);
    assert_eq!(state.engine, Engine::Starting);
    state.apply(welcome(BUILD), 0.0);
    state.apply(ready_from(info("tiny"), url()), 0.0);
    assert!(state.submit("Hi", 2).is_some());
}

#[test]
fn an_answer_goes_on_until_another_model_takes_the_place() {
    let mut state = asked("Tell me a story");
    state.apply(tokens(1, "Once", &[1]), 0.0);
    let load = Request::Load { source: url(), options: state.preferences.load.clone(), if_full: IfFull::Ask };
    assert_eq!(state.load("photo.png", url(), None, 1.0), load);
    state.apply(tokens(1, " upon", &[2]), 2.0);
    state.apply(Event::LoadFailed { error: "No model.".to_owned(), unloaded: false }, 3.0);
    state.apply(tokens(1, " a", &[3]), 4.0);
    assert_eq!(
        (texts(&state), state.turns[1].stage),
        (vec!["Tell me a story", "Once upon a"], Stage::Growing)
    );

    state.load("Other", url(), None, 5.0);
    state.apply(finished(1, FinishReason::Cancelled), 6.0);
    assert_eq!((state.turns[1].stage, state.answering), (Stage::Done(FinishReason::Cancelled), None));
    assert_eq!(notices(&state), [""; 0]);
    assert!(state.tally.is_some());
    state.apply(ready_from(info("other"), url()), 7.0);
    assert_eq!(state.tally, None, "counts and speed were those of the model before");
}

#[test]
fn a_model_without_a_template_continues_the_text_alone() {
    let mut state = ready();
    assert!(!state.only_continues());
    state.load("Base", url(), None, 0.0);
    state.apply(ready_from(ModelInfo { has_chat_template: false, ..info("base") }, url()), 1.0);
    assert!(state.only_continues());
    state.edit(|preferences| "Be brief.".clone_into(&mut preferences.system_prompt));
    for (request, text) in [(1, "Once upon"), (2, "It was")] {
        let Some(Request::Generate { prompts, .. }) = state.submit(text, request) else { panic!("not sent") };
        assert_eq!(prompts, [Prompt::Text(text.to_owned())]);
        state.apply(tokens(request, " a time", &[1]), 2.0);
        state.apply(finished(request, FinishReason::Length), 3.0);
    }
    assert_eq!(texts(&state), ["Once upon", " a time", "It was", " a time"]);
}

#[test]
fn a_silent_engine_is_noticed() {
    // Nobody waits for a sign while an answer is merely slow.
    let mut state = asked("Hi");
    state.tick(60_000.0);
    assert!(!state.silent);

    state.stop(60_000.0);
    state.tick(69_999.0);
    assert!(!state.silent);
    state.take_changed();
    state.tick(70_000.0);
    assert_eq!((state.silent, state.take_changed()), (true, vec![Part::Silence]));
    state.tick(71_000.0);
    assert_eq!(state.take_changed(), []);

    // A sign of life takes the offer back, and the wait begins anew.
    state.apply(tokens(1, "Hel", &[1]), 72_000.0);
    assert!(!state.silent);
    state.tick(82_000.0);
    assert!(state.silent);
    state.apply(finished(1, FinishReason::Cancelled), 83_000.0);
    state.tick(200_000.0);
    assert!(!state.silent, "nothing is owed");

    state.load("Other", url(), None, 300_000.0);
    state.tick(310_000.0);
    assert!(state.silent);
    state.lose_engine("The engine stopped.".to_owned());
    assert!(!state.silent, "the engine is known to be gone");
}

#[test]
fn a_restart_ends_the_answer_and_waits_for_what_is_loaded_again() {
    let mut state = asked("Hi");
    state.stop(0.0);
    state.load("Other", url(), None, 0.0);
    state.tick(10_000.0);
    assert!(state.silent);
    assert_eq!(state.restart(), Some(Request::Cancel { request: 1 }), "another engine must not take it up");
    assert!(!state.silent);
    assert_eq!((state.engine, state.answering), (Engine::Starting, None));
    assert_eq!((state.loading.is_none(), state.model.is_none()), (true, true));
    assert_eq!(state.turns[1].stage, Stage::Done(FinishReason::Cancelled));
    assert!(notices(&state)[0].contains("restarted"), "{:?}", state.notices);
    assert!(state.obstacle().unwrap().contains("Load a model"));
    state.tick(60_000.0);
    assert!(!state.silent);
    assert_eq!(state.restart(), None);
}

#[test]
fn an_engine_of_another_build_is_told_of_until_it_ends() {
    let mut state = ready();
    let other = [
        Event::Welcome { version: VERSION + 1, build: BUILD.to_owned(), epoch: String::new() },
        welcome("another"),
    ];
    for event in other {
        state.apply(event, 0.0);
    }
    assert_eq!(notices(&state), [OTHER_BUILD], "said once");
    state.apply(welcome(BUILD), 1.0);
    assert_eq!((notices(&state), state.engine), (vec![], Engine::Running));
}

#[test]
fn an_answer_goes_on_after_an_engine_died() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    state.take_changed();
    state.interrupt(1.0);
    assert_eq!((state.engine, state.turns[1].stage), (Engine::Recovering, Stage::Recovering));
    assert_eq!((notices(&state), state.model.is_some()), (vec![], true), "no alarm");
    state.apply(welcome(BUILD), 2.0);
    state.apply(Event::Loading { stage: "Fetching".to_owned(), done_bytes: 0, total_bytes: 9 }, 2.0);
    assert_eq!(state.loading.as_ref().unwrap().name, "Tiny");
    let reading = Event::Prefilling { request: 1, output: 0, done_tokens: 6, total_tokens: 13 };
    state.apply(ready_from(info("tiny"), url()), 3.0);
    state.apply(reading, 3.0);
    assert_eq!(state.turns[1].stage, Stage::Reading { done_tokens: 6, total_tokens: 13 });
    state.apply(tokens(1, "lo", &[2]), 4.0);
    assert_eq!((texts(&state), state.turns[1].stage), (vec!["Hi", "Hello"], Stage::Growing));
    assert_eq!((state.engine, state.loading.is_none()), (Engine::Running, true));
    assert_eq!(state.tally.unwrap().generated_tokens, 2, "the counts are the answer's");
}

#[test]
fn an_answer_says_that_its_gpu_was_lost() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    let stage = "The GPU was lost; loading tiny again".to_owned();
    state.apply(Event::Loading { stage, done_bytes: 0, total_bytes: 9 }, 1.0);
    assert_eq!((state.turns[1].stage, state.engine), (Stage::Recovering, Engine::Running));
    state.apply(ready_from(info("tiny"), url()), 2.0);
    state.apply(tokens(1, "lo", &[2]), 3.0);
    assert_eq!((texts(&state), state.turns[1].stage), (vec!["Hi", "Hello"], Stage::Growing));
}

#[test]
fn the_engine_tells_how_it_stands() {
    let mut state = ready();
    let status = Status { n_tabs: 2, ..Status::default() };
    state.apply(Event::Status { request: None, status }, 0.0);
    assert_eq!((state.live, state.take_changed()), (Some(status), vec![Part::Live]));
    state.lose_engine("The engine stopped.".to_owned());
    assert_eq!(state.live, None);
}

#[test]
fn nothing_is_sent_past_an_obstacle() {
    let mut state = State::new(Preferences::default());
    assert!(state.obstacle().unwrap().contains("Load a model"));
    state.load("Tiny", url(), None, 0.0);
    assert!(state.obstacle().unwrap().contains("loading"));
    assert_eq!(state.submit("Hi", 1), None);
    state.apply(ready_from(info("tiny"), url()), 0.0);
    assert_eq!(state.submit(" \n", 1), None);
    assert!(state.submit("Hi", 1).is_some());
    assert!(state.obstacle().unwrap().contains("stop"));
    assert_eq!(state.submit("Hi", 2), None);
    assert_eq!(texts(&state), ["Hi", ""]);
}

#[test]
fn others_events_change_nothing() {
    let mut state = asked("Hi");
    let logprob = TokenLogprob { id: 1, text: "a".to_owned(), logprob: -1.0, top: Vec::new() };
    for event in [
        Event::Started { request: 9, prompt_tokens: vec![1], openings: vec![] },
        Event::Prefilling { request: 9, output: 0, done_tokens: 1, total_tokens: 2 },
        tokens(9, "x", &[1]),
        finished(9, FinishReason::Stop),
        failed(Some(9), "Not ours."),
        Event::PromptLogprobs { request: 1, output: 0, tokens: vec![None, Some(logprob)] },
        Event::Tokenized { request: 9, text: String::new(), ids: vec![], pieces: vec![], bytes: vec![] },
        Event::Status { request: Some(9), status: Status { n_tabs: 9, ..Status::default() } },
        Event::Unacquainted,
    ] {
        state.apply(event, 0.0);
    }
    assert_eq!((state.take_changed(), texts(&state)), (vec![], vec!["Hi", ""]));
}

#[test]
fn a_new_try_forgets_what_went_wrong_before() {
    let mut state = ready();
    state.apply(failed(None, "1"), 0.0);
    assert!(state.begin("Hi"));
    assert_eq!(notices(&state), [""; 0]);
    state.apply(failed(None, "2"), 0.0);
    state.submit("Hi", 1);
    assert_eq!(notices(&state), ["2"], "what went wrong since is news");
    state.load("Other", url(), None, 0.0);
    assert_eq!(notices(&state), [""; 0]);
    assert!(state.take_changed().contains(&Part::Notices));
    state.refuse("Two models.".to_owned());
    state.refuse("No model.".to_owned());
    assert_eq!(notices(&state), ["No model."]);
}

#[test]
fn notices_are_dismissed_and_few() {
    let mut state = ready();
    for text in ["1", "2", "3", "4", "5", "5"] {
        state.apply(failed(None, text), 0.0);
    }
    assert_eq!(notices(&state), ["2", "3", "4", "5"]);
    state.dismiss(state.notices[1].id);
    state.dismiss(12345);
    assert_eq!(notices(&state), ["2", "4", "5"]);
}
