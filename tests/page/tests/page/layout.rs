//! The page fits a small telephone.

use crate::folders::{LOAD, fixture};
use page_tests::{Gpu, Page, in_page};
use serde_json::json;

#[test]
fn nothing_is_wider_than_a_narrow_page() {
    in_page("narrow", Gpu::Missing, |page| [360, 490].into_iter().try_for_each(|width| fits(page, width)));
}

fn fits(page: &Page, width: u32) -> Result<(), String> {
    page.session().set_view(width, 640)?;
    page.open_page()?;
    let script = "
        const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5
            && getComputedStyle(e).position !== 'fixed').map(e => e.outerHTML.slice(0, 80));
        return [innerWidth, document.documentElement.scrollWidth, wide];";
    let sizes = page.session().run(script, json!([]))?;
    assert_eq!(sizes[0], json!(width));
    assert_eq!(sizes[1], json!(width), "the page scrolls sideways; too wide: {}", sizes[2]);
    Ok(())
}

#[test]
fn only_the_panel_of_models_scrolls() {
    in_page("panel", Gpu::Software, |page| {
        page.choose_folder(&fixture("gpt2-tiny"))?;
        page.wait_for_button("Model: gpt2-tiny", LOAD)?;
        page.press("Model: gpt2-tiny")?;
        for (width, height) in [(400, 760), (400, 640), (1200, 600)] {
            page.session().set_view(width, height)?;
            let script = "return document.documentElement.scrollHeight";
            let scroll_height = page.session().run(script, json!([]))?;
            assert_eq!(scroll_height, json!(height), "{width} by {height}: the document scrolls");
        }
        Ok(())
    });
}
