//! Makes the PNG icons of www/icons from www/icon.svg, drawn by Chromium: `cargo xtask icons`.

use page_tests::{Gpu, in_page};
use serde_json::json;
use std::path::Path;

/// Name, pixels a side, and whether the whole square is filled, the drawing within the circle that every mask leaves.
const ICONS: [(&str, u32, bool); 4] = [
    ("icon-192.png", 192, false),
    ("icon-512.png", 512, false),
    ("icon-maskable-512.png", 512, true),
    ("apple-touch-icon.png", 180, true),
];
/// Draws it alone on nothing. A mask leaves a circle of four fifths: 0.85 of the drawing's size is within.
const DRAW: &str = "
    const [svg, side, fills] = arguments;
    document.documentElement.innerHTML = `<body>${svg}</body>`;
    Object.assign(document.documentElement.style, { background: 'transparent', overflow: 'hidden' });
    Object.assign(document.body.style, { margin: 0, background: 'transparent' });
    const drawing = document.querySelector('svg');
    Object.assign(drawing.style, { display: 'block', width: `${side}px`, height: `${side}px` });
    if (fills) {
        const [ground, ...drawn] = drawing.children;
        ground.removeAttribute('rx');
        const group = document.createElementNS('http://www.w3.org/2000/svg', 'g');
        group.setAttribute('transform', 'translate(2.4 2.4) scale(0.85)');
        group.append(...drawn);
        drawing.append(group);
    }";

fn main() {
    let www = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../www");
    in_page("icons", Gpu::Missing, |page| {
        let svg = std::fs::read_to_string(www.join("icon.svg")).map_err(|error| error.to_string())?;
        page.session().open("about:blank")?;
        let clear = json!({ "color": { "r": 0, "g": 0, "b": 0, "a": 0 } });
        page.session().tool("Emulation.setDefaultBackgroundColorOverride", clear)?;
        for (name, side, fills) in ICONS {
            page.session().set_view(side, side)?;
            page.session().run(DRAW, json!([svg, side, fills]))?;
            let picture = page.session().picture()?;
            let path = www.join("icons").join(name);
            std::fs::write(&path, &picture)
                .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
            println!("{}: {} bytes", path.display(), picture.len());
        }
        Ok(())
    });
}
