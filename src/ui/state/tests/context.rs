//! Conversations that do not fit in the model's context, and what a chat has of its own.

use serde_json::json;

use super::chats::saved;
use super::*;
use crate::ui::own::{THINKING, WhenFull, given_presets};

/// A screen whose model holds 1000 tokens, after three long exchanges.
fn long(when_full: WhenFull) -> State {
    let mut state = State::new(Preferences::default());
    state.apply(welcome(BUILD), 0.0);
    let options = GenerateOptions { max_tokens: Some(50), ..default_options() };
    state.load("Tiny", url(), Some(options), 0.0);
    state.apply(ready_from(ModelInfo { context: 1000, kv_tokens: 2000, ..info("tiny") }, url()), 1.0);
    state.edit_own(|own| own.when_full = when_full);
    for request in 1..=3 {
        let text = format!("{request}{}", "a".repeat(500));
        assert!(state.submit(&text, request).is_some());
        // The first ones may be counted, and fit.
        state.apply(counted(request, 100), 0.0);
        state.take_due();
        state.apply(tokens(request, &"b".repeat(500), &[1]), 0.0);
        state.apply(finished(request, FinishReason::Stop), 0.0);
    }
    state
}

fn counted(request: RequestId, n_tokens: usize) -> Event {
    Event::Tokenized { request, text: String::new(), ids: vec![1; n_tokens], pieces: vec![], bytes: vec![] }
}

fn is_count(request: Option<&Request>) -> bool {
    matches!(request, Some(Request::Tokenize { prompt: Prompt::Chat { .. }, .. }))
}

#[test]
fn a_short_conversation_is_not_counted() {
    assert!(matches!(ready().submit("Hi", 1), Some(Request::Generate { .. })));
}

#[test]
fn a_long_conversation_that_fits_is_answered() {
    let mut state = long(WhenFull::Ask);
    assert!(is_count(state.submit("And?", 4).as_ref()));
    state.apply(counted(4, 950), 0.0);
    assert_eq!(conversation(state.take_due().pop()).len(), 7);
    assert_eq!((state.view_start(), state.full), (None, None));
}

#[test]
fn the_person_is_asked_and_may_stop() {
    let mut state = long(WhenFull::Ask);
    state.submit("And?", 4);
    state.apply(counted(4, 951), 0.0);
    assert_eq!(state.full, Some(Full { n_tokens: 951, limit: 1000 }));
    assert!(state.take_due().is_empty() && state.obstacle().is_some());
    assert_eq!(state.stop(0.0), None, "nothing runs");
    assert_eq!((state.full, state.answering, state.turns.len()), (None, None, 6));
    assert_eq!(state.take_returned().as_deref(), Some("And?"));
    assert_eq!(state.own.when_full, WhenFull::Ask);
}

#[test]
fn the_oldest_turns_are_dropped_where_the_person_wants_that() {
    let mut state = long(WhenFull::Ask);
    state.edit_own(|own| own.system_prompt = Some("Be brief.".to_owned()));
    state.submit("And?", 4);
    state.apply(counted(4, 1050), 0.0);
    state.drop_from_now_on();
    assert_eq!((state.full, state.own.when_full), (None, WhenFull::Drop));
    assert!(is_count(state.take_due().first()), "it is counted again");
    state.apply(counted(4, 700), 0.0);
    let sent = conversation(state.take_due().pop());
    assert_eq!((sent[0].1.as_str(), sent.len()), ("Be brief.", 4), "{sent:?}");
    assert_eq!(state.view_start(), Some(state.turns[4].id));
    assert_eq!(state.turns.len(), 8, "all stays on screen");
    let chat = saved(&mut state).1;
    assert!(chat.turns[4].view_begins && chat.own.when_full == WhenFull::Drop);

    // The view stays where it begins as long as it fits.
    state.apply(finished(4, FinishReason::Stop), 0.0);
    let is_whole = |request: Option<&Request>| {
        let Some(Request::Tokenize { prompt: Prompt::Chat { messages, .. }, .. }) = request else {
            panic!("it is not counted")
        };
        messages.len() > 6
    };
    assert!(is_whole(state.submit("More", 5).as_ref()), "all might fit again");
    state.apply(counted(5, 1500), 0.0);
    assert!(!is_whole(state.take_due().first()));
    state.apply(counted(5, 800), 0.0);
    assert_eq!(conversation(state.take_due().pop())[1].1, format!("3{}", "a".repeat(500)));
    assert_eq!(state.view_start(), Some(state.turns[4].id));
    state.apply(finished(5, FinishReason::Stop), 0.0);

    // A larger context holds all of it.
    state.apply(ready_from(ModelInfo { context: 9000, kv_tokens: 9000, ..info("tiny") }, url()), 1.0);
    assert_eq!(conversation(state.submit("All", 6)).len(), 12);
    assert_eq!(state.view_start(), None);
    assert!(saved(&mut state).1.turns.iter().all(|turn| !turn.view_begins));
}

#[test]
fn what_is_dropped_for_no_answer_is_not_dropped() {
    let mut state = long(WhenFull::Drop);
    state.submit("And?", 4);
    state.apply(counted(4, 1050), 0.0);
    assert!(is_count(state.take_due().first()));
    state.stop(0.0);
    state.apply(counted(4, 700), 0.0);
    assert_eq!((state.answering, state.view_start()), (None, None));
}

