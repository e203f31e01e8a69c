//! The page fits a small telephone.

use page_tests::{Gpu, in_page};
use serde_json::json;

#[test]
fn nothing_is_wider_than_360_pixels() {
    in_page("narrow", Gpu::Missing, |page| {
        page.session().set_view(360, 640)?;
        page.open_page()?;
        let script = "
            const wide = [...document.querySelectorAll('body *')].filter(e => e.getBoundingClientRect().right > innerWidth + 0.5
                && getComputedStyle(e).position !== 'fixed').map(e => e.outerHTML.slice(0, 80));
            return [innerWidth, document.documentElement.scrollWidth, wide];";
        let sizes = page.session().run(script, json!([]))?;
        assert_eq!(sizes[0], json!(360));
        assert_eq!(sizes[1], json!(360), "the page scrolls sideways; too wide: {}", sizes[2]);
        Ok(())
    });
}
