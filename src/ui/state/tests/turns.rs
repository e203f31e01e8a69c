//! Messages sent again, answers made anew and gone on with, and the way between their versions.

use super::chats::{NOW_MS, saved};
use super::*;
use crate::ui::{chat::Chat, turn::Grown};

/// The same screen after one exchange: "Hi", "Hello".
fn answered() -> State {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hello", &[5]), 0.0);
    state.apply(finished(1, FinishReason::Stop), 1.0);
    state.take_changed();
    state
}

/// The answer of one token to a request.
fn answer(state: &mut State, request: RequestId, text: &str) {
    state.apply(tokens(request, text, &[7]), 0.0);
    state.apply(finished(request, FinishReason::Stop), 1.0);
}

/// The same screen in another tab, or after a reload, as far as it is kept.
fn reopened(state: &mut State) -> State {
    let (id, chat) = saved(state);
    let chat = Chat::from_kept(&chat.to_kept()).unwrap();
    let mut other = ready();
    other.open_chat(id.clone());
    other.opened(&id, Ok(Some(chat)), false, "spare".to_owned());
    other
}

#[test]
fn an_answer_made_anew_stands_beside_the_old_one() {
    let mut state = answered();
    let first = state.turns[1].id;
    let request = state.ask_for(&Intent::Again(first), 2);
    assert_eq!(conversation(request), pairs(&[("user", "Hi")]), "the model does not see its first answer");
    answer(&mut state, 2, "Good day");
    assert_eq!(texts(&state), ["Hi", "Good day"]);
    let second = state.turns[1].id;
    assert_eq!((state.place(second), state.place(state.turns[0].id)), ((2, 2), (1, 1)));

    for mut state in [reopened(&mut state), state] {
        let second = state.turns[1].id;
        state.show_sibling(second, 1);
        assert_eq!(texts(&state), ["Hi", "Good day"], "there is none after the last");
        state.show_sibling(second, -1);
        assert_eq!((texts(&state), state.place(state.turns[1].id)), (vec!["Hi", "Hello"], (1, 2)));
        let expected = [("user", "Hi"), ("assistant", "Hello"), ("user", "And?")];
        assert_eq!(conversation(state.submit("And?", 3)), pairs(&expected));
    }
}

#[test]
fn a_message_sent_again_leaves_the_old_branch() {
    let mut state = answered();
    assert!(state.submit("How are you?", 2).is_some());
    answer(&mut state, 2, "Well");
    let old = state.turns[0].id;
    let request = state.ask_for(&Intent::Edit(old, "Hey".to_owned()), 3);
    assert_eq!(conversation(request), pairs(&[("user", "Hey")]));
    answer(&mut state, 3, "Yo");
    assert_eq!(texts(&state), ["Hey", "Yo"]);

    // What is shown is kept, too.
    let mut state = reopened(&mut state);
    assert_eq!(texts(&state), ["Hey", "Yo"]);
    state.show_sibling(state.turns[0].id, -1);
    assert_eq!(texts(&state), ["Hi", "Hello", "How are you?", "Well"]);
    assert!(state.is_unsaved());
    assert_eq!(texts(&reopened(&mut state)), ["Hi", "Hello", "How are you?", "Well"]);
}

#[test]
fn what_is_shown_of_branches_of_branches_is_remembered() {
    let mut state = answered();
    state.ask_for(&Intent::Again(state.turns[1].id), 2);
    answer(&mut state, 2, "B");
    state.submit("on", 3);
    answer(&mut state, 3, "B1");
    state.ask_for(&Intent::Again(state.turns[3].id), 4);
    answer(&mut state, 4, "B2");
    state.show_sibling(state.turns[3].id, -1);
    assert_eq!(texts(&state), ["Hi", "B", "on", "B1"]);
    state.show_sibling(state.turns[1].id, -1);
    assert_eq!(texts(&state), ["Hi", "Hello"]);
    state.show_sibling(state.turns[1].id, 1);
    assert_eq!(texts(&state), ["Hi", "B", "on", "B1"]);
    assert_eq!(state.all_turns().len(), 6);
}