#[test]
fn dropping_ends_with_the_last_message() {
    let mut state = long(WhenFull::Drop);
    state.submit("And?", 4);
    for n_tokens in [2000, 1500] {
        state.apply(counted(4, n_tokens), 0.0);
        assert!(is_count(state.take_due().first()));
    }
    state.apply(counted(4, 1200), 0.0);
    let due = state.take_due();
    if is_count(due.first()) {
        state.apply(counted(4, 1200), 0.0);
    }
    assert_eq!((state.answering, state.turns.len()), (None, 6));
    assert!(notices(&state)[0].contains("shorten your message"), "{:?}", state.notices);
    assert_eq!(state.take_returned().as_deref(), Some("And?"));
    assert_eq!(state.view_start(), None, "a shorter message may find more room");
}

#[test]
fn a_chat_that_stops_says_so() {
    let mut state = long(WhenFull::Stop);
    state.submit("And?", 4);
    state.apply(counted(4, 960), 0.0);
    assert!(notices(&state)[0].contains("begin a new chat"), "{:?}", state.notices);
    assert_eq!((state.take_returned().as_deref(), state.answering), (Some("And?"), None));
}

#[test]
fn an_answer_that_goes_on_counts_too() {
    let mut state = long(WhenFull::Ask);
    let turn = &mut state.turns[5];
    turn.stage = Stage::Done(FinishReason::Length);
    turn.grown.ids = vec![1; 300];
    let turn_id = turn.id;
    assert!(is_count(state.ask_for(&Intent::GoOn(turn_id), 4).as_ref()));
    state.apply(counted(4, 700), 0.0);
    assert_eq!(state.full, Some(Full { n_tokens: 1000, limit: 1000 }));
    state.stop(0.0);
    assert_eq!(state.turns[5].stage, Stage::Done(FinishReason::Length), "it is as it was");
}

#[test]
fn a_chat_keeps_the_system_prompt_it_began_with() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    state.edit(|preferences| "Be brief.".clone_into(&mut preferences.system_prompt));
    state.submit("Hi", 1);
    state.apply(finished(1, FinishReason::Stop), 0.0);
    state.edit(|preferences| "Be long.".clone_into(&mut preferences.system_prompt));
    assert_eq!(conversation(state.submit("Go on", 2))[0].1, "Be brief.");
    assert_eq!(saved(&mut state).1.own.system_prompt.as_deref(), Some("Be brief."));
    state.apply(finished(2, FinishReason::Stop), 0.0);
    state.edit_own(|own| own.system_prompt = Some("Be right.".to_owned()));
    assert!(state.is_unsaved());
    assert_eq!(conversation(state.submit("Go on", 3))[0].1, "Be right.");
    state.new_chat("b".to_owned());
    assert_eq!(state.system_prompt(), "Be long.");
}

#[test]
fn template_arguments_are_the_chats_own() {
    let mut state = ready();
    state.edit_own(|own| _ = own.arguments.insert(THINKING.to_owned(), json!(false)));
    let Some(Request::Generate { prompts, .. }) = state.submit("Hi", 1) else { panic!("not sent") };
    let Prompt::Chat { template_arguments, .. } = &prompts[0] else { panic!("no chat") };
    assert_eq!(template_arguments, &[("enable_thinking".to_owned(), "false".to_owned())]);
    state.new_chat("b".to_owned());
    assert!(state.own.arguments.is_empty());
}

#[test]
fn a_preset_changes_the_sampling_of_one_chat() {
    let mut state = ready();
    let of_model = state.options();
    let precise = given_presets()[0].0.clone();
    state.edit_own(|own| own.sampling = Some(precise.sampling));
    let options = state.options();
    assert_eq!(
        (options.temperature, options.max_tokens),
        (precise.sampling.temperature, of_model.max_tokens)
    );
    assert_eq!(state.preset(), Some(precise));

    // The chat's values are changed in the chat, all others for the model.
    state.edit_options(|options| (options.temperature, options.max_tokens) = (0.1, Some(7)));
    assert_eq!((state.options().temperature, state.options().max_tokens), (0.1, Some(7)));
    assert_eq!(state.preferences.options().temperature, of_model.temperature);
    assert_eq!((state.preferences.options().max_tokens, state.preset()), (Some(7), None));

    assert_eq!(state.save_preset(" Mine "), Ok(()));
    assert_eq!(state.preset().unwrap().name, "Mine");
    assert!(state.save_preset("Precise").is_err() && state.save_preset("").is_err());
    let kept = Preferences::from_json(&state.preferences.to_json());
    assert_eq!(kept.presets, state.preferences.presets);
    state.new_chat("b".to_owned());
    assert_eq!(state.options().temperature, of_model.temperature);
    state.forget_preset("Mine");
    assert_eq!(state.presets().len(), 3);
}

#[test]
fn without_a_preset_options_are_the_models() {
    let mut state = ready();
    state.edit_options(|options| options.temperature = 0.1);
    assert_eq!((state.own.sampling, state.preferences.options().temperature), (None, 0.1));
}
