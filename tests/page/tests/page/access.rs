//! The page is for everybody: rules of accessibility in every view, and everything within reach of the keyboard.

use page_tests::page::keys;
use page_tests::{Gpu, in_page, views};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

const AT_ONCE: Duration = Duration::from_secs(60);
/// More controls than any view has.
const MOST_TABS: usize = 120;

#[test]
fn no_view_has_a_serious_finding() {
    let modules =
        std::env::var("PAGELM_MODULES").expect("run these tests with `cargo xtask test --only page`");
    let path = std::path::Path::new(&modules).join("axe-core/axe.min.js");
    let axe = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    in_page("axe", Gpu::Missing, |page| {
        let mut findings = Vec::new();
        let mut n_passed = 0;
        views::visit(page, |view| {
            for (scheme, width) in [("light", 1280), ("dark", 1280), ("light", 360), ("dark", 360)] {
                page.session().prefer(scheme, true)?;
                page.session().set_view(width, 720)?;
                page.session().run(&format!("if (!window.axe) {{ {axe} }}"), json!([]))?;
                let found = page.session().run(FIND, json!([]))?;
                n_passed += found["passed"].as_u64().unwrap_or_default();
                let serious = found["serious"].as_array().ok_or("axe found no list")?;
                findings
                    .extend(serious.iter().map(|finding| format!("{view}, {scheme}, {width}: {finding}")));
            }
            page.session().prefer("light", true)
        })?;
        assert!(n_passed > 500, "axe looked at {n_passed} rules only");
        assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
        Ok(())
    });
}

#[test]
fn every_control_is_reached_by_tab_and_seen_there() {
    in_page("tabbing", Gpu::Missing, |page| {
        views::visit(page, |view| {
            page.session()
                .run("document.activeElement.blur(); scrollTo(0, 0); window.reached = [];", json!([]))?;
            let mut unseen = BTreeSet::new();
            for _ in 0..MOST_TABS {
                page.session().press_keys(keys::TAB)?;
                let at = page.session().run(AT, json!([]))?;
                if at["seen"] == false {
                    unseen.insert(at["what"].to_string());
                }
                if at["again"] == true {
                    break;
                }
            }
            let missed = page.session().run(MISSED, json!([]))?;
            assert_eq!(missed, json!([]), "{view}: not reached");
            assert!(unseen.is_empty(), "{view}: the focus is not seen on {unseen:?}");
            Ok(())
        })
    });
}

#[test]
fn escape_closes_panels_and_the_focus_returns() {
    in_page("escape", Gpu::Missing, |page| {
        page.load_default_model()?;
        for (button, panel) in
            [("chats-button", "chats"), ("settings-button", "settings"), ("model-button", "models")]
        {
            page.session().run("document.getElementById(arguments[0]).focus()", json!([button]))?;
            page.session().press_keys(keys::ENTER)?;
            let is_open = |open: bool| {
                let script = "return !document.getElementById(arguments[0]).hidden";
                page.within(AT_ONCE, &format!("{panel}, open: {open}"), || {
                    Ok((page.session().run(script, json!([panel]))? == open).then_some(()))
                })
            };
            is_open(true)?;
            let script = "document.querySelector(`#${arguments[0]} button`).focus()";
            page.session().run(script, json!([panel]))?;
            page.session().press_keys(keys::ESCAPE)?;
            is_open(false)?;
            page.within(AT_ONCE, &format!("the focus on {button}"), || {
                let focused = page.session().run("return document.activeElement.id", json!([]))?;
                Ok((focused == button).then_some(()))
            })?;
        }
        Ok(())
    });
}

#[test]
fn an_answer_is_read_out_once_it_is_whole_and_stillness_is_kept() {
    in_page("still", Gpu::Missing, |page| {
        page.load_default_model()?;
        page.session().prefer("light", true)?;
        page.session().run(HEAR_BUSY, json!([]))?;
        page.ask("What is the capital of France?")?;
        page.see("Paris", AT_ONCE)?;
        page.wait_for_button("Send", AT_ONCE)?;
        let heard = page.session().run("return [busy.grew > 0, busy.unannounced, busy.moving]", json!([]))?;
        assert_eq!(heard, json!([true, 0, 0]), "it grew, while it was not busy, with movement");
        let log = page.session().run(
            "const log = document.querySelector('[role=log]');
             return [log.getAttribute('aria-live'), log.querySelectorAll('[aria-busy=true]').length]",
            json!([]),
        )?;
        assert_eq!(log, json!(["polite", 0]));
        Ok(())
    });
}

/// What axe finds, and how many rules passed.
const FIND: &str = "
    return axe.run(document, { resultTypes: ['violations'] }).then(({ violations, passes }) => ({
        passed: passes.length,
        serious: violations.filter(({ impact }) => ['serious', 'critical'].includes(impact)).map(({ id, nodes }) =>
            `${id}: ${nodes.slice(0, 3).map(({ html, any }) => `${html.slice(0, 160)} (${any[0]?.message ?? ''})`).join('; ')}`),
    }));";

/// Where the focus is, whether that is seen, and whether it was there before.
const AT: &str = "
    const at = document.activeElement;
    // After the last control comes the browser's own part, and then the first.
    if (at === document.body || at === null) return { again: false, seen: true, what: 'the document' };
    const again = reached.includes(at);
    reached.push(at);
    const marked = (element) => {
        const style = getComputedStyle(element);
        return (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) || style.boxShadow !== 'none';
    };
    const around = [at, at.parentElement, at.parentElement?.parentElement].filter(Boolean);
    const box = at.getBoundingClientRect();
    const inView = box.bottom > 0 && box.top < innerHeight && box.right > 0 && box.left < innerWidth;
    // A panel's title has the focus when the panel opens, to be read first; Tab never comes to it.
    return { again, seen: at.tabIndex < 0 || (inView && around.some(marked)), what: at.outerHTML.slice(0, 120) };";

/// The controls that are shown and were not reached. Of buttons that choose one of several, one is enough.
const MISSED: &str = "
    const controls = document.querySelectorAll('button, a[href], input, select, textarea, summary, [tabindex=\"0\"]');
    // Of a group of radio buttons Tab reaches the chosen one, and arrows the others.
    const isLeft = (e) => e.type === 'radio' && !e.checked && document.querySelector(`input[name=\"${e.name}\"]:checked`);
    const isShown = (e) => !e.disabled && e.checkVisibility() && e.tabIndex >= 0 && !isLeft(e);
    return [...controls].filter((e) => isShown(e) && !reached.includes(e)).map((e) => e.outerHTML.slice(0, 120));";

/// Watches the conversation: growth of what is not marked as busy is read out token by token.
const HEAR_BUSY: &str = "
    window.busy = { grew: 0, unannounced: 0, moving: 0 };
    const log = document.querySelector('[role=log]');
    new MutationObserver((changes) => {
        for (const { target } of changes) {
            const element = target.nodeType === 1 ? target : target.parentElement;
            const block = element?.closest('.block');
            if (!block) continue;
            busy.grew += 1;
            // The last change and the end of the answer come together.
            if (!element.closest('[aria-busy=true]') && log.querySelector('[aria-busy=true]')) busy.unannounced += 1;
            if (document.getAnimations().some(({ playState, effect }) =>
                playState === 'running' && log.contains(effect.target))) busy.moving += 1;
        }
    }).observe(log, { subtree: true, childList: true, characterData: true });";