#[test]
fn what_fails_at_once_leaves_the_old_branch_in_place() {
    let mut state = answered();
    state.ask_for(&Intent::Again(state.turns[1].id), 2);
    state.apply(failed(Some(2), "No."), 0.0);
    assert_eq!((state.take_returned(), texts(&state)), (None, vec!["Hi", "Hello"]));

    state.ask_for(&Intent::Edit(state.turns[0].id, "Hey".to_owned()), 3);
    state.apply(failed(Some(3), "No."), 0.0);
    assert_eq!(texts(&state), ["Hi", "Hello"]);
    assert_eq!(state.take_returned().as_deref(), Some("Hey"), "what was written is not lost");
    assert_eq!((state.all_turns().len(), state.obstacle()), (2, None));
}

#[test]
fn what_makes_no_sense_is_not_asked() {
    let mut state = answered();
    let (said, answer) = (state.turns[0].id, state.turns[1].id);
    for intent in [
        Intent::Edit(said, " ".to_owned()),
        Intent::Edit(answer, "a".to_owned()),
        Intent::Edit(99, "a".to_owned()),
        Intent::Again(said),
        Intent::Again(99),
        Intent::GoOn(said),
        Intent::GoOn(answer),
    ] {
        assert!(!state.begin_intent(&intent), "{intent:?}");
        assert_eq!(state.ask_for(&intent, 2), None, "{intent:?}");
    }
    assert_eq!((state.take_changed(), texts(&state)), (vec![], vec!["Hi", "Hello"]));
}

/// The tokens that a request hands back, and the longest answer it allows.
fn handed_back(request: Option<Request>) -> (Vec<Vec<u32>>, Option<u32>) {
    let Some(Request::Generate { generated, options, .. }) = request else {
        panic!("no request: {request:?}")
    };
    (generated, options.max_tokens)
}

#[test]
fn a_stopped_answer_goes_on_where_it_ended() {
    let mut state = asked("Tell me a story");
    state.apply(tokens(1, "Once", &[1, 2]), 0.0);
    state.stop(0.0);
    // A half character was held back until the end.
    state.apply(tokens(1, "\u{fffd}", &[]), 0.0);
    state.apply(finished(1, FinishReason::Cancelled), 0.0);
    assert_eq!(state.turns[1].text, "Once\u{fffd}");
    let usage = state.turns[1].usage.unwrap();

    for mut state in [reopened(&mut state), state] {
        let turn = state.turns[1].id;
        let longest = state.options().max_tokens.unwrap();
        let request = state.ask_for(&Intent::GoOn(turn), 2);
        assert_eq!(handed_back(request), (vec![vec![1, 2]], Some(longest + 2)));
        assert!(state.turns[1].stage.is_busy());
        state.apply(tokens(2, "é upon", &[3]), 0.0);
        assert_eq!((texts(&state), state.turns[1].id), (vec!["Tell me a story", "Onceé upon"], turn));
        state.apply(tokens(2, " a", &[4]), 0.0);
        let after = Usage { prompt_tokens: 12, generated_tokens: 4, decode_ms: 500.0, ..Usage::default() };
        let reason = FinishReason::Length;
        state.apply(Event::Finished { request: 2, output: 0, reason, usage: after, n_left: 0 }, 0.0);
        let sum = state.turns[1].usage.unwrap();
        assert_eq!((sum.generated_tokens, sum.decode_ms), (3 + 2, usage.decode_ms + 500.0));
        // And once more.
        let request = state.ask_for(&Intent::GoOn(turn), 3);
        assert_eq!(handed_back(request), (vec![vec![1, 2, 3, 4]], Some(longest + 4)));
    }
}

/// What request 2 asks for a text.
fn tokenize(text: &str) -> Request {
    Request::Tokenize { request: 2, model: None, prompt: Prompt::Text(text.into()) }
}

/// What comes of it.
fn tokenized(text: &str, ids: &[u32]) -> Event {
    Event::Tokenized { request: 2, text: text.into(), ids: ids.into(), pieces: vec![], bytes: vec![] }
}

