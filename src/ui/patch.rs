//! Changes what an element holds into other HTML, touching only what differs: what stays keeps its selection, its scroll
//! place and its focus, and is not laid out again.

use leptos::prelude::document;
use wasm_bindgen::JsCast as _;
use web_sys::{CharacterData, Element, HtmlTemplateElement, Node};

/// Makes `element` hold `html`, which is safe to show.
pub(crate) fn patch(element: &Element, html: &str) {
    let template = document().create_element("template").ok().and_then(|new| new.dyn_into().ok());
    let Some(template): Option<HtmlTemplateElement> = template else { return element.set_inner_html(html) };
    template.set_inner_html(html);
    patch_children(element, &template.content());
}

/// Gives `old` the children of `new`. Nesting is bounded by what made the HTML.
fn patch_children(old: &Node, new: &Node) {
    let (mut old_child, mut new_child) = (old.first_child(), new.first_child());
    loop {
        let (old_next, new_next) = (
            old_child.as_ref().and_then(Node::next_sibling),
            new_child.as_ref().and_then(Node::next_sibling),
        );
        // None of these fails: the nodes are where they were just seen.
        let _ = match (&old_child, &new_child) {
            (Some(before), Some(after)) => patch_node(old, before, after).map(drop),
            (Some(before), None) => old.remove_child(before).map(drop),
            (None, Some(after)) => old.append_child(after).map(drop),
            (None, None) => return,
        };
        (old_child, new_child) = (old_next, new_next);
    }
}

fn patch_node(parent: &Node, before: &Node, after: &Node) -> Result<(), wasm_bindgen::JsValue> {
    if before.is_equal_node(Some(after)) {
        return Ok(());
    }
    if let (Some(before), Some(after)) = (before.dyn_ref::<CharacterData>(), after.dyn_ref::<CharacterData>())
    {
        let (shown, wanted) = (before.data(), after.data());
        match wanted.strip_prefix(&shown) {
            Some(more) => before.append_data(more)?,
            None => before.set_data(&wanted),
        }
        return Ok(());
    }
    let is_same_kind = before.node_type() == Node::ELEMENT_NODE
        && before.clone_node()?.is_equal_node(Some(&after.clone_node()?));
    if is_same_kind {
        patch_children(before, after);
        return Ok(());
    }
    parent.replace_child(after, before).map(drop)
}
