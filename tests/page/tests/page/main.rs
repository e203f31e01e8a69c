//! What a person does with the page, in Chromium, with the real model on Chromium's software device, and in Firefox without.

mod access;
mod answers;
mod app;
mod bad_input;
mod benchmark;
mod chats;
mod checks;
mod conversation;
mod expectations;
mod files;
mod firefox;
mod folders;
mod foreign;
mod keeping;
mod laboratory;
mod layout;
mod library;
mod losses;
mod package;
mod shown;
mod soak;
mod structure;
mod tabs;
