//! Which model answers, and which one is on its way, whoever asked for it.

use super::*;

fn other_url() -> ModelSource {
    ModelSource::Url { url: "models/other.gguf".to_owned() }
}

fn report(stage: &str, done_bytes: u64, total_bytes: u64) -> Event {
    Event::Loading { stage: stage.to_owned(), done_bytes, total_bytes }
}

#[test]
fn a_model_loads() {
    let mut state = State::new(Preferences::default());
    assert_eq!(state.engine, Engine::Starting);
    state.apply(welcome(BUILD), 0.0);
    assert_eq!(state.engine, Engine::Running);

    state.edit(|preferences| preferences.load.kv = KvType::F32);
    let greedy = GenerateOptions { temperature: 0.0, ..default_options() };
    let request = state.load("Tiny", url(), Some(greedy.clone()), 0.0);
    let Request::Load { source, options, if_full: IfFull::Ask } = request else { panic!("{request:?}") };
    assert_eq!((source, options.kv), (url(), KvType::F32));
    state.take_changed();

    let report = |done_bytes| Event::Loading { stage: "Fetching".to_owned(), done_bytes, total_bytes: 100 };
    state.apply(report(0), 0.0);
    state.apply(report(50), 1000.0);
    let progress = &state.loading.as_ref().unwrap().progress;
    assert_eq!((progress.fraction(), progress.secs_left()), (Some(0.5), Some(1.0)));
    assert_eq!(state.take_changed(), [Part::Loading]);

    state.apply(ready_from(info("tiny"), url()), 2000.0);
    assert_eq!(state.loading, None);
    assert_eq!(state.model.as_ref().unwrap().name, "Tiny");
    assert_eq!(state.preferences.options(), &greedy);
    assert_eq!(state.obstacle(), None);
}

#[test]
fn the_first_offers_options_show_before_a_load() {
    let offers = crate::ui::catalogue::parse(include_str!("../../../../www/models.json"));
    let mut state = State::new(Preferences::default());
    state.offer(offers.clone());
    assert_eq!(state.preferences.options().temperature, 0.0);

    let mut state = ready();
    state.offer(offers);
    assert_eq!(state.preferences.options(), &default_options(), "a loaded model keeps its own");

    state.offer(Err("No list.".to_owned()));
    assert_eq!(notices(&state), ["No list."]);
}

#[test]
fn a_failed_load_keeps_the_old_model_unless_it_is_gone() {
    for unloaded in [false, true] {
        let mut state = ready();
        state.load("Broken", url(), None, 0.0);
        state.apply(Event::LoadFailed { error: "The file is truncated.".to_owned(), unloaded }, 0.0);
        assert_eq!((state.loading.is_none(), state.model.is_none()), (true, unloaded));
        assert_eq!(notices(&state), ["The file is truncated."]);
        assert_eq!(state.preferences.model(), "Tiny");
    }
}

#[test]
fn a_model_of_ones_own_is_called_what_the_engine_calls_it() {
    for (defaults, name) in [(None, "tiny"), (Some(default_options()), "Tiny 1 B")] {
        let mut state = State::new(Preferences::default());
        state.load("Tiny 1 B", url(), defaults, 0.0);
        state.apply(ready_from(info("tiny"), url()), 1.0);
        assert_eq!((state.model.as_ref().unwrap().name.as_str(), state.preferences.model()), (name, name));
    }
}

#[test]
fn a_model_that_comes_unasked_is_shown() {
    let mut state = State::new(Preferences::default());
    state.apply(ready_from(info("tiny"), url()), 0.0);
    assert_eq!((state.model.as_ref().unwrap().name.as_str(), state.obstacle()), ("tiny", None));
}

#[test]
fn a_shared_model_is_called_what_its_offer_calls_it() {
    let offers = crate::ui::catalogue::parse(include_str!("../../../../www/models.json")).unwrap();
    let (name, source) = (offers[0].name.clone(), ModelSource::Url { url: offers[0].url.clone() });
    for list_first in [true, false] {
        let mut state = State::new(Preferences::default());
        if list_first {
            state.offer(Ok(offers.clone()));
        }
        state.apply(ready_from(info("tiny"), source.clone()), 0.0);
        if !list_first {
            assert_eq!(state.model.as_ref().unwrap().name, "tiny");
            state.offer(Ok(offers.clone()));
        }
        assert_eq!(state.model.as_ref().unwrap().name, name);
        assert_eq!(state.preferences.options().temperature, 0.0, "with the options of its offer");
    }
}

#[test]
fn a_load_that_another_tab_asked_for_is_shown() {
    let mut state = State::new(Preferences::default());
    state.apply(report("Fetching", 1, 4), 0.0);
    let loading = state.loading.as_ref().unwrap();
    assert_eq!((loading.name.as_str(), loading.progress.fraction()), ("a model", Some(0.25)));
    assert!(state.obstacle().unwrap().contains("loading"));
    state.apply(ready_from(info("tiny"), url()), 1.0);
    assert_eq!((state.loading.is_none(), state.obstacle()), (true, None));

    // The same where it does not come to an end.
    state.apply(report("Fetching", 1, 4), 2.0);
    state.apply(Event::LoadFailed { error: "Not found.".to_owned(), unloaded: false }, 3.0);
    assert_eq!((state.loading.is_none(), state.obstacle()), (true, None));
}

