//! Chats that are kept, read, shared between tabs and deleted; what is on screen is never lost.

use super::*;
use crate::ui::chat::{Chat, ChatId, Head, Kept, KeptTurn, Listed, Unreadable};

pub(super) const NOW_MS: f64 = 1e12;

/// What is to be written of the chat on screen.
pub(super) fn saved(state: &mut State) -> (ChatId, Chat) {
    match state.take_unsaved(NOW_MS) {
        Some(Save::Write(id, chat)) => (id, *chat),
        other => panic!("nothing is written: {other:?}"),
    }
}

/// A chat as another tab keeps it after so many of its turns' words came.
fn kept_chat(turns: &[(Speaker, &str, Stage)]) -> Chat {
    let turn = |&(speaker, text, stage): &(Speaker, &str, Stage)| {
        KeptTurn::of(&Turn::new(0, speaker, text.to_owned(), stage))
    };
    Chat::new(None, 1.0, 2.0, turns.iter().map(turn).collect())
}

const DONE: Stage = Stage::Done(FinishReason::Stop);

fn question() -> (Speaker, &'static str, Stage) {
    (Speaker::User, "Hi", DONE)
}

#[test]
fn a_new_chat_forgets_and_cancels() {
    let mut state = asked("Hi");
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    assert_eq!(state.leave_chat(), Some(Request::Cancel { request: 1 }));
    assert_eq!(saved(&mut state).1.turns[1].stage(false), Stage::Done(FinishReason::Cancelled));
    state.new_chat("b".to_owned());
    state.take_changed();
    for late in [tokens(1, "lo", &[2]), finished(1, FinishReason::Cancelled), failed(Some(1), "Late.")] {
        state.apply(late, 1.0);
    }
    assert_eq!((state.take_changed(), state.turns.len(), state.tally), (vec![], 0, None));
    assert_eq!((state.leave_chat(), state.take_unsaved(NOW_MS)), (None, None));
    assert_eq!(conversation(state.submit("Again", 2)), pairs(&[("user", "Again")]));
}

#[test]
fn a_chat_is_kept_as_it_grows() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    assert!(!state.is_unsaved());
    state.submit("Why is the sky blue?", 1);
    let (id, chat) = saved(&mut state);
    assert_eq!((id.as_str(), chat.head.title.as_str(), chat.is_open()), ("a", "Why is the sky blue?", true));
    assert!(!state.is_unsaved() && state.chat.is_kept());

    state.apply(tokens(1, "Because", &[1]), 0.0);
    assert_eq!(saved(&mut state).1.turns[1].text, "Because");
    state.apply(Event::Status { request: None, status: Status::default() }, 0.0);
    assert!(!state.is_unsaved(), "nothing was said");
    state.apply(finished(1, FinishReason::Stop), 0.0);
    let chat = saved(&mut state).1;
    assert!(!chat.is_open() && chat.turns[1].usage.is_some());
    assert_eq!((chat.head.created_ms, chat.head.updated_ms), (NOW_MS, NOW_MS));
}

#[test]
fn a_first_question_that_fails_leaves_no_chat() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    state.submit("Hi", 1);
    saved(&mut state);
    state.apply(failed(Some(1), "Too long."), 0.0);
    assert_eq!(state.take_unsaved(NOW_MS), Some(Save::Remove("a".to_owned())));
    assert!(!state.chat.is_kept());

    state.submit("Hi", 2);
    state.apply(failed(Some(2), "Too long."), 0.0);
    assert_eq!(state.take_unsaved(NOW_MS), None, "it was never written");
}

#[test]
fn a_chat_survives_its_page() {
    let mut before = asked("Hi");
    before.apply(tokens(1, "Hel", &[1]), 0.0);
    let chat = saved(&mut before).1;

    let mut state = ready();
    state.open_chat("a".to_owned());
    assert!(state.obstacle().unwrap().contains("opened"));
    state.opened("a", Ok(Some(chat)), false, "spare".to_owned());
    assert_eq!((texts(&state), state.turns[1].stage), (vec!["Hi", "Hel"], Stage::Interrupted));
    assert_eq!((state.obstacle(), state.is_unsaved()), (None, false));
    let expected = [("user", "Hi"), ("assistant", "Hel"), ("user", "Go on")];
    assert_eq!(conversation(state.submit("Go on", 1)), pairs(&expected));
    assert_eq!(saved(&mut state).1.head.title, "Hi");
}