#[test]
fn another_models_prompt_may_open_the_thought_already() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "<think>\nHm", &[1]), 0.0);
    state.stop(0.0);
    state.apply(finished(1, FinishReason::Cancelled), 0.0);
    state.apply(ready_from(ModelInfo { vocab_size: 100, ..info("other") }, url()), 6.0);
    state.ask_for(&Intent::GoOn(state.turns[1].id), 2);
    state.apply(tokenized("user: Hi\nassistant: <think>\n", &[0, 50]), 0.0);
    assert_eq!(state.take_due(), [tokenize("Hm")], "what opens it is not written twice");
    state.apply(tokenized("Hm", &[40]), 0.0);
    state.apply(tokenized("", &[]), 0.0);
    assert_eq!(handed_back(state.take_due().pop()).0, [[40]]);
    let openings = vec!["<think>\n".to_owned()];
    state.apply(Event::Started { request: 2, prompt_tokens: vec![3], openings }, 0.0);
    state.apply(tokens(2, " so", &[42]), 0.0);
    assert_eq!(texts(&state), ["Hi", "<think>\nHm so"]);
}

#[test]
fn an_answer_of_another_model_is_spelled_anew() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    state.stop(0.0);
    state.apply(finished(1, FinishReason::Cancelled), 0.0);
    state.load("Other", url(), None, 5.0);
    state.apply(ready_from(ModelInfo { vocab_size: 100, ..info("other") }, url()), 6.0);

    let turn = state.turns[1].id;
    let asked = state.ask_for(&Intent::GoOn(turn), 2);
    assert!(matches!(asked, Some(Request::Tokenize { request: 2, prompt: Prompt::Chat { .. }, .. })));
    state.apply(tokenized("user: Hi\nassistant: ", &[0, 50]), 0.0);
    assert_eq!(state.take_due(), [tokenize("Hel")]);
    state.apply(tokenized("Hel", &[0, 40, 41]), 0.0);
    assert_eq!(state.take_due(), [tokenize("")]);
    state.apply(tokenized("", &[0]), 0.0);
    let due = state.take_due().pop();
    assert_eq!(handed_back(due).0, [[40, 41]], "without what every text begins with");
    state.apply(tokens(2, "lo", &[42]), 0.0);
    assert_eq!(texts(&state), ["Hi", "Hello"]);
    assert_eq!(state.turns[1].grown.ids, [40, 41, 42]);
}

#[test]
fn an_answer_that_cannot_go_on_stays_as_it_was() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    state.apply(finished(1, FinishReason::Length), 0.0);
    state.turns[1].grown = Grown::default();
    let turn = state.turns[1].id;
    state.ask_for(&Intent::GoOn(turn), 2);
    state.apply(failed(Some(2), "No."), 0.0);
    assert_eq!((texts(&state), notices(&state), state.answering), (vec!["Hi", "Hel"], vec!["No."], None));
    // Stopped before it was known what it is made of.
    state.ask_for(&Intent::GoOn(turn), 3);
    state.stop(0.0);
    state.apply(
        Event::Tokenized { request: 3, text: String::new(), ids: vec![9], pieces: vec![], bytes: vec![] },
        0.0,
    );
    assert_eq!((state.answering, state.take_due()), (None, vec![]));
    assert_eq!(texts(&state), ["Hi", "Hel"]);
}

#[test]
fn a_thought_that_was_stopped_is_sent_ended() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "<think>\nHm", &[1]), 0.0);
    state.apply(finished(1, FinishReason::Cancelled), 0.0);
    let sent = conversation(state.submit("So?", 2));
    assert_eq!(sent[1].1, "<think>\nHm\n</think>\n\n");
    assert_eq!(texts(&state)[1], "<think>\nHm", "on screen and where it is kept it is as it came");
}

#[test]
fn what_another_tab_branched_is_seen() {
    let mut one = answered();
    one.new_chat("a".to_owned());
    one.submit("Hi", 2);
    answer(&mut one, 2, "A");
    let mut two = ready();
    two.new_chat("a".to_owned());
    two.take_in(saved(&mut one).1, false);
    two.ask_for(&Intent::Again(two.turns[1].id), 1);
    answer(&mut two, 1, "B");
    one.take_changed();
    one.take_in(saved(&mut two).1, false);
    assert_eq!((texts(&one), one.place(one.turns[1].id)), (vec!["Hi", "B"], (2, 2)));
    assert!(one.take_changed().contains(&Part::Turns));
    two.show_sibling(two.turns[1].id, -1);
    one.take_in(two.take_unsaved(NOW_MS).map(chat_of).unwrap(), false);
    assert_eq!(texts(&one), ["Hi", "A"]);
    assert!(!one.is_unsaved());
}

fn chat_of(save: Save) -> Chat {
    match save {
        Save::Write(_, chat) => *chat,
        Save::Remove(_) => panic!("it is removed"),
    }
}
