//! Records of all versions: what is kept is read again, and what cannot be read is told apart.

use super::*;

fn turn(speaker: Speaker, text: &str, stage: Stage) -> Turn {
    Turn::new(0, speaker, text.to_owned(), stage)
}

#[test]
fn what_is_kept_is_read_again() {
    let usage = Usage { prompt_tokens: 12, cached_tokens: 3, queue_ms: 1.5, ..Usage::default() };
    let done = [
        Stage::Done(FinishReason::Stop),
        Stage::Done(FinishReason::Length),
        Stage::Done(FinishReason::Cancelled),
        Stage::Done(FinishReason::Unmet),
        Stage::Broken,
    ];
    let mut turns = vec![turn(Speaker::User, "  Why is\tthe sky\nblue?", done[0])];
    turns.extend(done.map(|stage| Turn { usage: Some(usage), ..turn(Speaker::Assistant, "So.", stage) }));
    let chat = Chat::new(None, 1.0, 2.0, turns.iter().map(KeptTurn::of).collect());
    assert_eq!((chat.head.title.as_str(), chat.is_open()), ("Why is the sky", false));
    let read = Chat::from_kept(&chat.to_kept()).unwrap();
    assert_eq!(read, chat);
    for (kept, turn) in read.turns.iter().zip(&turns) {
        assert_eq!((kept.stage(true), kept.usage.map(Usage::from)), (turn.stage, turn.usage));
    }
}

#[test]
fn an_open_turn_grows_only_where_its_tab_lives() {
    for stage in [Stage::Growing, Stage::Reading { done_tokens: 1, total_tokens: 2 }, Stage::Recovering] {
        let kept = KeptTurn::of(&turn(Speaker::Assistant, "", stage));
        assert_eq!((kept.stage(true), kept.stage(false)), (Stage::Growing, Stage::Interrupted));
        assert!(Chat::new(None, 0.0, 0.0, vec![kept]).is_open());
    }
}

