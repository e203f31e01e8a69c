//! The built page in a real browser, in the words of a person who uses it. Nothing outlives a test but its evidence.

pub mod browser;
pub mod lines;
pub mod page;
pub mod server;
pub mod webdriver;

pub use browser::{Gpu, Hosting, in_page, in_tabs};
pub use lines::Lines;
pub use page::Page;
pub use server::Mood;
