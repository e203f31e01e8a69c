//! The built page in a real browser, in the words of a person who uses it. Nothing outlives a test but its evidence.

pub mod browser;
pub mod driver;
pub mod lines;
pub mod page;
pub mod server;
pub mod views;
pub mod webdriver;

pub use browser::{
    Gpu, Hosting, in_firefox, in_page, in_page_of, in_page_without_storage, in_tabs, in_two_lives,
    in_watched_page,
};
pub use lines::Lines;
pub use page::Page;
pub use server::Mood;
