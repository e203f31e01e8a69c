//! The engine's worker ended from outside, a fault of its own, a lost GPU: the answers go on.

use crate::answers::{Answer, LOAD, TEXTS, alone, generate, load, wait_until_mid_answer};
use page_tests::{Gpu, Hosting, Page, in_page, in_tabs};
use pagelm::protocol::{DeviceChoice, Event, Fault, IfFull, LoadOptions, ModelSource, Request};
use serde_json::json;

/// Long enough to be met half-way, short enough to be waited for.
const LONG: u32 = 400;

#[test]
fn every_tab_recovers_from_the_end_of_the_engine() {
    in_tabs("engine-ends", |first| {
        load(first)?;
        let second = first.open_tab()?;
        let tabs = [(first, TEXTS[0]), (&second, TEXTS[1])];
        let expected = [alone(first, TEXTS[0], LONG)?, alone(first, TEXTS[1], LONG)?];
        // The last one ends no engine, only its device, while it decodes.
        let ends = [(end_from_outside as fn(&Page) -> _, 1), (panic, 1), (destroy_device, 2)];
        // A worker of the tab's own cannot be ended from outside.
        let n_skipped = usize::from(first.hosting() == Hosting::Led);
        for (end, n_loads) in ends.into_iter().skip(n_skipped) {
            let mut asked = Vec::new();
            for (tab, text) in tabs {
                asked.push(tab.ask_engine(&[generate(text, LONG)])?);
            }
            wait_until_mid_answer(&second)?;
            end(first)?;
            for ((tab, _), (asked, expected)) in tabs.iter().zip(asked.into_iter().zip(&expected)) {
                Answer::of(&tab.answers(asked, LOAD)?[0])?.recovers(expected)?;
            }
            let status = first.engine_status()?;
            assert_eq!((status.n_tabs, status.n_loads), (2, n_loads), "{status:?}");
            assert_eq!(status.free_blocks, status.n_blocks, "{status:?}");
        }
        Ok(())
    });
}

/// Ends the worker as the browser does to save memory.
fn end_from_outside(page: &Page) -> Result<(), String> {
    match &page.session().shared_workers()?[..] {
        [engine] => page.session().end_worker(engine),
        engines => Err(format!("there are {} shared workers", engines.len())),
    }
}

fn panic(page: &Page) -> Result<(), String> {
    break_on_purpose(page, Fault::Panic)
}

fn destroy_device(page: &Page) -> Result<(), String> {
    break_on_purpose(page, Fault::DestroyDevice)
}

fn break_on_purpose(page: &Page, fault: Fault) -> Result<(), String> {
    page.ask_engine(&[Request::Break { fault }]).map(drop)
}

#[test]
fn answers_outlive_the_gpu() {
    in_tabs("gpu-lost", |page| {
        // While the model is on its way: a large one, whose weights are brought for some seconds.
        let source = ModelSource::Url { url: "models/SmolLM2-135M-Instruct.Q4_1.gguf".into() };
        let options = LoadOptions { device: DeviceChoice::Gpu, ..LoadOptions::default() };
        let asked = page.ask_engine(&[Request::Load { source, options, if_full: IfFull::Replace }])?;
        page.wait_for_status(LOAD, "buffers on the device", |status| status.n_gpu_buffers > 0)?;
        assert_eq!(page.engine_status()?.n_models, 0, "the model was there before its device could be lost");
        break_on_purpose(page, Fault::DestroyDevice)?;
        let answers = page.answers(asked, LOAD)?;
        assert!(matches!(answers[0].last(), Some(Event::Ready { .. })), "{answers:?}");
        assert_eq!(page.engine_status()?.n_losses, 1);
        load(page)?;

        // While a prompt is read that takes several steps, none of whose tokens is known from before.
        let prompt = format!("Of all things that are read, {}", TEXTS.join(" and "));
        let request = generate(&prompt, 8);
        let asked = page.ask_engine(&[request.clone(), Request::Break { fault: Fault::LoseDevice }])?;
        let answer = Answer::of(&page.answers(asked, LOAD)?[0])?;
        answer.recovers(&alone(page, &prompt, 8)?)?;
        assert_eq!(page.engine_status()?.n_losses, 2);
        Ok(())
    });
}

#[test]
fn a_hung_engine_is_left_behind() {
    in_page("hung", Gpu::Software, |page| {
        load(page)?;
        let expected = alone(page, TEXTS[0], LONG)?;
        let asked = page.ask_engine(&[generate(TEXTS[0], LONG)])?;
        wait_until_mid_answer(page)?;
        let hung = page.session().shared_workers()?;
        page.session().hang_worker(hung.first().ok_or("there is no engine")?)?;
        page.session().run(GIVE_UP, json!([]))?;
        Answer::of(&page.answers(asked, LOAD)?[0])?.recovers(&expected)?;
        assert_eq!(page.engine_status()?.n_loads, 1);
        Ok(())
    });
}

/// What the client of another tab does when its person gives up on the engine: it makes the number of the engine in use
/// greater, and takes the locks of the one that is silent.
const GIVE_UP: &str = "
    localStorage.setItem(`pagelm generation ${new URL('.', location.href).pathname}`, '1');
    return navigator.locks.query().then(({ held }) => {
        const names = held.map(({ name }) => name).filter((name) => /^pagelm (epoch|engine) /.test(name));
        return Promise.all(names.map((name) => navigator.locks.request(name, { steal: true }, () => {})));
    }).then(() => null);";