#[test]
fn an_answer_in_another_tab_is_seen_to_grow() {
    let mut state = ready();
    state.open_chat("a".to_owned());
    let growing = |text| kept_chat(&[question(), (Speaker::Assistant, text, Stage::Growing)]);
    state.opened("a", Ok(Some(growing("On"))), true, "spare".to_owned());
    assert!(state.obstacle().unwrap().contains("another tab"));
    assert!(!state.begin("Me too"));
    let ids: Vec<TurnId> = state.turns.iter().map(|turn| turn.id).collect();
    state.take_changed();

    state.take_in(growing("Once"), true);
    let changed = state.take_changed();
    assert!(changed.contains(&Part::Turn(ids[1])) && !changed.contains(&Part::Turn(ids[0])), "{changed:?}");
    assert!(!changed.contains(&Part::Turns), "the turns stay in place");
    assert_eq!(state.turns.iter().map(|turn| turn.id).collect::<Vec<_>>(), ids);
    assert_eq!((state.turns[1].text.as_str(), state.turns[1].stage), ("Once", Stage::Growing));

    state.take_in(kept_chat(&[question(), (Speaker::Assistant, "Once.", DONE)]), false);
    assert_eq!((state.turns[1].stage, state.obstacle(), state.is_unsaved()), (DONE, None, false));
}

#[test]
fn a_tab_that_dies_leaves_a_chat_that_goes_on() {
    let mut state = ready();
    state.open_chat("a".to_owned());
    let chat = kept_chat(&[question(), (Speaker::Assistant, "Once", Stage::Growing)]);
    state.opened("a", Ok(Some(chat.clone())), true, "spare".to_owned());
    state.take_in(chat, false);
    assert_eq!((state.turns[1].stage, state.obstacle()), (Stage::Interrupted, None));
}

#[test]
fn what_another_tab_wrote_is_read_before_a_new_turn() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    assert!(state.begin("And you?"));
    assert!(state.obstacle().is_some() && !state.begin("Twice"), "one text at a time");
    state.take_in(kept_chat(&[question(), (Speaker::Assistant, "Well.", DONE)]), false);
    let expected = [("user", "Hi"), ("assistant", "Well."), ("user", "And you?")];
    assert_eq!(conversation(state.submit("And you?", 1)), pairs(&expected));
    // From here on only this tab writes.
    state.take_in(kept_chat(&[question()]), false);
    assert_eq!(texts(&state), ["Hi", "Well.", "And you?", ""]);
}

#[test]
fn turns_that_differ_are_replaced() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    state.take_in(kept_chat(&[question(), (Speaker::Assistant, "A", DONE), question()]), false);
    let first = state.turns[0].id;
    state.take_changed();
    state.take_in(kept_chat(&[question(), (Speaker::Assistant, "B", DONE)]), false);
    assert_eq!((texts(&state), state.turns[0].id), (vec!["Hi", "B"], first));
    assert!(state.take_changed().contains(&Part::Turns));
    state.take_in(kept_chat(&[(Speaker::User, "Other", DONE)]), false);
    assert_eq!(texts(&state), ["Other"]);
    assert_ne!(state.turns[0].id, first);
}

#[test]
fn a_text_that_cannot_be_sent_comes_back() {
    let mut state = ready();
    assert!(state.begin("Hi"));
    state.give_back("Hi".to_owned());
    assert_eq!((state.take_returned().as_deref(), state.obstacle()), (Some("Hi"), None));
    assert!(!state.is_unsaved());
}

#[test]
fn an_unreadable_chat_is_left_alone() {
    for (read, part) in [
        (Err(Unreadable::Newer), "newer version"),
        (Err(Unreadable::Damaged), "damaged"),
        (Ok(None), "no such chat"),
    ] {
        let mut state = ready();
        state.open_chat("a".to_owned());
        state.opened("a", read, false, "spare".to_owned());
        assert!(notices(&state)[0].contains(part), "{:?}", state.notices);
        state.submit("Hi", 1);
        assert_eq!(saved(&mut state).0, "spare", "its record stays as it is");
    }
}