#[test]
fn newer_and_damaged_records_are_told_apart() {
    let kept = Chat::new(None, 0.0, 0.0, vec![]).to_kept();
    let with_body = |body: &str| Chat::from_kept(&Kept { body: body.to_owned(), ..kept.clone() });
    assert_eq!(with_body(r#"{"version": 3, "anything": 1}"#), Err(Unreadable::Newer));
    for body in ["", "[]", "{}", r#"{"version": 1}"#, r#"{"version": 1, "turns": [{"speaker": "cat"}]}"#] {
        assert_eq!(with_body(body), Err(Unreadable::Damaged), "{body}");
    }
    assert_eq!(Head::from_json(r#"{"version": 9}"#), Err(Unreadable::Newer));
    let later = r#"{"version": 2, "turns": [{"speaker": "user", "text": "a", "end": "stop", "parent": {"turn": 0}}]}"#;
    assert_eq!(with_body(later), Err(Unreadable::Damaged), "a turn that follows itself");
    // Kept before there were counts, and by a page that counts more.
    let turns = r#"{"version": 1, "turns": [{"speaker": "assistant", "text": "a", "end": "stop"},
        {"speaker": "assistant", "text": "b", "end": "open", "usage": {"drafted_tokens": 4}}]}"#;
    assert_eq!(with_body(turns).unwrap().turns[1].usage, Some(KeptUsage::default()));
}

#[test]
fn titles_are_short() {
    assert_eq!(title_of(" \n"), "Chat");
    assert_eq!(title_of("\nHi there\nsecond line"), "Hi there");
    assert_eq!(title_of(&"ä".repeat(60)), "ä".repeat(60));
    assert_eq!(title_of(&format!("{} {}", "ä".repeat(59), "b".repeat(9))), format!("{}…", "ä".repeat(59)));
}

#[test]
fn fragments_name_chats() {
    assert_eq!(id_in_fragment(&fragment("a1")).as_deref(), Some("a1"));
    for text in ["", "#", "#chat=", "#chat=a/b", "#other=1", "chat=a1"] {
        assert_eq!(id_in_fragment(text), None, "{text}");
    }
}

/// As version 1 of the page wrote them.
const HEAD_V1: &str = r#"{"version":1,"title":"Why is the sky blue?","created_ms":1764000000000.0,"updated_ms":1764000009000.0}"#;
const BODY_V1: &str = concat!(
    r#"{"version":1,"turns":[{"speaker":"user","text":"Why is the sky blue?","end":"stop"},"#,
    r#"{"speaker":"assistant","text":"Because","end":"cancelled","usage":{"prompt_tokens":31,"cached_tokens":0,"#,
    r#""generated_tokens":2,"queue_ms":0.5,"prefill_ms":210.0,"decode_ms":40.25}},"#,
    r#"{"speaker":"user","text":"Go on","end":"stop"},{"speaker":"assistant","text":"It","end":"open"}]}"#,
);

#[test]
fn a_record_of_version_1_becomes_one_of_version_2() {
    let old = Kept { head: HEAD_V1.to_owned(), body: BODY_V1.to_owned() };
    let chat = Chat::from_kept(&old).unwrap();
    let texts: Vec<&str> = chat.shown().iter().map(|turn| turn.text.as_str()).collect();
    assert_eq!(texts, ["Why is the sky blue?", "Because", "Go on", "It"]);
    assert_eq!((chat.is_open(), &chat.own), (true, &Own::default()));
    assert_eq!(chat.head.title, "Why is the sky blue?");
    let kept = chat.to_kept();
    for text in [&kept.head, &kept.body] {
        assert!(text.starts_with(r#"{"version":2,"#), "{text}");
    }
    assert_eq!(Chat::from_kept(&kept), Ok(chat));
}

#[test]
fn branches_are_kept() {
    let mut turns = Vec::new();
    // Two answers to the first question, the first of which is shown, and another first question.
    for (id, speaker, parent, aside) in [
        (3, Speaker::User, None, false),
        (4, Speaker::Assistant, Some(3), false),
        (7, Speaker::Assistant, Some(3), true),
        (8, Speaker::User, Some(4), false),
        (9, Speaker::User, None, true),
    ] {
        let stage = Stage::Done(FinishReason::Stop);
        turns.push(Turn { id, parent, aside, ..turn(speaker, &format!("t{id}"), stage) });
    }
    let kept = KeptTurn::of_all(&turns.iter().collect::<Vec<_>>());
    let parents = [Parent::Previous, Parent::Previous, Parent::Turn(0), Parent::Turn(1), Parent::Start];
    assert_eq!(kept.iter().map(|turn| turn.parent).collect::<Vec<_>>(), parents);
    let chat = Chat::new(None, 0.0, 0.0, kept);
    let read = Chat::from_kept(&chat.to_kept()).unwrap();
    assert_eq!(read, chat);
    assert_eq!(read.shown().iter().map(|turn| turn.text.as_str()).collect::<Vec<_>>(), ["t3", "t4", "t8"]);
}

#[test]
fn only_an_answer_that_may_go_on_keeps_its_tokens() {
    let grown = Grown { model: "tiny".to_owned(), ids: vec![1, 2], tail_bytes: 1 };
    for (stage, is_kept) in [
        (Stage::Growing, true),
        (Stage::Interrupted, true),
        (Stage::Broken, true),
        (Stage::Done(FinishReason::Length), true),
        (Stage::Done(FinishReason::Cancelled), true),
        (Stage::Done(FinishReason::Stop), false),
    ] {
        let kept = KeptTurn::of(&Turn { grown: grown.clone(), ..turn(Speaker::Assistant, "ab", stage) });
        let text = serde_json::to_string(&kept).unwrap();
        assert_eq!(serde_json::from_str::<KeptTurn>(&text).unwrap(), kept);
        assert_eq!(kept.grown == grown, is_kept, "{stage:?}");
    }
}

#[test]
fn a_chat_is_renamed() {
    let head = Head::from_json(HEAD_V1).unwrap().renamed("  The   sky ");
    assert_eq!(head.title, "The sky");
    assert_eq!(Head::from_json(&head.to_json()), Ok(head));
}
