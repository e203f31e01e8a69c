//! A GPU whose kernels return noise is noticed before anybody reads it, and the page says what computes instead.

use std::time::Duration;

use page_tests::{Gpu, in_page};
use pagelm::protocol::{Event, Fault, IfFull, LoadOptions, ModelSource, Precision, Request};
use serde_json::json;

use crate::answers::{FILES, LOAD};

/// The processor answers a short question within this.
const ANSWER: Duration = Duration::from_secs(180);

/// Puts another verdict in the place of the one that is kept; gives how many there are.
const REPLACE: &str = "
    return caches.open('pagelm.checks').then(async (cache) => {
        const keys = await cache.keys();
        for (const key of keys) await cache.put(key, new Response(arguments[0]));
        return keys.length;
    });";

#[test]
fn a_gpu_that_computes_wrongly_is_noticed_and_the_processor_answers() {
    in_page("wrong-gpu", Gpu::Software, |page| {
        page.ask_engine(&[Request::Break { fault: Fault::Noise }])?;
        page.load_default_model()?;
        let shown = page.shown()?;
        for part in ["The processor computes: ", "computes wrongly with its kernels", "may help."] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        page.ask("What is the capital of France?")?;
        page.see("Paris", ANSWER)?;
        assert_eq!(page.engine_status()?.n_gpu_buffers, 0);
        Ok(())
    });
}

#[test]
fn what_was_found_of_a_gpu_is_kept_in_the_browser() {
    in_page("wrong-gpu-kept", Gpu::Software, |page| {
        page.ask_engine(&[Request::Break { fault: Fault::Noise }])?;
        let note = |precision: Precision| {
            let source = ModelSource::Url { url: format!("{FILES}model.safetensors") };
            let options = LoadOptions { context: Some(128), precision, ..LoadOptions::default() };
            let load = Request::Load { source, options, if_full: IfFull::Replace };
            match page.request(&[load], LOAD)?[0].last() {
                Some(Event::Ready { model, .. }) => Ok(model.device_note.clone().unwrap_or_default()),
                other => Err(format!("the tiny model was not loaded: {other:?}")),
            }
        };
        let found = note(Precision::Auto)?;
        assert!(found.contains("logits are far off"), "{found}");
        let n_kept = page.session().run(REPLACE, json!(["until 9999999999\nwrong serial 0.25\n"]))?;
        assert_eq!(n_kept, 1);
        // Another model for the engine, and the same kernels.
        let found = note(Precision::Exact)?;
        assert!(found.contains("logits are off by 25 %"), "{found}");
        Ok(())
    });
}