#[test]
fn a_chat_that_is_read_too_late_changes_nothing() {
    let mut state = ready();
    state.open_chat("a".to_owned());
    state.new_chat("b".to_owned());
    state.opened("a", Ok(Some(kept_chat(&[question()]))), false, "spare".to_owned());
    assert_eq!((texts(&state), state.chat.id.as_str()), (vec![], "b"));
}

#[test]
fn storage_that_fails_is_told_once_and_takes_nothing() {
    let mut state = ready();
    state.stored(Err("Full.".to_owned()));
    state.load("Tiny", url(), None, 0.0);
    state.apply(ready_from(info("tiny"), url()), 1.0);
    assert!(state.submit("Hi", 1).is_some());
    assert_eq!(notices(&state), ["Full."], "what the person tries does not change it");
    for _ in 0..3 {
        state.stored(Err("Full.".to_owned()));
        state
            .notices
            .iter()
            .map(|notice| notice.id)
            .collect::<Vec<_>>()
            .into_iter()
            .for_each(|id| state.dismiss(id));
    }
    state.apply(tokens(1, "Hel", &[1]), 0.0);
    state.stored(Err("Full.".to_owned()));
    assert_eq!((notices(&state), texts(&state)), (vec![], vec!["Hi", "Hel"]));
    state.stored(Ok(()));
    state.stored(Err("Full.".to_owned()));
    assert_eq!(notices(&state), ["Full."], "it is news again");
}

#[test]
fn turns_that_could_not_be_kept_stay() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    state.submit("Hi", 1);
    let (id, first) = saved(&mut state);
    state.wrote(&id, Ok(()));
    state.apply(tokens(1, "Hello", &[1]), 0.0);
    state.apply(finished(1, FinishReason::Stop), 0.0);
    saved(&mut state);
    state.wrote(&id, Err("Full.".to_owned()));
    assert!(!state.is_unsaved(), "it is not tried again at once");
    // The old record, as it is read before the next turn.
    state.take_in(first.clone(), false);
    assert_eq!(texts(&state), ["Hi", "Hello"]);
    state.submit("And you?", 2);
    let (_, chat) = saved(&mut state);
    assert_eq!(chat.turns.len(), 4, "all is kept once it can be");
    state.wrote(&id, Err("Full.".to_owned()));
    state.apply(finished(2, FinishReason::Stop), 0.0);
    state.take_unsaved(NOW_MS);
    state.wrote(&id, Err("Full.".to_owned()));
    assert!(matches!(state.take_unsaved(NOW_MS), Some(Save::Write(..))), "asked, it tries again");
    state.wrote(&id, Ok(()));
    assert_eq!(state.take_unsaved(NOW_MS), None);
    state.take_in(chat, false);
    assert_eq!(state.turns[3].stage, Stage::Interrupted, "what is kept counts again");

    // What could not be kept of a chat that left the screen does not concern the one that came.
    state.new_chat("b".to_owned());
    state.wrote("a", Err("Full.".to_owned()));
    state.take_in(first, false);
    assert_eq!(texts(&state), ["Hi", ""]);
}

#[test]
fn a_title_given_during_an_answer_stays() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    state.submit("Hi", 1);
    assert_eq!(saved(&mut state).1.head.title, "Hi");
    state.rename_chat("b", "Another");
    state.rename_chat("a", " Greetings ");
    state.apply(finished(1, FinishReason::Stop), 0.0);
    assert_eq!(saved(&mut state).1.head.title, "Greetings");
}

#[test]
fn a_refused_change_is_shown_to_be_none() {
    let mut state = ready();
    state.refuse_change("Not now.".to_owned());
    assert_eq!((notices(&state), state.refusals), (vec!["Not now."], 1));
    assert!(state.take_changed().contains(&Part::Preferences));
}

