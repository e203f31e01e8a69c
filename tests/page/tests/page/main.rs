//! What a person does with the page, in Chromium, with the real model on Chromium's software device.

mod answers;
mod bad_input;
mod benchmark;
mod chats;
mod checks;
mod conversation;
mod expectations;
mod files;
mod folders;
mod foreign;
mod layout;
mod library;
mod losses;
mod soak;
mod tabs;
