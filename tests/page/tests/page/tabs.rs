//! Several tabs, one engine: one model, many answers, and whoever goes takes nothing from the others.

use crate::answers::{
    Answer, FILES, LOAD, TEXTS, alone, generate, load, outlives_its_tab, status_when, wait_until_mid_answer,
};
use page_tests::{Hosting, Page, in_tabs};
use serde_json::json;
use std::time::Duration;

/// The engine notices at once what a tab does; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);
/// Two answers that are so long fill the KV cache: long enough to be met half-way, and nobody is preempted.
const LONG: u32 = 230;
/// The same for four.
const SHORTER: u32 = 100;

#[test]
fn four_tabs_share_one_model() {
    in_tabs("four-tabs", |first| {
        load(first)?;
        let one = first.engine_status()?;
        let n_bytes = first.server().sent_bytes(FILES);
        let alone: Vec<Answer> =
            TEXTS.iter().map(|text| alone(first, text, SHORTER)).collect::<Result<_, _>>()?;

        let tabs = [first.open_tab()?, first.open_tab()?, first.open_tab()?];
        for tab in &tabs {
            load(tab)?;
        }
        let all = || std::iter::once(first).chain(&tabs);
        let asked: Vec<_> = all()
            .zip(TEXTS)
            .map(|(tab, text)| tab.ask_engine(&[generate(text, SHORTER)]))
            .collect::<Result<_, _>>()?;
        let four = status_when(first, "status.running === 4")?;
        for ((tab, asked), alone) in all().zip(asked).zip(&alone) {
            Answer::of(&tab.answers(asked, LOAD)?[0])?.is(alone)?;
        }

        assert_eq!((four.n_tabs, four.n_models, four.n_loads), (4, 1, 1), "{four:?}");
        assert_eq!((four.n_gpu_buffers, four.gpu_bytes), (one.n_gpu_buffers, one.gpu_bytes));
        assert_eq!(first.server().sent_bytes(FILES), n_bytes, "the model was fetched again");
        a_frozen_tab_stalls_nobody(first, &tabs[0])
    });
}

/// Where a tab leads, the engine is frozen with it: so it is another one that freezes.
fn a_frozen_tab_stalls_nobody(first: &Page, frozen: &Page) -> Result<(), String> {
    let expected = [alone(first, TEXTS[0], LONG)?, alone(first, TEXTS[1], LONG)?];
    let asked = frozen.ask_engine(&[generate(TEXTS[1], LONG)])?;
    wait_until_mid_answer(frozen)?;
    frozen.session().tool("Page.setWebLifecycleState", json!({ "state": "frozen" }))?;
    alone(first, TEXTS[0], LONG)?.is(&expected[0])?;
    frozen.session().tool("Page.setWebLifecycleState", json!({ "state": "active" }))?;
    Answer::of(&frozen.answers(asked, LOAD)?[0])?.is(&expected[1])
}

#[test]
fn a_tab_that_goes_takes_nothing_from_the_others() {
    in_tabs("tabs-that-go", |first| {
        load(first)?;
        let alone: Vec<Answer> =
            TEXTS.iter().map(|text| alone(first, text, LONG)).collect::<Result<_, _>>()?;
        let [second, third, fourth] = [first.open_tab()?, first.open_tab()?, first.open_tab()?];
        let ask = |tab: &Page, text| tab.ask_engine(&[generate(text, LONG)]);

        // Its end is noticed: its answer ends, and its room is free.
        let asked = ask(first, TEXTS[0])?;
        ask(&fourth, TEXTS[3])?;
        wait_until_mid_answer(&fourth)?;
        fourth.close()?;
        let left = first.wait_for_status(AT_ONCE, "three tabs", |status| status.n_tabs == 3)?;
        assert!(left.running <= 1, "the closed tab's answer runs: {left:?}");
        Answer::of(&first.answers(asked, LOAD)?[0])?.is(&alone[0])?;

        // One that crashes in a process of its own is like one that is closed.
        let asked = ask(&second, TEXTS[1])?;
        ask(&third, TEXTS[2])?;
        wait_until_mid_answer(&third)?;
        third.crash();
        second.wait_for_status(AT_ONCE, "two tabs", |status| status.n_tabs == 2)?;
        Answer::of(&second.answers(asked, LOAD)?[0])?.is(&alone[1])?;
        let idle = second.engine_status()?;
        assert_eq!((idle.free_blocks, idle.running, idle.n_loads), (idle.n_blocks, 0, 1), "{idle:?}");

        // The first tab's process has the engine: it goes with it, and the other tab's answer goes on in a new one.
        let asked = ask(&second, TEXTS[1])?;
        wait_until_mid_answer(&second)?;
        let engines = second.session().shared_workers()?;
        first.crash();
        Answer::of(&second.answers(asked, LOAD)?[0])?.recovers(&alone[1])?;
        assert!(
            second.hosting() == Hosting::Led || second.session().shared_workers()? != engines,
            "the engine did not run in the first tab's process"
        );
        let status = second.engine_status()?;
        assert_eq!((status.n_tabs, status.free_blocks), (1, status.n_blocks), "{status:?}");
        Ok(())
    });
}

#[test]
fn a_page_that_comes_back_finds_the_engine() {
    in_tabs("come-back", |page| {
        load(page)?;
        let expected = alone(page, TEXTS[0], 40)?;

        // A reload of the only tab keeps the model, where the engine is not the tab's own.
        page.session().run("location.reload()", json!([]))?;
        page.wait_for_page()?;
        let status = page.engine_status()?;
        assert_eq!(status.n_models, u32::from(outlives_its_tab(page)), "{status:?}");
        load(page)?;
        alone(page, TEXTS[0], 40)?.is(&expected)?;

        // Away and back again, from wherever the browser keeps the page; meanwhile another tab is there.
        let other = page.open_tab()?;
        load(&other)?;
        page.session().open("about:blank")?;
        other.wait_for_status(AT_ONCE, "one tab", |status| status.n_tabs == 1)?;
        page.session().back()?;
        page.wait_for_page()?;
        load(page)?;
        alone(page, TEXTS[0], 40)?.is(&expected)?;
        assert_eq!(page.engine_status()?.n_tabs, 2);
        Ok(())
    });
}