#[test]
fn a_chat_deleted_elsewhere_goes() {
    let mut state = ready();
    state.new_chat("a".to_owned());
    state.take_in(kept_chat(&[question()]), false);
    state.deleted_elsewhere("b", "spare".to_owned());
    assert_eq!(texts(&state), ["Hi"]);
    state.deleted_elsewhere("a", "spare".to_owned());
    assert_eq!((texts(&state), state.chat.id.as_str(), state.is_unsaved()), (vec![], "spare", false));
    assert!(notices(&state)[0].contains("deleted in another tab"));
}

#[test]
fn the_list_begins_with_the_newest() {
    let head = |updated_ms| Ok(Chat::new(None, 0.0, updated_ms, vec![]).head);
    let listed = |id: &str, head: Result<Head, Unreadable>| Listed { id: id.to_owned(), head };
    let chats = vec![listed("x", Err(Unreadable::Newer)), listed("a", head(1.0)), listed("b", head(2.0))];
    let mut state = ready();
    state.list_chats(chats.clone());
    assert_eq!(state.chats.iter().map(|chat| chat.id.as_str()).collect::<Vec<_>>(), ["b", "a", "x"]);
    assert_eq!(state.take_changed(), [Part::Chats]);
    state.list_chats(chats);
    assert_eq!(state.take_changed(), [], "nothing changed");
}

#[test]
fn a_deleted_chat_is_remembered() {
    let mut state = ready();
    let kept = Kept { head: "{}".to_owned(), body: "{}".to_owned() };
    let deleted = Deleted { id: "a".to_owned(), title: "Hi".to_owned(), kept };
    state.remember_deleted(Some(deleted.clone()));
    assert_eq!((&state.deleted, &state.changed), (&Some(deleted), &vec![Part::Chats]));
    state.remember_deleted(None);
    assert_eq!(state.deleted, None);
}

#[test]
fn words_are_found_in_all_chats() {
    let chat = |title: &str, updated_ms, text: &str| {
        let turn = Turn::new(0, Speaker::User, text.to_owned(), DONE);
        Chat::new(Some(title.to_owned()), 0.0, updated_ms, vec![KeptTurn::of(&turn)])
    };
    let (a, b) = (chat("Sky", 1.0, "Why is it blue?"), chat("Sea", 2.0, "Why is it salty?"));
    let listed = |id: &str, chat: &Chat| Listed { id: id.to_owned(), head: Ok(chat.head.clone()) };
    let damaged = Listed { id: "x".to_owned(), head: Err(Unreadable::Damaged) };
    let mut state = ready();
    state.list_chats(vec![listed("a", &a), listed("b", &b), damaged]);
    let shown = |state: &State| state.shown_chats().into_iter().map(|chat| chat.id).collect::<Vec<_>>();
    assert_eq!((shown(&state), state.unread()), (vec!["b".to_owned(), "a".into(), "x".into()], vec![]));

    assert_eq!(state.look_for("blue"), ["b", "a"], "those must be read");
    assert_eq!(shown(&state), [""; 0]);
    state.learn(vec![("a".to_owned(), Some(a.clone())), ("b".to_owned(), None)]);
    assert_eq!((shown(&state), state.unread()), (vec!["a".to_owned()], vec![]));
    assert_eq!(state.excerpt("a").as_deref(), Some("Why is it blue?"));
    state.look_for("sea");
    assert_eq!(shown(&state), ["b"], "by its title");

    // What is written meanwhile is read again.
    let later = chat("Sea", 9.0, "It is green.");
    state.list_chats(vec![listed("a", &a), listed("b", &later)]);
    assert_eq!(state.unread(), ["b"]);
    // A chat that grows is read again once it is complete.
    state.new_chat("b".to_owned());
    state.submit("Hi", 1);
    assert_eq!(state.unread(), [""; 0]);
    state.apply(finished(1, FinishReason::Stop), 0.0);
    assert_eq!(state.unread(), ["b"]);
    // What a deleted chat said is forgotten.
    state.list_chats(vec![listed("b", &later)]);
    state.list_chats(vec![listed("a", &a), listed("b", &later)]);
    assert_eq!(state.unread(), ["b", "a"]);
    state.look_for(" ");
    assert_eq!((shown(&state).len(), state.unread(), state.excerpt("a")), (2, vec![], None));
}
