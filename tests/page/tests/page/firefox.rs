//! Firefox, which on Linux has no WebGPU: the processor computes, for all tabs, and all else is as anywhere.

use page_tests::{Page, in_firefox};
use std::time::Duration;

const ANSWER: Duration = Duration::from_secs(120);

#[test]
fn two_tabs_share_one_engine_on_the_processor() {
    in_firefox("firefox-two-tabs", &[], |page| {
        page.load_default_model()?;
        let shown = page.shown()?;
        assert!(shown.contains("The processor computes: this browser offers no WebGPU"), "{shown}");
        let other = page.open_tab()?;
        other.wait_for_model()?;
        let both: [&Page; 2] = [page, &other];
        for tab in both {
            tab.ask("What is the capital of France?")?;
        }
        both.into_iter().try_for_each(|tab| tab.see("Paris", ANSWER))?;
        let status = page.engine_status()?;
        println!("{status:?}");
        Err("look".into())
    });
}