#[test]
fn a_model_that_comes_back_leaves_an_own_load_alone() {
    let mut state = ready();
    state.load("Other", other_url(), Some(default_options()), 0.0);
    // The device was lost meanwhile.
    state.apply(ready_from(info("tiny"), url()), 1.0);
    assert_eq!(state.loading.as_ref().unwrap().name, "Other");
    assert_eq!(state.model.as_ref().unwrap().info.name, "tiny");
    state.apply(ready_from(info("other"), other_url()), 2.0);
    assert_eq!((state.loading.is_none(), state.model.as_ref().unwrap().name.as_str()), (true, "Other"));

    // An engine that names the source in other words ends the load all the same.
    state.load("Third", url(), None, 3.0);
    state.apply(ready_from(info("third"), ModelSource::Url { url: "./third".to_owned() }), 4.0);
    assert_eq!((state.loading.is_none(), state.model.as_ref().unwrap().name.as_str()), (true, "third"));
}

#[test]
fn a_load_without_room_waits_for_the_person() {
    let uses = vec![ModelUse { name: "Tiny".to_owned(), n_bytes: 98, n_tabs: 2, n_sequences: 1 }];
    for if_full in [IfFull::Wait, IfFull::Replace] {
        let mut state = ready();
        state.load("Other", other_url(), None, 0.0);
        state.apply(Event::InUse { models: uses.clone() }, 1.0);
        let in_use = state.in_use.as_ref().unwrap();
        assert_eq!((in_use.name.as_str(), &in_use.models, state.loading.is_none()), ("Other", &uses, true));
        assert_eq!(state.obstacle(), None, "the model there is goes on answering");

        let options = state.preferences.load.clone();
        let again = Request::Load { source: other_url(), options, if_full };
        assert_eq!(state.load_again(if_full, 2.0), Some(again));
        assert_eq!((state.in_use.is_none(), state.is_loading()), (true, if_full == IfFull::Replace));
        // Nobody knows how long a wait takes; a load that says nothing is stuck.
        state.tick(20_000.0);
        assert_eq!(state.silent, if_full == IfFull::Replace);
        state.apply(report("Fetching", 0, 9), 30_000.0);
        assert!(state.is_loading());
        state.apply(ready_from(info("other"), other_url()), 31_000.0);
        assert_eq!(
            (state.loading.is_none(), state.model.as_ref().unwrap().info.name.as_str()),
            (true, "other")
        );
    }
}

#[test]
fn a_load_without_room_can_be_given_up() {
    let mut state = ready();
    state.load("Other", other_url(), None, 0.0);
    state.apply(Event::InUse { models: vec![] }, 1.0);
    assert_eq!(state.cancel_load(), None);
    assert_eq!((state.in_use.is_none(), state.load_again(IfFull::Wait, 2.0)), (true, None));
    // What nobody asked for is no question.
    state.apply(Event::InUse { models: vec![] }, 3.0);
    assert_eq!(state.in_use, None);
}

#[test]
fn a_model_that_is_unloaded_says_why() {
    let mut state = ready();
    state.apply(Event::Unloaded { reason: "Another tab replaced it.".to_owned() }, 0.0);
    assert_eq!((notices(&state), state.model.is_none()), (vec!["Another tab replaced it."], true));

    // It does not come back after its device was lost: nothing is on its way any more.
    let mut state = ready();
    state.apply(report("The GPU was lost; loading tiny again", 0, 9), 0.0);
    state.apply(Event::Unloaded { reason: "It was lost too often.".to_owned() }, 1.0);
    assert_eq!((state.loading.is_none(), state.obstacle()), (true, Some("Load a model first.")));
    // What the person asked for still is.
    let mut state = ready();
    state.load("Other", other_url(), None, 0.0);
    state.apply(Event::Unloaded { reason: "Another tab replaced it.".to_owned() }, 1.0);
    assert_eq!(state.loading.as_ref().unwrap().name, "Other");
}

#[test]
fn the_model_of_an_engine_that_was_lost_may_find_no_room() {
    let models = vec![ModelUse { name: "Other".to_owned(), n_bytes: 98, n_tabs: 1, n_sequences: 0 }];
    let without_room = |restarts: bool| {
        let mut state = asked("Hi");
        if restarts {
            assert_eq!(state.restart(), Some(Request::Cancel { request: 1 }));
        } else {
            state.interrupt(1.0);
        }
        state.apply(report("Loading", 0, 0), 2.0);
        assert_eq!(state.loading.as_ref().unwrap().name, "Tiny");
        state.apply(Event::InUse { models: models.clone() }, 3.0);
        let in_use = state.in_use.as_ref().unwrap();
        assert_eq!((in_use.name.as_str(), &in_use.models, state.loading.is_none()), ("Tiny", &models, true));
        assert!(state.asks_about_own(), "the client has its files");
        state
    };
    for restarts in [false, true] {
        let mut state = without_room(restarts);
        let options = state.preferences.load.clone();
        let again = Request::Load { source: url(), options, if_full: IfFull::Replace };
        assert_eq!(state.load_again(IfFull::Replace, 4.0), Some(again));
        state.apply(ready_from(info("tiny"), url()), 5.0);
        assert_eq!(
            (state.loading.is_none(), state.in_use.is_none(), state.model.is_some()),
            (true, true, true)
        );
        assert_eq!(state.answering.is_some(), !restarts, "the answer goes on");
    }
    // What waits for it goes with it, and an answer of the model that took its place does not.
    assert_eq!(without_room(false).cancel_load(), Some(Request::Cancel { request: 1 }));
    let mut state = without_room(false);
    state.apply(finished(1, FinishReason::Cancelled), 4.0);
    state.apply(ready_from(info("other"), other_url()), 4.0);
    assert!(state.in_use.is_some() && state.submit("Hello", 2).is_some());
    assert_eq!(state.cancel_load(), None);
    // It came back all the same.
    let mut state = without_room(false);
    state.apply(ready_from(info("tiny"), url()), 4.0);
    assert_eq!(state.in_use, None);
}
