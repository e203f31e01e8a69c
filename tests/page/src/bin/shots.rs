//! Takes pictures of every view, light and dark, wide and narrow, into a folder: `cargo xtask shots`.

use page_tests::{Gpu, in_page, views};
use std::path::PathBuf;

/// Width and height, and what the pictures are called for it.
const SIZES: [(u32, u32, &str); 2] = [(1280, 800, "wide"), (360, 720, "narrow")];

fn main() {
    let folder = std::env::args_os().nth(1).map_or_else(|| PathBuf::from("shots"), PathBuf::from);
    std::fs::create_dir_all(&folder)
        .unwrap_or_else(|error| panic!("cannot make {}: {error}", folder.display()));
    in_page("shots", Gpu::Missing, |page| {
        views::visit(page, |view| {
            for scheme in ["light", "dark"] {
                page.session().prefer(scheme, true)?;
                for (width, height, size) in SIZES {
                    page.session().set_view(width, height)?;
                    if view == "report" {
                        let end = "document.querySelector('.report').scrollIntoView({ block: 'end' })";
                        page.session().run(end, serde_json::json!([]))?;
                    }
                    let path = folder.join(format!("{view}-{scheme}-{size}.png"));
                    let picture = page.session().picture()?;
                    std::fs::write(&path, &picture)
                        .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
                    println!("{}: {} KB", path.display(), picture.len() / 1000);
                }
            }
            page.session().prefer("light", true)
        })
    });
}
