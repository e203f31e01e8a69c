//! The focus does not stay in what is hidden: it goes back to the button that showed it.

use leptos::prelude::*;
use wasm_bindgen::JsCast as _;
use web_sys::HtmlElement;

/// Gives the focus to the button once the panel closes, if the focus was in the panel.
pub(super) fn return_focus(open: Signal<bool>, panel: &'static str, button: &'static str) {
    Effect::new(move |was_open: Option<bool>| {
        let is_open = open.get();
        if was_open == Some(true) && !is_open && has_focus(panel) {
            let button = document().get_element_by_id(button);
            if let Some(button) = button.and_then(|button| button.dyn_into::<HtmlElement>().ok()) {
                let _ = button.focus();
            }
        }
        is_open
    });
}

/// Whether it is in the panel, or was until the panel was hidden: then the document itself has it.
fn has_focus(panel: &str) -> bool {
    document().active_element().is_none_or(|element| {
        let within = element.closest(&format!("#{panel}")).ok().flatten();
        within.is_some() || element.tag_name() == "BODY"
    })
}
