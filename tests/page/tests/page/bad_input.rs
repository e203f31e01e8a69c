//! What does not work gets one clear sentence, and the page stays usable.

use crate::files;
use page_tests::{Gpu, Page, in_page};
use std::time::Duration;

/// An error about a local file comes at once; the machine may be busy.
const AT_ONCE: Duration = Duration::from_secs(60);

const ANSWER: Duration = Duration::from_secs(120);

/// The alert is a sentence that has one of these words, and the page can still be used.
pub(crate) fn explains(page: &Page, words: &[&str]) -> Result<(), String> {
    let alert = page.see_alert(AT_ONCE)?;
    let lower = alert.to_lowercase();
    assert!(words.iter().any(|word| lower.contains(word)), "{alert:?} has none of {words:?}");
    assert!(
        !lower.contains("panicked") && !lower.contains("unreachable"),
        "{alert:?} is no sentence for a person"
    );
    page.type_message("still usable")?;
    assert!(page.message()?.ends_with("still usable"));
    Ok(())
}

#[test]
fn a_truncated_file_chosen_with_the_button() {
    in_page("truncated-chosen", Gpu::Software, |page| {
        // Long enough for the whole header, short of the weights.
        let path = page.write_file("truncated.gguf", &files::first_bytes(8 << 20)?)?;
        page.choose_file(&path)?;
        explains(page, &["truncated", "ends", "short", "incomplete"])?;
        // Usable means: the real model still loads.
        page.load_default_model()
    });
}

#[test]
fn a_truncated_file_dropped_on_the_page() {
    in_page("truncated-dropped", Gpu::Software, |page| {
        // Cut inside the metadata.
        page.drop_file("truncated.gguf", &files::first_bytes(4096)?)?;
        explains(page, &["truncated", "ends", "short", "incomplete"])
    });
}

#[test]
fn a_file_that_is_not_gguf() {
    in_page("not-gguf", Gpu::Software, |page| {
        let path = page.write_file("letter.gguf", b"Dear reader, this is not a model.\n")?;
        page.choose_file(&path)?;
        explains(page, &["gguf"])
    });
}

#[test]
fn a_browser_without_webgpu_answers_by_the_processor() {
    in_page("no-webgpu", Gpu::Missing, |page| {
        page.load_default_model()?;
        let shown = page.shown()?;
        assert!(shown.contains("The processor computes: no WebGPU is offered here"), "{shown}");
        let other = page.open_tab()?;
        other.wait_for_model()?;
        for tab in [page, &other] {
            tab.ask("What is the capital of France?")?;
        }
        [page, &other].into_iter().try_for_each(|tab| tab.see("Paris", ANSWER))?;
        let status = page.engine_status()?;
        assert_eq!((status.n_tabs, status.n_models, status.n_gpu_buffers), (2, 1, 0), "both share one model");
        assert_eq!(page.session().shared_workers()?.len(), 1, "no worker has a GPU, so one is shared");
        Ok(())
    });
}
